//! What must be true after every event. A broken one is a fault in this room, never in its
//! input, so it panics; it runs in debug builds only, where the simulator and the tests are.

use std::collections::BTreeMap;

use super::Dispatcher;
use super::ledger::Hold;
use super::request::State;

/// Beyond this many requests only what costs little is checked.
const WHOLE: usize = 512;

impl Dispatcher {
    /// Checks all of them, or for very many requests only what costs little.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn check_invariants(&self) {
        assert!(self.queue.is_sound(), "the queue's indices disagree");
        assert!(self.queue.len() <= self.requests.len(), "somebody waits who is not known");
        let held: u32 = self.replicas.iter().map(|replica| replica.ledger.requests()).sum();
        let held = usize::try_from(held).unwrap_or(usize::MAX);
        assert_eq!(
            held + self.queue.len(),
            self.requests.len(),
            "every request is either queued or held"
        );
        if self.requests.len() <= WHOLE {
            self.check_ledgers();
        }
    }

    fn check_ledgers(&self) {
        let mut sums: BTreeMap<_, (u32, Hold)> = BTreeMap::new();
        for request in self.requests.values() {
            let State::Held(held) = &request.state else { continue };
            let (count, sum) = sums.entry(held.replica).or_default();
            *count += 1;
            sum.sequences += held.hold.sequences;
            sum.prefill += held.hold.prefill;
            sum.kv += held.hold.kv;
            sum.used += held.hold.used;
        }
        for replica in &self.replicas {
            let (count, sum) = sums.remove(&replica.id).unwrap_or_default();
            assert_eq!(replica.ledger.total(), sum, "the ledger of replica {}", replica.id);
            assert_eq!(replica.ledger.requests(), count, "the count of replica {}", replica.id);
            assert!(replica.listed || count > 0, "replica {} should be forgotten", replica.id);
        }
        assert!(sums.is_empty(), "a request is held by a replica that is not known");
    }
}
