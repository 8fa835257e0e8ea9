//! What a connection is doing: whether an answer is under way, and since when not.
//!
//! hyper's own header timeout runs on an idle kept-alive connection too, so that a short bound
//! on slow heads would also cut every client's connection pool. Here the two are told apart: a
//! head has `header_timeout` from its first byte, silence has `idle_timeout`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::framing::Framing;
use crate::lifecycle::Clock;

/// No point in time: nothing has begun.
const NEVER: u64 = u64::MAX;

/// Shared by a connection's IO, its service and its driver. They mostly run in one task (h2
/// answers do not), so that relaxed order is enough: each value stands for itself.
#[derive(Debug)]
pub(super) struct Activity {
    clock: Clock,
    /// Answers under way, until their body is dropped.
    busy: AtomicU32,
    /// Requests seen.
    seen: AtomicU32,
    /// Answers whose head is there.
    answered: AtomicU32,
    /// When the connection last fell silent, nanoseconds since the clock's origin.
    idle_since: AtomicU64,
    /// When the first byte of a head came, or [`NEVER`].
    head_since: AtomicU64,
    /// Whether the connection speaks h2, where heads are frames and one timeout has no hold.
    h2: AtomicBool,
    /// The head that is being read. Locked by the connection's own task only.
    framing: Mutex<Framing>,
}

/// Why the driver should end a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overdue {
    /// A head began and did not end.
    SlowHead,
    /// Nothing came at all.
    Idle,
}

fn nanos(clock: Clock) -> u64 {
    u64::try_from(clock.elapsed().as_nanos()).unwrap_or(NEVER - 1)
}

impl Activity {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            busy: AtomicU32::new(0),
            seen: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            idle_since: AtomicU64::new(nanos(clock)),
            head_since: AtomicU64::new(NEVER),
            h2: AtomicBool::new(false),
            framing: Mutex::default(),
        })
    }

    /// Bytes came from the client.
    pub(super) fn read(&self, bytes: &[u8]) {
        if self.busy.load(Ordering::Relaxed) > 0 || bytes.is_empty() {
            return;
        }
        if self.seen.load(Ordering::Relaxed) == 0 && bytes.starts_with(b"PRI") {
            self.h2.store(true, Ordering::Relaxed);
        }
        if self.head_since.load(Ordering::Relaxed) == NEVER {
            self.head_since.store(nanos(self.clock), Ordering::Relaxed);
        }
        if !self.h2.load(Ordering::Relaxed) {
            self.framing.lock().read(bytes);
        }
    }

    /// Whether the head that just came whole frames its body twice; asked once a head.
    pub(super) fn framed_twice(&self) -> bool {
        self.framing.lock().take()
    }

    /// A whole head came. The answer is under way until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, h2: bool) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.seen.fetch_add(1, Ordering::Relaxed);
        self.h2.store(h2, Ordering::Relaxed);
        self.head_since.store(NEVER, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Whether a head has begun on HTTP/1.1 and no answer is under way: what is written now is
    /// hyper's own answer to a head that it could not read.
    pub(super) fn in_head(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) != NEVER
            && !self.h2.load(Ordering::Relaxed)
    }

    /// The head of an answer is there.
    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a request was answered on this connection.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed) > 0
    }

    /// When the connection has to be ended, and why, should nothing happen until then; `None`
    /// while an answer is under way. Since the clock's origin.
    pub(super) fn deadline(&self, head: Duration, idle: Duration) -> Option<(Duration, Overdue)> {
        if self.busy.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let head_since = self.head_since.load(Ordering::Relaxed);
        if head_since == NEVER || self.h2.load(Ordering::Relaxed) {
            let since = Duration::from_nanos(self.idle_since.load(Ordering::Relaxed));
            return Some((since.saturating_add(idle), Overdue::Idle));
        }
        Some((Duration::from_nanos(head_since).saturating_add(head), Overdue::SlowHead))
    }
}

/// One answer under way.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.idle_since.store(nanos(self.0.clock), Ordering::Relaxed);
        // What was read while the answer was under way belonged to its request.
        self.0.head_since.store(NEVER, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(5);
    const IDLE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn a_head_is_timed_from_its_first_byte_and_silence_from_the_last_answer() {
        let clock = Clock::start();
        let activity = Activity::new(clock);
        assert_eq!(activity.deadline(HEAD, IDLE), Some((IDLE, Overdue::Idle)));
        clock.sleep_until(Duration::from_secs(10)).await;
        activity.read(b"POST ");
        clock.sleep_until(Duration::from_secs(12)).await;
        activity.read(b"/v1");
        let due = Duration::from_secs(15);
        assert_eq!(activity.deadline(HEAD, IDLE), Some((due, Overdue::SlowHead)));
        let busy = activity.begin(false);
        assert_eq!(activity.deadline(HEAD, IDLE), None);
        activity.read(b"body");
        clock.sleep_until(Duration::from_secs(100)).await;
        drop(busy);
        let due = Duration::from_secs(160);
        assert_eq!(activity.deadline(HEAD, IDLE), Some((due, Overdue::Idle)));
    }

    #[tokio::test(start_paused = true)]
    async fn h2_has_no_head_to_be_slow_with() {
        let activity = Activity::new(Clock::start());
        activity.read(b"PRI * HTTP/2.0\r\n");
        assert_eq!(activity.deadline(HEAD, IDLE), Some((IDLE, Overdue::Idle)));
        assert!(!activity.in_head());
    }
}
