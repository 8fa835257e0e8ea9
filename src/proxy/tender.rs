//! The one task that looks after all streams, a few times a second.
//!
//! hyper polls an answer's body only while its client can take more. What must happen to a
//! stream all the same (reading ahead for a slow reader so that the engine's end frees the slot,
//! every timeout, the cut at the drain's deadline) happens here, so that no stream needs a task,
//! a channel, or a timer that each frame resets. A stream that its client reads briskly is only
//! glanced at.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;

use crate::domain::{Reason, Timestamp};
use crate::lifecycle::Clock;

/// How often each stream is looked after; timeouts of streams are late by at most this.
pub(super) const TEND_EVERY: Duration = Duration::from_millis(250);
/// Streams looked after before other tasks get a turn.
const AT_A_TIME: usize = 64;

/// What can be looked after.
pub(super) trait Tend: Send + Sync {
    /// Called every [`TEND_EVERY`]; never waits.
    fn tend(&self, now: Timestamp);
    /// Ends the stream with an error frame.
    fn cut(&self, now: Timestamp, reason: Reason);
    /// Bytes read ahead of its client.
    fn ahead(&self) -> usize;
}

/// The list of what is looked after.
pub(super) struct Tender {
    clock: Clock,
    next: AtomicU64,
    /// Held for an insertion, a removal, or a copy of the list; never while a stream is tended.
    live: Mutex<BTreeMap<u64, Arc<dyn Tend>>>,
}

impl Tender {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, next: AtomicU64::new(0), live: Mutex::default() })
    }

    /// Takes a stream on, under a key of its own.
    pub(super) fn attach(&self, stream: Arc<dyn Tend>) -> u64 {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.live.lock().insert(key, stream);
        key
    }

    /// Lets it go.
    pub(super) fn detach(&self, key: u64) {
        let gone = self.live.lock().remove(&key);
        drop(gone);
    }

    /// Streams looked after now.
    pub(super) fn len(&self) -> usize {
        self.live.lock().len()
    }

    /// Bytes read ahead of all clients together.
    pub(super) fn ahead(&self) -> usize {
        self.copied().iter().map(|stream| stream.ahead()).sum()
    }

    /// Cuts every stream that lives now.
    pub(super) fn cut_all(&self, reason: Reason) {
        let now = Timestamp::since_origin(self.clock.elapsed());
        for stream in self.copied() {
            stream.cut(now, reason);
        }
    }

    /// Looks after the streams until dropped. Polls sockets in bulk, so tokio's own budget for a
    /// task, meant for one connection, is lifted; this loop yields by its own count.
    pub(super) async fn run(self: Arc<Self>) {
        tokio::task::unconstrained(async move {
            let mut tick = tokio::time::interval(TEND_EVERY);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                let streams = self.copied();
                for some in streams.chunks(AT_A_TIME) {
                    let now = Timestamp::since_origin(self.clock.elapsed());
                    for stream in some {
                        stream.tend(now);
                    }
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
    }

    fn copied(&self) -> Vec<Arc<dyn Tend>> {
        self.live.lock().values().map(Arc::clone).collect()
    }
}
