//! Connections to one server, each polled inside the request that uses it.
//!
//! No task a connection and no channel of ours: a frame costs one wake. Idle connections lie on
//! a stack, newest on top, and are looked at before use, since vLLM closes them after 5 s.
//! Dropping an [`Exchange`] closes its connection, which is how a client cancels.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;

/// Idle connections kept for reuse.
const MAX_IDLE: usize = 4096;

type Driver = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Only plain HTTP is spoken.
    #[error("the URL must start with http:// and name a host: {0}")]
    Url(Uri),
    /// The name has no address.
    #[error("cannot resolve {host}: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// The name resolved to nothing.
    #[error("{0} has no address")]
    NoAddress(String),
}

/// Why an attempt brought no whole answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// No connection.
    #[error("connect: {0}")]
    Connect(#[from] std::io::Error),
    /// Closed, reset or not HTTP.
    #[error("http: {0}")]
    Http(#[from] hyper::Error),
}

/// One server, and the connections to it.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    authority: Arc<str>,
    path: Arc<str>,
    idle: Arc<Mutex<Vec<Line>>>,
}

/// A connection with its two halves; `open` falls when its driver has ended.
struct Line {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
    open: bool,
}

impl Line {
    async fn connect(address: SocketAddr) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver, open: true })
    }

    fn poll_driver(&mut self, context: &mut Context<'_>) {
        if self.open && Pin::new(&mut self.driver).poll(context).is_ready() {
            self.open = false;
        }
    }

    /// Whether another request may go out on it, as far as can be seen without waiting.
    fn reusable(&mut self) -> bool {
        self.poll_driver(&mut Context::from_waker(Waker::noop()));
        self.open && self.sender.is_ready()
    }
}

impl Client {
    /// Resolves `url` once; a path of its own replaces the chat path.
    pub(super) async fn resolve(url: &Uri) -> Result<Self, TargetError> {
        let authority = url.authority().filter(|_| url.scheme_str() == Some("http"));
        let authority = authority.ok_or_else(|| TargetError::Url(url.clone()))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(80);
        let found = tokio::net::lookup_host((host.as_str(), port))
            .await
            .map_err(|source| TargetError::Resolve { host: host.clone(), source })?
            .next();
        let address = found.ok_or(TargetError::NoAddress(host))?;
        let path = match url.path() {
            "" | "/" => "/v1/chat/completions",
            path => path,
        };
        Ok(Self {
            address,
            authority: authority.as_str().into(),
            path: path.into(),
            idle: Arc::default(),
        })
    }

    /// The start of a request to this server.
    pub(super) fn request(&self) -> http::request::Builder {
        Request::post(&*self.path).header(http::header::HOST, &*self.authority)
    }

    /// The start of a request that only reads.
    pub(super) fn get(&self) -> http::request::Builder {
        Request::get(&*self.path).header(http::header::HOST, &*self.authority)
    }

    /// Sends `request` and waits for the head of its answer. An idle connection that turns out
    /// to be closed is replaced by a fresh one, once.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Exchange, ClientError> {
        if let Some(line) = self.take_idle() {
            match self.on(line, request.clone()).await {
                Err(ClientError::Http(error))
                    if error.is_canceled() || error.is_incomplete_message() => {}
                other => return other,
            }
        }
        self.on(Line::connect(self.address).await?, request).await
    }

    async fn on(
        &self,
        mut line: Line,
        request: Request<Full<Bytes>>,
    ) -> Result<Exchange, ClientError> {
        let mut answer = pin!(line.sender.send_request(request));
        let response: Response<Incoming> = poll_fn(|context| {
            if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            if line.open && Pin::new(&mut line.driver).poll(context).is_ready() {
                line.open = false;
            }
            answer.as_mut().poll(context)
        })
        .await?;
        let (head, body) = response.into_parts();
        Ok(Exchange { head, body, line, idle: self.idle.clone() })
    }

    fn take_idle(&self) -> Option<Line> {
        loop {
            let mut line = self.idle.lock().pop()?;
            if line.reusable() {
                return Some(line);
            }
        }
    }
}

/// An answer whose head has come and whose body is still to be read.
pub(super) struct Exchange {
    /// Status and headers.
    pub(super) head: http::response::Parts,
    body: Incoming,
    line: Line,
    idle: Arc<Mutex<Vec<Line>>>,
}

impl Exchange {
    /// The next bytes of the body, at once as they come; `None` at its end.
    pub(super) async fn data(&mut self) -> Option<Result<Bytes, ClientError>> {
        loop {
            let Self { body, line, .. } = self;
            let mut frame = pin!(body.frame());
            let frame = poll_fn(|context| {
                if let Poll::Ready(frame) = frame.as_mut().poll(context) {
                    return Poll::Ready(frame);
                }
                line.poll_driver(context);
                frame.as_mut().poll(context)
            })
            .await?;
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => return Some(Ok(data)),
                Ok(Err(_trailers)) => {}
                Err(error) => return Some(Err(error.into())),
            }
        }
    }

    /// Keeps the connection for another request, after the body has been read to its end.
    pub(super) fn keep(mut self) {
        if self.line.reusable() {
            let mut idle = self.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push(self.line);
            }
        }
    }
}
