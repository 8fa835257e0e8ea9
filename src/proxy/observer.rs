//! Who is told what happens to requests: metrics and logs live, a list in tests.
//!
//! `app` decides; the proxy itself keeps no count of anything that somebody would read.

use std::sync::Arc;

use crate::dispatch::Note;
use crate::domain::{Failure, ReplicaId, RequestRecord};

/// Takes what the proxy has to tell. Called outside of every lock, on the request's own task.
pub trait Observer: Send + Sync {
    /// A request has ended; called exactly once for each.
    fn record(&self, record: &RequestRecord);
    /// An attempt at a replica failed before a byte of its answer was relayed.
    fn attempt_failed(&self, pool: &str, replica: &str, failure: Failure);
    /// A replica answered with this status.
    fn answered(&self, pool: &str, replica: &str, status: u16);
    /// The gate wants an operator to know something of a replica.
    fn note(&self, pool: &str, replica: &str, note: Note);
}

/// Shared by everything that has something to tell.
pub(super) type Observed = Arc<dyn Observer>;

/// The replica that a note is about.
pub(super) const fn about(note: &Note) -> ReplicaId {
    match *note {
        Note::Stale(id)
        | Note::Fresh(id)
        | Note::Restarted(id)
        | Note::Ejected(id)
        | Note::Reinstated(id)
        | Note::Unknown(id, _) => id,
    }
}
