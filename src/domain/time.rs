//! A point in time that somebody else read off a clock.
//!
//! Pure rooms compare and add timestamps; they never make one. Live, the origin is the start of
//! the process; simulated, it is the start of the scenario. Nanoseconds in 64 bits last 584 years.
//! What must hold across processes (an expiry, a day's budget) goes by [`UnixTime`] instead.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since an origin that the whole process (or simulation) shares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin itself.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The point `elapsed` after the origin; saturates at [`Timestamp::MAX`].
    pub fn since_origin(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        Duration::from_nanos(self.0).as_secs_f64()
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The point `duration` before this one; the origin when that lies before it.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(Self::since_origin(duration).0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`Timestamp::MAX`], so that "never" plus anything stays never.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(Self::since_origin(duration).0))
    }
}

/// Whole seconds since 1970, UTC, off the wall clock: it may jump, and only days and dates hang
/// on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixTime(u64);

impl UnixTime {
    /// Later than anything that happens.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `seconds` after the beginning of 1970.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds)
    }

    /// Seconds since the beginning of 1970.
    pub const fn as_secs(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let second = Duration::from_secs(1);
        assert_eq!(Timestamp::MAX + second, Timestamp::MAX);
        assert_eq!(Timestamp::ZERO.saturating_sub(second), Timestamp::ZERO);
        assert_eq!(Timestamp::ZERO.saturating_since(Timestamp::MAX), Duration::ZERO);
        assert_eq!((Timestamp::ZERO + second).saturating_since(Timestamp::ZERO), second);
        assert_eq!(Timestamp::since_origin(Duration::MAX), Timestamp::MAX);
    }
}
