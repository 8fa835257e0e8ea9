//! `weir serve` as a process of its own before the origin.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

/// The running gateway; it ends when this is dropped.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    process: Child,
    _config: tempfile::TempDir,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Starts it and waits until it accepts.
pub(crate) fn start(origin: SocketAddr) -> anyhow::Result<Gateway> {
    let (address, admin) = (free()?, free()?);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("weir.toml");
    write!(
        std::fs::File::create(&path)?,
        "[server]\nlisten = \"{address}\"\nadmin = \"{admin}\"\n\n\
         [[pools]]\nmodel = \"tiny\"\nreplicas = [\"http://{origin}\"]\n\
         slo = {{ ttft = \"1s\", tpot = \"50ms\" }}\n\n\
         [pools.limits]\nin_flight = 4096\nqueue_wait = \"400ms\"\n\n\
         [log]\nfilter = \"error\"\naccess = false\n"
    )?;
    let process = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("serve")
        .arg("--config")
        .arg(&path)
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start weir serve")?;
    let mut gateway = Gateway { address, process, _config: folder };
    for _ in 0..100 {
        if TcpStream::connect(address).is_ok() {
            return Ok(gateway);
        }
        if let Some(status) = gateway.process.try_wait()? {
            anyhow::bail!("weir serve ended: {status}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("weir serve does not accept on {address}")
}

/// A port that was free a moment ago.
fn free() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
