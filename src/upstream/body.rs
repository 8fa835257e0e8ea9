//! The answer's body, straight from the socket: polling it is what does the IO.
//!
//! No task and no queue of ours stands between the replica's socket and the caller, so a caller
//! that does not poll stops the replica's sending by TCP alone, and one that drops the body
//! closes the connection. A body that ends cleanly hands its connection back for reuse.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::connections::Connections;
use super::error::UpstreamError;
use super::link::Link;

/// A replica's answer, after its head.
///
/// The end is clean only where HTTP says so: the length that was announced, or the last chunk.
/// Whatever ends earlier is an [`UpstreamError`]. (An answer of neither kind ends with its
/// connection; whether it is whole, only its dialect can tell.)
pub struct UpstreamBody {
    incoming: Incoming,
    /// `None` once it was handed back, or has ended.
    link: Option<Box<Link>>,
    home: Arc<Connections>,
    over: bool,
}

impl UpstreamBody {
    pub(super) fn new(incoming: Incoming, link: Box<Link>, home: Arc<Connections>) -> Self {
        let mut body = Self { incoming, link: Some(link), home, over: false };
        if body.incoming.is_end_stream() {
            body.hand_back();
        }
        body
    }

    /// Lets go of the connection after a clean end: to the idle ones where it can carry more.
    fn hand_back(&mut self) {
        self.over = true;
        if let Some(link) = self.link.take() {
            self.home.keep(link);
        }
    }

    fn fail(&mut self, error: UpstreamError) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        self.over = true;
        self.link = None;
        Poll::Ready(Some(Err(error)))
    }

    /// The body's stream has ended without an error of its own: does the connection agree?
    fn end(&mut self) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let broken = self.link.as_ref().and_then(|link| link.broken_by()).map(UpstreamError::sort);
        if let Some(error) = broken {
            return self.fail(error);
        }
        if self.incoming.size_hint().exact().is_some_and(|missing| missing > 0) {
            return self.fail(UpstreamError::Truncated);
        }
        self.hand_back();
        Poll::Ready(None)
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let this = self.get_mut();
        let mut driven = false;
        loop {
            if this.over {
                return Poll::Ready(None);
            }
            match Pin::new(&mut this.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if this.incoming.is_end_stream() {
                        this.hand_back();
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Poll::Ready(Some(Err(error))) => return this.fail(UpstreamError::sort(&error)),
                Poll::Ready(None) => return this.end(),
                Poll::Pending => {}
            }
            // Nothing is waiting: do the IO, then look once more.
            let ended = this.link.as_mut().is_none_or(|link| link.poll(cx).is_ready());
            match (driven, ended) {
                (false, _) => driven = true,
                (true, false) => return Poll::Pending,
                (true, true) => return this.fail(UpstreamError::Reset),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
