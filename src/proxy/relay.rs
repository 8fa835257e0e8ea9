//! The answer's body: the replica's bytes, straight through.
//!
//! hyper polls this body, and this body polls the replica's connection, in one task: each read
//! is forwarded at once, as the same bytes. A scanner looks on, a timer notes, and the permit
//! rides along, so the slot is free exactly when the stream ends, fails or is dropped.
//!
//! A stream that its client does not read is read ahead by the [`Tender`], into a buffer of a
//! fixed size, copied close together: a slice of a socket's read buffer would keep the whole of
//! that buffer alive. The two never wait for each other: the tender passes by a stream that is
//! being polled.
//!
//! A stream that breaks gets an error frame in its own dialect, since SDKs take a clean end for
//! success; only a client that cannot even be told that is cut off.
//!
//! [`Tender`]: super::tender::Tender

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::domain::{Reason, Timestamp};

use super::stream::Stream;
use super::tender::{TEND_EVERY, Tend, Tender};

/// Most bytes handed over at once from the read-ahead.
const PIECE: usize = 16 * 1024;

/// Why an answer is cut off rather than ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the answer was cut off: {}", .0.as_str())]
pub struct CutOff(pub(super) Reason);

/// The body of every answer.
pub struct RelayBody(Kind);

enum Kind {
    /// Known whole.
    Whole(Option<Bytes>),
    /// A replica's.
    Live(Live),
}

/// Holds the stream for hyper; dropped when hyper is done with it or the client is gone.
struct Live {
    shared: Arc<Shared>,
    tender: Arc<Tender>,
    key: u64,
}

/// What hyper's side and the tender share. Locked by hyper's task for the length of a poll, by
/// the tender only when nobody else has it.
struct Shared(Mutex<Watched>);

struct Watched {
    stream: Stream,
    /// hyper's task, to be woken when the tender has read something.
    waker: Option<Waker>,
    /// hyper's last poll.
    polled: Timestamp,
}

impl RelayBody {
    /// An answer that is known whole.
    pub fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes)))
    }

    /// An answer that is still coming.
    pub(super) fn live(stream: Stream, tender: Arc<Tender>) -> Self {
        let polled = stream.now();
        let shared = Arc::new(Shared(Mutex::new(Watched { stream, waker: None, polled })));
        let key = tender.attach(Arc::clone(&shared) as Arc<dyn Tend>);
        Self(Kind::Live(Live { shared, tender, key }))
    }
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Live(live) => live.shared.0.lock().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Live(live) => live.shared.0.lock().stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Live(_) => SizeHint::default(),
        }
    }
}

impl Watched {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let now = self.stream.now();
        self.polled = now;
        loop {
            if let Some(piece) = self.stream.take_ahead(PIECE) {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if let Some(over) = self.stream.over() {
                return Poll::Ready(over.err().map(Err));
            }
            match self.stream.poll_read(cx, now) {
                Poll::Ready(piece) if piece.is_empty() => {}
                Poll::Ready(piece) => {
                    return Poll::Ready(Some(Ok(Frame::data(self.stream.hand_over(piece)))));
                }
                Poll::Pending => {
                    if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                        self.waker = Some(cx.waker().clone());
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

impl Tend for Shared {
    fn tend(&self, now: Timestamp) {
        let Some(mut watched) = self.0.try_lock() else { return };
        if watched.stream.is_over() {
            return;
        }
        let mut news = false;
        // hyper has not asked for a while: its client is slow, or the replica silent. Reading
        // with hyper's own waker leaves it woken by the next read in either case.
        if now.saturating_since(watched.polled) >= TEND_EVERY {
            let waker = watched.waker.clone().unwrap_or_else(|| Waker::noop().clone());
            news = watched.stream.read_ahead(&mut Context::from_waker(&waker), now);
        }
        news |= watched.stream.keep_time(now);
        if news {
            watched.wake();
        }
    }

    fn cut(&self, now: Timestamp, reason: Reason) {
        let mut watched = self.0.lock();
        watched.stream.break_off(now, reason);
        watched.wake();
    }

    fn ahead(&self) -> usize {
        self.0.lock().stream.ahead()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.tender.detach(self.key);
        self.shared.0.lock().stream.dropped();
    }
}
