//! The bare copy: what any relay costs that touches each byte once and looks at none.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Starts it before `origin`, on a thread and runtime of its own.
pub(crate) fn start(origin: SocketAddr) -> anyhow::Result<SocketAddr> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new().name("splice".to_owned()).spawn(
        move || -> anyhow::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                tell.send(listener.local_addr()?)?;
                let mut lines = JoinSet::new();
                loop {
                    tokio::select! {
                        accepted = listener.accept() => {
                            lines.spawn(copy(accepted?.0, origin));
                        }
                        Some(_) = lines.join_next() => {}
                    }
                }
            })
        },
    )?;
    Ok(told.recv()?)
}

async fn copy(mut client: TcpStream, origin: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(origin).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
