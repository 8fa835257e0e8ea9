//! Reads one stream and takes the age of each frame as it comes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weir::lifecycle::Clock;

const MARK: &[u8] = b"\"content\":\"";
const BODY: &str = r#"{"model":"tiny","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hello"}]}"#;

/// The delays of all frames of one stream, seconds.
pub(crate) async fn read(clock: Clock, address: SocketAddr) -> anyhow::Result<Vec<f64>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut delays = Vec::new();
    let mut buffer = Vec::with_capacity(16 * 1024);
    loop {
        let read = stream.read_buf(&mut buffer).await?;
        let now = clock.elapsed();
        let used = take(&buffer, now, &mut delays)?;
        buffer.drain(..used);
        if memmem::find(&buffer, b"[DONE]").is_some() {
            return Ok(delays);
        }
        anyhow::ensure!(read > 0, "the stream ended early: {}", String::from_utf8_lossy(&buffer));
    }
}

/// Takes the whole stamps out of `buffer`; how many bytes have been dealt with.
fn take(buffer: &[u8], now: Duration, delays: &mut Vec<f64>) -> anyhow::Result<usize> {
    let mut used = 0;
    while let Some(at) = memmem::find(buffer.get(used..).unwrap_or_default(), MARK) {
        let from = used + at + MARK.len();
        let rest = buffer.get(from..).unwrap_or_default();
        let Some(length) = memchr::memchr(b'"', rest) else { break };
        let stamp = std::str::from_utf8(rest.get(..length).unwrap_or_default())?;
        let sent = Duration::from_nanos(stamp.parse().context("a stamp")?);
        delays.push(now.saturating_sub(sent).as_secs_f64());
        used = from + length;
    }
    Ok(used)
}
