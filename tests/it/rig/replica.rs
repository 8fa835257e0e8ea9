//! A replica written by hand on a bare socket, so that a test says what is sent, and when, to
//! the byte.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Request line and headers.
    pub(crate) head: String,
    /// Body.
    pub(crate) body: Vec<u8>,
}

impl Seen {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON came to the replica")
    }
}

type Done = Pin<Box<dyn Future<Output = Option<Wire>> + Send>>;
/// What a replica does with a request. Gives the wire back to take another on it.
pub(crate) type Script = Arc<dyn Fn(Seen, Wire) -> Done + Send + Sync>;

/// Makes a script of an async closure.
pub(crate) fn script<F, D>(f: F) -> Script
where
    F: Fn(Seen, Wire) -> D + Send + Sync + 'static,
    D: Future<Output = Option<Wire>> + Send + 'static,
{
    Arc::new(move |seen, wire| Box::pin(f(seen, wire)))
}

/// A replica.
pub(crate) struct Replica {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    script: Arc<Mutex<Script>>,
}

impl Replica {
    /// Starts one on a free port.
    pub(crate) async fn start(first: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Mutex::new(first));
        let (all, next) = (Arc::clone(&seen), Arc::clone(&script));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (all, next) = (Arc::clone(&all), Arc::clone(&next));
                tokio::spawn(async move {
                    let mut wire = Some(Wire { stream, buffer: Vec::new() });
                    while let Some(mut open) = wire.take() {
                        let Some(seen) = open.request().await else { return };
                        all.lock().push(seen.clone());
                        let script = Arc::clone(&*next.lock());
                        wire = script(seen, open).await;
                    }
                });
            }
        });
        Self { address, seen, script }
    }

    /// From the next request on it does this.
    pub(crate) fn now(&self, next: Script) {
        *self.script.lock() = next;
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }
}

/// One connection, as the replica holds it.
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    async fn request(&mut self) -> Option<Seen> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.fill().await?;
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let mut seen = Seen { head, body: Vec::new() };
        assert!(seen.header("transfer-encoding").is_none(), "bodies go upstream with a length");
        let length = seen.header("content-length").map_or(0, |l| l.parse().unwrap());
        while self.buffer.len() < length {
            self.fill().await?;
        }
        seen.body = self.buffer.drain(..length).collect();
        Some(seen)
    }

    async fn fill(&mut self) -> Option<()> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(()),
        }
    }

    /// Sends bytes as they are. `false` when the gateway has gone.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// The head of a stream, as vLLM sends it.
    pub(crate) async fn stream_head(&mut self) {
        self.raw(
            b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; \
              charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .await;
    }

    /// One chunk of a stream.
    pub(crate) async fn chunk(&mut self, bytes: &[u8]) -> bool {
        let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
        self.raw(&out).await
    }

    /// The end of a stream.
    pub(crate) async fn end(mut self) -> Option<Self> {
        self.raw(b"0\r\n\r\n").await.then_some(self)
    }

    /// A whole answer.
    pub(crate) async fn whole(mut self, status: &str, body: &[u8]) -> Option<Self> {
        let mut out = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        out.extend_from_slice(body);
        self.raw(&out).await.then_some(self)
    }

    /// Closes with a reset.
    pub(crate) fn reset(self) -> Option<Self> {
        self.stream.set_zero_linger().unwrap();
        None
    }

    /// Waits until the gateway has closed its end.
    pub(crate) async fn closed(&mut self) {
        while self.fill().await.is_some() {}
    }

    /// Never answers, and waits for the other end to close.
    pub(crate) async fn hang(mut self) -> Option<Self> {
        let _late = tokio::time::timeout(Duration::from_mins(1), self.closed()).await;
        None
    }
}
