//! The queue: bounded, fair, and cheap to leave from any place.
//!
//! Critical classes go before all others. Among the rest the class that has had the fewest tokens
//! for its share is next, and within a class the tenant that has had the fewest for its weight
//! (see [`super::fairness`]); within a tenant, first come, first served. Both levels follow the
//! same law, so a class that asks for less than its share leaves the rest to the others, and one
//! that begins to wait starts level with those that do: shares count only while there is
//! contention.
//!
//! A request carries its [`Place`], so it leaves in O(log n) wherever it stands. A second index
//! holds the moment at which each entry gives up, so nothing is ever searched. Classes are few,
//! and walked; tenants and requests are many, and never are.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{ClassId, QueuePart, RequestFacts, RequestId, TenantId, Timestamp};

use super::Policy;
use super::fairness::{Ahead, Lines, Newcomer};
use super::levels::Mark;
use super::line::{Entry, Key, Line};
use super::margin::Crowd;
use super::num::{real, size};

/// The most that give way to one newcomer.
const MOST_GIVING_WAY: usize = 8;
/// Shares and weights outside of these bounds are taken for the bound: levels stay finite.
const LEAST: f64 = 1e-6;
const MOST: f64 = 1e6;

/// Where an entry stands; the only way to take it out again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    key: Key,
    /// When it came into the queue (a retry: again).
    pub(super) since: Timestamp,
    /// When it gives up.
    pub(super) until: Timestamp,
}

/// What goes before somebody.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Before {
    /// Sequences that stand there now.
    pub(super) sequences: f64,
    /// How long it took lately to get from the front to such a place, with all that came in
    /// between; `None` where it stands in front, or nothing is known.
    pub(super) seconds: Option<f64>,
}

/// One class's part of the queue.
#[derive(Debug)]
struct Class {
    share: f64,
    critical: bool,
    /// Tokens had over share, and when it came to stand there.
    stands: Mark,
    lines: Lines,
    waiting: usize,
    tokens: u64,
    sequences: u64,
}

impl Class {
    const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// In which order classes have their turns.
    const fn turn(&self) -> (bool, Mark) {
        (!self.critical, self.stands)
    }

    /// The level that it reaches when all that waits, and `more`, is served.
    fn end(&self, level: f64, more: u64) -> f64 {
        level + real(self.tokens.saturating_add(more)) / self.share
    }
}

/// The queue of one pool.
#[derive(Debug, Default)]
pub(super) struct Queue {
    classes: BTreeMap<ClassId, Class>,
    /// Weights of the tenants that have one.
    weights: BTreeMap<TenantId, f64>,
    /// Where a class starts that begins to wait: level with the lowest that does, or did last;
    /// critical classes apart.
    floor: f64,
    floor_critical: f64,
    expiry: BTreeSet<(Timestamp, RequestId)>,
    since: BTreeSet<(Timestamp, RequestId)>,
    tickets: u64,
    bytes: u64,
    sequences: u64,
    retries: usize,
}

impl Queue {
    /// A queue that goes by these rules.
    pub(super) fn new(policy: &Policy) -> Self {
        let mut queue = Self::default();
        queue.set_rules(policy);
        queue
    }

    /// Shares and weights are now these.
    pub(super) fn set_rules(&mut self, policy: &Policy) {
        self.weights = policy.tenants.iter().map(|one| (one.id, bounded(one.weight))).collect();
        let known = |id: ClassId| policy.classes.iter().any(|class| class.id == id);
        self.classes.retain(|id, class| known(*id) || !class.lines.is_idle());
        for rule in &policy.classes {
            let class = self.class_mut(rule.id);
            class.share = bounded(rule.share);
            class.critical = rule.critical;
        }
        let weights = &self.weights;
        for class in self.classes.values_mut() {
            class.lines.reweigh(|tenant| weights.get(&tenant).copied().unwrap_or(1.0));
        }
    }

    /// Time has gone on by so many seconds, with the queue as it is.
    pub(super) fn advance(&mut self, seconds: f64) {
        for class in self.classes.values_mut().filter(|class| !class.is_empty()) {
            class.lines.advance(seconds);
        }
    }

