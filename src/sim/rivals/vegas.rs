//! Netflix's `VegasLimit` (concurrency-limits, `limit/VegasLimit.java`) with its defaults: the
//! queue is reckoned as `limit * (1 - least time / time)`, and kept between 3 and 6 log10(limit).

use super::gradient2::Window;
use super::{Law, Took};

const INITIAL: f64 = 20.0;
const MAX: f64 = 1_000.0;
/// The least time is measured afresh after about so many times the limit of samples.
const PROBE: f64 = 30.0;

/// The limit of a whole pool, by the time to the whole answer.
#[derive(Debug)]
pub struct Vegas {
    limit: f64,
    /// Least time seen; 0 before the first.
    least: f64,
    since_probe: f64,
    dropped: bool,
    window: Window,
}

impl Default for Vegas {
    fn default() -> Self {
        let window = Window::default();
        Self { limit: INITIAL, least: 0.0, since_probe: 0.0, dropped: false, window }
    }
}

impl Vegas {
    fn update(&mut self, time: f64, in_flight: u32) {
        self.since_probe += 1.0;
        if self.since_probe >= PROBE * self.limit {
            (self.since_probe, self.least) = (0.0, time);
            return;
        }
        if self.least <= 0.0 || time < self.least {
            self.least = time;
            return;
        }
        let step = self.limit.log10().max(1.0);
        let queue = (self.limit * (1.0 - self.least / time)).ceil();
        let aim = if std::mem::take(&mut self.dropped) {
            self.limit - step
        } else if f64::from(in_flight) * 2.0 < self.limit {
            return;
        } else if queue <= step {
            self.limit + 6.0 * step
        } else if queue < 3.0 * step {
            self.limit + step
        } else if queue > 6.0 * step {
            self.limit - step
        } else {
            return;
        };
        self.limit = aim.clamp(1.0, MAX);
    }
}

impl Law for Vegas {
    fn admits(&self, in_flight: u32) -> bool {
        f64::from(in_flight) < self.limit.floor()
    }

    fn admits_at(&self, _replica: usize, _in_flight: u32) -> bool {
        true
    }

    fn took(&mut self, took: Took) {
        let seconds = took.whole.as_secs_f64();
        if let Some((time, most)) = self.window.add(took.now, seconds, took.in_flight) {
            self.update(time, most);
        }
    }
}
