//! How a refusal is made: its numbers, when to come back, and the note that it leaves.

use std::time::Duration;

use rand::RngExt;

use crate::domain::{Reason, Rejection, ShedNote, ShouldRetry, Timestamp, Unit};

use super::Dispatcher;
use super::num::{real, size};
use super::request::Request;

/// Shed notes kept.
const NOTES: usize = 64;
/// What stands in for the drain time when no replica may be used, seconds.
const NO_REPLICAS: f64 = 5.0;

/// What a refusal is explained by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    pub(super) reason: Reason,
    /// `None` where no limit stands behind it.
    pub(super) unit: Option<Unit>,
    pub(super) limit: f64,
    pub(super) reading: f64,
}

impl Cause {
    /// In the unit that the reason has as a rule.
    pub(super) const fn new(reason: Reason, limit: f64, reading: f64) -> Self {
        Self { reason, unit: Unit::of(reason), limit, reading }
    }
}

impl Dispatcher {
    pub(super) fn no_replicas(&self) -> Cause {
        let listed = self.replicas.iter().filter(|replica| replica.listed).count();
        Cause::new(Reason::NoReplicas, size(listed), 0.0)
    }

    /// Makes the refusal of a request, promises it a slot, and notes it.
    pub(super) fn reject(&mut self, now: Timestamp, request: &Request, cause: Cause) -> Rejection {
        let limit = self.usable_limit();
        let rate = self.rates.completions_or_assumed(limit);
        let retry_after = cause.reason.retry_after().then(|| {
            let drain = match cause.reason {
                Reason::NoReplicas => NO_REPLICAS,
                _ => (real(self.queue.sequences()) + 1.0) / rate,
            };
            let uniform = self.rng.random::<f64>();
            self.promises.promise(now, drain, rate, uniform)
        });
        let hopeless = cause.reason == Reason::Poison
            || retry_after.is_some_and(|after| {
                request.facts.deadline.is_some_and(|deadline| deadline < now + after)
            });
        let rejection = Rejection {
            reason: cause.reason,
            retry_after,
            should_retry: if hopeless { ShouldRetry::No } else { ShouldRetry::Unsaid },
            unit: cause.unit,
            limit: cause.limit,
            reading: cause.reading,
            age: self.age_of(now, cause.reason),
        };
        if self.sheds.len() >= NOTES {
            self.sheds.pop_front();
        }
        self.sheds.push_back(ShedNote {
            at: now,
            reason: rejection.reason,
            unit: rejection.unit,
            limit: rejection.limit,
            reading: rejection.reading,
            age: rejection.age,
            retry_after: rejection.retry_after,
            class: request.facts.class,
            tenant: request.facts.tenant,
        });
        rejection
    }

    /// Age of the oldest outside reading behind a refusal.
    fn age_of(&self, now: Timestamp, reason: Reason) -> Duration {
        if reason != Reason::NoReplicas {
            return Duration::ZERO;
        }
        let ages = self.replicas.iter().filter(|replica| replica.health.is_some());
        ages.map(|replica| now.saturating_since(replica.health_at)).max().unwrap_or_default()
    }
}
