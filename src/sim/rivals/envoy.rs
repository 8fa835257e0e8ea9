//! Envoy's adaptive concurrency filter (docs, "Adaptive Concurrency", gradient controller), with
//! the values of its example: the limit is multiplied by `(least + buffer) / sampled` time, plus
//! headroom of its square root. Every minute the least time is measured anew, with 3 in flight.

use std::time::Duration;

use super::{Law, Took};
use crate::domain::Timestamp;
use crate::stats;

/// In flight while the least time is measured.
const MIN: f64 = 3.0;
const MAX: f64 = 1_000.0;
/// `concurrency_update_interval`, `min_rtt_calc_params.interval` and `request_count`, `buffer`.
const UPDATE: Duration = Duration::from_millis(100);
const MEASURE_EVERY: Duration = Duration::from_mins(1);
const MEASURED: usize = 50;
const BUFFER: f64 = 0.25;

/// The limit of a whole pool, by the median time to the whole answer.
#[derive(Debug)]
pub struct Envoy {
    limit: f64,
    /// The limit to return to when the least time has been measured.
    before: f64,
    least: f64,
    measuring: bool,
    measured_at: Timestamp,
    updated_at: Timestamp,
    times: Vec<f64>,
}

impl Default for Envoy {
    fn default() -> Self {
        Self {
            limit: MIN,
            before: MIN,
            least: 0.0,
            measuring: true,
            measured_at: Timestamp::ZERO,
            updated_at: Timestamp::ZERO,
            times: Vec::new(),
        }
    }
}

impl Envoy {
    fn median(&mut self) -> f64 {
        stats::sort(&mut self.times);
        let median = stats::quantile(&self.times, 0.5).unwrap_or(0.0);
        self.times.clear();
        median
    }

    fn measure(&mut self, now: Timestamp) {
        if self.times.len() < MEASURED {
            return;
        }
        self.least = self.median();
        (self.measuring, self.limit) = (false, self.before);
        (self.measured_at, self.updated_at) = (now, now);
    }

    fn update(&mut self, now: Timestamp) {
        if now.saturating_since(self.measured_at) >= MEASURE_EVERY {
            (self.measuring, self.before, self.limit) = (true, self.limit, MIN);
            self.times.clear();
            return;
        }
        if now.saturating_since(self.updated_at) < UPDATE {
            return;
        }
        self.updated_at = now;
        let sampled = self.median();
        let gradient = (self.least * (1.0 + BUFFER) / sampled.max(1e-6)).clamp(0.5, 2.0);
        let aim = self.limit * gradient;
        self.limit = (aim + aim.sqrt()).clamp(MIN, MAX);
    }
}

impl Law for Envoy {
    fn admits(&self, in_flight: u32) -> bool {
        f64::from(in_flight) < self.limit.floor()
    }

    fn admits_at(&self, _replica: usize, _in_flight: u32) -> bool {
        true
    }

    fn took(&mut self, took: Took) {
        self.times.push(took.whole.as_secs_f64());
        if self.measuring { self.measure(took.now) } else { self.update(took.now) }
    }
}
