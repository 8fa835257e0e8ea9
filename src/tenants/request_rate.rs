//! Requests a minute: GCRA by the crate `governor`, on a clock that its owner sets.
//!
//! `governor` has no way to give a cell back, and a request that is refused further on must cost
//! nothing. So a returned cell is kept here as a credit and the next request takes that first.
//! Credits are void once the limiter would have been full without them, and never more than a
//! burst: in the long run the rate is `governor`'s own, at one moment at most twice the burst.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, FakeRelativeClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use crate::domain::Timestamp;

use super::num::{real, whole};
use super::promises::Promises;
use super::quota::Level;

type Limiter = RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, StateInformationMiddleware>;

/// One tenant's requests a minute.
#[derive(Debug)]
pub(super) struct RequestRate {
    per_minute: NonZeroU32,
    burst: NonZeroU32,
    limiter: Limiter,
    /// Stands still but for [`RequestRate::advance`].
    clock: FakeRelativeClock,
    now: Timestamp,
    /// Cells left after the last check, and when that was.
    left: (u32, Timestamp),
    /// Cells that came back, and when the last of them did.
    credits: (u32, Timestamp),
    promises: Promises,
}

impl RequestRate {
    /// Nothing used yet. `save` is how long the rate may be saved up.
    pub(super) fn new(per_minute: NonZeroU32, save: Duration, now: Timestamp) -> Self {
        let saved = whole(f64::from(per_minute.get()) * save.as_secs_f64() / 60.0);
        let burst = u32::try_from(saved).ok().and_then(NonZeroU32::new);
        let burst = burst.unwrap_or(NonZeroU32::MIN);
        let interval = Duration::from_mins(1) / per_minute.get();
        let quota = Quota::with_period(interval)
            .unwrap_or_else(|| Quota::per_minute(per_minute))
            .allow_burst(burst);
        let clock = FakeRelativeClock::default();
        let limiter = RateLimiter::direct_with_clock(quota, clock.clone()).with_middleware();
        Self {
            per_minute,
            burst,
            limiter,
            clock,
            now,
            left: (burst.get(), now),
            credits: (0, now),
            promises: Promises::default(),
        }
    }

    /// Goes by another rate; what part of the old one was used up is used up of the new.
    pub(super) fn set(&mut self, per_minute: NonZeroU32, save: Duration, now: Timestamp) {
        let left = f64::from(self.left_at(now)) / f64::from(self.burst.get());
        let mut next = Self::new(per_minute, save, now);
        let used = whole((f64::from(next.burst.get()) * (1.0 - left)).round());
        if let Some(used) = u32::try_from(used).ok().and_then(NonZeroU32::new)
            && let Ok(Ok(after)) = next.limiter.check_n(used)
        {
            next.left = (after.remaining_burst_capacity(), now);
        }
        *self = next;
    }

    /// How long until a request may go; zero where one may now. Takes nothing.
    pub(super) fn wait(&self, now: Timestamp) -> Duration {
        if self.left_at(now) > 0 { Duration::ZERO } else { self.interval() }
    }

    /// One request goes, or how long until one may.
    pub(super) fn take(&mut self, now: Timestamp) -> Result<(), Duration> {
        self.advance(now);
        if self.credits_at(now) > 0 {
            self.credits.0 -= 1;
            return Ok(());
        }
        match self.limiter.check() {
            Ok(after) => {
                self.left = (after.remaining_burst_capacity(), now);
                Ok(())
            }
            Err(not_until) => {
                self.left = (0, now);
                Err(not_until.wait_time_from(self.clock.now()))
            }
        }
    }

    /// When a refused client should come back.
    pub(super) fn promise(&mut self, now: Timestamp, wait: Duration) -> Duration {
        self.promises.next(now, wait, self.interval())
    }

    /// A request that was taken was refused further on.
    pub(super) fn give_back(&mut self, now: Timestamp) {
        self.advance(now);
        let credits = self.credits_at(now).saturating_add(1).min(self.burst.get());
        self.credits = (credits, now);
    }

    pub(super) fn level(&self, now: Timestamp) -> Level {
        let left = self.left_at(now);
        Level {
            limit: self.per_minute.get().into(),
            burst: self.burst.get().into(),
            left: left.into(),
            full_in: self.interval() * (self.burst.get() - left),
        }
    }

