//! Which failed attempts are tried again.
//!
//! A connection that never came to be, the keep-alive race and a replica's own 503 cost the
//! replica nothing, so they are tried again within the bound on attempts alone. What may have
//! cost an engine its work (5xx, errors in the first frame, first-byte timeouts) is paid from a
//! budget in proportion to the traffic, with a reserve of one pool's worth of requests: the
//! death of a replica is no storm, a fault in every replica is.

use crate::domain::{Failure, Reason};

use super::request::Request;

/// The reserve's floor, retries.
const RESERVE: f64 = 10.0;

/// The budget of retries.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    tokens: f64,
    reserve: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { tokens: RESERVE, reserve: RESERVE }
    }
}

impl Budget {
    /// A first attempt came: `share` of a retry more, up to the reserve.
    pub(super) fn earn(&mut self, share: f64) {
        self.tokens = (self.tokens + share.max(0.0)).min(self.reserve);
    }

    /// The pool's limit is now `limit`: where it grew, so does the reserve, already filled.
    pub(super) fn resize(&mut self, limit: f64) {
        if limit > self.reserve {
            self.tokens += limit - self.reserve;
            self.reserve = limit;
        }
    }

    /// Pays for a retry, or cannot.
    pub(super) fn spend(&mut self) -> bool {
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

/// Whether a retry after this failure is paid from the budget.
pub(super) const fn costs(failure: Failure) -> bool {
    !matches!(
        failure,
        Failure::Connect | Failure::IdleClosed | Failure::Busy | Failure::Reset | Failure::Stalled
    )
}

/// Whether the request seems to have killed two replicas, so that a third must not be risked.
pub(super) fn is_poison(request: &Request) -> bool {
    request
        .failed
        .iter()
        .filter(|(_, failure)| matches!(failure, Failure::Reset | Failure::EngineError))
        .count()
        >= 2
}

/// Whether the failure's own rule forbids one more attempt.
pub(super) const fn forbids(request: &Request, failure: Failure, most: u32) -> bool {
    request.attempts >= most || (request.was_busy && matches!(failure, Failure::Busy))
}

/// The reason that the client is given when no further attempt is made.
pub(super) fn reason(request: &Request, failure: Failure) -> Reason {
    if is_poison(request) { Reason::Poison } else { failure.reason() }
}
