//! What waits of one tenant in one class, and what that tenant has had there.
//!
//! First come, first served, but a retry stands before every first attempt: it was admitted once.
//! The counter is a *level*: tokens had over weight, so that tenants of different weights compare.

use std::collections::BTreeMap;

use crate::domain::{RequestId, TenantId, Timestamp};

use super::levels::{Levels, Mark};
use super::margin::Crowd;
use super::num::real;

/// A tenant of whose requests more than this share is refused asks for more than its part.
const PRESSING: f64 = 0.05;
/// Smoothing of that share: the last hundred requests or so count.
const REFUSED_SMOOTHING: f64 = 0.01;

/// The key of an entry: retries first, then by arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) first_attempt: bool,
    pub(super) received: Timestamp,
    pub(super) ticket: u64,
}

/// One that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) id: RequestId,
    /// What it is expected to be charged.
    pub(super) tokens: u64,
    /// When it came into the queue.
    pub(super) since: Timestamp,
}

/// A tenant's line in one class.
#[derive(Debug)]
pub(super) struct Line {
    /// Its part beside the other lines' parts.
    pub(super) weight: f64,
    /// Tokens had over weight.
    pub(super) level: f64,
    /// Requests at replicas, whose charge may still be corrected.
    pub(super) held: u32,
    waiting: BTreeMap<Key, Entry>,
    tokens: u64,
    /// Share of its requests that were refused lately.
    refused: f64,
    /// Where its counter and the end of its backlog stand among the others', while it waits.
    stands: Option<(Mark, Mark)>,
}

impl Line {
    /// A line that has had what everybody has had.
    pub(super) const fn new(level: f64, weight: f64) -> Self {
        Self {
            weight,
            level,
            held: 0,
            waiting: BTreeMap::new(),
            tokens: 0,
            refused: 0.0,
            stands: None,
        }
    }

    /// Whether it asks for more than its part.
    pub(super) fn crowd(&self) -> Crowd {
        if self.refused > PRESSING { Crowd::Pressing } else { Crowd::Modest }
    }

    /// A request of this tenant was taken in or refused.
    pub(super) fn judged(&mut self, refused: bool) {
        let now = if refused { 1.0 } else { 0.0 };
        self.refused += REFUSED_SMOOTHING * (now - self.refused);
    }

    /// Requests waiting.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing of it waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What those that wait are expected to be charged.
    pub(super) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The level that it reaches when `more` tokens behind all that wait are served too.
    pub(super) fn end(&self, more: u64) -> f64 {
        self.level + real(self.tokens.saturating_add(more)) / self.weight
    }

    pub(super) fn push(&mut self, key: Key, entry: Entry) {
        self.tokens += entry.tokens;
        self.waiting.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.waiting.remove(key)?;
        self.tokens = self.tokens.saturating_sub(entry.tokens);
        Some(entry)
    }

    /// Those that wait, in their order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.waiting.values()
    }

    /// First attempts, the last first.
    pub(super) fn last_first(&self) -> impl Iterator<Item = RequestId> + '_ {
        let first = self.waiting.iter().rev().take_while(|(key, _)| key.first_attempt);
        first.map(|(_, entry)| entry.id)
    }

    /// Since when the oldest waits: the first of the retries or the first of the others.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        let first = Key { first_attempt: true, received: Timestamp::ZERO, ticket: 0 };
        let fresh = self.waiting.range(first..).next();
        let ahead = self.waiting.first_key_value();
        [fresh, ahead].into_iter().flatten().map(|(_, entry)| entry.since).min()
    }

    /// Stands at its counter, and with the end of its backlog, among the others.
    pub(super) fn stand(
        &mut self,
        tenant: TenantId,
        ticket: u64,
        starts: &mut Levels,
        ends: &mut Levels,
    ) {
        let mut start = Mark { level: self.level, ticket };
        let end = Mark { level: self.end(0), ticket: u64::from(tenant.0) };
        let (old_start, old_end) = self.stands.unzip();
        match old_start {
            // Who was there first stays before who comes to the same level.
            Some(old) if old.level.total_cmp(&start.level).is_eq() => start = old,
            old => {
                if let Some(old) = old {
                    starts.remove(old);
                }
                starts.insert(start, tenant, self.weight);
            }
        }
        if old_end != Some(end) {
            if let Some(old) = old_end {
                ends.remove(old);
            }
            ends.insert(end, tenant, self.weight);
        }
        self.stands = Some((start, end));
    }

    /// Stands nowhere any more.
    pub(super) fn leave(&mut self, starts: &mut Levels, ends: &mut Levels) {
        if let Some((start, end)) = self.stands.take() {
            starts.remove(start);
            ends.remove(end);
        }
    }
}
