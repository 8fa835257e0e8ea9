//! What `/status` shows of a gate: plain data, taken at one moment under the gate's lock.

use std::sync::Arc;
use std::time::Duration;

use super::{ClassId, Health, Reason, ReplicaId, Sample, TenantId, Timestamp, Unit};

/// One pool's gate at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GateSnapshot {
    /// When it was taken.
    pub at: Timestamp,
    /// Requests held by replicas, all replicas together.
    pub in_flight: u32,
    /// The sum of the replicas' limits.
    pub limit: f64,
    /// The queue.
    pub queue: QueueSnapshot,
    /// Each replica, in the order of its id.
    pub replicas: Vec<ReplicaSnapshot>,
    /// Completions a second, as measured.
    pub completions_per_second: f64,
    /// The last sheds, newest last; bounded.
    pub sheds: Vec<ShedNote>,
}

/// The queue's inside.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct QueueSnapshot {
    /// Requests waiting.
    pub waiting: u32,
    /// Bytes of body that they hold.
    pub bytes: u64,
    /// How long the oldest has waited.
    pub oldest_wait: Duration,
    /// How long a request that came now would wait, as estimated.
    pub estimated_wait: Duration,
    /// The same queue by class and tenant; only those that wait.
    pub parts: Vec<QueuePart>,
}

/// What waits of one tenant in one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueuePart {
    /// The class.
    pub class: ClassId,
    /// The tenant.
    pub tenant: TenantId,
    /// Requests waiting.
    pub waiting: u32,
    /// Tokens that they are expected to cost, prompt and output.
    pub tokens: u64,
    /// How long the oldest has waited.
    pub oldest_wait: Duration,
}

/// One replica as the gate sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplicaSnapshot {
    /// Which.
    pub id: ReplicaId,
    /// Requests of ours that it holds.
    pub in_flight: u32,
    /// What the gate allows it.
    pub limit: f64,
    /// Whether that limit is an assumption rather than a measured knee.
    pub assumed: bool,
    /// Load that others put on it, as of the last scrape; `None` when unknown.
    pub foreign: Option<f64>,
    /// Uncached prompt tokens sent and not yet answered by a first token.
    pub prefill_tokens: u64,
    /// KV tokens held or promised.
    pub kv_tokens: u64,
    /// The last probe's word; `None` before the first.
    pub health: Option<Health>,
    /// Whether passive health has taken it out.
    pub ejected: bool,
    /// Whether it takes nothing new, by an operator's word or because it left the list.
    pub draining: bool,
    /// The last reading of its metrics.
    pub sample: Option<Sample>,
}

/// One request shed, for the list of the last ones.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ShedNote {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: Reason,
    /// What limit and reading are counted in; `None` where there are none.
    pub unit: Option<Unit>,
    /// The limit met.
    pub limit: f64,
    /// What stood against it.
    pub reading: f64,
    /// Age of the oldest outside reading that took part.
    pub age: Duration,
    /// What the client was told.
    pub retry_after: Option<Duration>,
    /// Its class.
    pub class: ClassId,
    /// Its tenant.
    pub tenant: TenantId,
}

/// One pool at one moment, with the names that people know its parts by.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PoolSnapshot {
    /// The model's name as configured.
    pub model: Arc<str>,
    /// The names (addresses) of its replicas.
    pub names: Vec<(ReplicaId, Arc<str>)>,
    /// The names of whoever sends to it.
    pub parties: Arc<Parties>,
    /// The versions that its replicas say they are.
    pub versions: Vec<(ReplicaId, Arc<str>)>,
    /// Why its limits may not hold for its replicas any more: they were measured on something
    /// else. Empty where they hold, or where nobody measured them.
    pub outdated: Vec<Arc<str>>,
    /// Its gate.
    pub gate: GateSnapshot,
}

impl PoolSnapshot {
    /// The name of a replica; its bare id where it has left the list.
    pub fn name_of(&self, id: ReplicaId) -> Arc<str> {
        self.names
            .iter()
            .find(|(known, _)| *known == id)
            .map_or_else(|| Arc::from(id.to_string()), |(_, name)| Arc::clone(name))
    }

    /// The version of a replica, where it says one.
    pub fn version_of(&self, id: ReplicaId) -> Option<&Arc<str>> {
        self.versions.iter().find(|(known, _)| *known == id).map(|(_, version)| version)
    }
}

/// What people know classes and tenants by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parties {
    /// The names of classes, indexed by their ids.
    pub classes: Arc<[Arc<str>]>,
    /// The names of tenants.
    pub tenants: Vec<(TenantId, Arc<str>)>,
}

impl Parties {
    /// The name of a class; its bare id where nobody knows it.
    pub fn class(&self, id: ClassId) -> Arc<str> {
        let known = self.classes.get(usize::from(id.0));
        known.map_or_else(|| Arc::from(id.to_string()), Arc::clone)
    }

    /// The name of a tenant; its bare id where it is no tenant any more.
    pub fn tenant(&self, id: TenantId) -> Arc<str> {
        self.tenants
            .iter()
            .find(|(known, _)| *known == id)
            .map_or_else(|| Arc::from(id.to_string()), |(_, name)| Arc::clone(name))
    }
}
