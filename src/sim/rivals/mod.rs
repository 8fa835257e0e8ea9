//! Rival policies, for the simulator only: what an operator would put there instead.
//!
//! All of them stand behind one [`Front`], a plain proxy that counts what it has sent, sends to
//! the replica with the fewest, refuses or queues beyond its [`Law`], and tells nobody when to
//! come back. Their laws and constants are those of their sources; a cap is tuned by whoever
//! writes the scenario.

mod cap;
mod envoy;
mod front;
mod gradient2;
mod reading;
mod retold;
#[cfg(test)]
mod tests;
mod vegas;

pub use cap::Cap;
pub use envoy::Envoy;
pub use front::{Front, Queueing};
pub use gradient2::Gradient2;
pub use reading::Reading;
pub use retold::{Advice, Retold};
pub use vegas::Vegas;

use std::fmt::Debug;
use std::time::Duration;

use crate::domain::{Sample, Timestamp};

/// A request that was answered, as a law may see it.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// When its answer was whole.
    pub now: Timestamp,
    /// Sent to first token.
    pub first: Duration,
    /// Sent to the end.
    pub whole: Duration,
    /// Requests in flight, at all replicas, when it was sent.
    pub in_flight: u32,
}

/// How much a proxy may send.
pub trait Law: Debug {
    /// Whether one more may be sent at all, with so many in flight at all replicas.
    fn admits(&self, in_flight: u32) -> bool;

    /// Whether this replica may take one more, with so many in flight at it.
    fn admits_at(&self, replica: usize, in_flight: u32) -> bool;

    /// A request was answered.
    fn took(&mut self, _took: Took) {}

    /// A request failed after it was sent.
    fn dropped(&mut self) {}

    /// A replica's metrics were read.
    fn read(&mut self, _replica: usize, _sample: &Sample) {}
}
