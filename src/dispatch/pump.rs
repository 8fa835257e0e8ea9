//! From the queue to a replica: who runs next, and where.

use std::time::Duration;

use crate::domain::{RequestId, Timestamp};

use super::admission::{self, Ask};
use super::request::{Request, State};
use super::{Dispatcher, Effect, routing};

/// How many may go before a head that does not fit, before it is reserved for.
const SKIPS: u32 = 4;

impl Dispatcher {
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
    pub(super) fn fits_now(&mut self, now: Timestamp, request: &Request) -> bool {
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
}
