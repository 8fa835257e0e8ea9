//! The time in the queue: into it, and out of it when the wait cannot hold any more.

use std::time::Duration;

use crate::domain::{Reason, Timestamp};

use super::refusal::Cause;
use super::request::{Request, State};
use super::{Dispatcher, Effect};

/// How long a retry waits at least, its client's own deadline aside. It was admitted once, and
/// stands first: when a replica dies, its requests take the next slots of the others, and those
/// come free within the length of an answer, not within the bound for new requests.
const RETRY_PATIENCE: Duration = Duration::from_secs(10);

impl Dispatcher {
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
}