    fn interval(&self) -> Duration {
        Duration::from_mins(1) / self.per_minute.get()
    }

    fn left_at(&self, now: Timestamp) -> u32 {
        let (left, at) = self.left;
        let passed = now.saturating_since(at).as_secs_f64() * real(self.per_minute.get().into());
        let come = u32::try_from(whole(passed / 60.0)).unwrap_or(u32::MAX);
        left.saturating_add(come).saturating_add(self.credits_at(now)).min(self.burst.get())
    }

    fn credits_at(&self, now: Timestamp) -> u32 {
        let (credits, at) = self.credits;
        let lasts = self.interval() * self.burst.get();
        if now.saturating_since(at) < lasts { credits } else { 0 }
    }

    /// Time passes for the limiter.
    fn advance(&mut self, now: Timestamp) {
        self.clock.advance(now.saturating_since(self.now));
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVE: Duration = Duration::from_secs(15);

    fn at(seconds: f64) -> Timestamp {
        Timestamp::since_origin(Duration::from_secs_f64(seconds))
    }

    fn rate(per_minute: u32) -> RequestRate {
        RequestRate::new(NonZeroU32::new(per_minute).unwrap(), SAVE, at(0.0))
    }

    #[test]
    fn a_burst_goes_and_then_one_an_interval() {
        let mut rate = rate(60);
        for _ in 0..15 {
            assert_eq!(rate.take(at(0.0)), Ok(()));
        }
        let wait = rate.take(at(0.0)).unwrap_err();
        assert_eq!(wait, Duration::from_secs(1));
        assert_eq!(rate.level(at(0.0)).left, 0);
        assert!(rate.take(at(0.9)).is_err());
        assert_eq!(rate.take(at(1.0)), Ok(()));
        assert_eq!(
            rate.level(at(100.0)),
            Level { limit: 60, burst: 15, left: 15, full_in: Duration::ZERO }
        );
    }

    #[test]
    fn less_than_one_a_burst_still_lets_one_go() {
        let mut rate = rate(2);
        assert_eq!(rate.take(at(0.0)), Ok(()));
        assert_eq!(rate.take(at(1.0)), Err(Duration::from_secs(29)));
        assert_eq!(rate.take(at(30.0)), Ok(()));
    }

    #[test]
    fn a_returned_cell_is_as_good_as_never_taken_and_no_better() {
        let mut rate = rate(60);
        for _ in 0..15 {
            rate.take(at(0.0)).unwrap();
            rate.give_back(at(0.0));
        }
        assert_eq!(rate.level(at(0.0)).left, 15, "a refused request costs nothing");
        for _ in 0..15 {
            rate.take(at(0.0)).unwrap();
        }
        assert!(rate.take(at(0.0)).is_err());
        for _ in 0..100 {
            rate.give_back(at(0.0));
        }
        assert_eq!(rate.level(at(0.0)).left, 15, "never more than a burst");
        let late = (0..100).filter(|_| rate.take(at(15.0)).is_ok()).count();
        assert_eq!(late, 15, "and only for as long as the bucket was not full again");
    }

    #[test]
    fn the_rate_holds_however_often_cells_come_back() {
        let mut rate = rate(600);
        let mut kept = 0;
        for step in 0..60_000 {
            let now = at(f64::from(step) * 0.01);
            if rate.take(now).is_ok() {
                if step % 3 == 0 { rate.give_back(now) } else { kept += 1 }
            }
        }
        assert!((5_700..=6_300).contains(&kept), "{kept} of 6000 in ten minutes");
    }

    #[test]
    fn another_rate_begins_where_the_old_one_stood() {
        let mut rate = rate(60);
        for _ in 0..15 {
            rate.take(at(0.0)).unwrap();
        }
        rate.set(NonZeroU32::new(600).unwrap(), SAVE, at(0.0));
        assert_eq!(rate.level(at(0.0)).left, 0, "a reload gives nobody a new burst");
        assert!(rate.take(at(0.0)).is_err());
        rate.set(NonZeroU32::new(60).unwrap(), SAVE, at(7.5));
        assert_eq!(rate.level(at(7.5)).left, 7);
    }
}
