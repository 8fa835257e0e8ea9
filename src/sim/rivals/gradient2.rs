//! Netflix's `Gradient2Limit` (concurrency-limits, `limit/Gradient2Limit.java`) in a
//! `WindowedLimit` of one second, with their defaults: a limit that grows by a queue's room while
//! the short-term time is near the long-term one, and shrinks in proportion when it is not.

use std::time::Duration;

use super::{Law, Took};
use crate::domain::Timestamp;

const INITIAL: f64 = 20.0;
const MIN: f64 = 20.0;
/// Theirs is 200, which would itself be a cap tuned for another fleet.
const MAX: f64 = 1_000.0;
const SMOOTHING: f64 = 0.2;
const TOLERANCE: f64 = 1.5;
const QUEUE: f64 = 4.0;
/// Samples of the long-term average, and of its warm-up.
const LONG_WINDOW: f64 = 600.0;
const WARM_UP: u32 = 10;
/// `WindowedLimit`: least length of a window and least samples in it.
const WINDOW: Duration = Duration::from_secs(1);
const LEAST: u32 = 10;

/// The limit of a whole pool.
#[derive(Debug)]
pub struct Gradient2 {
    /// Whether it goes by the time to the first token rather than to the end.
    by_first: bool,
    limit: f64,
    long: f64,
    samples: u32,
    window: Window,
}

/// One window's samples.
#[derive(Debug, Default)]
pub(super) struct Window {
    since: Option<Timestamp>,
    sum: f64,
    count: u32,
    most: u32,
}

impl Window {
    /// Adds a sample. Mean time, seconds, and most in flight when the window is over.
    pub(super) fn add(
        &mut self,
        now: Timestamp,
        seconds: f64,
        in_flight: u32,
    ) -> Option<(f64, u32)> {
        let since = *self.since.get_or_insert(now);
        self.sum += seconds;
        self.count += 1;
        self.most = self.most.max(in_flight);
        if now.saturating_since(since) < WINDOW || self.count < LEAST {
            return None;
        }
        let over = std::mem::take(self);
        Some((over.sum / f64::from(over.count), over.most))
    }
}

impl Gradient2 {
    /// By the time to the whole answer, or to its first token.
    pub fn new(by_first: bool) -> Self {
        Self { by_first, limit: INITIAL, long: 0.0, samples: 0, window: Window::default() }
    }

    fn update(&mut self, short: f64, in_flight: u32) {
        self.samples = self.samples.saturating_add(1);
        if self.samples <= WARM_UP {
            self.long += (short - self.long) / f64::from(self.samples);
        } else {
            self.long += (short - self.long) * 2.0 / (LONG_WINDOW + 1.0);
        }
        // Recover from a long-term average that was learned under load.
        if self.long > 2.0 * short {
            self.long *= 0.95;
        }
        if f64::from(in_flight) < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * self.long / short.max(1e-6)).clamp(0.5, 1.0);
        let aim = self.limit * gradient + QUEUE;
        self.limit = (self.limit * (1.0 - SMOOTHING) + aim * SMOOTHING).clamp(MIN, MAX);
    }
}

impl Law for Gradient2 {
    fn admits(&self, in_flight: u32) -> bool {
        f64::from(in_flight) < self.limit.floor()
    }

    fn admits_at(&self, _replica: usize, _in_flight: u32) -> bool {
        true
    }

    fn took(&mut self, took: Took) {
        let time = if self.by_first { took.first } else { took.whole };
        if let Some((short, most)) = self.window.add(took.now, time.as_secs_f64(), took.in_flight) {
            self.update(short, most);
        }
    }
}
