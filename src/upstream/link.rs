//! One HTTP/1.1 connection, driven by whoever waits for something from it.
//!
//! hyper splits a connection in a handle and a future that does its IO, and expects the future
//! to be spawned. Here it is polled inline instead: by the sender until the head is there, then
//! by the body. That saves a task and a wake-up across threads for each frame of each stream,
//! and it makes cancelling exact: whoever drops the link closes the socket, at that moment, so
//! that the engine aborts.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use crate::config::ReplicaAddress;
use crate::domain::Failure;

use super::error::SendError;
use super::wire::Wire;

/// Bytes of an answer's head, and of a body read ahead, at most.
const MAX_BUFFER: usize = 64 * 1024;
/// Header fields of an answer, at most.
const MAX_HEADERS: usize = 100;

/// Why an exchange has no answer.
pub(super) enum NoAnswer {
    /// The connection, used before, was found closed before a byte of the request was written;
    /// here is the request again.
    Unsent(Box<Request<Full<Bytes>>>),
    /// The attempt failed.
    Failed(SendError),
}

/// A connection that can carry one request at a time.
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<Wire>, Full<Bytes>>,
    read: Arc<AtomicU64>,
    /// Answers carried so far.
    carried: u64,
    /// The connection's future has ended and must not be polled again; with its error, if any.
    ended: Option<Result<(), hyper::Error>>,
}

impl Link {
    /// Connects to a replica.
    pub(super) async fn open(
        address: &ReplicaAddress,
        timeout: Duration,
    ) -> Result<Box<Self>, SendError> {
        let wire = Wire::open(address, timeout).await?;
        let read = wire.read_count();
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_BUFFER)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(|error| SendError::new(Failure::Protocol, error.to_string()))?;
        Ok(Box::new(Self { sender, connection, read, carried: 0, ended: None }))
    }

    /// Does what IO can be done now. `Ready` once the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ended.is_none() {
            match Pin::new(&mut self.connection).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(end) => self.ended = Some(end),
            }
        }
        Poll::Ready(())
    }

    /// What broke the connection, once it has ended badly.
    pub(super) fn broken_by(&self) -> Option<&hyper::Error> {
        self.ended.as_ref().and_then(|end| end.as_ref().err())
    }

    /// Whether a request may be sent: looks for a close that has already arrived. Nobody is
    /// woken for an idle connection, and a task that used it before is let go.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.poll(&mut nobody).is_pending() && self.sender.is_ready()
    }

    /// Sends one request and waits for the head of its answer.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let reused = self.carried > 0;
        let before = self.read.load(Ordering::Relaxed);
        let mut answer = pin!(self.sender.try_send_request(request));
        let outcome = poll_fn(|cx| {
            let ended = self.poll(cx).is_ready();
            match answer.as_mut().poll(cx) {
                Poll::Pending if ended => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            }
        })
        .await;
        let heard = self.read.load(Ordering::Relaxed) > before;
        let failed = |error: &hyper::Error| NoAnswer::Failed(SendError::sort(error, reused, heard));
        match outcome {
            Some(Ok(answer)) => {
                self.carried += 1;
                Ok(answer)
            }
            Some(Err(mut error)) => Err(match error.take_message() {
                Some(request) if reused => NoAnswer::Unsent(Box::new(request)),
                _ => failed(error.error()),
            }),
            None => Err(self.broken_by().map_or_else(
                || {
                    let crossed = reused && !heard;
                    let failure = if crossed { Failure::IdleClosed } else { Failure::Reset };
                    NoAnswer::Failed(SendError::new(failure, "closed without an answer"))
                },
                failed,
            )),
        }
    }
}
