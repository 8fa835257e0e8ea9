//! The connections to one replica for one purpose: opened on demand, kept while young.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;

use crate::config::ReplicaAddress;
use crate::domain::Failure;
use crate::lifecycle::Clock;

use super::body::UpstreamBody;
use super::error::SendError;
use super::idle::IdleStack;
use super::link::{Link, NoAnswer};

/// Longest idle time where nothing else is configured. vLLM's server (uvicorn) closes a
/// connection that was idle for 5 s.
const IDLE_TIME: Duration = Duration::from_millis(4_500);

/// An answer: its head, and a body that is read from the socket as it is polled.
pub struct Exchange {
    /// Status, version and header fields, as the replica sent them.
    pub head: Parts,
    /// What follows.
    pub body: UpstreamBody,
}

/// Shared by all connections of the process.
pub(super) struct Rules {
    pub(super) clock: Clock,
    idle_nanos: AtomicU64,
}

impl Rules {
    pub(super) fn new(clock: Clock) -> Self {
        let rules = Self { clock, idle_nanos: AtomicU64::new(0) };
        rules.set_idle_time(IDLE_TIME);
        rules
    }

    pub(super) fn set_idle_time(&self, longest: Duration) {
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        self.idle_nanos.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn idle_time(&self) -> Duration {
        Duration::from_nanos(self.idle_nanos.load(Ordering::Relaxed))
    }
}

/// How connections to a replica came about, since the process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionCounts {
    /// Opened anew.
    pub opened: u64,
    /// Taken from the idle ones.
    pub reused: u64,
    /// Idle at this moment.
    pub idle: usize,
}

/// Opens, keeps and counts connections to one address.
pub(super) struct Connections {
    address: ReplicaAddress,
    host: HeaderValue,
    rules: Arc<Rules>,
    idle: IdleStack,
    opened: AtomicU64,
    reused: AtomicU64,
}

impl Connections {
    pub(super) fn new(address: ReplicaAddress, rules: Arc<Rules>) -> Self {
        // A parsed authority is always a legal header value; an empty one would be refused by
        // the replica and not by a panic here.
        let host = HeaderValue::from_str(address.authority())
            .unwrap_or_else(|_| HeaderValue::from_static(""));
        let (opened, reused) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { address, host, rules, idle: IdleStack::default(), opened, reused }
    }

    /// Sends one request and waits for the head of its answer. Dropping the future closes the
    /// connection that it used.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: Request<Bytes>,
        connect_timeout: Duration,
    ) -> Result<Exchange, SendError> {
        let mut request = Box::new(self.prepare(request));
        loop {
            let mut link = self.checkout(connect_timeout).await?;
            let answer = match link.exchange(*request).await {
                Ok(answer) => answer,
                Err(NoAnswer::Unsent(again)) => {
                    request = again;
                    continue;
                }
                Err(NoAnswer::Failed(error)) => return Err(error),
            };
            let (head, incoming) = answer.into_parts();
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(SendError::new(Failure::Protocol, "switched protocols unasked"));
            }
            let body = UpstreamBody::new(incoming, link, Arc::clone(self));
            return Ok(Exchange { head, body });
        }
    }

    /// Takes a connection back. It is kept only if it can carry another request.
    pub(super) fn keep(&self, mut link: Box<Link>) {
        if link.is_usable() {
            self.idle.push(link, self.rules.clock.elapsed());
        }
    }

    /// Closes what has been idle for too long.
    pub(super) fn reap(&self) {
        self.idle.reap(self.rules.clock.elapsed(), self.rules.idle_time());
    }

    /// Closes all idle ones.
    pub(super) fn clear(&self) {
        self.idle.clear();
    }

    pub(super) fn counts(&self) -> ConnectionCounts {
        ConnectionCounts {
            opened: self.opened.load(Ordering::Relaxed),
            reused: self.reused.load(Ordering::Relaxed),
            idle: self.idle.len(),
        }
    }

    async fn checkout(&self, connect_timeout: Duration) -> Result<Box<Link>, SendError> {
        if let Some(link) = self.idle.pop(self.rules.clock.elapsed(), self.rules.idle_time()) {
            self.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(link);
        }
        let link = Link::open(&self.address, connect_timeout).await?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(link)
    }

    /// Origin-form, our own framing, the replica's own name. All other fields stay.
    fn prepare(&self, request: Request<Bytes>) -> Request<Full<Bytes>> {
        let (mut head, body) = request.into_parts();
        head.version = http::Version::HTTP_11;
        if head.uri.authority().is_some() {
            let path = head.uri.path_and_query().cloned();
            head.uri = path.unwrap_or_else(|| PathAndQuery::from_static("/")).into();
        } else if head.uri.path().is_empty() {
            head.uri = Uri::from_static("/");
        }
        head.headers.remove(header::CONTENT_LENGTH);
        head.headers.remove(header::TRANSFER_ENCODING);
        head.headers.insert(header::HOST, self.host.clone());
        Request::from_parts(head, Full::new(body))
    }
}
