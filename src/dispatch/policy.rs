//! The rules of one pool, as plain numbers. `config` builds this; it knows of no file.

use std::time::Duration;

use crate::domain::{ClassId, Slo, TenantId};

/// Everything that the dispatcher is told to go by.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// How many requests one replica may hold.
    pub limit: LimitPolicy,
    /// How long and how much may wait.
    pub queue: QueuePolicy,
    /// Classes, indexed by [`ClassId`]; at least one.
    pub classes: Vec<ClassPolicy>,
    /// Tenants in the order of their ids; who is not listed has weight 1.
    pub tenants: Vec<TenantPolicy>,
    /// Decide and record what would have been shed, but shed nothing.
    pub shadow: bool,
    /// A reading older than this is stale.
    pub stale_after: Duration,
    /// Attempts in all that one request may make; 1 is "no retry".
    pub attempts: u32,
    /// Share of requests that may be retries (0.2 is 20 %).
    pub retry_budget: f64,
    /// An engine without any sign of progress for this long is given up when the hold ends.
    pub stall_after: Duration,
    /// Gateways that share these replicas, this one included; at least 1.
    pub gateways: u32,
}

/// The in-flight limit of a replica.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LimitPolicy {
    /// Requests in flight, a replica. `None`: not measured; the engine's own facts stand in.
    pub in_flight: Option<u32>,
    /// The engine's `max_num_seqs`, where known.
    pub max_num_seqs: Option<u32>,
    /// Whether a measured limit follows what clients see, within its clamp.
    pub adapt: bool,
}

/// The bounds of the queue. The first is the one that matters; the others guard memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QueuePolicy {
    /// Longest wait.
    pub wait: Duration,
    /// Most requests.
    pub count: u32,
    /// Most bytes of body.
    pub bytes: u64,
}

/// One class of workload.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassPolicy {
    /// Which.
    pub id: ClassId,
    /// Its targets.
    pub slo: Slo,
    /// Its part of the tokens while the pool is contended, beside the other classes' parts;
    /// above 0.
    pub share: f64,
    /// Whether it goes before all that are not. For a small part of the load: what is critical
    /// is never held back for another's share.
    pub critical: bool,
}

impl ClassPolicy {
    /// A class with targets alone: an even share, not critical.
    pub const fn plain(id: ClassId, slo: Slo) -> Self {
        Self { id, slo, share: 1.0, critical: false }
    }
}

/// One holder of keys, as far as order goes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TenantPolicy {
    /// Which.
    pub id: TenantId,
    /// Its part of its class's tokens, beside the other tenants' parts; above 0.
    pub weight: f64,
}
