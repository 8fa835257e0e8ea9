//! The way in: dispatch now, wait, or be refused; and the way out of the queue.
//!
//! A refusal is given at once where the wait cannot hold, not when it is over: the client's own
//! retry is worth more early. The estimate needs a measured rate; without one nobody is refused
//! for it, and the bound in seconds is kept by eviction alone.

use std::time::Duration;

use rand::RngExt;

use crate::domain::{
    Reason, Rejection, RequestFacts, RequestId, ShedNote, ShouldRetry, Slo, Timestamp,
};

use super::admission::{self, Ask};
use super::num::{real, size};
use super::queue::Queue;
use super::request::{Request, State};
use super::{Dispatcher, Effect, routing};

/// How many may go before a head that does not fit, before it is reserved for.
const SKIPS: u32 = 4;
/// How long a retry waits at least, its client's own deadline aside. It was admitted once, and
/// stands first: when a replica dies, its requests take the next slots of the others, and those
/// come free within the length of an answer, not within the bound for new requests.
const RETRY_PATIENCE: Duration = Duration::from_secs(10);
/// Shed notes kept.
const NOTES: usize = 64;
/// What stands in for the drain time when no replica may be used, seconds.
const NO_REPLICAS: f64 = 5.0;

/// What a refusal is explained by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    pub(super) reason: Reason,
    pub(super) limit: f64,
    pub(super) reading: f64,
}

impl Dispatcher {
    pub(super) fn arrive(&mut self, now: Timestamp, facts: RequestFacts, out: &mut Vec<Effect>) {
        if self.requests.contains_key(&facts.id) {
            return;
        }
        if facts.client_retries > 0 {
            self.promises.returned();
        }
        let request = Request {
            state: State::Queued(Queue::nowhere()),
            facts,
            estimated: self.rates.is_known(),
            attempts: 0,
            failed: Vec::new(),
            was_busy: false,
            was_idle_closed: false,
        };
        if let Some(cause) = self.refusal(now, &request) {
            let rejection = self.reject(now, &request, cause);
            out.push(Effect::Reject(request.facts.id, rejection));
            return;
        }
        self.budget.earn(self.policy.retry_budget);
        self.enqueue(now, request);
    }

    /// Why a new request must be refused at once, if it must.
    fn refusal(&mut self, now: Timestamp, request: &Request) -> Option<Cause> {
        if self.draining {
            return Some(Cause { reason: Reason::Draining, limit: 0.0, reading: 0.0 });
        }
        if !self.replicas.iter().any(super::replica::Replica::is_usable) {
            return Some(self.no_replicas());
        }
        let facts = &request.facts;
        let deadline = self.deadline(request);
        let allowed = deadline.map(|at| at.saturating_since(facts.received).as_secs_f64());
        let late = |reading| Cause {
            reason: Reason::Deadline,
            limit: allowed.unwrap_or_default(),
            reading,
        };
        let waited = now.saturating_since(facts.received).as_secs_f64();
        if deadline.is_some_and(|at| at <= now) {
            return Some(late(waited));
        }
        if self.queue.is_empty() && self.fits_now(now, request) {
            return None;
        }
        let bounds = self.policy.queue;
        let longest = bounds.wait.as_secs_f64();
        let wait = self.wait_of(request.sequences());
        let estimate = wait.unwrap_or_default();
        if self.late_wait_of(request.sequences()).unwrap_or_default() > longest
            || bounds.wait.is_zero()
        {
            self.margin.refused();
            let reading = self.late_wait_of(request.sequences()).unwrap_or_default();
            return Some(Cause { reason: Reason::QueueWait, limit: longest, reading });
        }
        if wait.is_some_and(|wait| deadline.is_some_and(|at| at < now + super::num::seconds(wait)))
        {
            return Some(late(waited + estimate));
        }
        let waiting = self.queue.len() - self.queue.retries();
        if size(waiting) >= f64::from(bounds.count) {
            return Some(Cause {
                reason: Reason::QueueFull,
                limit: f64::from(bounds.count),
                reading: size(waiting),
            });
        }
        let bytes = self.queue.bytes().saturating_add(facts.body_bytes);
        (bytes > bounds.bytes).then(|| Cause {
            reason: Reason::QueueFull,
            limit: real(bounds.bytes),
            reading: real(bytes),
        })
    }

