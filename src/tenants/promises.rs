//! When refused clients are told to come back, so that they do not all come at once.
//!
//! Clients take the time that they are told and add nothing to it. So each is told a little later
//! than the one before, by what its request takes of the quota. After [`SPREAD`] it begins again:
//! most do not come back at all, and a flood must not push everybody's turn out of sight.

use std::time::Duration;

use crate::domain::Timestamp;

/// Over how long those who are refused together are spread.
const SPREAD: Duration = Duration::from_secs(10);

/// The turns given out so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promises {
    next: Timestamp,
}

impl Promises {
    /// The wait of one more: at least `wait`, and `turn` later than the one before.
    pub(super) fn next(&mut self, now: Timestamp, wait: Duration, turn: Duration) -> Duration {
        let first = now + wait;
        let slot = if self.next > first + SPREAD { first } else { self.next.max(first) };
        self.next = slot + turn;
        slot.saturating_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_a_little_later_and_nobody_much() {
        let (mut promises, second) = (Promises::default(), Duration::from_secs(1));
        let waits: Vec<_> =
            (0..24).map(|_| promises.next(Timestamp::ZERO, second, second).as_secs()).collect();
        let turn: Vec<_> = (1..=11).collect();
        assert_eq!(waits[..22], [&turn[..], &turn].concat());
        let later = Timestamp::ZERO + Duration::from_mins(1);
        assert_eq!(promises.next(later, second, second), second, "old promises are void");
    }
}
