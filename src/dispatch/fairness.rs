//! Turns among the tenants of one class: whoever has had least goes next.
//!
//! The law is that of the Virtual Token Counter (Sheng et al., "Fairness in Serving Large
//! Language Models", OSDI 2024). A tenant is charged when its request is sent, uncached input and
//! twice the expected output, over its weight; corrected when the request ends by what was really
//! used; and lifted to the lowest counter of those that wait when it begins to wait, so that time
//! in which it asked for nothing earns it nothing. Two tenants that both wait therefore never
//! drift further apart than the size of a few requests, whatever either sends.
//!
//! A counter at or below the level at which the next newcomer starts says nothing that a new one
//! would not, so it is forgotten; those above are kept until that level passes them, a bounded
//! number of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{RequestId, TenantId};

use super::levels::{Levels, Mark};
use super::line::{Entry, Key, Line};
use super::num::real;

/// Counters kept of tenants that neither wait nor run.
const IDLE: usize = 4_096;

/// What goes before somebody within its class.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Ahead {
    /// Tokens.
    pub(super) tokens: f64,
    /// Other lines whose turn falls before it and does not use up what waits in them: each
    /// may be ahead by half a request more than `tokens` says.
    pub(super) begun: usize,
}

/// How fast the level rises at which turns are: what a line of weight 1 is served a second while
/// it waits, whoever comes and goes beside it.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    rise: f64,
    seconds: f64,
}

impl Pace {
    /// Evidence before it is believed, and where the older half is forgotten, seconds.
    const BELIEVED: f64 = 0.2;
    const MEMORY: f64 = 2.0;

    fn passed(&mut self, seconds: f64) {
        self.seconds += seconds;
        if self.seconds > Self::MEMORY {
            self.rise /= 2.0;
            self.seconds /= 2.0;
        }
    }

    /// Seconds that it takes to rise by so much.
    fn time_for(&self, rise: f64) -> Option<f64> {
        (self.seconds > Self::BELIEVED && self.rise > 0.0)
            .then(|| rise.max(0.0) * self.seconds / self.rise)
    }
}

/// Somebody who may come into the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer {
    pub(super) tenant: TenantId,
    pub(super) weight: f64,
    pub(super) tokens: u64,
}

/// The lines of one class.
#[derive(Debug, Default)]
pub(super) struct Lines {
    of: BTreeMap<TenantId, Line>,
    /// The lines in which somebody waits, by their counters and by the ends of their backlogs.
    starts: Levels,
    ends: Levels,
    /// Where a newcomer starts: the lowest counter of those that wait, or the last one while
    /// nobody does. It never falls, also when a correction puts somebody below it.
    floor: f64,
    pace: Pace,
    /// Lines that neither wait nor run.
    idle: BTreeSet<Mark>,
    tickets: u64,
}

impl Lines {
    /// A line's first request came to wait, or a further one.
    pub(super) fn push(&mut self, tenant: TenantId, weight: f64, key: Key, entry: Entry) {
        let floor = self.floor;
        let line = self.of.entry(tenant).or_insert_with(|| Line::new(floor, weight));
        if line.is_empty() {
            self.idle.remove(&idle(tenant, line));
            line.level = line.level.max(floor);
        }
        line.push(key, entry);
        self.settle_in(tenant);
        self.raise_floor();
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, tenant: TenantId, key: &Key) -> Option<Entry> {
        let entry = self.of.get_mut(&tenant)?.remove(key)?;
        self.settle_in(tenant);
        self.raise_floor();
        Some(entry)
    }

    /// A request of this tenant is sent: charges it.
    pub(super) fn sent(&mut self, tenant: TenantId, weight: f64, tokens: u64) {
        let floor = self.floor;
        let line = self.of.entry(tenant).or_insert_with(|| Line::new(floor, weight));
        if line.is_empty() {
            self.idle.remove(&idle(tenant, line));
            line.level = line.level.max(floor);
        }
        let charge = real(tokens) / line.weight;
        line.level += charge;
        line.held += 1;
        self.settle_in(tenant);
        // Where the next is far above, that is no pace.
        let turn = self.starts.first().map_or(self.floor, |(mark, _)| mark.level);
        self.pace.rise += (turn - self.floor).clamp(0.0, charge);
    }

    /// It ended: `used` takes the place of what it was `charged`.
    pub(super) fn ended(&mut self, tenant: TenantId, charged: u64, used: u64) {
        let Some(line) = self.of.get_mut(&tenant).filter(|line| line.held > 0) else { return };
        line.level += (real(used) - real(charged)) / line.weight;
        line.held -= 1;
        self.settle_in(tenant);
        self.raise_floor();
    }

    /// Weights are now these.
    pub(super) fn reweigh(&mut self, weight_of: impl Fn(TenantId) -> f64) {
        let tenants: Vec<_> = self.of.keys().copied().collect();
        for tenant in tenants {
            if let Some(line) = self.of.get_mut(&tenant) {
                line.weight = weight_of(tenant);
                line.leave(&mut self.starts, &mut self.ends);
            }
            self.settle_in(tenant);
        }
    }

