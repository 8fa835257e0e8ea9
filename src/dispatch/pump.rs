//! From the queue to a replica: who runs next, and where.
//!
//! Whose turn it is may not fit where there is room: its KV or its prompt is too large for what
//! is free. Then those behind it may pass, but only a few times. After that one replica is kept
//! for it, the one with the least left to do, and the others go on: a large request waits for
//! one replica to run down, not for all, and cannot be passed for ever.

use std::time::Duration;

use crate::domain::{ReplicaId, RequestId, Timestamp};

use super::admission::{self, Ask};
use super::request::{Request, State};
use super::{Dispatcher, Effect, routing};

/// How many may go before a head that does not fit, before it is reserved for.
const SKIPS: u32 = 4;

impl Dispatcher {
    /// Sends from the queue what may run now.
    pub(super) fn pump(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        if self.queue.is_empty() {
            return;
        }
        self.find_open();
        while let Some((id, at)) = self.next_to_run(now) {
            let Some(mut request) = self.requests.remove(&id) else { break };
            let State::Queued(place) = request.state else { break };
            // Charged while it still waits: a line that is left empty has no place to be
            // charged from.
            let sent = self.send(now, &mut request, at);
            self.queue.remove(&request.facts, place);
            if let (1, Some(crowd)) = (request.attempts, request.estimated) {
                self.margin.started(crowd);
            }
            if let Some(replica) = sent {
                out.push(Effect::Dispatch(id, replica));
                self.requests.insert(id, request);
            }
            if !self.replicas.get(at).is_some_and(|replica| admission::has_slot(replica, 1)) {
                self.open.retain(|open| *open != at);
            }
        }
    }

    /// The next request to run and the index of its replica.
    fn next_to_run(&mut self, now: Timestamp) -> Option<(RequestId, usize)> {
        if self.open.is_empty() {
            return None;
        }
        let head = self.queue.head()?;
        if let Some(at) = self.replica_for(now, head, None) {
            return Some((head, at));
        }
        let kept = self.keep_for(head);
        for id in self.queue.behind_head(SKIPS as usize) {
            if let Some(at) = self.replica_for(now, id, kept) {
                let head = self.requests.get_mut(&head)?;
                head.skipped = head.skipped.saturating_add(1);
                return Some((id, at));
            }
        }
        None
    }

    /// The index of the best replica where this request may run now, one `kept` for another
    /// left aside.
    fn replica_for(
        &mut self,
        now: Timestamp,
        id: RequestId,
        kept: Option<ReplicaId>,
    ) -> Option<usize> {
        let request = self.requests.get(&id)?;
        routing::pick(
            &self.replicas,
            &self.open,
            &self.ask(now, request),
            |replica| request.may_use(replica.id) && kept != Some(replica.id),
            (now, self.mean_foreign),
            &mut self.rng,
        )
    }

    /// The replica that is kept for a head which was passed often enough: of those that it may
    /// use, the one with the fewest tokens to work off. The choice stands while it can.
    fn keep_for(&mut self, head: RequestId) -> Option<ReplicaId> {
        let request = self.requests.get(&head).filter(|head| head.skipped >= SKIPS)?;
        let may = |id: ReplicaId| {
            let at = self.replicas.binary_search_by_key(&id, |replica| replica.id).ok();
            let replica = at.and_then(|at| self.replicas.get(at));
            replica.is_some_and(|replica| replica.is_usable() && request.may_use(id))
        };
        if let Some((_, kept)) = self.kept.filter(|(id, kept)| *id == head && may(*kept)) {
            return Some(kept);
        }
        let usable = self.replicas.iter().filter(|replica| may(replica.id));
        let least = usable.min_by_key(|replica| replica.ledger.kv() + replica.ledger.prefill());
        self.kept = least.map(|replica| (head, replica.id));
        least.map(|replica| replica.id)
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
