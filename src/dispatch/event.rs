//! The seam: everything that can happen to a pool, and everything that it can answer.

use std::sync::Arc;

use crate::domain::{
    Failure, Health, Outcome, Reason, Rejection, ReplicaId, RequestFacts, RequestId, Sample, Usage,
};

use super::Policy;

/// A replica as configuration or discovery names it.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplicaSpec {
    /// Its id, the same for the same address for as long as the process lives.
    pub id: ReplicaId,
    /// Its own in-flight limit where one was measured; otherwise the policy's.
    pub in_flight: Option<u32>,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request was fully received.
    Arrive(RequestFacts),
    /// Its client went away; also what a dropped permit or ticket says.
    Cancel(RequestId),
    /// The first frame that the engine caused came (a role frame included).
    FirstToken(RequestId),
    /// Output tokens so far; once a KV block or a second, never once a frame.
    Progress(RequestId, u32),
    /// `head_hold` is over and no engine-caused frame came. Answered by `Abandon`, or by
    /// nothing: then the head is released and the attempt goes on.
    HoldEnded(RequestId),
    /// The attempt failed before any byte was relayed. Answered, at once or later, by
    /// `Dispatch` to another replica, or by `Reject` with the failure's reason.
    AttemptFailed(RequestId, Failure),
    /// The request ended while a replica held it, with the usage that the replica reported.
    Finish(RequestId, Outcome, Option<Usage>),
    /// A replica's metrics were read.
    Telemetry(ReplicaId, Sample),
    /// A replica was probed.
    Health(ReplicaId, Health),
    /// The pool's replicas are now these. What is missing takes nothing new and is forgotten
    /// when its last request has ended.
    Replicas(Vec<ReplicaSpec>),
    /// The rules are now these. Lowering a limit cuts nothing.
    Policy(Arc<Policy>),
    /// `next_deadline` has come.
    Tick,
    /// Shut down: reject what arrives, finish what is queued and running.
    Drain,
}

/// What must be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Send the request to this replica. It holds a slot there until `Finish`, `Cancel` or
    /// `AttemptFailed`.
    Dispatch(RequestId, ReplicaId),
    /// Answer the request now; it was never queued, or its last attempt failed.
    Reject(RequestId, Rejection),
    /// Answer the request now; it was queued.
    Evict(RequestId, Rejection),
    /// Give up the attempt at its replica. The request is queued again and will get another
    /// `Dispatch`, `Reject` or `Evict`.
    Abandon(RequestId),
    /// Cut the stream in its middle, with an error frame that has this reason.
    Cut(RequestId, Reason),
    /// Worth a log line and a counter.
    Note(Note),
}

/// Something that an operator wants to know.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Note {
    /// A replica's readings are older than the policy allows; adaptation is frozen.
    Stale(ReplicaId),
    /// Its readings are fresh again.
    Fresh(ReplicaId),
    /// It restarted: its counters fell or its start time changed.
    Restarted(ReplicaId),
    /// Passive health took it out.
    Ejected(ReplicaId),
    /// It is back.
    Reinstated(ReplicaId),
    /// Its scrape lacks a metric that admission needs.
    Unknown(ReplicaId, &'static str),
}

impl Note {
    /// The word for metric labels and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Stale(_) => "stale",
            Self::Fresh(_) => "fresh",
            Self::Restarted(_) => "restarted",
            Self::Ejected(_) => "ejected",
            Self::Reinstated(_) => "reinstated",
            Self::Unknown(..) => "unknown",
        }
    }
}
