//! What a request is charged to its tenant and class when it is sent, and what it turns out to
//! have used when it ends, whichever way that is.

use crate::domain::{RequestFacts, Usage};

use super::Dispatcher;
use super::learned::Cost;
use super::request::Held;

/// An output token costs an engine about as much as two of input; the ratio of Sheng et al.,
/// "Fairness in Serving Large Language Models" (OSDI 2024).
const OUTPUT: u64 = 2;
/// The most that one request is charged, so that no claim of a client's overflows a sum.
const MOST: u64 = 1 << 40;

/// How the stay at a replica ended, as far as the bill goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bill {
    /// With the replica's own count.
    Counted(Usage),
    /// By a cancel or a break: its prompt, and the tokens that were seen.
    Seen,
    /// Well, and nobody counted: as expected, or what was seen where that is more.
    Uncounted,
    /// Without a usable answer, so that it will be tried again or was not served.
    Nothing,
}

/// What so many tokens are charged as.
fn charge(uncached: u64, output: u64) -> u64 {
    uncached.saturating_add(output.saturating_mul(OUTPUT)).clamp(1, MOST)
}

/// What a request is expected to be charged.
pub(super) fn expected(cost: &Cost) -> u64 {
    charge(cost.uncached, cost.output)
}

fn seen(held: &Held) -> u64 {
    charge(held.uncached, held.hold.used.saturating_sub(held.prompt))
}

impl Dispatcher {
    /// Corrects what was charged when it was sent by what it used.
    pub(super) fn settle(&mut self, facts: &RequestFacts, held: &Held, bill: Bill) {
        let used = match bill {
            Bill::Counted(usage) => {
                let uncached = usage.input.saturating_sub(usage.cached.unwrap_or(0));
                charge(uncached, usage.output)
            }
            Bill::Seen => seen(held),
            Bill::Uncounted => seen(held).max(held.charged),
            Bill::Nothing => 0,
        };
        self.queue.settle(facts, held.charged, used);
    }
}