    /// Requests waiting.
    pub(super) fn len(&self) -> usize {
        self.expiry.len()
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.expiry.is_empty()
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

    /// Whose turn it is.
    pub(super) fn head(&self) -> Option<RequestId> {
        let waiting = self.classes.values().filter(|class| !class.is_empty());
        waiting.min_by_key(|class| class.turn())?.lines.head()
    }

    /// Who may be looked at when the head cannot run: the first of each line in the order of
    /// turns, and where there are too few lines, those behind the head in its own.
    pub(super) fn behind_head(&self, most: usize) -> Vec<RequestId> {
        let mut classes: Vec<_> = self.classes.values().filter(|class| !class.is_empty()).collect();
        classes.sort_unstable_by_key(|class| class.turn());
        let heads = classes.iter().flat_map(|class| class.lines.heads()).skip(1);
        let followers = classes.first().into_iter().flat_map(|class| class.lines.followers());
        heads.chain(followers).take(most).collect()
    }

    /// A place that holds nothing: for a request that is on its way in.
    pub(super) const fn nowhere() -> Place {
        let key = Key { first_attempt: true, received: Timestamp::ZERO, ticket: 0 };
        Place { key, since: Timestamp::ZERO, until: Timestamp::ZERO }
    }

    /// Takes an entry in, at its place; `tokens` is what it is expected to be charged.
    pub(super) fn push(
        &mut self,
        facts: &RequestFacts,
        retry: bool,
        tokens: u64,
        (since, until): (Timestamp, Timestamp),
    ) -> Place {
        self.tickets += 1;
        let key = Key { first_attempt: !retry, received: facts.received, ticket: self.tickets };
        let (floor, ticket) = (self.floor(self.rule(facts.class).0), self.tickets);
        let weight = self.weight(facts.tenant);
        let class = self.class_mut(facts.class);
        if class.is_empty() {
            class.stands = Mark { level: class.stands.level.max(floor), ticket };
        }
        class.waiting += 1;
        class.tokens += tokens;
        class.sequences += sequences(facts);
        class.lines.push(facts.tenant, weight, key, Entry { id: facts.id, tokens, since });
        self.expiry.insert((until, facts.id));
        self.since.insert((since, facts.id));
        self.bytes += facts.body_bytes;
        self.sequences += sequences(facts);
        self.retries += usize::from(retry);
        self.raise_floor();
        Place { key, since, until }
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, facts: &RequestFacts, place: Place) {
        let Some(class) = self.classes.get_mut(&facts.class) else { return };
        let Some(entry) = class.lines.remove(facts.tenant, &place.key) else { return };
        class.waiting -= 1;
        class.tokens = class.tokens.saturating_sub(entry.tokens);
        class.sequences = class.sequences.saturating_sub(sequences(facts));
        self.expiry.remove(&(place.until, facts.id));
        self.since.remove(&(place.since, facts.id));
        self.bytes = self.bytes.saturating_sub(facts.body_bytes);
        self.sequences = self.sequences.saturating_sub(sequences(facts));
        self.retries = self.retries.saturating_sub(usize::from(!place.key.first_attempt));
        self.raise_floor();
    }

    /// A request is sent to a replica: charges its tenant and its class.
    pub(super) fn charge(&mut self, facts: &RequestFacts, tokens: u64) {
        self.tickets += 1;
        let (level, ticket) = (self.level_of(facts.class), self.tickets);
        let weight = self.weight(facts.tenant);
        let class = self.class_mut(facts.class);
        class.stands = Mark { level: level + real(tokens) / class.share, ticket };
        class.lines.sent(facts.tenant, weight, tokens);
    }

    /// It has left the replica: what it `used` takes the place of what it was `charged`.
    pub(super) fn settle(&mut self, facts: &RequestFacts, charged: u64, used: u64) {
        let Some(class) = self.classes.get_mut(&facts.class) else { return };
        class.stands.level += (real(used) - real(charged)) / class.share;
        class.lines.ended(facts.tenant, charged, used);
        self.raise_floor();
    }

    /// What goes before a newcomer of this class and tenant, by its fair position.
    pub(super) fn before(&self, class: ClassId, tenant: TenantId) -> Before {
        let newcomer = Newcomer { tenant, weight: self.weight(tenant), tokens: 0 };
        let (critical, share) = self.rule(class);
        let own = self.classes.get(&class).filter(|own| !own.is_empty());
        let ahead = own.map_or_else(Ahead::default, |own| own.lines.ahead(newcomer));
        let level = self.level_of(class) + ahead.tokens / share;
        let waiting = self.classes.iter().filter(|(_, other)| !other.is_empty());
        let sequences = waiting
            .map(|(id, other)| {
                let all = real(other.sequences);
                if *id == class {
                    let served = all * ahead.tokens / real(other.tokens.max(1));
                    return (served + 0.5 * size(ahead.begun)).min(all);
                }
                match (other.critical, critical) {
                    (true, false) => all,
                    (false, true) => 0.0,
                    _ if other.stands.level > level => 0.0,
                    _ => {
                        let tokens = (level - other.stands.level) * other.share;
                        (all * tokens / real(other.tokens.max(1)) + 0.5).min(all)
                    }
                }
            })
            .sum();
        Before { sequences, seconds: own.and_then(|own| own.lines.time_before(newcomer)) }
    }

    /// Whether this tenant was refused something lately.
    pub(super) fn crowd(&self, class: ClassId, tenant: TenantId) -> Crowd {
        let line = self.classes.get(&class).and_then(|class| class.lines.line(tenant));
        line.map_or(Crowd::Modest, Line::crowd)
    }

    /// A request of this tenant was taken in or refused.
    pub(super) fn judged(&mut self, facts: &RequestFacts, refused: bool) {
        let class = self.classes.get_mut(&facts.class);
        if let Some(line) = class.and_then(|class| class.lines.line_mut(facts.tenant)) {
            line.judged(refused);
        }
    }

    /// Those who give way first, the very last first: of the class and the tenant that would be
    /// furthest ahead of the others if all that waits were served. With a newcomer, only such as
    /// stand behind it.
    pub(super) fn last(&self, newcomer: Option<(ClassId, Newcomer)>) -> Vec<RequestId> {
        let of = |id: ClassId| newcomer.filter(|(own, _)| *own == id).map(|(_, one)| one);
        let ends = self.classes.iter().filter_map(|(id, class)| {
            let own = of(*id);
            let level = class.end(self.level_of(*id), own.map_or(0, |one| one.tokens));
            let end = (!class.critical, Mark { level, ticket: 0 });
            (own.is_some() || !class.is_empty()).then_some((end, *id, class))
        });
        let Some((_, id, class)) = ends.max_by_key(|(end, ..)| *end) else { return Vec::new() };
        let line = class.lines.highest(of(id));
        line.map_or_else(Vec::new, |line| line.last_first().take(MOST_GIVING_WAY).collect())
    }

    /// Somebody of this class and tenant who may come.
    pub(super) fn newcomer(&self, facts: &RequestFacts, tokens: u64) -> (ClassId, Newcomer) {
        let (tenant, weight) = (facts.tenant, self.weight(facts.tenant));
        (facts.class, Newcomer { tenant, weight, tokens })
    }

    /// What `/status` shows: who waits, by class and tenant.
    pub(super) fn parts(&self, now: Timestamp) -> Vec<QueuePart> {
        let parts = self.classes.iter().flat_map(|(class, lines)| {
            lines.lines.waiting().map(|(tenant, line)| QueuePart {
                class: *class,
                tenant,
                waiting: u32::try_from(line.len()).unwrap_or(u32::MAX),
                tokens: line.tokens(),
                oldest_wait: now.saturating_since(line.oldest().unwrap_or(now)),
            })
        });
        parts.collect()
    }

    /// Whether nobody waits and every charge is settled.
    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        self.is_empty() && self.classes.values().all(|class| class.lines.is_idle())
    }

