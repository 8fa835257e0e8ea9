//! The server at the end of each path: answers any POST with stamped frames at a fixed pace.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use weir::lifecycle::Clock;

use crate::Shape;

/// Starts it on a thread and runtime of its own.
pub(crate) fn start(clock: Clock, shape: Shape) -> anyhow::Result<SocketAddr> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new().name("origin".to_owned()).spawn(
        move || -> anyhow::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                tell.send(listener.local_addr()?)?;
                let mut lines = JoinSet::new();
                loop {
                    tokio::select! {
                        accepted = listener.accept() => {
                            lines.spawn(serve(accepted?.0, clock, shape));
                        }
                        Some(_) = lines.join_next() => {}
                    }
                }
            })
        },
    )?;
    Ok(told.recv()?)
}

async fn serve(mut stream: TcpStream, clock: Clock, shape: Shape) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some(post) = request(&mut stream, &mut buffer).await? {
        if post {
            frames(&mut stream, clock, shape).await?;
        } else {
            // Health and metrics; it has none of the latter.
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        }
    }
    Ok(())
}

/// Reads one request to its end; whether it was a POST, `None` at the end of the connection.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<bool>> {
    loop {
        if let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            let head =
                String::from_utf8_lossy(buffer.get(..end).unwrap_or_default()).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
                .unwrap_or(0);
            let whole = end + 4 + length;
            while buffer.len() < whole {
                if stream.read_buf(buffer).await? == 0 {
                    return Ok(None);
                }
            }
            buffer.drain(..whole);
            return Ok(Some(head.starts_with("post")));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

async fn frames(stream: &mut TcpStream, clock: Clock, shape: Shape) -> io::Result<()> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut due = clock.elapsed();
    for _ in 0..shape.frames {
        due = due.saturating_add(shape.interval);
        clock.sleep_until(due).await;
        chunk(stream, &frame(clock.elapsed())).await?;
    }
    chunk(stream, "data: [DONE]\n\n").await?;
    stream.write_all(b"0\r\n\r\n").await
}

/// A chat frame as vLLM sends it, its text being the time in nanoseconds.
fn frame(now: Duration) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"tiny\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n",
        now.as_nanos()
    )
}

async fn chunk(stream: &mut TcpStream, data: &str) -> io::Result<()> {
    stream.write_all(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes()).await
}
