//! The gates' and replicas' state, read at the moment of a scrape.
//!
//! A gauge that is set whenever something changes costs every request a few atomics and is
//! wrong as soon as one exit path forgets it. So nothing is set: at a scrape the gates are asked
//! for a snapshot each, and what is unknown has no series, never a zero.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto;

use super::histogram::label_pairs;
use super::names::{self, Name};
use crate::domain::{Health, PoolSnapshot, ReplicaSnapshot};

/// Takes a snapshot of every pool.
pub(super) type Source = dyn Fn() -> Vec<PoolSnapshot> + Send + Sync;

const POOL: &[&str] = &["pool"];
const REPLICA: &[&str] = &["pool", "replica"];

/// What of a pool is shown.
type PoolValue = fn(&PoolSnapshot) -> f64;

/// What of a replica is shown; `None` while unknown.
type ReplicaValue = fn(&PoolSnapshot, &ReplicaSnapshot) -> Option<f64>;

const POOLS: [(Name, PoolValue); 7] = [
    (names::IN_FLIGHT, |pool| f64::from(pool.gate.in_flight)),
    (names::LIMIT, |pool| pool.gate.limit),
    (names::COMPLETIONS, |pool| pool.gate.completions_per_second),
    (names::QUEUE_DEPTH, |pool| f64::from(pool.gate.queue.waiting)),
    (names::QUEUE_BYTES, |pool| whole(pool.gate.queue.bytes)),
    (names::QUEUE_OLDEST, |pool| pool.gate.queue.oldest_wait.as_secs_f64()),
    (names::QUEUE_ESTIMATE, |pool| pool.gate.queue.estimated_wait.as_secs_f64()),
];

const REPLICAS: [(Name, ReplicaValue); 13] = [
    (names::REPLICA_IN_FLIGHT, |_, replica| Some(f64::from(replica.in_flight))),
    (names::REPLICA_LIMIT, |_, replica| Some(replica.limit)),
    (names::REPLICA_ASSUMED, |_, replica| Some(flag(replica.assumed))),
    (names::REPLICA_FOREIGN, |_, replica| replica.foreign),
    (names::REPLICA_PREFILL, |_, replica| Some(whole(replica.prefill_tokens))),
    (names::REPLICA_KV, |_, replica| Some(whole(replica.kv_tokens))),
    (names::REPLICA_RUNNING, |_, replica| replica.sample.as_ref()?.running.map(f64::from)),
    (names::REPLICA_WAITING, |_, replica| replica.sample.as_ref()?.waiting.map(f64::from)),
    (names::REPLICA_KV_USAGE, |_, replica| replica.sample.as_ref()?.kv_usage),
    (names::REPLICA_READING_AGE, |pool, replica| {
        let taken = replica.sample.as_ref()?.taken;
        Some(pool.gate.at.saturating_since(taken).as_secs_f64())
    }),
    (names::REPLICA_UP, |_, replica| replica.health.map(|health| flag(health == Health::Up))),
    (names::REPLICA_EJECTED, |_, replica| Some(flag(replica.ejected))),
    (names::REPLICA_DRAINING, |_, replica| Some(flag(replica.draining))),
];

fn flag(on: bool) -> f64 {
    if on { 1.0 } else { 0.0 }
}

/// Exact below 2^53, which no count of ours reaches.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
pub(super) fn whole(count: u64) -> f64 {
    count as f64
}

/// Asks the gates at every scrape; before [`Gauges::connect`] there is nothing to ask.
#[derive(Clone)]
pub(super) struct Gauges {
    source: Arc<Mutex<Option<Arc<Source>>>>,
    descs: Arc<[Desc]>,
}

impl Gauges {
    pub(super) fn new() -> prometheus::Result<Self> {
        let pools = POOLS.iter().map(|(name, _)| (name, POOL));
        let replicas = REPLICAS.iter().map(|(name, _)| (name, REPLICA));
        let descs = pools.chain(replicas).map(|(name, labels)| {
            let labels = labels.iter().map(|&label| label.to_owned()).collect();
            Desc::new(name.id.to_owned(), name.help.to_owned(), labels, HashMap::new())
        });
        Ok(Self { source: Arc::default(), descs: descs.collect::<prometheus::Result<_>>()? })
    }

    /// Says where snapshots come from.
    pub(super) fn connect(&self, source: Arc<Source>) {
        *self.source.lock() = Some(source);
    }

    /// The pools now; empty before [`Gauges::connect`].
    pub(super) fn pools(&self) -> Vec<PoolSnapshot> {
        // Cloned out, so that the lock is not held while the gates are asked.
        let source = self.source.lock().clone();
        source.map_or_else(Vec::new, |source| source())
    }
}

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let pools = self.pools();
        let of_pools = POOLS.iter().map(|(name, value)| {
            let metrics = pools.iter().map(|pool| gauge(POOL, &[&pool.model], value(pool)));
            family(*name, metrics.collect())
        });
        let of_replicas = REPLICAS.iter().map(|(name, value)| {
            let metrics = pools.iter().flat_map(|pool| {
                pool.gate.replicas.iter().filter_map(move |replica| {
                    let labels = [Arc::clone(&pool.model), pool.name_of(replica.id)];
                    Some(gauge(REPLICA, &labels, value(pool, replica)?))
                })
            });
            family(*name, metrics.collect())
        });
        of_pools.chain(of_replicas).collect()
    }
}

fn gauge(names: &[&str], values: &[impl AsRef<str>], value: f64) -> proto::Metric {
    let mut gauge = proto::Gauge::default();
    gauge.set_value(value);
    let mut metric = proto::Metric::from_label(label_pairs(names, values));
    metric.set_gauge(gauge);
    metric
}

fn family(name: Name, metrics: Vec<proto::Metric>) -> proto::MetricFamily {
    let mut family = proto::MetricFamily::default();
    family.set_name(name.id.to_owned());
    family.set_help(name.help.to_owned());
    family.set_field_type(proto::MetricType::GAUGE);
    family.set_metric(metrics);
    family
}
