//! The way in: dispatch now, wait, or be refused.
//!
//! A refusal is given at once where the wait cannot hold, not when it is over: the client's own
//! retry is worth more early. How long it would wait follows from its *fair* place, not from the
//! end of the queue: who has had little stands near the front, however many requests a flooding
//! tenant has waiting, so the shortage falls on those who ask for more than their part. The
//! estimate needs a measured rate; without one nobody is refused for it, and the bound in seconds
//! is kept by eviction alone.

use crate::domain::{Reason, RequestFacts, Slo, Timestamp};

use super::margin::Crowd;
use super::num::{real, seconds};
use super::queue::Queue;
use super::refusal::Cause;
use super::request::{Request, State};
use super::{Dispatcher, Effect};

/// What somebody would wait, in seconds.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// As expected.
    mean: f64,
    /// As late as nearly all would start.
    late: f64,
}

impl Dispatcher {
    pub(super) fn arrive(&mut self, now: Timestamp, facts: RequestFacts, out: &mut Vec<Effect>) {
        if self.requests.contains_key(&facts.id) {
            return;
        }
        if facts.client_retries > 0 {
            self.promises.returned();
        }
        let crowd = self.queue.crowd(facts.class, facts.tenant);
        let request = Request {
            state: State::Queued(Queue::nowhere()),
            facts,
            estimated: self.rates.is_known().then_some(crowd),
            skipped: 0,
            attempts: 0,
            failed: Vec::new(),
            was_busy: false,
            was_idle_closed: false,
        };
        let refusal = self.refusal(now, &request, out);
        self.queue.judged(&request.facts, refusal.is_some());
        if let Some(cause) = refusal {
            let rejection = self.reject(now, &request, cause);
            out.push(Effect::Reject(request.facts.id, rejection));
            return;
        }
        self.budget.earn(self.policy.retry_budget);
        self.enqueue(now, request);
        self.evict_hopeless(now, out);
    }

    /// Why a new request must be refused at once, if it must. Where others stand further behind
    /// at the bounds of the queue, they go in its place.
    fn refusal(
        &mut self,
        now: Timestamp,
        request: &Request,
        out: &mut Vec<Effect>,
    ) -> Option<Cause> {
        if self.draining {
            return Some(Cause::new(Reason::Draining, 0.0, 0.0));
        }
        if !self.replicas.iter().any(super::replica::Replica::is_usable) {
            return Some(self.no_replicas());
        }
        let received = request.facts.received;
        let deadline = self.deadline(request);
        let allowed = deadline.unwrap_or(received).saturating_since(received).as_secs_f64();
        let late = |reading| Cause::new(Reason::Deadline, allowed, reading);
        let waited = now.saturating_since(received).as_secs_f64();
        if deadline.is_some_and(|at| at <= now) {
            return Some(late(waited));
        }
        if self.queue.is_empty() && self.fits_now(now, request) {
            return None;
        }
        let longest = self.policy.queue.wait;
        let wait = self.wait_of(request).unwrap_or(Wait { mean: 0.0, late: 0.0 });
        if longest.is_zero() || wait.late > longest.as_secs_f64() {
            self.margin.refused(request.estimated.unwrap_or(Crowd::Pressing));
            let (limit, reading) = (longest.as_secs_f64(), wait.late);
            return Some(Cause::new(Reason::QueueWait, limit, reading));
        }
        if deadline.is_some_and(|at| at < now + seconds(wait.mean)) {
            return Some(late(waited + wait.mean));
        }
        self.make_room(now, request, out)
    }

    /// How long a newcomer would wait at its fair place; `None` before anything has finished.
    fn wait_of(&self, request: &Request) -> Option<Wait> {
        let crowd = request.estimated?;
        let rate = self.rates.completions(self.usable_limit())?;
        let before = self.queue.before(request.facts.class, request.facts.tenant);
        // Those that stand before it now, and with those that will come to stand there.
        let ahead = before.sequences.max(rate * before.seconds.unwrap_or(0.0));
        let own = f64::from(request.sequences());
        let over = |ahead: f64| (ahead + own) / rate;
        Some(Wait { mean: over(ahead), late: over(self.margin.over(crowd, ahead)) })
    }

    /// How long one more would wait behind all that wait, seconds; `None` before anything has
    /// finished.
    pub(super) fn wait_at_end(&self) -> Option<f64> {
        let rate = self.rates.completions(self.usable_limit())?;
        Some((real(self.queue.sequences()) + 1.0) / rate)
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
