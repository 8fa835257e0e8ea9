//! One request as the dispatcher keeps it, from its arrival to its one end.

use crate::domain::{Failure, ReplicaId, RequestFacts, Timestamp};

use super::ledger::Hold;
use super::margin::Crowd;
use super::queue::Place;

/// Where a request stands.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// In the queue.
    Queued(Place),
    /// At a replica.
    Held(Held),
}

/// An attempt under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Where.
    pub(super) replica: ReplicaId,
    /// Since when.
    pub(super) since: Timestamp,
    /// What it holds there.
    pub(super) hold: Hold,
    /// Prompt tokens, block-rounded, so that progress can be turned into KV tokens.
    pub(super) prompt: u64,
    /// Output tokens that were expected when it was sent, all sequences.
    pub(super) output: u64,
    /// The part of the prompt that no cache was expected to hold, tokens.
    pub(super) uncached: u64,
    /// What its tenant was charged for it.
    pub(super) charged: u64,
    /// Q at the replica when it was sent, its own prompt included.
    pub(super) prefill_ahead: u64,
    /// Whether the first engine-caused frame has come.
    pub(super) first: bool,
    /// When its prompt is reckoned to be read, where no first token will show.
    pub(super) read_at: Option<Timestamp>,
    /// Whether it is the one probe of a half-open replica.
    pub(super) probe: bool,
}

/// A request and what has become of it so far.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// What the client sent, in numbers.
    pub(super) facts: RequestFacts,
    /// Where it stands.
    pub(super) state: State,
    /// How its wait was estimated when it came; it is not before anything has finished.
    pub(super) estimated: Option<Crowd>,
    /// How often others went before it while it was the head and did not fit.
    pub(super) skipped: u32,
    /// Attempts begun.
    pub(super) attempts: u32,
    /// Replicas that it failed at, each once, and how.
    pub(super) failed: Vec<(ReplicaId, Failure)>,
    /// Whether it was told "busy" before.
    pub(super) was_busy: bool,
    /// Whether it met the keep-alive race before.
    pub(super) was_idle_closed: bool,
}

impl Request {
    /// Whether it may run there: it has not failed there already.
    pub(super) fn may_use(&self, replica: ReplicaId) -> bool {
        !self.failed.iter().any(|(failed, _)| *failed == replica)
    }

    /// Sequences that it runs, at least one whatever was claimed.
    pub(super) fn sequences(&self) -> u32 {
        self.facts.sequences.max(1)
    }
}
