//! Between gateways and replicas: effects carried out, tokens passed on, failures told.

use std::sync::Arc;

use super::clients::request_id;
use super::{Due, Fleet};
use crate::dispatch::{Effect, Event};
use crate::domain::{Failure, Outcome, Reason, ReplicaId, RequestId, Usage};
use crate::sim::{Emission, Job};

/// Tokens after which a gate is told of progress, and the time.
const BLOCK: u32 = 16;
const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

impl Fleet<'_> {
    /// Brings an event to a gate, and carries out what it wants done.
    pub(super) fn tell(&mut self, gate: usize, event: Event) {
        let mut effects = std::mem::take(&mut self.effects);
        let Some(gateway) = self.gateways.get_mut(gate) else { return };
        gateway.gate.handle(self.now, event, &mut effects);
        gateway.wake = gateway.gate.next_deadline();
        for effect in effects.drain(..) {
            self.perform(gate, &effect);
        }
        // What was done may have brought further events; theirs is another list.
        self.effects = effects;
    }

    fn perform(&mut self, gate: usize, effect: &Effect) {
        match *effect {
            Effect::Dispatch(id, replica) => self.dispatch(gate, id, replica),
            Effect::Reject(id, ref rejection) | Effect::Evict(id, ref rejection) => {
                self.refused(place(id), rejection);
            }
            Effect::Abandon(id) => self.abandon(place(id)),
            Effect::Cut(id, reason) => self.cut(gate, place(id), reason),
            Effect::Note(_) => {}
        }
    }

    fn dispatch(&mut self, gate: usize, id: RequestId, replica: ReplicaId) {
        let (now, request) = (self.now, place(id));
        let to = usize::try_from(replica.0).unwrap_or(usize::MAX);
        let counted = self.counts(now);
        let Some(attempt) = self.attempts.get_mut(request).filter(|attempt| !attempt.ended) else {
            return;
        };
        let Some(server) = self.servers.get_mut(to) else { return };
        attempt.dispatched += 1;
        if let Some(failure) = server.refuses() {
            return self.tell(gate, Event::AttemptFailed(id, failure));
        }
        attempt.replica = Some(to);
        self.sent += u64::from(counted);
        let Some(call) = self.calls.get(attempt.call) else { return };
        if self.load.warm_up > now.saturating_since(crate::domain::Timestamp::ZERO) {
            server.most = 0;
        }
        server.submit(
            now,
            Job {
                id: id.0,
                prompt_tokens: call.seen.prompt,
                prefix: Arc::clone(&call.blocks),
                output: call.output,
                stops: true,
            },
        );
        let sent = attempt.dispatched;
        self.agenda.at(now + self.setup.head_hold, Due::Hold(request, sent));
        self.agenda.at(now + self.setup.first_byte, Due::FirstByte(request, sent));
        self.kick(to);
    }

    /// A step of a replica is over.
    pub(super) fn step_ends(&mut self, replica: usize, life: u32) {
        let mut emissions = std::mem::take(&mut self.emissions);
        if let Some(server) = self.servers.get_mut(replica) {
            server.end(self.now, life, &mut emissions);
        }
        for emission in emissions.drain(..) {
            self.emitted(emission);
        }
        self.emissions = emissions;
        self.kick(replica);
    }

    fn emitted(&mut self, emission: Emission) {
        let (now, id) = (self.now, RequestId(emission.id));
        let request = place(id);
        let Some(attempt) = self.attempts.get_mut(request).filter(|attempt| !attempt.ended) else {
            return;
        };
        let gate = attempt.gate;
        attempt.tokens += emission.tokens;
        attempt.last = now;
        let first = attempt.first.is_none();
        attempt.first.get_or_insert(now);
        if emission.finish.is_some() {
            let tokens = attempt.tokens;
            if first {
                self.tell(gate, Event::FirstToken(id));
            }
            self.finish(request, gate, tokens);
        } else if first {
            attempt.told = now;
            self.tell(gate, Event::FirstToken(id));
        } else if attempt.tokens.is_multiple_of(BLOCK)
            || now.saturating_since(attempt.told) >= SECOND
        {
            attempt.told = now;
            let tokens = attempt.tokens;
            self.tell(gate, Event::Progress(id, tokens));
        }
    }

    fn finish(&mut self, request: usize, gate: usize, tokens: u32) {
        let attempt = self.attempts.get(request);
        let prompt = attempt.and_then(|attempt| self.calls.get(attempt.call));
        let prompt = prompt.map_or(0, |call| call.seen.prompt);
        // As vLLM by default: no word on what the cache held.
        let usage = Usage { input: prompt.into(), output: tokens.into(), cached: None };
        self.ended(request, None);
        self.tell(gate, Event::Finish(request_id(request), Outcome::Completed, Some(usage)));
    }

    /// Everything that a replica held is lost.
    pub(super) fn lose(&mut self, replica: usize) {
        let held = |(_, attempt): &(usize, &super::Attempt)| {
            !attempt.ended && attempt.replica == Some(replica)
        };
        let lost: Vec<usize> =
            self.attempts.iter().enumerate().filter(held).map(|(at, _)| at).collect();
        for request in lost {
            let Some(attempt) = self.attempts.get_mut(request) else { continue };
            attempt.replica = None;
            let (gate, id) = (attempt.gate, request_id(request));
            if attempt.first.is_some() {
                let reason = Reason::UpstreamReset;
                self.ended(request, Some(reason));
                self.tell(gate, Event::Finish(id, Outcome::Failed(reason), None));
            } else {
                self.tell(gate, Event::AttemptFailed(id, Failure::Reset));
            }
        }
    }

    /// Whether this dispatch of a request still waits for its first token.
    fn waits(&self, request: usize, sent: u32) -> Option<usize> {
        let attempt = self.attempts.get(request)?;
        let waits = !attempt.ended && attempt.first.is_none() && attempt.dispatched == sent;
        attempt.replica.filter(|_| waits)
    }

    pub(super) fn hold_ends(&mut self, request: usize, sent: u32) {
        if self.waits(request, sent).is_some()
            && let Some(gate) = self.attempts.get(request).map(|attempt| attempt.gate)
        {
            self.tell(gate, Event::HoldEnded(request_id(request)));
        }
    }

    pub(super) fn first_byte_is_late(&mut self, request: usize, sent: u32) {
        let Some(replica) = self.waits(request, sent) else { return };
        self.abort(Some(replica), request);
        if let Some(attempt) = self.attempts.get_mut(request) {
            attempt.replica = None;
            let gate = attempt.gate;
            let failure = Failure::FirstByteTimeout;
            self.tell(gate, Event::AttemptFailed(request_id(request), failure));
        }
    }

    fn abandon(&mut self, request: usize) {
        let Some(attempt) = self.attempts.get_mut(request) else { return };
        let replica = attempt.replica.take();
        self.abort(replica, request);
    }

    fn cut(&mut self, gate: usize, request: usize, reason: Reason) {
        let Some(attempt) = self.attempts.get_mut(request) else { return };
        let replica = attempt.replica.take();
        self.abort(replica, request);
        self.ended(request, Some(reason));
        self.tell(gate, Event::Finish(request_id(request), Outcome::Failed(reason), None));
    }

    /// A replica forgets a request.
    pub(super) fn abort(&mut self, replica: Option<usize>, request: usize) {
        if let Some(server) = replica.and_then(|replica| self.servers.get_mut(replica)) {
            server.abort(request_id(request).0);
        }
    }
}

/// The place of a request in the list of attempts.
fn place(id: RequestId) -> usize {
    usize::try_from(id.0).unwrap_or(usize::MAX)
}
