//! Whether, when and where a request runs: the pure core.
//!
//! [`Dispatcher::handle`] takes one [`Event`] at one [`Timestamp`] and answers with [`Effect`]s;
//! [`Dispatcher::next_deadline`] says when it wants to be woken. It does no IO, reads no clock
//! and draws from its own seeded generator alone, so the live gate and the simulator run the very
//! same code, and a run can be repeated. Checking a limit and taking the slot is one step.
//!
//! Unknown ids are no-ops: a client's cancel may cross an end on its way.

mod admission;
mod arrival;
mod attempt;
mod charge;
mod ejection;
mod event;
mod fairness;
mod fleet;
mod invariants;
mod learned;
mod ledger;
mod levels;
mod limiter;
mod line;
mod margin;
mod num;
mod policy;
mod pump;
mod queue;
mod rates;
mod refusal;
mod replica;
mod request;
mod retry;
mod retry_after;
mod routing;
mod snapshot;
mod waiting;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::domain::{ReplicaId, RequestId, ShedNote, Timestamp};

pub use event::{Effect, Event, Note, ReplicaSpec};
pub use policy::{ClassPolicy, LimitPolicy, Policy, QueuePolicy, TenantPolicy};

use learned::Learned;
use margin::Margin;
use queue::Queue;
use rates::Rates;
use replica::Replica;
use request::Request;
use retry::Budget;
use retry_after::Promises;

/// The decisions of one pool.
#[derive(Debug)]
pub struct Dispatcher {
    policy: Arc<Policy>,
    /// The tightest TTFT target of all classes.
    tightest: Option<Duration>,
    rng: StdRng,
    now: Timestamp,
    requests: BTreeMap<RequestId, Request>,
    queue: Queue,
    /// In the order of their ids.
    replicas: Vec<Replica>,
    /// Mean of the others' load where it is known; stands in where it is not.
    mean_foreign: f64,
    /// When a reading grows stale or a breaker half-opens.
    fleet_deadline: Option<Timestamp>,
    /// When the prompts of unary requests are reckoned to be read.
    prefill_clock: BTreeSet<(Timestamp, RequestId)>,
    rates: Rates,
    learned: Learned,
    promises: Promises,
    margin: Margin,
    budget: Budget,
    draining: bool,
    sheds: VecDeque<ShedNote>,
    /// Indices of replicas with a free slot; kept only for its memory.
    open: Vec<usize>,
    /// The replica that is kept for a head which did not fit too often.
    kept: Option<(RequestId, ReplicaId)>,
}

impl Dispatcher {
    /// A dispatcher without replicas. The same `seed` and events give the same effects.
    pub fn new(policy: Arc<Policy>, seed: u64) -> Self {
        let tightest = tightest(&policy);
        Self {
            queue: Queue::new(&policy),
            policy,
            tightest,
            rng: StdRng::seed_from_u64(seed),
            now: Timestamp::ZERO,
            requests: BTreeMap::new(),
            replicas: Vec::new(),
            mean_foreign: 0.0,
            fleet_deadline: None,
            prefill_clock: BTreeSet::new(),
            rates: Rates::default(),
            learned: Learned::default(),
            promises: Promises::default(),
            margin: Margin::default(),
            budget: Budget::default(),
            draining: false,
            sheds: VecDeque::new(),
            open: Vec::new(),
            kept: None,
        }
    }

    /// Takes one event in and appends what must be done to `out`. Time never goes back: an
    /// earlier `now` than before is taken for the last one.
    pub fn handle(&mut self, now: Timestamp, event: Event, out: &mut Vec<Effect>) {
        let now = now.max(self.now);
        self.queue.advance(now.saturating_since(self.now).as_secs_f64());
        self.now = now;
        self.rates.advance(now);
        self.advance_prefill(now);
        self.advance_fleet(now, out);
        self.expire(now, out);
        match event {
            Event::Arrive(facts) => self.arrive(now, facts, out),
            Event::Cancel(id) => self.cancel(now, id),
            Event::FirstToken(id) => self.first_token(now, id, out),
            Event::Progress(id, tokens) => self.progress(now, id, tokens),
            Event::HoldEnded(id) => self.hold_ended(now, id, out),
            Event::AttemptFailed(id, failure) => self.attempt_failed(now, id, failure, out),
            Event::Finish(id, outcome, usage) => self.finish(now, id, outcome, usage, out),
            Event::Telemetry(id, sample) => self.telemetry(now, id, sample, out),
            Event::Health(id, health) => self.probed(now, id, health, out),
            Event::Replicas(specs) => self.set_replicas(now, &specs, out),
            Event::Policy(policy) => self.set_policy(policy),
            Event::Tick => {}
            Event::Drain => self.draining = true,
        }
        self.advance_prefill(now);
        self.advance_fleet(now, out);
        self.pump(now, out);
        self.expire(now, out);
        let full = (!self.queue.is_empty()).then(|| self.usable_limit());
        self.rates.state(full);
        let idle = self.queue.is_empty() && 2.0 * self.held() < self.usable_limit();
        self.promises.idle(now, idle);
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// When [`Event::Tick`] is due at the latest; `None` while nothing is.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let prefill = if self.queue.is_empty() {
            None
        } else {
            self.prefill_clock.first().map(|(at, _)| *at)
        };
        [self.queue.next_expiry(), self.fleet_deadline, prefill].into_iter().flatten().min()
    }

    fn at(&self, id: ReplicaId) -> Option<usize> {
        self.replicas.binary_search_by_key(&id, |replica| replica.id).ok()
    }

    fn replica_mut(&mut self, id: ReplicaId) -> Option<&mut Replica> {
        let at = self.at(id)?;
        self.replicas.get_mut(at)
    }

    /// Sequences held by all replicas.
    fn held(&self) -> f64 {
        self.replicas.iter().map(|replica| f64::from(replica.ledger.n())).sum()
    }

    /// The limits of the replicas that may be used, together.
    fn usable_limit(&self) -> f64 {
        self.replicas.iter().filter(|replica| replica.is_usable()).map(|r| r.limit).sum()
    }
}

fn tightest(policy: &Policy) -> Option<Duration> {
    policy.classes.iter().filter_map(|class| class.slo.ttft).min()
}
