//! The queue: bounded, ordered, and cheap to leave from any place.
//!
//! A retry stands before every first attempt; within both, first come first served. A request
//! carries its [`Place`], so it leaves in O(log n) wherever it stands. A second index holds the
//! moment at which each entry gives up, so nothing is ever searched.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{RequestFacts, RequestId, Timestamp};

/// The key of an entry: retries first, then by arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    first_attempt: bool,
    received: Timestamp,
    ticket: u64,
}

/// Where an entry stands; the only way to take it out again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    key: Key,
    /// When it came into the queue (a retry: again).
    pub(super) since: Timestamp,
    /// When it gives up.
    pub(super) until: Timestamp,
}

/// The queue of one pool.
#[derive(Debug, Default)]
pub(super) struct Queue {
    order: BTreeMap<Key, RequestId>,
    expiry: BTreeSet<(Timestamp, RequestId)>,
    since: BTreeSet<(Timestamp, RequestId)>,
    tickets: u64,
    bytes: u64,
    sequences: u64,
    retries: usize,
    /// How often others went before the head.
    skipped: Option<(RequestId, u32)>,
}

impl Queue {
    /// Requests waiting.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Bytes of body held.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sequences waiting.
    pub(super) const fn sequences(&self) -> u64 {
        self.sequences
    }

    /// Entries that are retries; they were admitted once and count against no bound.
    pub(super) const fn retries(&self) -> usize {
        self.retries
    }

    /// When the next entry gives up.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.expiry.first().map(|(at, _)| *at)
    }

    /// An entry whose time is over at `now`.
    pub(super) fn expired(&self, now: Timestamp) -> Option<RequestId> {
        self.expiry.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// Since when the oldest entry waits.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.since.first().map(|(at, _)| *at)
    }

    /// The first `most` entries in the order in which they are to be served.
    pub(super) fn heads(&self, most: usize) -> impl Iterator<Item = RequestId> + '_ {
        self.order.values().take(most).copied()
    }

    /// A place that holds nothing: for a request that is on its way in.
    pub(super) const fn nowhere() -> Place {
        let key = Key { first_attempt: true, received: Timestamp::ZERO, ticket: 0 };
        Place { key, since: Timestamp::ZERO, until: Timestamp::ZERO }
    }

    /// Takes an entry in, at its place.
    pub(super) fn push(
        &mut self,
        facts: &RequestFacts,
        retry: bool,
        since: Timestamp,
        until: Timestamp,
    ) -> Place {
        self.tickets += 1;
        let key = Key { first_attempt: !retry, received: facts.received, ticket: self.tickets };
        self.order.insert(key, facts.id);
        self.expiry.insert((until, facts.id));
        self.since.insert((since, facts.id));
        self.bytes += facts.body_bytes;
        self.sequences += u64::from(facts.sequences.max(1));
        self.retries += usize::from(retry);
        Place { key, since, until }
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, facts: &RequestFacts, place: Place) {
        if self.order.remove(&place.key).is_none() {
            return;
        }
        self.expiry.remove(&(place.until, facts.id));
        self.since.remove(&(place.since, facts.id));
        self.bytes = self.bytes.saturating_sub(facts.body_bytes);
        self.sequences = self.sequences.saturating_sub(u64::from(facts.sequences.max(1)));
        self.retries = self.retries.saturating_sub(usize::from(!place.key.first_attempt));
    }

    /// How often others went before this head.
    pub(super) fn skips(&self, head: RequestId) -> u32 {
        self.skipped.filter(|(id, _)| *id == head).map_or(0, |(_, skips)| skips)
    }

    /// Somebody went before this head.
    pub(super) fn skip(&mut self, head: RequestId) {
        self.skipped = Some((head, self.skips(head) + 1));
    }

    /// Whether the parts agree with one another.
    pub(super) fn is_sound(&self) -> bool {
        self.order.len() == self.expiry.len()
            && self.order.len() == self.since.len()
            && self.retries <= self.order.len()
            && (!self.order.is_empty() || (self.bytes == 0 && self.sequences == 0))
    }
}