    /// Whether the parts agree with one another.
    pub(super) fn is_sound(&self) -> bool {
        let waiting: usize = self.classes.values().map(|class| class.waiting).sum();
        waiting == self.expiry.len()
            && waiting == self.since.len()
            && self.retries <= waiting
            && (waiting > 0 || (self.bytes == 0 && self.sequences == 0))
            && self
                .classes
                .values()
                .all(|class| class.lines.is_sound() && (!class.is_empty() || class.tokens == 0))
    }

    fn class_mut(&mut self, id: ClassId) -> &mut Class {
        self.classes.entry(id).or_insert_with(|| Class {
            share: 1.0,
            critical: false,
            stands: Mark::default(),
            lines: Lines::default(),
            waiting: 0,
            tokens: 0,
            sequences: 0,
        })
    }

    /// Whether a class is critical, and its share.
    fn rule(&self, id: ClassId) -> (bool, f64) {
        self.classes.get(&id).map_or((false, 1.0), |class| (class.critical, class.share))
    }

    fn weight(&self, tenant: TenantId) -> f64 {
        self.weights.get(&tenant).copied().unwrap_or(1.0)
    }

    const fn floor(&self, critical: bool) -> f64 {
        if critical { self.floor_critical } else { self.floor }
    }

    /// Classes that begin to wait start no lower than the lowest that does.
    fn raise_floor(&mut self) {
        let lowest = |critical: bool| {
            let waiting = self.classes.values().filter(|one| !one.is_empty());
            waiting
                .filter(|one| one.critical == critical)
                .map(|one| one.stands.level)
                .reduce(f64::min)
        };
        let (plain, critical) = (lowest(false), lowest(true));
        self.floor = self.floor.max(plain.unwrap_or(self.floor));
        self.floor_critical = self.floor_critical.max(critical.unwrap_or(self.floor_critical));
    }

    /// Where a class stands, or would when it began to wait now.
    fn level_of(&self, id: ClassId) -> f64 {
        match self.classes.get(&id) {
            Some(class) if !class.is_empty() => class.stands.level,
            Some(class) => class.stands.level.max(self.floor(class.critical)),
            None => self.floor(false),
        }
    }
}

fn sequences(facts: &RequestFacts) -> u64 {
    u64::from(facts.sequences.max(1))
}

fn bounded(value: f64) -> f64 {
    if value.is_finite() { value.clamp(LEAST, MOST) } else { 1.0 }
}
