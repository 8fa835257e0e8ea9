//! A plain proxy before the fleet: least connections, a law, and perhaps a queue.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Law, Took};
use crate::dispatch::{Effect, Event};
use crate::domain::{Failure, Health, Outcome, Reason, Rejection, ReplicaId, RequestId, Timestamp};
use crate::sim::Gate;

/// Attempts that it makes for a request.
const ATTEMPTS: u32 = 2;

/// What it does with a request that the law does not admit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queueing {
    /// Refuses it.
    Refuse,
    /// Lets so many wait, in order, each so long.
    Queue {
        /// Most requests.
        count: usize,
        /// Longest wait.
        wait: Duration,
    },
}

#[derive(Debug, Default)]
struct Replica {
    in_flight: u32,
    down: bool,
}

#[derive(Debug)]
struct Held {
    replica: usize,
    sent: Timestamp,
    first: Option<Timestamp>,
    in_flight: u32,
    attempts: u32,
}

/// The proxy.
#[derive(Debug)]
pub struct Front {
    law: Box<dyn Law>,
    queueing: Queueing,
    replicas: Vec<Replica>,
    queue: VecDeque<(RequestId, Timestamp)>,
    held: BTreeMap<RequestId, Held>,
    rng: StdRng,
}

impl Front {
    /// A proxy that has no replicas yet.
    pub fn new(law: Box<dyn Law>, queueing: Queueing, seed: u64) -> Self {
        Self {
            law,
            queueing,
            replicas: Vec::new(),
            queue: VecDeque::new(),
            held: BTreeMap::new(),
            rng: StdRng::seed_from_u64(seed),
        }
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    /// The replica with the fewest in flight that the law admits.
    fn pick(&mut self, but: Option<usize>) -> Option<usize> {
        let open = |(at, replica): &(usize, &Replica)| {
            !replica.down && but != Some(*at) && self.law.admits_at(*at, replica.in_flight)
        };
        let fewest =
            self.replicas.iter().enumerate().filter(open).map(|(_, one)| one.in_flight).min()?;
        let equal = self.replicas.iter().enumerate().filter(open);
        let equal: Vec<usize> =
            equal.filter(|(_, one)| one.in_flight == fewest).map(|(at, _)| at).collect();
        let drawn = self.rng.random_range(0..equal.len().max(1));
        equal.get(drawn).copied()
    }

    /// Sends a request where there is room for it.
    fn send(
        &mut self,
        now: Timestamp,
        id: RequestId,
        tried: (u32, Option<usize>),
    ) -> Option<Effect> {
        let (attempts, but) = tried;
        if !self.law.admits(self.in_flight()) {
            return None;
        }
        let replica = self.pick(but)?;
        let in_flight = self.in_flight();
        self.replicas.get_mut(replica)?.in_flight += 1;
        let attempts = attempts + 1;
        self.held.insert(id, Held { replica, sent: now, first: None, in_flight, attempts });
        Some(Effect::Dispatch(id, ReplicaId(u32::try_from(replica).unwrap_or(u32::MAX))))
    }

    fn release(&mut self, id: RequestId) -> Option<Held> {
        let held = self.held.remove(&id)?;
        if let Some(replica) = self.replicas.get_mut(held.replica) {
            replica.in_flight = replica.in_flight.saturating_sub(1);
        }
        Some(held)
    }

    fn arrive(&mut self, now: Timestamp, id: RequestId, out: &mut Vec<Effect>) {
        if self.queue.is_empty()
            && let Some(effect) = self.send(now, id, (0, None))
        {
            return out.push(effect);
        }
        match self.queueing {
            Queueing::Queue { count, wait } if self.queue.len() < count => {
                self.queue.push_back((id, now + wait));
            }
            _ => out.push(Effect::Reject(id, Rejection::plain(Reason::QueueFull))),
        }
    }

    fn failed(&mut self, now: Timestamp, id: RequestId, failure: Failure, out: &mut Vec<Effect>) {
        let Some(held) = self.release(id) else { return };
        if held.attempts < ATTEMPTS
            && let Some(effect) = self.send(now, id, (held.attempts, Some(held.replica)))
        {
            return out.push(effect);
        }
        self.law.dropped();
        out.push(Effect::Reject(id, Rejection::plain(failure.reason())));
    }

    fn ended(&mut self, now: Timestamp, id: RequestId, outcome: Outcome) {
        let Some(held) = self.release(id) else { return };
        match (outcome, held.first) {
            (Outcome::Completed, Some(first)) => self.law.took(Took {
                now,
                first: first.saturating_since(held.sent),
                whole: now.saturating_since(held.sent),
                in_flight: held.in_flight,
            }),
            _ => self.law.dropped(),
        }
    }

    /// Lets go who waited too long, and sends whom there is room for.
    fn pump(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        while let Some((id, _)) = self.queue.front().copied().filter(|(_, until)| *until <= now) {
            self.queue.pop_front();
            out.push(Effect::Evict(id, Rejection::plain(Reason::QueueWait)));
        }
        while let Some((id, _)) = self.queue.front().copied() {
            let Some(effect) = self.send(now, id, (0, None)) else { break };
            self.queue.pop_front();
            out.push(effect);
        }
    }
}

impl Gate for Front {
    fn handle(&mut self, now: Timestamp, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Arrive(facts) => self.arrive(now, facts.id, out),
            Event::Cancel(id) => {
                if self.release(id).is_none() {
                    self.queue.retain(|(queued, _)| *queued != id);
                }
            }
            Event::FirstToken(id) => {
                if let Some(held) = self.held.get_mut(&id) {
                    held.first = Some(now);
                }
            }
            Event::AttemptFailed(id, failure) => self.failed(now, id, failure, out),
            Event::Finish(id, outcome, _) => self.ended(now, id, outcome),
            Event::Telemetry(ReplicaId(id), sample) => {
                self.law.read(usize::try_from(id).unwrap_or(usize::MAX), &sample);
            }
            Event::Health(ReplicaId(id), health) => {
                let at = usize::try_from(id).unwrap_or(usize::MAX);
                if let Some(replica) = self.replicas.get_mut(at) {
                    replica.down = health == Health::Down;
                }
            }
            Event::Replicas(specs) => self.replicas.resize_with(specs.len(), Replica::default),
            Event::Progress(..)
            | Event::HoldEnded(_)
            | Event::Policy(_)
            | Event::Tick
            | Event::Drain => {}
        }
        self.pump(now, out);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.queue.front().map(|(_, until)| *until)
    }
}
