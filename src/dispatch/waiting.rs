//! The time in the queue: into it, and out of it when the wait cannot hold any more.

use std::time::Duration;

use crate::domain::{Reason, RequestId, Timestamp, Unit};

use super::charge::expected;
use super::num::{real, seconds, size};
use super::queue::Place;
use super::refusal::Cause;
use super::request::{Request, State};
use super::{Dispatcher, Effect};

/// How long a retry waits at least, its client's own deadline aside. It was admitted once, and
/// stands first: when a replica dies, its requests take the next slots of the others, and those
/// come free within the length of an answer, not within the bound for new requests.
const RETRY_PATIENCE: Duration = Duration::from_secs(10);

impl Dispatcher {
    /// Puts a request into the queue, a retry to the front of its tenant's line.
    pub(super) fn enqueue(&mut self, now: Timestamp, mut request: Request) {
        let retry = request.attempts > 0;
        let wait = self.policy.queue.wait;
        let until = now + if retry { wait.max(RETRY_PATIENCE) } else { wait };
        let until = self.deadline(&request).map_or(until, |deadline| deadline.min(until));
        let tokens = expected(&self.learned.cost(&request.facts));
        let place = self.queue.push(&request.facts, retry, tokens, (now, until));
        request.state = State::Queued(place);
        self.requests.insert(request.facts.id, request);
    }

    /// Evicts whose time in the queue is over.
    pub(super) fn expire(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        // All of them leave first: nobody is told to wait behind those who go as well.
        let mut gone = Vec::new();
        while let Some(id) = self.queue.expired(now) {
            let Some((request, place)) = self.take_out(id) else { break };
            gone.push((request, place));
        }
        for (request, place) in gone {
            let waited = now.saturating_since(place.since).as_secs_f64();
            self.evict_late(now, &request, place, waited, out);
        }
    }

    /// Evicts from the end of the queue whom the others ahead leave no time any more, even if
    /// completions come as fast as they may: since it came in, lighter tenants went before it,
    /// or replicas were lost.
    pub(super) fn evict_hopeless(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        let Some(rate) = self.rates.completions(self.usable_limit()) else { return };
        while let Some(id) = self.queue.last(None).first().copied() {
            let Some(request) = self.requests.get(&id) else { break };
            let State::Queued(place) = request.state else { break };
            let Some(crowd) = request.estimated else { break };
            let ahead = real(self.queue.sequences()) - f64::from(request.sequences());
            let wait = self.margin.under(crowd, ahead) / rate;
            if now + seconds(wait) <= place.until {
                break;
            }
            let Some((request, place)) = self.take_out(id) else { break };
            let waited = now.saturating_since(place.since).as_secs_f64();
            self.evict_late(now, &request, place, waited + wait, out);
        }
    }

    /// Makes room for a newcomer at the bounds on count and bytes, where others stand further
    /// behind than it would. Otherwise says why there is none.
    pub(super) fn make_room(
        &mut self,
        now: Timestamp,
        request: &Request,
        out: &mut Vec<Effect>,
    ) -> Option<Cause> {
        let bounds = self.policy.queue;
        let most = usize::try_from(bounds.count).unwrap_or(usize::MAX);
        let waiting = self.queue.len() - self.queue.retries();
        let bytes = self.queue.bytes().saturating_add(request.facts.body_bytes);
        let cause = if waiting >= most {
            Cause::new(Reason::QueueFull, size(most), size(waiting))
        } else if bytes > bounds.bytes {
            Cause {
                unit: Some(Unit::Bytes),
                ..Cause::new(Reason::QueueFull, real(bounds.bytes), real(bytes))
            }
        } else {
            return None;
        };
        let tokens = expected(&self.learned.cost(&request.facts));
        let newcomer = self.queue.newcomer(&request.facts, tokens);
        let (mut going, mut freed) = (0, 0);
        let last = self.queue.last(Some(newcomer));
        while waiting - going >= most || bytes.saturating_sub(freed) > bounds.bytes {
            let Some(next) = last.get(going).and_then(|id| self.requests.get(id)) else {
                return Some(cause);
            };
            freed += next.facts.body_bytes;
            going += 1;
        }
        for id in last.into_iter().take(going) {
            if let Some((request, _)) = self.take_out(id) {
                let rejection = self.reject(now, &request, cause);
                out.push(Effect::Evict(id, rejection));
            }
        }
        None
    }

    fn take_out(&mut self, id: RequestId) -> Option<(Request, Place)> {
        let request = self.requests.remove(&id)?;
        match request.state {
            State::Queued(place) => {
                self.queue.remove(&request.facts, place);
                Some((request, place))
            }
            State::Held(_) => {
                self.requests.insert(id, request);
                None
            }
        }
    }

    /// Evicts one that has waited, or would wait, for too long; it is out of the queue already.
    fn evict_late(
        &mut self,
        now: Timestamp,
        request: &Request,
        place: Place,
        waited: f64,
        out: &mut Vec<Effect>,
    ) {
        if let (0, Some(crowd)) = (request.attempts, request.estimated) {
            self.margin.evicted(crowd);
        }
        let received = request.facts.received;
        let cause = match self.deadline(request) {
            Some(deadline) if deadline <= place.until => Cause::new(
                Reason::Deadline,
                deadline.saturating_since(received).as_secs_f64(),
                place.since.saturating_since(received).as_secs_f64() + waited,
            ),
            _ if !self.replicas.iter().any(super::replica::Replica::is_usable) => {
                self.no_replicas()
            }
            _ => Cause::new(
                Reason::QueueWait,
                place.until.saturating_since(place.since).as_secs_f64(),
                waited,
            ),
        };
        let rejection = self.reject(now, request, cause);
        out.push(Effect::Evict(request.facts.id, rejection));
    }
}
