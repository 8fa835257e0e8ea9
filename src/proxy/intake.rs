//! A request's body, read whole within its limits, before anything is decided on it.
//!
//! Three bounds: bytes of one body, time for one body, and bytes of all bodies held together,
//! so that neither one large, nor many slow, nor a flood of small ones can fill the memory. A
//! body that is refused is read on for a moment and thrown away: closing on a client that still
//! sends would reset the connection, and it would see the reset instead of the answer.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

/// Bytes of a refused body that are read and thrown away, at most.
const DISCARD_BYTES: u64 = 1024 * 1024;
/// Time spent on that, at most.
const DISCARD_TIME: Duration = Duration::from_secs(1);
/// The time over which a body's rate is taken.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// Room made at once for an announced length; beyond it the buffer grows with what comes.
const FIRST_ROOM: u64 = 64 * 1024;

/// The bounds of one body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BodyLimits {
    /// Most bytes.
    pub(super) bytes: u64,
    /// Longest time from the head to the last byte.
    pub(super) time: Duration,
    /// Slowest rate, bytes a second, over any [`RATE_WINDOW`].
    pub(super) rate: u64,
}

/// Why there is no body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum IntakeError {
    #[error("the request body is larger than the limit of {0} bytes")]
    TooLarge(u64),
    #[error("the request body did not arrive in time")]
    TooSlow,
    #[error("the gateway holds as many bytes of request bodies as it may")]
    NoMemory,
    #[error("the request body is not framed as HTTP requires")]
    Broken,
    #[error("the client closed the connection")]
    Gone,
}

/// Bytes of all bodies held now, against one bound. Shared by every request of the process.
#[derive(Debug)]
pub(super) struct BodyBudget {
    held: AtomicU64,
    limit: AtomicU64,
}

impl BodyBudget {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { held: AtomicU64::new(0), limit: AtomicU64::new(limit) })
    }

    /// A reload may move the bound; what is held stays held.
    pub(super) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes held now.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.limit.load(Ordering::Relaxed);
        if !fits {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

/// A share of the [`BodyBudget`], given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<BodyBudget>,
    bytes: u64,
}

impl Share {
    fn grow(&mut self, bytes: u64) -> bool {
        let taken = self.budget.take(bytes);
        if taken {
            self.bytes += bytes;
        }
        taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A whole body and its share of the memory.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) bytes: Bytes,
    pub(super) share: Share,
}

/// Reads a body to its end. On an error the rest is still in `body`; see [`discard`].
pub(super) async fn read<B>(
    body: &mut B,
    limits: BodyLimits,
    budget: &Arc<BodyBudget>,
) -> Result<Intake, IntakeError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let announced = body.size_hint().lower();
    if announced > limits.bytes {
        return Err(IntakeError::TooLarge(limits.bytes));
    }
    let mut share = Share { budget: Arc::clone(budget), bytes: 0 };
    let mut room = BytesMut::new();
    let mut in_window = 0_u64;
    let mut window = pin!(tokio::time::sleep(RATE_WINDOW));
    let mut late = pin!(tokio::time::sleep(limits.time));
    loop {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = &mut late => return Err(IntakeError::TooSlow),
            () = &mut window => {
                if in_window < limits.rate.saturating_mul(RATE_WINDOW.as_secs()) {
                    return Err(IntakeError::TooSlow);
                }
                in_window = 0;
                let next = window.deadline() + RATE_WINDOW;
                window.as_mut().reset(next);
                continue;
            }
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| broken_or_gone(&*error.into()))?;
        let Ok(data) = frame.into_data() else { continue };
        let size = data.len() as u64;
        in_window += size;
        if room.len() as u64 + size > limits.bytes {
            return Err(IntakeError::TooLarge(limits.bytes));
        }
        if !share.grow(size) {
            return Err(IntakeError::NoMemory);
        }
        if room.is_empty() {
            let first = announced.clamp(size, FIRST_ROOM.max(size));
            room.reserve(usize::try_from(first).unwrap_or(0));
        }
        room.extend_from_slice(&data);
    }
    Ok(Intake { bytes: room.freeze(), share })
}

/// Reads on and throws away, within bounds, so that the client can see the answer. Whether the
/// body is at its end now; where not, the connection cannot be used again.
pub(super) async fn discard<B>(body: &mut B) -> bool
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        return true;
    }
    let mut left = DISCARD_BYTES;
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, |data| data.len() as u64);
            left = left.saturating_sub(size);
            if left == 0 {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(DISCARD_TIME, pin!(rest)).await.unwrap_or(false)
}

/// A framing error is the client's to mend; a connection that ended is nobody's to answer.
fn broken_or_gone(error: &(dyn std::error::Error + Send + Sync + 'static)) -> IntakeError {
    let gone = error
        .downcast_ref::<hyper::Error>()
        .is_some_and(|error| error.is_incomplete_message() || error.is_canceled());
    if gone { IntakeError::Gone } else { IntakeError::Broken }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_body::Steps;
    use http_body_util::Full;

    /// A body whose frames come one a poll, or never.
    mod futures_body {
        use bytes::Bytes;
        use http_body::{Body, Frame};
        use std::collections::VecDeque;
        use std::convert::Infallible;
        use std::pin::Pin;
        use std::task::{Context, Poll};

        pub(super) struct Steps(pub(super) VecDeque<Bytes>, pub(super) bool);

        impl Body for Steps {
            type Data = Bytes;
            type Error = Infallible;

            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                match self.0.pop_front() {
                    Some(step) => Poll::Ready(Some(Ok(Frame::data(step)))),
                    None if self.1 => Poll::Pending,
                    None => Poll::Ready(None),
                }
            }
        }
    }

    fn steps(sizes: &[usize], hangs: bool) -> Steps {
        Steps(sizes.iter().map(|size| Bytes::from(vec![b'x'; *size])).collect(), hangs)
    }

    const LIMITS: BodyLimits = BodyLimits { bytes: 100, time: Duration::from_secs(30), rate: 1 };

    #[tokio::test(start_paused = true)]
    async fn each_bound_has_its_own_word_and_gives_its_share_back() {
        let budget = BodyBudget::new(150);
        let whole = read(&mut steps(&[60, 40], false), LIMITS, &budget).await.unwrap();
        assert_eq!((whole.bytes.len(), budget.held()), (100, 100));

        let more = read(&mut steps(&[60], false), LIMITS, &budget).await;
        assert_eq!(more.unwrap_err(), IntakeError::NoMemory);
        let large = read(&mut steps(&[40, 61], false), LIMITS, &budget).await;
        assert_eq!(large.unwrap_err(), IntakeError::TooLarge(100));
        let announced = read(&mut Full::new(Bytes::from(vec![0; 101])), LIMITS, &budget).await;
        assert_eq!(announced.unwrap_err(), IntakeError::TooLarge(100));
        let slow = read(&mut steps(&[10], true), LIMITS, &budget).await;
        assert_eq!(slow.unwrap_err(), IntakeError::TooSlow);

        assert_eq!(budget.held(), 100);
        drop(whole);
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_body_is_thrown_away_within_bounds() {
        assert!(discard(&mut steps(&[1000, 1000], false)).await);
        assert!(!discard(&mut steps(&[1024; 2000], false)).await);
        assert!(!discard(&mut steps(&[10], true)).await);
    }
}
