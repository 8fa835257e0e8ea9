//! An attempt at a replica: from its dispatch to whichever end it has.
//!
//! Every end goes through [`Dispatcher::release`], the only place where a slot is given back.

use std::time::Duration;

use crate::domain::{Failure, Outcome, Reason, ReplicaId, RequestId, Timestamp, Usage};

use super::charge::Bill;
use super::ejection::{strikes_alone, strikes_if_answered};
use super::ledger::Hold;
use super::num::{real, seconds};
use super::refusal::Cause;
use super::request::{Held, Request, State};
use super::{Dispatcher, Effect, Note, admission, charge, retry};

/// Prefill speed for the virtual clock of unary requests until it was measured, tokens a second.
const ASSUMED_PREFILL: f64 = 8_000.0;

impl Dispatcher {
    /// Takes a slot at the replica with this index.
    pub(super) fn send(
        &mut self,
        now: Timestamp,
        request: &mut Request,
        at: usize,
    ) -> Option<ReplicaId> {
        let cost = self.learned.cost(&request.facts);
        let replica = self.replicas.get_mut(at)?;
        let block = replica.sample.as_ref().and_then(|sample| sample.block_size);
        let sequences = request.sequences();
        let mut hold = Hold {
            sequences,
            prefill: cost.uncached,
            kv: admission::blocks(cost.prompt + cost.output, sequences, block),
            used: 0,
        };
        if !request.facts.stream {
            hold.used = cost.prompt;
        }
        if replica.ledger.n() == 0 {
            replica.progress = now;
        }
        let probe = replica.ejection.wants_probe();
        if probe {
            replica.ejection.probing();
        }
        replica.ledger.enter(now, hold);
        let prefill_ahead = replica.ledger.prefill();
        let charged = charge::expected(&cost);
        let read_at = (!request.facts.stream && hold.prefill > 0).then(|| {
            let rate = replica.prefill.rate().unwrap_or(ASSUMED_PREFILL);
            now + seconds(real(prefill_ahead) / rate).max(Duration::from_nanos(1))
        });
        if let Some(read_at) = read_at {
            self.prefill_clock.insert((read_at, request.facts.id));
        }
        request.attempts = request.attempts.saturating_add(1);
        request.state = State::Held(Held {
            replica: replica.id,
            since: now,
            hold,
            prompt: cost.prompt,
            output: cost.output,
            uncached: cost.uncached,
            charged,
            prefill_ahead,
            first: false,
            read_at,
            probe,
        });
        let id = replica.id;
        self.queue.charge(&request.facts, charged);
        Some(id)
    }

    /// Prompts of unary requests that are reckoned to be read by now leave Q.
    pub(super) fn advance_prefill(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.prefill_clock.first().copied() {
            if at > now {
                break;
            }
            self.prefill_clock.pop_first();
            if let Some(held) = held_mut(self.requests.get_mut(&id)) {
                let old = held.hold;
                held.hold.prefill = 0;
                let (new, replica) = (held.hold, held.replica);
                if let Some(replica) = self.replica_mut(replica) {
                    replica.ledger.change(old, new);
                }
            }
        }
    }

    pub(super) fn cancel(&mut self, now: Timestamp, id: RequestId) {
        let Some(request) = self.requests.remove(&id) else { return };
        match request.state {
            State::Queued(place) => self.queue.remove(&request.facts, place),
            State::Held(held) => {
                self.release(now, id, &held);
                self.settle(&request.facts, &held, Bill::Seen);
                self.rates.released(held.hold.sequences);
                if let (true, Some(replica)) = (held.probe, self.replica_mut(held.replica)) {
                    replica.ejection.probe_lost();
                }
            }
        }
    }

    pub(super) fn first_token(&mut self, now: Timestamp, id: RequestId, out: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let State::Held(held) = &mut request.state else { return };
        if held.first {
            return;
        }
        held.first = true;
        let old = held.hold;
        held.hold.prefill = 0;
        held.hold.used = held.prompt;
        let held = *held;
        let failed = std::mem::take(&mut request.failed);
        if let Some(replica) = self.replica_mut(held.replica) {
            replica.ledger.change(old, held.hold);
            replica.progress = now;
            replica.prefill.observe(held.prefill_ahead, now.saturating_since(held.since));
        }
        self.answered(now, held.replica, &failed, out);
    }

    pub(super) fn progress(&mut self, now: Timestamp, id: RequestId, tokens: u32) {
        let Some(held) = held_mut(self.requests.get_mut(&id)) else { return };
        let old = held.hold;
        held.hold.used = held.prompt + u64::from(tokens);
        let end = held.prompt + held.output.max(u64::from(tokens));
        let (replica, sequences) = (held.replica, held.hold.sequences);
        let block = self
            .at(replica)
            .and_then(|at| self.replicas.get(at))
            .and_then(|replica| replica.sample.as_ref())
            .and_then(|sample| sample.block_size);
        let kv = admission::blocks(end, sequences, block);
        let Some(held) = held_mut(self.requests.get_mut(&id)) else { return };
        held.hold.kv = kv;
        let new = held.hold;
        if let Some(replica) = self.replica_mut(replica) {
            replica.ledger.change(old, new);
            replica.progress = now;
        }
    }

