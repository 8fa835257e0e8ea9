//! The way in: dispatch now, wait, or be refused.
//!
//! A refusal is given at once where the wait cannot hold, not when it is over: the client's own
//! retry is worth more early. The estimate needs a measured rate; without one nobody is refused
//! for it, and the bound in seconds is kept by eviction alone.

use crate::domain::{Reason, RequestFacts, Slo, Timestamp};

use super::num::{real, size};
use super::queue::Queue;
use super::refusal::Cause;
use super::request::{Request, State};
use super::{Dispatcher, Effect};

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
    pub(super) fn deadline(&self, request: &Request) -> Option<Timestamp> {
        let facts = &request.facts;
        let target = self.slo(facts).ttft.filter(|_| request.attempts == 0);
        let target = target.map(|target| facts.received + target);
        [facts.deadline, target].into_iter().flatten().min()
    }
}
