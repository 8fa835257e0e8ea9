//! How fast slots come free, as measured.
//!
//! Completions say something about capacity only while the pool is full: below that they say how
//! much was asked for. So completions and time are counted while it is full, the older half
//! forgotten as new evidence comes, and blended with a prior: the mean time that a request holds
//! its slot. It is counted a slot, so that it still holds when replicas come and go. The evidence
//! of the last full spell stays when it ends: "last known" is the floor.

use std::time::Duration;

use crate::domain::Timestamp;

/// Weight of the prior, in completions.
const PRIOR_WEIGHT: f64 = 8.0;
/// Evidence is halved when it holds both this many completions and this much time.
const MEMORY_COUNT: f64 = 64.0;
const MEMORY_SECONDS: f64 = 5.0;
/// Smoothing of the mean hold.
const SMOOTHING: f64 = 0.05;
/// Mean hold assumed for Retry-After before anything has finished, seconds.
const ASSUMED_HOLD: f64 = 2.0;

/// The measured rates of one pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// Slots that are all taken; `None` while some are free.
    full: Option<f64>,
    at: Timestamp,
    completions: f64,
    seconds: f64,
    slot_seconds: f64,
    hold: Option<f64>,
    finished: u64,
}

impl Rates {
    /// Time has gone on to `now`, in the state that [`Rates::state`] told last.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if let Some(limit) = self.full {
            let seconds = now.saturating_since(self.at).as_secs_f64();
            self.seconds += seconds;
            self.slot_seconds += seconds * limit;
        }
        self.at = now;
    }

    /// Whether the pool is full from now on, and then its limit.
    pub(super) const fn state(&mut self, full: Option<f64>) {
        self.full = full;
    }

    /// Slots came free: `sequences` of them.
    pub(super) fn released(&mut self, sequences: u32) {
        if self.full.is_none() {
            return;
        }
        self.completions += f64::from(sequences);
        if self.completions > MEMORY_COUNT && self.seconds > MEMORY_SECONDS {
            self.completions /= 2.0;
            self.seconds /= 2.0;
            self.slot_seconds /= 2.0;
        }
    }

    /// A request completed after it held its slot for `hold`.
    pub(super) fn completed(&mut self, hold: Duration) {
        let hold = hold.as_secs_f64();
        self.finished += 1;
        self.hold = Some(match self.hold {
            None => hold,
            // A plain mean at first, then smoothed.
            Some(mean) => {
                mean + (hold - mean) * SMOOTHING.max(1.0 / super::num::real(self.finished))
            }
        });
    }

    /// Whether anything has finished.
    pub(super) const fn is_known(&self) -> bool {
        self.hold.is_some()
    }

    /// Completions a second that a full pool of `limit` slots makes; `None` before anything has
    /// finished.
    pub(super) fn completions(&self, limit: f64) -> Option<f64> {
        let hold = self.hold?.max(1e-3);
        let slot = (self.completions + PRIOR_WEIGHT) / (self.slot_seconds + PRIOR_WEIGHT * hold);
        Some((limit.max(1.0) * slot).max(1e-3))
    }

    /// The same, with an assumption before anything has finished.
    pub(super) fn completions_or_assumed(&self, limit: f64) -> f64 {
        self.completions(limit).unwrap_or(limit.max(1.0) / ASSUMED_HOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slack_pool_is_not_taken_for_a_slow_one() {
        let mut rates = Rates::default();
        let mut now = Timestamp::ZERO;
        for _ in 0..100 {
            now = now + Duration::from_secs(1);
            rates.advance(now);
            rates.released(1);
            rates.completed(Duration::from_millis(500));
            rates.state(None);
        }
        // One a second was asked for, but 10 slots of 0.5 s each can do 20.
        assert!((rates.completions(10.0).unwrap() - 20.0).abs() < 0.1);
    }

    #[test]
    fn a_full_pool_is_measured() {
        let mut rates = Rates::default();
        let mut now = Timestamp::ZERO;
        rates.completed(Duration::from_millis(500));
        rates.state(Some(10.0));
        for _ in 0..1000 {
            now = now + Duration::from_millis(100);
            rates.advance(now);
            rates.released(1);
        }
        let rate = rates.completions(10.0).unwrap();
        assert!((9.5..12.0).contains(&rate), "{rate}");
    }
}
