//! When a refused client is told to come back.
//!
//! The law: the time in which the queue ahead drains, or the next slot that nobody was promised,
//! whichever is later. Each refusal promises a slot to the share of clients that do come back, at
//! 0.8 of the rate at which slots come free, so that the retries of a burst are spread over the
//! capacity that will be there instead of meeting at its end. Clients do not jitter the value, so
//! we do. Above 60 s clients ignore it and come back *sooner*, so it ends at 55 s.

use std::time::Duration;

use crate::domain::Timestamp;

use super::num::{real, seconds};

/// Shortest and longest value before jitter, seconds; 44 x 1.25 = 55.
const SHORTEST: f64 = 1.0;
const LONGEST: f64 = 44.0;
/// Share of the completion rate that promises may use.
const PROMISED: f64 = 0.8;
/// With the pool idle for this long, promises are void. An empty queue alone says little: it is
/// empty between the returns of those who were promised something.
const VOID_AFTER: Duration = Duration::from_secs(1);
/// Share of refused requests that come back, until it was observed, and its weight in requests.
const RETURNING: f64 = 0.5;
const RETURNING_WEIGHT: f64 = 20.0;
/// Refusals are judged in spells of this length, longer than most values told.
const SPELL: Duration = Duration::from_secs(30);
/// The observation is halved when it holds this many refusals.
const MEMORY: u64 = 400;

/// The promises made so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises {
    next_slot: Timestamp,
    idle_since: Option<Timestamp>,
    /// Refusals of this spell: too young to judge by, since those clients were told to wait.
    young: u64,
    young_since: Timestamp,
    refused: u64,
    returned: u64,
}

impl Promises {
    /// A client came that says it has been here before.
    pub(super) const fn returned(&mut self) {
        self.returned += 1;
    }

    /// Tells whether the pool idles now: nobody waits, and half of its slots are free.
    pub(super) fn idle(&mut self, now: Timestamp, idle: bool) {
        match (idle, self.idle_since) {
            (true, None) => self.idle_since = Some(now),
            (true, Some(since)) if now.saturating_since(since) >= VOID_AFTER => {
                self.next_slot = Timestamp::ZERO;
            }
            (false, _) => self.idle_since = None,
            (true, Some(_)) => {}
        }
    }

    /// Promises a slot: the value to tell. `drain` seconds until a slot is free behind all that
    /// wait, `rate` completions a second, `uniform` in 0..1.
    pub(super) fn promise(
        &mut self,
        now: Timestamp,
        drain: f64,
        rate: f64,
        uniform: f64,
    ) -> Duration {
        let idle = self.idle_since.is_some();
        self.idle(now, idle);
        self.count(now);
        let step = self.returning() / (PROMISED * rate.max(f64::MIN_POSITIVE));
        let slot = self.next_slot.max(now) + seconds(step);
        self.next_slot = slot.min(now + seconds(LONGEST));
        let promised = self.next_slot.saturating_since(now).as_secs_f64();
        let value = drain.max(promised).max(0.5).clamp(SHORTEST, LONGEST);
        seconds(value * (0.75 + 0.5 * uniform))
    }

    /// Counts a refusal; who was refused in the spell before could have come back by now.
    fn count(&mut self, now: Timestamp) {
        if now.saturating_since(self.young_since) >= SPELL {
            self.refused += std::mem::take(&mut self.young);
            self.young_since = now;
        }
        self.young += 1;
        while self.refused >= MEMORY {
            self.refused /= 2;
            self.returned /= 2;
        }
    }

    /// Share of refused requests that come back.
    fn returning(&self) -> f64 {
        let returned = real(self.returned) + RETURNING * RETURNING_WEIGHT;
        (returned / (real(self.refused) + RETURNING_WEIGHT)).clamp(0.05, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_of_refusals_is_spread_over_the_capacity_to_come() {
        let mut promises = Promises::default();
        let now = Timestamp::ZERO + SECOND;
        promises.idle(now, false);
        let values: Vec<_> = (0..400).map(|_| promises.promise(now, 0.1, 20.0, 0.5)).collect();
        assert_eq!(values[0], SECOND);
        // Half come back at first, at 16 a second: 400 refusals take 12.5 s.
        assert!(values[399] > 3 * SECOND && values[399] < 13 * SECOND, "{:?}", values[399]);
        assert!(values.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn promises_are_void_when_the_pool_idled() {
        let mut promises = Promises::default();
        let now = Timestamp::ZERO + SECOND;
        promises.idle(now, false);
        for _ in 0..1000 {
            promises.promise(now, 0.0, 10.0, 0.5);
        }
        promises.idle(now, true);
        let soon = promises.clone().promise(now + SECOND / 2, 0.0, 10.0, 0.5);
        assert!(soon > 10 * SECOND);
        promises.idle(now + SECOND, true);
        assert_eq!(promises.promise(now + SECOND, 0.0, 10.0, 0.5), SECOND);
    }

    proptest! {
        #[test]
        fn no_value_is_ignored_by_clients(
            drain in prop::num::f64::ANY, rate in prop::num::f64::ANY, uniform in 0.0..1.0_f64,
        ) {
            let value = Promises::default().promise(Timestamp::ZERO, drain, rate, uniform);
            prop_assert!(value >= SECOND * 3 / 4 && value <= SECOND * 55);
        }
    }
}
