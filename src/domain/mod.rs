//! The vocabulary that every room shares: time, ids, facts, outcomes, reasons, snapshots.
//!
//! Types only, with the small conversions that keep them honest. What crosses from one room to
//! another as data is defined here, so that no room needs to import its neighbour to be told
//! something. Nothing here decides, waits, or touches the outside.

mod bounds;
mod decision;
mod endpoint;
mod facts;
mod failure;
mod ids;
mod outcome;
mod reason;
mod recent;
mod record;
mod sample;
mod snapshot;
mod span;
mod time;

pub use bounds::{E2E_BOUNDS, ITL_BOUNDS, QUEUE_BOUNDS, TTFT_BOUNDS};
pub use decision::{Rejection, ShouldRetry, Told, Unit};
pub use endpoint::{Dialect, Endpoint};
pub use facts::{RequestFacts, Slo};
pub use failure::Failure;
pub use ids::{ClassId, ReplicaId, RequestId, TenantId};
pub use outcome::Outcome;
pub use reason::Reason;
pub use recent::{Ends, Quantiles, Recent};
pub use record::{Gaps, RequestRecord, Usage};
pub use sample::{Health, Sample};
pub use snapshot::{
    GateSnapshot, Parties, PoolSnapshot, QueuePart, QueueSnapshot, ReplicaSnapshot, ShedNote,
};
pub use span::Span;
pub use time::{Timestamp, UnixTime};