    pub(super) fn finish(
        &mut self,
        now: Timestamp,
        id: RequestId,
        outcome: Outcome,
        usage: Option<Usage>,
        out: &mut Vec<Effect>,
    ) {
        let Some(request) = self.requests.remove(&id) else { return };
        let held = match request.state {
            State::Queued(place) => return self.queue.remove(&request.facts, place),
            State::Held(held) => held,
        };
        self.release(now, id, &held);
        let bill = match (usage, outcome) {
            (Some(usage), _) => Bill::Counted(usage),
            (None, Outcome::Completed) => Bill::Uncounted,
            (None, _) => Bill::Seen,
        };
        self.settle(&request.facts, &held, bill);
        self.rates.released(held.hold.sequences);
        match outcome {
            Outcome::Completed => {
                self.rates.completed(now.saturating_since(held.since));
                if let Some(usage) = usage {
                    self.learned.observe(&request.facts, usage);
                }
                if let Some(replica) = self.replica_mut(held.replica) {
                    replica.progress = now;
                }
                self.answered(now, held.replica, &request.failed, out);
            }
            Outcome::Failed(Reason::Connect | Reason::FirstByte) => {
                self.strike(now, held.replica, out);
            }
            Outcome::Failed(Reason::ReplicaRefused) => {
                self.answered(now, held.replica, &[], out);
            }
            _ => {}
        }
        if let (true, Some(replica)) = (held.probe, self.replica_mut(held.replica)) {
            replica.ejection.probe_lost();
        }
    }

    pub(super) fn attempt_failed(
        &mut self,
        now: Timestamp,
        id: RequestId,
        failure: Failure,
        out: &mut Vec<Effect>,
    ) {
        let Some(mut request) = self.requests.remove(&id) else { return };
        let State::Held(held) = request.state else {
            self.requests.insert(id, request);
            return;
        };
        self.release(now, id, &held);
        self.settle(&request.facts, &held, Bill::Nothing);
        self.judge(now, &held, failure, out);
        let forbidden = retry::forbids(&request, failure, self.policy.attempts);
        let again_anywhere = failure == Failure::IdleClosed && !request.was_idle_closed;
        if !again_anywhere && request.may_use(held.replica) {
            request.failed.push((held.replica, failure));
        }
        request.was_busy |= failure == Failure::Busy;
        request.was_idle_closed |= failure == Failure::IdleClosed;
        let elsewhere = self.replicas.iter().any(|r| r.is_usable() && request.may_use(r.id));
        let again = !forbidden
            && !retry::is_poison(&request)
            && elsewhere
            && (!retry::costs(failure) || self.budget.spend());
        if again {
            self.enqueue(now, request);
            return;
        }
        let (most, made) = (f64::from(self.policy.attempts), f64::from(request.attempts));
        let cause = Cause::new(retry::reason(&request, failure), most, made);
        let rejection = self.reject(now, &request, cause);
        out.push(Effect::Reject(id, rejection));
    }

    /// The head hold is over: give the attempt up where its engine does nothing and another
    /// replica could do better.
    pub(super) fn hold_ended(&mut self, now: Timestamp, id: RequestId, out: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&id) else { return };
        let State::Held(held) = request.state else { return };
        let patience = self.policy.stall_after;
        let stalled = |at: usize| {
            self.replicas.get(at).is_some_and(|replica| {
                replica.ledger.n() > 0 && now.saturating_since(replica.progress) >= patience
            })
        };
        let still = now.saturating_since(held.since) >= patience;
        let better = self.replicas.iter().enumerate().any(|(at, replica)| {
            replica.id != held.replica
                && replica.is_usable()
                && request.may_use(replica.id)
                && !stalled(at)
        });
        let here = self.at(held.replica).is_some_and(stalled);
        if held.first || !here || !still || !better || request.attempts >= self.policy.attempts {
            return;
        }
        let Some(mut request) = self.requests.remove(&id) else { return };
        self.release(now, id, &held);
        self.settle(&request.facts, &held, Bill::Nothing);
        self.judge(now, &held, Failure::Stalled, out);
        request.failed.push((held.replica, Failure::Stalled));
        out.push(Effect::Abandon(id));
        self.enqueue(now, request);
    }

    /// Gives the slot back.
    fn release(&mut self, now: Timestamp, id: RequestId, held: &Held) {
        if let Some(read_at) = held.read_at {
            self.prefill_clock.remove(&(read_at, id));
        }
        let Some(at) = self.at(held.replica) else { return };
        let Some(replica) = self.replicas.get_mut(at) else { return };
        replica.ledger.leave(now, held.hold);
        if !replica.listed && replica.ledger.requests() == 0 {
            self.replicas.remove(at);
        }
    }

    /// What a failed attempt says about its replica.
    fn judge(&mut self, now: Timestamp, held: &Held, failure: Failure, out: &mut Vec<Effect>) {
        if strikes_alone(failure) || (held.probe && strikes_if_answered(failure)) {
            self.strike(now, held.replica, out);
        } else if failure == Failure::Busy {
            self.answered(now, held.replica, &[], out);
        }
        if let (true, Some(replica)) = (held.probe, self.replica_mut(held.replica)) {
            replica.ejection.probe_lost();
        }
    }

    /// A replica answered: it is well, and those that failed the same request are not.
    fn answered(
        &mut self,
        now: Timestamp,
        replica: ReplicaId,
        failed: &[(ReplicaId, Failure)],
        out: &mut Vec<Effect>,
    ) {
        if self.replica_mut(replica).is_some_and(|replica| replica.ejection.answered()) {
            out.push(Effect::Note(Note::Reinstated(replica)));
        }
        for (id, failure) in failed {
            if *id != replica && strikes_if_answered(*failure) {
                self.strike(now, *id, out);
            }
        }
    }
}

fn held_mut(request: Option<&mut Request>) -> Option<&mut Held> {
    match &mut request?.state {
        State::Held(held) => Some(held),
        State::Queued(_) => None,
    }
}
