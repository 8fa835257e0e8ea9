//! What the gate has to say to one request, until the request listens.
//!
//! Effects are carried out after the gate's lock is gone, so two of them for one request may
//! come from two threads in either order (an `Abandon` and the `Dispatch` that follows it). Each
//! kind therefore has a place of its own here, and none overwrites another.

use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::domain::{Reason, Rejection, ReplicaId};

/// The gate's answer to a request that waits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Decision {
    /// Go, to this replica.
    Run(ReplicaId),
    /// Answer the client now.
    Refuse {
        /// With this.
        rejection: Rejection,
        /// Whether it had been queued.
        queued: bool,
    },
}

/// The places. Written by whoever carries out an effect, read by the request's own task.
#[derive(Default)]
pub(super) struct Slot(Mutex<Said>);

#[derive(Default)]
struct Said {
    decision: Option<Decision>,
    abandoned: bool,
    cut: Option<Reason>,
    waker: Option<Waker>,
}

impl Slot {
    pub(super) fn decide(&self, decision: Decision) {
        self.say(|said| said.decision = Some(decision));
    }

    pub(super) fn abandon(&self) {
        self.say(|said| said.abandoned = true);
    }

    pub(super) fn cut(&self, reason: Reason) {
        self.say(|said| said.cut = Some(reason));
    }

    /// The decision, once there; it is handed out once.
    pub(super) fn poll_decision(&self, cx: &Context<'_>) -> Poll<Decision> {
        let mut said = self.0.lock();
        if let Some(decision) = said.decision.take() {
            return Poll::Ready(decision);
        }
        said.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the attempt was given up; asking takes the word back.
    pub(super) fn take_abandoned(&self) -> bool {
        std::mem::take(&mut self.0.lock().abandoned)
    }

    /// Why the stream is to be cut, if it is.
    pub(super) fn cut_reason(&self) -> Option<Reason> {
        self.0.lock().cut
    }

    fn say(&self, what: impl FnOnce(&mut Said)) {
        let waker = {
            let mut said = self.0.lock();
            what(&mut said);
            said.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
