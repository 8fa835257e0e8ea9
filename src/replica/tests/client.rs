//! A client that shows every byte: how an answer ends is what half of the tests are about.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::replica::{Options, Replica, RunningReplica};
use crate::sim::EngineParams;

/// A replica whose steps are over in no time.
pub(super) fn quick() -> Options {
    Options { speed: 1000.0, record: true, ..Options::default() }
}

/// One whose engine has these bounds.
pub(super) fn sized(max_num_seqs: u32, num_gpu_blocks: u32) -> Options {
    let engine = EngineParams { max_num_seqs, num_gpu_blocks, ..EngineParams::default() };
    Options { engine, ..quick() }
}

pub(super) async fn start(options: Options) -> RunningReplica {
    Replica::start(options).await.unwrap()
}

/// How the connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// The answer was whole.
    Whole,
    /// The connection closed (FIN) in the middle of it.
    Fin,
    /// It was reset.
    Reset,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
    pub(super) ended: Ended,
}

/// A connection with its request sent.
pub(super) struct Asked {
    stream: TcpStream,
    got: Vec<u8>,
}

impl Asked {
    /// Sends a request on a fresh connection.
    pub(super) async fn send(
        replica: &RunningReplica,
        method: &str,
        path: &str,
        body: &str,
    ) -> Self {
        let mut stream = TcpStream::connect(replica.address()).await.unwrap();
        stream.write_all(request(method, path, body, "").as_bytes()).await.unwrap();
        Self { stream, got: Vec::new() }
    }

    /// Reads until the body holds `text`.
    pub(super) async fn until(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.got).contains(text) {
            assert!(self.more().await.unwrap() > 0, "ended before {text}");
        }
    }

    /// What has come so far.
    pub(super) fn got(&self) -> String {
        String::from_utf8_lossy(&self.got).into_owned()
    }

    async fn more(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.got).await
    }

    /// Reads to the end of the answer, or of the connection.
    pub(super) async fn rest(mut self) -> Answer {
        let ended = loop {
            if whole(&self.got).is_some() {
                break Ended::Whole;
            }
            match self.more().await {
                Ok(0) => break Ended::Fin,
                Ok(_) => {}
                Err(_) => break Ended::Reset,
            }
        };
        let text = String::from_utf8_lossy(&self.got).into_owned();
        let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = if head.contains("transfer-encoding: chunked") {
            unchunked(rest.as_bytes()).0
        } else {
            rest.to_owned()
        };
        Answer { status, head: head.to_owned(), body, ended }
    }

    /// Waits for the connection to be closed.
    pub(super) async fn closed(mut self) {
        while self.more().await.is_ok_and(|read| read > 0) {}
    }
}

pub(super) fn request(method: &str, path: &str, body: &str, headers: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(super) async fn get(replica: &RunningReplica, path: &str) -> Answer {
    Asked::send(replica, "GET", path, "").await.rest().await
}

pub(super) async fn post(replica: &RunningReplica, path: &str, body: &str) -> Answer {
    Asked::send(replica, "POST", path, body).await.rest().await
}

/// A chat request for so many tokens, with more fields before its end.
pub(super) fn chat(tokens: u32, more: &str) -> String {
    format!(
        "{{\"model\":\"tiny\",\"max_tokens\":{tokens},\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]{more}}}"
    )
}

/// The answer, where it is whole.
fn whole(got: &[u8]) -> Option<()> {
    let text = String::from_utf8_lossy(got);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let at = got.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let body = &got[at..];
    if head.contains("transfer-encoding: chunked") {
        return unchunked(body).1.then_some(());
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    (body.len() >= length.parse::<usize>().ok()?).then_some(())
}

/// The text in the chunks, and whether the last one is there.
fn unchunked(mut body: &[u8]) -> (String, bool) {
    let mut out = Vec::new();
    while let Some(line) = body.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&body[..line]).ok();
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) else { break };
        if size == 0 {
            return (String::from_utf8_lossy(&out).into_owned(), true);
        }
        let Some(chunk) = body.get(line + 2..line + 2 + size) else { break };
        out.extend_from_slice(chunk);
        body = body.get(line + 4 + size..).unwrap_or_default();
    }
    (String::from_utf8_lossy(&out).into_owned(), false)
}
