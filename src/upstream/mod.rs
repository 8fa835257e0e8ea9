//! Everything that goes to a replica and comes back: connections, answers, readings.
//!
//! [`Replicas`] names the servers, [`Replica::send`] carries one request, [`UpstreamBody`] is the
//! socket itself as a body. [`Watchers`] read health and metrics and pass them on. What a failure means for a request, and which replica to take, is
//! `dispatch`'s to decide; headers and their rules are `proxy`'s.

mod body;
mod connections;
mod error;
mod facts;
mod fetch;
mod idle;
mod link;
mod observe;
mod pace;
mod probe;
mod replica;
mod replicas;
mod scrape;
mod wire;

pub use body::UpstreamBody;
pub use connections::{ConnectionCounts, Exchange};
pub use error::{SendError, UpstreamError};
pub use facts::{Facts, ServedModel};
pub use fetch::FetchError;
pub use observe::{Observation, Observed, Watch, Watchers};
pub use replica::Replica;
pub use replicas::Replicas;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
