//! The only reader of the machine's clocks.
//!
//! Monotonic time is tokio's, so that a test which pauses it moves everything that hangs on it.
//! A clock is made once, at the start of the process, and copied to whoever needs to read it.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A monotonic clock with the process's origin, and the wall clock for what people read.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose origin is now.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Time since the origin.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
    pub fn elapsed(self) -> Duration {
        Instant::now().saturating_duration_since(self.origin)
    }

    /// The instant `since_origin` after the origin, for tokio's timers. What lies too far ahead
    /// for the clock is a century from the origin.
    pub fn at(self, since_origin: Duration) -> Instant {
        const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);
        self.origin + since_origin.min(CENTURY)
    }

    /// Sleeps until `since_origin` after the origin; returns at once when that has passed.
    pub async fn sleep_until(self, since_origin: Duration) {
        tokio::time::sleep_until(self.at(since_origin)).await;
    }

    /// The time of day.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn wall(self) -> SystemTime {
        SystemTime::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn follows_the_paused_clock() {
        let clock = Clock::start();
        assert_eq!(clock.elapsed(), Duration::ZERO);
        clock.sleep_until(Duration::from_secs(5)).await;
        assert_eq!(clock.elapsed(), Duration::from_secs(5));
        clock.sleep_until(Duration::from_secs(3)).await;
        assert_eq!(clock.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn the_far_end_of_time_does_not_overflow() {
        let clock = Clock::start();
        assert!(clock.at(Duration::MAX) > clock.at(Duration::from_secs(1)));
    }
}
