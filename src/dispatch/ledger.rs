//! What one replica holds of ours: exact, by our own counting, with no scrape in it.
//!
//! The three quantities are those of the three gates: sequences `n`, prompt tokens that wait for
//! their first token `Q`, KV tokens held or promised `K`. A [`Hold`] is what one request put in;
//! the same hold is taken out again, whichever way the request ends, so the sums cannot drift.
//!
//! The ledger also remembers how high `n` stood in the last seconds, so that a scrape which was
//! asked for a moment ago is never read as load of others when it was our own.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::Timestamp;

/// How far back the height of `n` is remembered; longer than any scrape takes.
const MEMORY: Duration = Duration::from_secs(30);

/// What one request has put into a ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Hold {
    /// Sequences.
    pub(super) sequences: u32,
    /// Uncached prompt tokens that no first token has answered yet.
    pub(super) prefill: u64,
    /// KV tokens, held or promised.
    pub(super) kv: u64,
    /// KV tokens that are surely in use by now: prompt and output so far, once answered.
    pub(super) used: u64,
}

/// The sums over all holds at one replica.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ledger {
    total: Hold,
    requests: u32,
    peaks: VecDeque<Peak>,
}

/// `n` stood at `n` until `until` at the latest; kept in falling order of `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Peak {
    n: u32,
    until: Timestamp,
}

impl Ledger {
    /// Sequences held.
    pub(super) const fn n(&self) -> u32 {
        self.total.sequences
    }

    /// Requests held.
    pub(super) const fn requests(&self) -> u32 {
        self.requests
    }

    /// Prompt tokens that wait for their first token.
    pub(super) const fn prefill(&self) -> u64 {
        self.total.prefill
    }

    /// KV tokens held or promised.
    pub(super) const fn kv(&self) -> u64 {
        self.total.kv
    }

    /// The sums.
    pub(super) const fn total(&self) -> Hold {
        self.total
    }

    /// Takes a request in.
    pub(super) fn enter(&mut self, now: Timestamp, hold: Hold) {
        self.total.sequences += hold.sequences;
        self.total.prefill += hold.prefill;
        self.total.kv += hold.kv;
        self.total.used += hold.used;
        self.requests += 1;
        self.remember(now);
    }

    /// Lets a request out, with exactly what it holds now.
    pub(super) fn leave(&mut self, now: Timestamp, hold: Hold) {
        self.total.sequences = self.total.sequences.saturating_sub(hold.sequences);
        self.total.prefill = self.total.prefill.saturating_sub(hold.prefill);
        self.total.kv = self.total.kv.saturating_sub(hold.kv);
        self.total.used = self.total.used.saturating_sub(hold.used);
        self.requests = self.requests.saturating_sub(1);
        self.remember(now);
    }

    /// Replaces what a request holds; its sequences stay.
    pub(super) fn change(&mut self, old: Hold, new: Hold) {
        self.total.prefill = self.total.prefill.saturating_sub(old.prefill) + new.prefill;
        self.total.kv = self.total.kv.saturating_sub(old.kv) + new.kv;
        self.total.used = self.total.used.saturating_sub(old.used) + new.used;
    }

    /// The largest `n` at any time from `since` to now.
    pub(super) fn peak_since(&self, since: Timestamp) -> u32 {
        self.peaks.iter().find(|peak| peak.until >= since).map_or(self.n(), |peak| peak.n)
    }

    fn remember(&mut self, now: Timestamp) {
        let n = self.n();
        while self.peaks.back().is_some_and(|peak| peak.n <= n) {
            self.peaks.pop_back();
        }
        if let Some(last) = self.peaks.back_mut()
            && last.until == Timestamp::MAX
        {
            last.until = now;
        }
        self.peaks.push_back(Peak { n, until: Timestamp::MAX });
        let horizon = now.saturating_sub(MEMORY);
        while self.peaks.front().is_some_and(|peak| peak.until < horizon) {
            self.peaks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    proptest! {
        #[test]
        fn the_peak_is_that_of_the_whole_history(
            steps in prop::collection::vec((0_u64..3, any::<bool>()), 1..60),
            since in 0_u64..29,
        ) {
            let mut ledger = Ledger::default();
            let hold = Hold { sequences: 1, ..Hold::default() };
            let (mut now, mut history) = (0, vec![(0_u64, 0_u32)]);
            for (gap, enter) in steps {
                now = (now + gap).min(29);
                if enter {
                    ledger.enter(at(now), hold);
                } else if ledger.n() > 0 {
                    ledger.leave(at(now), hold);
                } else {
                    continue;
                }
                history.push((now, ledger.n()));
            }
            let since = since.min(now);
            // The value in force at `since` and every later one; at the very instant of a
            // change both sides count.
            let expected = history
                .iter()
                .enumerate()
                .filter(|(i, _)| history.get(i + 1).is_none_or(|next| next.0 >= since))
                .map(|(_, step)| step.1)
                .max()
                .unwrap();
            prop_assert_eq!(ledger.peak_since(at(since)), expected);
        }
    }
}
