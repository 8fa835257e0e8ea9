//! Our own gate, but for when it tells refused clients to come back.

use std::time::Duration;

use crate::dispatch::{Effect, Event};
use crate::domain::{Rejection, ShouldRetry, Timestamp};
use crate::sim::Gate;

/// What a refused client is told instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Nothing: it waits as its own rule has it.
    Nothing,
    /// Not to come back.
    Never,
    /// To come back after this time.
    After(Duration),
}

/// A gate with other advice.
#[derive(Debug)]
pub struct Retold {
    inner: Box<dyn Gate>,
    advice: Advice,
}

impl Retold {
    /// `inner`, whose advice is not given.
    pub fn new(inner: Box<dyn Gate>, advice: Advice) -> Self {
        Self { inner, advice }
    }

    fn retell(&self, rejection: &mut Rejection) {
        if rejection.retry_after.is_none() {
            return;
        }
        (rejection.retry_after, rejection.should_retry) = match self.advice {
            Advice::Nothing => (None, ShouldRetry::Unsaid),
            Advice::Never => (None, ShouldRetry::No),
            Advice::After(wait) => (Some(wait), ShouldRetry::Unsaid),
        };
    }
}

impl Gate for Retold {
    fn handle(&mut self, now: Timestamp, event: Event, out: &mut Vec<Effect>) {
        let before = out.len();
        self.inner.handle(now, event, out);
        for effect in out.iter_mut().skip(before) {
            if let Effect::Reject(_, rejection) | Effect::Evict(_, rejection) = effect {
                self.retell(rejection);
            }
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.inner.next_deadline()
    }
}
