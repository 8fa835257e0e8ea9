//! What `/status` shows of the last minute: plain data, one of these for each class of a pool.

use std::sync::Arc;
use std::time::Duration;

use super::{Reason, Slo};

/// The middle and the tail of one latency, seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Quantiles {
    /// How many were measured.
    pub count: u64,
    /// Half are at most this long.
    pub p50_seconds: f64,
    /// 19 of 20.
    pub p95_seconds: f64,
    /// 99 of 100.
    pub p99_seconds: f64,
}

/// Requests of one class of one pool by how they ended. They add up:
/// offered = completed + refused + cancelled + failed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ends {
    /// All that ended.
    pub offered: u64,
    /// The whole answer was relayed.
    pub completed: u64,
    /// Of these, met every target of their class.
    pub good: u64,
    /// Rejected or taken out of the queue, by reason; only reasons that occurred.
    pub refused: Vec<(Reason, u64)>,
    /// The client went away.
    pub cancelled: u64,
    /// Reached a replica and did not end well.
    pub failed: u64,
    /// Prompt tokens, as the replicas reported them.
    pub input_tokens: u64,
    /// Generated tokens, likewise.
    pub output_tokens: u64,
    /// Prompt tokens that a prefix cache had, likewise.
    pub cached_tokens: u64,
}

impl Ends {
    /// Refused with a Retry-After: the load that was spilled, not the requests that were wrong.
    pub fn shed(&self) -> u64 {
        self.refused.iter().filter(|(reason, _)| reason.retry_after()).map(|(_, n)| n).sum()
    }
}

/// One class of one pool over the last minute.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recent {
    /// The pool's model name.
    pub pool: Arc<str>,
    /// The class's name.
    pub class: Arc<str>,
    /// The targets that its requests are held to.
    pub slo: Slo,
    /// How long the window is; shorter than a minute only after a start.
    pub window: Duration,
    /// How requests ended in the window.
    pub ends: Ends,
    /// How requests ended since the process started.
    pub total: Ends,
    /// Time to first token of completed streams; `None` where there were none.
    pub ttft: Option<Quantiles>,
    /// Time per output token of completed streams.
    pub tpot: Option<Quantiles>,
    /// Gaps between content frames of completed streams, as fine as the bounds of its histogram.
    pub itl: Option<Quantiles>,
}