    /// Whose turn it is, and what stands first there.
    pub(super) fn head(&self) -> Option<RequestId> {
        let (_, tenant) = self.starts.first()?;
        Some(self.of.get(&tenant)?.entries().next()?.id)
    }

    /// The first request of each line, in the order of turns.
    pub(super) fn heads(&self) -> impl Iterator<Item = RequestId> + '_ {
        let next = |last: &(Mark, TenantId)| self.starts.after(last.0);
        std::iter::successors(self.starts.first(), next)
            .filter_map(|(_, tenant)| self.of.get(&tenant)?.entries().next())
            .map(|entry| entry.id)
    }

    /// A tenant's line; none of one that has not been here lately.
    pub(super) fn line(&self, tenant: TenantId) -> Option<&Line> {
        self.of.get(&tenant)
    }

    /// The same, to be told something.
    pub(super) fn line_mut(&mut self, tenant: TenantId) -> Option<&mut Line> {
        self.of.get_mut(&tenant)
    }

    /// Those behind the head in its own line.
    pub(super) fn followers(&self) -> impl Iterator<Item = RequestId> + '_ {
        let head = self.starts.first().and_then(|(_, tenant)| self.of.get(&tenant));
        head.into_iter().flat_map(Line::entries).skip(1).map(|entry| entry.id)
    }

    /// Whether no tenant of it waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.of.len() == self.idle.len()
    }

    /// Lines in which somebody waits.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (TenantId, &Line)> {
        self.of.iter().filter(|(_, line)| !line.is_empty()).map(|(tenant, line)| (*tenant, line))
    }

    /// What goes before a newcomer.
    pub(super) fn ahead(&self, newcomer: Newcomer) -> Ahead {
        let level = self.end_of(Newcomer { tokens: 0, ..newcomer });
        let (starts, ends) = (self.starts.below(level), self.ends.below(level));
        // Its own line, where somebody waits in it, ends exactly there and is in both counts.
        Ahead {
            tokens: (starts.area - ends.area).max(0.0),
            begun: starts.count.saturating_sub(ends.count),
        }
    }

    /// How long it took lately to get from the front to where a newcomer would stand.
    pub(super) fn time_before(&self, newcomer: Newcomer) -> Option<f64> {
        self.pace.time_for(self.end_of(Newcomer { tokens: 0, ..newcomer }) - self.floor)
    }

    /// Time has gone on by so many seconds in which somebody waited.
    pub(super) fn advance(&mut self, seconds: f64) {
        self.pace.passed(seconds);
    }

    /// The line whose backlog reaches the highest level. With a newcomer: only where that is
    /// higher than the newcomer's own would.
    pub(super) fn highest(&self, newcomer: Option<Newcomer>) -> Option<&Line> {
        let (mark, tenant) = self.ends.last()?;
        let own =
            newcomer.is_some_and(|one| one.tenant == tenant || self.end_of(one) >= mark.level);
        self.of.get(&tenant).filter(|_| !own)
    }

    /// Counters kept, for the bound on memory.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.of.len()
    }

    /// Whether the parts agree with one another.
    pub(super) fn is_sound(&self) -> bool {
        let waiting = self.of.values().filter(|line| !line.is_empty()).count();
        let idle = self.of.values().filter(|line| line.is_empty() && line.held == 0).count();
        self.starts.len() == waiting
            && self.ends.len() == waiting
            && self.idle.len() == idle
            && idle <= IDLE
    }

    /// The level at which a newcomer's line would end.
    fn end_of(&self, newcomer: Newcomer) -> f64 {
        match self.of.get(&newcomer.tenant) {
            Some(line) if !line.is_empty() => line.end(newcomer.tokens),
            line => {
                let level = line.map_or(f64::MIN, |line| line.level).max(self.floor);
                level + real(newcomer.tokens) / newcomer.weight
            }
        }
    }

    /// Puts a line where it belongs after it has changed.
    fn settle_in(&mut self, tenant: TenantId) {
        let Some(line) = self.of.get_mut(&tenant) else { return };
        if line.is_empty() {
            line.leave(&mut self.starts, &mut self.ends);
            if line.held == 0 {
                self.idle.insert(idle(tenant, line));
            }
        } else {
            self.tickets += 1;
            line.stand(tenant, self.tickets, &mut self.starts, &mut self.ends);
        }
        self.forget();
    }

    /// Newcomers start no lower than the lowest that waits.
    fn raise_floor(&mut self) {
        if let Some((lowest, _)) = self.starts.first() {
            self.floor = self.floor.max(lowest.level);
        }
    }

    /// Forgets what a new line would start with anyway, and what is too much.
    fn forget(&mut self) {
        while let Some(mark) = self.idle.first().copied() {
            if mark.level > self.floor && self.idle.len() <= IDLE {
                break;
            }
            self.idle.pop_first();
            self.of.remove(&TenantId(u32::try_from(mark.ticket).unwrap_or(u32::MAX)));
        }
    }
}

/// The mark of a line that neither waits nor runs; its tenant is the ticket.
const fn idle(tenant: TenantId, line: &Line) -> Mark {
    Mark { level: line.level, ticket: tenant.0 as u64 }
}

#[cfg(test)]
mod tests;
