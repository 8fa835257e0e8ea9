//! What a refused client is told, and why.

use std::time::Duration;

use super::Reason;

/// Whether the client is told to try again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ShouldRetry {
    /// Nothing is said beyond `Retry-After`.
    Unsaid,
    /// `x-should-retry: false`: a retry is hopeless, late, or over the client's budget.
    No,
}

/// A refusal with everything that explains it: which limit, what it stood at, how old the
/// reading was. Goes to the client's headers and body, the log and the metrics alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
    /// When to come back; `None` where coming back is of no use.
    pub retry_after: Option<Duration>,
    /// Whether to come back at all.
    pub should_retry: ShouldRetry,
    /// The limit that was met, in the unit of the reason (seconds for `queue_wait` and
    /// `deadline`, requests for `queue_full`, replicas for `no_replicas`).
    pub limit: f64,
    /// What stood against it, in the same unit.
    pub reading: f64,
    /// Age of the oldest outside reading that took part; zero when only exact local counts did.
    pub age: Duration,
}

impl Rejection {
    /// A refusal that no limit explains further: nothing to come back for, no reading.
    pub const fn plain(reason: Reason) -> Self {
        Self {
            reason,
            retry_after: None,
            should_retry: ShouldRetry::Unsaid,
            limit: 0.0,
            reading: 0.0,
            age: Duration::ZERO,
        }
    }
}
