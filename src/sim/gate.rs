//! A gateway's decisions, as the fleet drives them: ours, and those of rivals.
//!
//! The seam is `dispatch`'s own, event in and effects out, so that the simulator runs the same
//! [`Dispatcher`] as the live gate and a rival is judged by nothing that it cannot see.

use std::fmt::Debug;

use crate::dispatch::{Dispatcher, Effect, Event};
use crate::domain::Timestamp;

/// Whoever decides whether, when and where a request runs.
pub trait Gate: Debug {
    /// Takes one event in and appends what must be done.
    fn handle(&mut self, now: Timestamp, event: Event, out: &mut Vec<Effect>);

    /// When [`Event::Tick`] is due at the latest.
    fn next_deadline(&self) -> Option<Timestamp>;
}

impl Gate for Dispatcher {
    fn handle(&mut self, now: Timestamp, event: Event, out: &mut Vec<Effect>) {
        Self::handle(self, now, event, out);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        Self::next_deadline(self)
    }
}