    /// Puts a request into the queue, a retry to its front.
    pub(super) fn enqueue(&mut self, now: Timestamp, mut request: Request) {
        let retry = request.attempts > 0;
        let wait = self.policy.queue.wait;
        let until = now + if retry { wait.max(RETRY_PATIENCE) } else { wait };
        let until = self.deadline(&request).map_or(until, |deadline| deadline.min(until));
        request.state = State::Queued(self.queue.push(&request.facts, retry, now, until));
        self.requests.insert(request.facts.id, request);
    }

    /// Evicts whose time in the queue is over.
    pub(super) fn expire(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        // All of them leave first: nobody is told to wait behind those who go as well.
        let mut gone = Vec::new();
        while let Some(id) = self.queue.expired(now) {
            let Some(request) = self.requests.remove(&id) else { break };
            let State::Queued(place) = request.state else { break };
            self.queue.remove(&request.facts, place);
            gone.push((request, place));
        }
        for (request, place) in gone {
            if request.attempts == 0 && request.estimated {
                self.margin.evicted();
            }
            let received = request.facts.received;
            let cause = match self.deadline(&request) {
                Some(deadline) if deadline <= now => Cause {
                    reason: Reason::Deadline,
                    limit: deadline.saturating_since(received).as_secs_f64(),
                    reading: now.saturating_since(received).as_secs_f64(),
                },
                _ if !self.replicas.iter().any(super::replica::Replica::is_usable) => {
                    self.no_replicas()
                }
                _ => Cause {
                    reason: Reason::QueueWait,
                    limit: place.until.saturating_since(place.since).as_secs_f64(),
                    reading: now.saturating_since(place.since).as_secs_f64(),
                },
            };
            let rejection = self.reject(now, &request, cause);
            out.push(Effect::Evict(request.facts.id, rejection));
        }
    }

    /// Sends from the queue what may run now.
    pub(super) fn pump(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        while !self.queue.is_empty() {
            self.find_open();
            let Some((id, at)) = self.next_to_run(now) else { break };
            let Some(mut request) = self.requests.remove(&id) else { break };
            if let State::Queued(place) = request.state {
                self.queue.remove(&request.facts, place);
            }
            if let Some(replica) = self.send(now, &mut request, at) {
                out.push(Effect::Dispatch(id, replica));
                self.requests.insert(id, request);
            }
        }
    }

    /// The next request to run and the index of its replica. A head that does not fit may be
    /// passed by a few; then only replicas that it cannot use go to others.
    fn next_to_run(&mut self, now: Timestamp) -> Option<(RequestId, usize)> {
        if self.open.is_empty() {
            return None;
        }
        let heads: Vec<RequestId> = self.queue.heads(1 + SKIPS as usize).collect();
        let head = *heads.first()?;
        let reserved = self.queue.skips(head) >= SKIPS;
        for id in heads {
            let head_request = self.requests.get(&head)?;
            let request = self.requests.get(&id)?;
            let behind = id != head;
            let at = routing::pick(
                &self.replicas,
                &self.open,
                &self.ask(now, request),
                |replica| {
                    request.may_use(replica.id)
                        && !(behind && reserved && head_request.may_use(replica.id))
                },
                (now, self.mean_foreign),
                &mut self.rng,
            );
            if let Some(at) = at {
                if behind {
                    self.queue.skip(head);
                }
                return Some((id, at));
            }
        }
        None
    }

    /// Whether a request could run at once.
    fn fits_now(&mut self, now: Timestamp, request: &Request) -> bool {
        self.find_open();
        let ask = self.ask(now, request);
        self.open.iter().filter_map(|at| self.replicas.get(*at)).any(|replica| {
            request.may_use(replica.id)
                && replica.ejection.admits()
                && admission::passes(replica, &ask)
        })
    }

