//! Whether, when and where a request runs: the pure core.

mod event;
mod policy;

pub use event::{Effect, Event, Note, ReplicaSpec};
pub use policy::{ClassPolicy, LimitPolicy, Policy, QueuePolicy};
