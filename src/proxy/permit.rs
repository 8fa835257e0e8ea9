//! The right to a place: a ticket while a request waits, a permit while a replica holds it.
//!
//! Exactly one of the two exists for a request, with exactly one owner, from its arrival to its
//! end. Whichever is dropped without having been ended says `Cancel`: no exit path can leak a
//! slot, and none has to remember to return it. The permit rides in the answer's body, so the
//! slot is free exactly when the stream ends, fails or is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::dispatch::Event;
use crate::domain::{Failure, Outcome, Reason, Rejection, ReplicaId, RequestId, Usage};

use super::gate::Gate;
use super::slot::{Decision, Slot};

/// What became of a ticket.
pub enum Turn {
    /// It is the request's turn, at this permit's replica.
    Run(Permit),
    /// It is refused; the gate has forgotten it already.
    Refused {
        /// Why, and when to come back.
        rejection: Rejection,
        /// Whether it had been queued.
        queued: bool,
    },
}

/// A request's standing at the gate. Dropped while it still stands, it cancels.
struct Claim {
    gate: Arc<Gate>,
    id: RequestId,
    slot: Arc<Slot>,
    ended: bool,
}

impl Claim {
    fn end(&mut self, event: Event) {
        if !std::mem::replace(&mut self.ended, true) {
            self.gate.forget(self.id);
            self.gate.event(event);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.end(Event::Cancel(self.id));
    }
}

/// A place in the queue, or on the way to it. Await it for the [`Turn`].
#[must_use = "a dropped ticket cancels its request"]
pub struct Ticket {
    claim: Option<Claim>,
    slot: Arc<Slot>,
}

impl Ticket {
    pub(super) fn new(gate: Arc<Gate>, id: RequestId, slot: Arc<Slot>) -> Self {
        let claim = Claim { gate, id, slot: Arc::clone(&slot), ended: false };
        Self { claim: Some(claim), slot }
    }

    fn again(claim: Claim) -> Self {
        Self { slot: Arc::clone(&claim.slot), claim: Some(claim) }
    }
}

impl Future for Ticket {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn> {
        if self.claim.is_none() {
            return Poll::Pending; // Polled after it was ready: there is nothing more to come.
        }
        let decision = ready!(self.slot.poll_decision(cx));
        let Some(mut claim) = self.claim.take() else { return Poll::Pending };
        Poll::Ready(match decision {
            Decision::Run(replica) => Turn::Run(Permit { claim, replica }),
            Decision::Refuse { rejection, queued } => {
                claim.ended = true;
                claim.gate.forget(claim.id);
                Turn::Refused { rejection, queued }
            }
        })
    }
}

/// A slot at one replica.
#[must_use = "a dropped permit cancels its request"]
pub struct Permit {
    claim: Claim,
    replica: ReplicaId,
}

impl Permit {
    /// Where the request runs.
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// The first frame that the engine caused has come.
    pub fn first_token(&self) {
        self.claim.gate.event(Event::FirstToken(self.claim.id));
    }

    /// Output tokens so far; to be told once a KV block or a second.
    pub fn progress(&self, tokens: u32) {
        self.claim.gate.event(Event::Progress(self.claim.id, tokens));
    }

    /// The hold is over with no engine-caused frame: a ticket for another attempt where the
    /// dispatcher gives this one up, else the permit again.
    pub fn hold_ended(self) -> Result<Self, Ticket> {
        self.claim.gate.event(Event::HoldEnded(self.claim.id));
        if self.claim.slot.take_abandoned() { Err(Ticket::again(self.claim)) } else { Ok(self) }
    }

    /// Why the dispatcher wants the stream cut, if it does.
    pub fn cut_reason(&self) -> Option<Reason> {
        self.claim.slot.cut_reason()
    }

    /// The attempt failed before a byte was relayed; what follows comes through the ticket.
    pub fn failed(self, failure: Failure) -> Ticket {
        self.claim.gate.event(Event::AttemptFailed(self.claim.id, failure));
        Ticket::again(self.claim)
    }

    /// The request has ended at the replica.
    pub fn finish(mut self, outcome: Outcome, usage: Option<Usage>) {
        let event = Event::Finish(self.claim.id, outcome, usage);
        self.claim.end(event);
    }
}
