//! Clients of HTTP/1.1 and h2, plain and over TLS, that report each read.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{FOREVER, Gateway};

/// Protocol and encryption of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    H1,
    H2,
    H1Tls,
    H2Tls,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::H1, Self::H2, Self::H1Tls, Self::H2Tls];

    /// Whether it is encrypted.
    pub(crate) fn tls(self) -> bool {
        matches!(self, Self::H1Tls | Self::H2Tls)
    }

    fn h2(self) -> bool {
        matches!(self, Self::H2 | Self::H2Tls)
    }
}

/// One connection to the gateway; dropping it closes it.
pub(crate) struct Client {
    sender: Sender,
    connection: tokio::task::JoinHandle<()>,
}

enum Sender {
    H1(http1::SendRequest<Full<Bytes>>),
    H2(http2::SendRequest<Full<Bytes>>),
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Client {
    /// Connects.
    pub(crate) async fn connect(gateway: &Gateway, kind: Kind) -> Self {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        if !kind.tls() {
            return Self::over(stream, kind.h2()).await;
        }
        let mut config = rustls::ClientConfig::builder()
            .with_root_certificates(gateway.roots())
            .with_no_client_auth();
        let word: &[u8] = if kind.h2() { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![word.to_vec()];
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").unwrap();
        Self::over(connector.connect(name, stream).await.unwrap(), kind.h2()).await
    }

    async fn over<S>(stream: S, h2: bool) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        if h2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            let connection = tokio::spawn(async move { drop(connection.await) });
            Self { sender: Sender::H2(sender), connection }
        } else {
            let (sender, connection) = http1::handshake(io).await.unwrap();
            let connection = tokio::spawn(async move { drop(connection.await) });
            Self { sender: Sender::H1(sender), connection }
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.try_send(request).await.unwrap()
    }

    /// The same, where the connection may fail.
    pub(crate) async fn try_send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        let sent = async {
            match &mut self.sender {
                Sender::H1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::H2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        tokio::time::timeout(FOREVER, sent).await.expect("an answer")
    }

    /// Posts JSON.
    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Response<Incoming> {
        self.send(post(path, body)).await
    }

    /// Posts JSON and reads the whole answer.
    pub(crate) async fn whole(
        &mut self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, HeaderMap, Bytes) {
        let (head, body) = self.post(path, body).await.into_parts();
        let body = tokio::time::timeout(FOREVER, body.collect()).await.expect("an end").unwrap();
        (head.status, head.headers, body.to_bytes())
    }
}

/// A POST of JSON.
pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("http://localhost{path}"))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

/// A streamed answer, read by reading.
pub(crate) struct Stream {
    body: Incoming,
    /// Everything read so far.
    pub(crate) text: Vec<u8>,
}

impl Stream {
    /// Takes over an answer's body.
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        Self { body: response.into_body(), text: Vec::new() }
    }

    /// Reads until that many bytes have come in all, or fails.
    pub(crate) async fn until(&mut self, bytes: usize) {
        while self.text.len() < bytes {
            assert!(self.more().await.unwrap(), "the stream ended early");
        }
    }

    /// Reads once more: `false` at a clean end.
    pub(crate) async fn more(&mut self) -> hyper::Result<bool> {
        let frame = tokio::time::timeout(FOREVER, self.body.frame()).await.expect("a frame");
        match frame {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.text.extend_from_slice(&data);
                }
                Ok(true)
            }
            Some(Err(error)) => Err(error),
            None => Ok(false),
        }
    }

    /// Reads to the clean end.
    pub(crate) async fn end(mut self) -> String {
        while self.more().await.expect("a clean end") {}
        String::from_utf8(self.text).unwrap()
    }
}
