//! A replica by hand: a listener whose connections a test drives byte by byte.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Exchange, Replica, Replicas, SendError};
use crate::lifecycle::Clock;

/// Longer than any test may take.
pub(super) const LONG: Duration = Duration::from_secs(20);

pub(super) struct Peer {
    listener: TcpListener,
    pub(super) replicas: Arc<Replicas>,
    pub(super) replica: Arc<Replica>,
}

impl Peer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let replicas = Arc::new(Replicas::new(Clock::start()));
        let replica = replicas.intern(&address);
        Self { listener, replicas, replica }
    }

    pub(super) async fn accept(&self) -> Line {
        Line { socket: self.listener.accept().await.unwrap().0 }
    }

    /// Sends a request, and has the other side read it and answer with `answer`.
    pub(super) async fn ask(&self, line: &mut Line, answer: &str) -> Result<Exchange, SendError> {
        let (exchange, request) =
            tokio::join!(self.replica.send(post("{}"), LONG), line.serve(answer));
        assert!(request.ends_with("{}"), "{request}");
        exchange
    }

    /// The same over a connection that is opened for it.
    pub(super) async fn first(&self, answer: &str) -> (Line, Result<Exchange, SendError>) {
        let serving = async {
            let mut line = self.accept().await;
            line.serve(answer).await;
            line
        };
        let (exchange, line) = tokio::join!(self.replica.send(post("{}"), LONG), serving);
        (line, exchange)
    }
}

/// The replica's end of one connection.
pub(super) struct Line {
    pub(super) socket: TcpStream,
}

impl Line {
    /// Reads one whole request, as text.
    pub(super) async fn request(&mut self) -> String {
        self.request_if_any().await.unwrap()
    }

    /// The same, or `None` where the gateway has closed the connection.
    pub(super) async fn request_if_any(&mut self) -> Option<String> {
        let mut text = Vec::new();
        loop {
            text.push(self.socket.read_u8().await.ok()?);
            if text.ends_with(b"\r\n\r\n") {
                break;
            }
        }
        let head = String::from_utf8(text).unwrap();
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned)
            })
            .map_or(0, |length| length.trim().parse().unwrap());
        let mut body = vec![0; length];
        self.socket.read_exact(&mut body).await.unwrap();
        Some(head + &String::from_utf8(body).unwrap())
    }

    pub(super) async fn write(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).await.unwrap();
    }

    pub(super) async fn try_write(&mut self, text: &str) -> std::io::Result<()> {
        self.socket.write_all(text.as_bytes()).await
    }

    pub(super) async fn serve(&mut self, answer: &str) -> String {
        let request = self.request().await;
        self.write(answer).await;
        request
    }

    /// Resets the connection rather than closing it.
    pub(super) fn reset(self) {
        self.socket.set_zero_linger().unwrap();
    }

    /// Resolves when the gateway has closed its end.
    pub(super) async fn closed(&mut self) {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest).await {
            Ok(_) => assert!(rest.is_empty(), "{rest:?}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

pub(super) fn post(body: &'static str) -> Request<Bytes> {
    Request::post("/v1/chat/completions").body(Bytes::from_static(body.as_bytes())).unwrap()
}

pub(super) async fn text(exchange: Exchange) -> String {
    let whole = exchange.body.collect().await.unwrap().to_bytes();
    String::from_utf8(whole.to_vec()).unwrap()
}
