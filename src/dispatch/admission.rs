//! The three gates that stand between a request and one replica.
//!
//! 1. Sequences: `n < L`, exact.
//! 2. Memory: what is held and promised, with this request, fits the KV cache below the point
//!    where the engine starts to preempt.
//! 3. Prefill: the prompts already sent will be answered in time for the tightest target, and
//!    this request in time for its own.
//!
//! An idle replica passes all, one with no prompt ahead passes the third, so that a large
//! request runs at last. A gate whose inputs are unknown passes: an unknown must not shed.

use std::time::Duration;

use super::learned::Cost;
use super::num::real;
use super::replica::Replica;

/// Share of the KV cache that may be held and promised; above 1 engines thrash.
pub(super) const KAPPA: f64 = 0.90;
/// Share of a TTFT target that waiting and prefill may use; the rest is for jitter.
const TARGET_SHARE: f64 = 0.85;
/// Tokens a KV block, where the replica does not say.
const BLOCK: u64 = 16;

/// What the gates need to know of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// Sequences.
    pub(super) sequences: u32,
    /// Expected tokens.
    pub(super) cost: Cost,
    /// How long it has waited, towards its target.
    pub(super) waited: Duration,
    /// Its own TTFT target.
    pub(super) target: Option<Duration>,
    /// The tightest of all classes.
    pub(super) tightest: Option<Duration>,
}

/// Rounds up to whole KV blocks, one partly filled block a sequence.
pub(super) fn blocks(tokens: u64, sequences: u32, block: Option<u32>) -> u64 {
    let block = block.map_or(BLOCK, u64::from).max(1);
    tokens.div_ceil(block) * block + block * u64::from(sequences.saturating_sub(1))
}

/// Whether the replica may take one more at all.
pub(super) fn has_slot(replica: &Replica, sequences: u32) -> bool {
    let n = replica.ledger.n();
    n == 0 || f64::from(n + sequences.max(1) - 1) < replica.limit
}

/// Whether all gates of this replica pass.
pub(super) fn passes(replica: &Replica, ask: &Ask) -> bool {
    has_slot(replica, ask.sequences)
        && (replica.ledger.n() == 0 || (fits_memory(replica, ask) && in_time(replica, ask)))
}

fn fits_memory(replica: &Replica, ask: &Ask) -> bool {
    let sample = replica.sample.as_ref();
    let Some(capacity) = sample.and_then(|sample| sample.kv_capacity_tokens) else { return true };
    if !ask.cost.known {
        return true;
    }
    let block = sample.and_then(|sample| sample.block_size);
    let own = blocks(ask.cost.prompt + ask.cost.output, ask.sequences, block);
    // Shared prefixes are held once but promised each time; the scrape tells the ratio.
    let held = real(replica.ledger.kv() + own) * replica.sharing;
    held <= replica.kappa * real(capacity)
}

fn in_time(replica: &Replica, ask: &Ask) -> bool {
    let ahead = real(replica.ledger.prefill());
    let Some(rate) = replica.prefill.rate() else { return true };
    if ahead == 0.0 || !ask.cost.known {
        return true;
    }
    let waited = ask.waited.as_secs_f64();
    let within = |tokens: f64, target: Option<Duration>| {
        target.is_none_or(|target| waited + tokens / rate <= TARGET_SHARE * target.as_secs_f64())
    };
    within(ahead, ask.tightest) && within(ahead + real(ask.cost.uncached), ask.target)
}

/// The speed at which one replica answers prompts, as seen: tokens that stood ahead of a first
/// token over the time that it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prefill {
    tokens: f64,
    seconds: f64,
}

impl Prefill {
    /// Fewer tokens than this say more of a step's length than of prefill.
    const LEAST: u64 = 2_048;
    /// Evidence before it is believed, and where the older half is forgotten.
    const BELIEVED: f64 = 16_384.0;
    const MEMORY: f64 = 262_144.0;

    /// A first token came `took` after `ahead` tokens, its own prompt among them, were to do.
    pub(super) fn observe(&mut self, ahead: u64, took: Duration) {
        if ahead < Self::LEAST {
            return;
        }
        self.tokens += real(ahead);
        self.seconds += took.as_secs_f64();
        if self.tokens > Self::MEMORY {
            self.tokens /= 2.0;
            self.seconds /= 2.0;
        }
    }

    /// Tokens a second; `None` until enough was seen.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.tokens >= Self::BELIEVED && self.seconds > 0.0).then(|| self.tokens / self.seconds)
    }
}