    fn find_open(&mut self) {
        self.open.clear();
        self.open.extend(
            self.replicas
                .iter()
                .enumerate()
                .filter(|(_, replica)| replica.is_usable() && admission::has_slot(replica, 1))
                .map(|(at, _)| at),
        );
    }

    /// What the gates are asked for this request. A retry's time at replicas is not held
    /// against it.
    fn ask(&self, now: Timestamp, request: &Request) -> Ask {
        let waited = if request.attempts == 0 {
            now.saturating_since(request.facts.received)
        } else {
            Duration::ZERO
        };
        Ask {
            sequences: request.sequences(),
            cost: self.learned.cost(&request.facts),
            waited,
            target: self.slo(&request.facts).ttft,
            tightest: self.tightest,
        }
    }

    /// How long somebody with `sequences` who came last would wait, seconds; `None` before
    /// anything has finished.
    pub(super) fn wait_of(&self, sequences: u32) -> Option<f64> {
        let rate = self.rates.completions(self.usable_limit())?;
        Some((real(self.queue.sequences()) + f64::from(sequences)) / rate)
    }

    /// The same, as late as all but one in a hundred would start if completions came at random.
    fn late_wait_of(&self, sequences: u32) -> Option<f64> {
        let rate = self.rates.completions(self.usable_limit())?;
        let ahead = real(self.queue.sequences());
        Some((self.margin.over(ahead) + f64::from(sequences)) / rate)
    }

    pub(super) fn slo(&self, facts: &RequestFacts) -> Slo {
        self.policy
            .classes
            .iter()
            .find(|class| class.id == facts.class)
            .map(|class| class.slo)
            .unwrap_or_default()
    }

    /// The last moment at which a first token is of use: the client's own word and, for a first
    /// attempt, the class's target.
    fn deadline(&self, request: &Request) -> Option<Timestamp> {
        let facts = &request.facts;
        let target = self.slo(facts).ttft.filter(|_| request.attempts == 0);
        let target = target.map(|target| facts.received + target);
        [facts.deadline, target].into_iter().flatten().min()
    }

    fn no_replicas(&self) -> Cause {
        let listed = self.replicas.iter().filter(|replica| replica.listed).count();
        Cause { reason: Reason::NoReplicas, limit: size(listed), reading: 0.0 }
    }

    /// Makes the refusal of a request, promises it a slot, and notes it.
    pub(super) fn reject(&mut self, now: Timestamp, request: &Request, cause: Cause) -> Rejection {
        let limit = self.usable_limit();
        let rate = self.rates.completions_or_assumed(limit);
        let retry_after = cause.reason.retry_after().then(|| {
            let drain = match cause.reason {
                Reason::NoReplicas => NO_REPLICAS,
                _ => (real(self.queue.sequences()) + 1.0) / rate,
            };
            let uniform = self.rng.random::<f64>();
            self.promises.promise(now, drain, rate, uniform)
        });
        let hopeless = cause.reason == Reason::Poison
            || retry_after.is_some_and(|after| {
                request.facts.deadline.is_some_and(|deadline| deadline < now + after)
            });
        let rejection = Rejection {
            reason: cause.reason,
            retry_after,
            should_retry: if hopeless { ShouldRetry::No } else { ShouldRetry::Unsaid },
            limit: cause.limit,
            reading: cause.reading,
            age: self.age_of(now, cause.reason),
        };
        if self.sheds.len() >= NOTES {
            self.sheds.pop_front();
        }
        self.sheds.push_back(ShedNote {
            at: now,
            reason: rejection.reason,
            limit: rejection.limit,
            reading: rejection.reading,
            retry_after: rejection.retry_after,
            class: request.facts.class,
            tenant: request.facts.tenant,
        });
        rejection
    }

    /// Age of the oldest outside reading behind a refusal.
    fn age_of(&self, now: Timestamp, reason: Reason) -> Duration {
        if reason != Reason::NoReplicas {
            return Duration::ZERO;
        }
        let ages = self.replicas.iter().filter(|replica| replica.health.is_some());
        ages.map(|replica| now.saturating_since(replica.health_at)).max().unwrap_or_default()
    }
}
