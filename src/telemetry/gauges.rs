//! The gates' and replicas' state, read at the moment of a scrape.
//!
//! A gauge that is set whenever something changes costs every request a few atomics and is
//! wrong as soon as one exit path forgets it. So nothing is set: at a scrape the gates are asked
//! for a snapshot each, and what is unknown has no series, never a zero.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, MetricType};

use super::histogram::label_pairs;
use super::names::{self, Name};
use super::recent::RecentWindows;
use super::scaling::wanted_replicas;
use super::targets::{self, PoolTargets};
use crate::domain::{Ends, Health, PoolSnapshot, ReplicaSnapshot, Sample};

/// Takes a snapshot of every pool.
pub(super) type Source = dyn Fn() -> Vec<PoolSnapshot> + Send + Sync;

const POOL: &[&str] = &["pool"];
const REPLICA: &[&str] = &["pool", "replica"];
const TARGET: &[&str] = &["pool", "class", "target"];

/// A pool at the moment of a scrape.
struct View {
    pool: PoolSnapshot,
    targets: PoolTargets,
    /// How requests of all its classes ended in the last minute.
    minute: Ends,
}

/// What of a pool is shown; `None` while unknown.
type PoolValue = fn(&View) -> Option<f64>;

/// What of a replica is shown; `None` while unknown.
type ReplicaValue = fn(&PoolSnapshot, &ReplicaSnapshot) -> Option<f64>;

const POOLS: [(Name, PoolValue); 11] = [
    (names::IN_FLIGHT, |view| Some(f64::from(view.pool.gate.in_flight))),
    (names::LIMIT, |view| Some(view.pool.gate.limit)),
    (names::COMPLETIONS, |view| Some(view.pool.gate.completions_per_second)),
    (names::QUEUE_DEPTH, |view| Some(f64::from(view.pool.gate.queue.waiting))),
    (names::QUEUE_BYTES, |view| Some(whole(view.pool.gate.queue.bytes))),
    (names::QUEUE_OLDEST, |view| Some(view.pool.gate.queue.oldest_wait.as_secs_f64())),
    (names::QUEUE_ESTIMATE, |view| Some(view.pool.gate.queue.estimated_wait.as_secs_f64())),
    (names::QUEUE_BOUND, |view| Some(view.targets.queue_wait.as_secs_f64())),
    (names::LIMITS_OUTDATED, |view| Some(flag(!view.pool.outdated.is_empty()))),
    (names::SCALING_WANTED, |view| wanted_replicas(&view.pool.gate, &view.minute)),
    (names::SCALING_QUEUE, |view| {
        let queue = &view.pool.gate.queue;
        let wait = queue.oldest_wait.max(queue.estimated_wait).as_secs_f64();
        let bound = view.targets.queue_wait.as_secs_f64();
        (bound > 0.0).then_some(wait / bound)
    }),
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

/// What an engine has counted since it started, handed on as it was last read.
type SampleCount = fn(&Sample) -> Option<u64>;

const COUNTS: [(Name, SampleCount); 3] = [
    (names::REPLICA_PREEMPTIONS, |sample| sample.preemptions),
    (names::REPLICA_PREFIX_QUERIES, |sample| sample.prefix_queries),
    (names::REPLICA_PREFIX_HITS, |sample| sample.prefix_hits),
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
    /// By pool; replaced as a whole with the configuration.
    targets: Arc<ArcSwap<Vec<PoolTargets>>>,
    recent: Arc<RecentWindows>,
    descs: Arc<[Desc]>,
}

impl Gauges {
    pub(super) fn new(recent: Arc<RecentWindows>) -> prometheus::Result<Self> {
        let pools = POOLS.iter().map(|(name, _)| (name, POOL));
        let replicas = REPLICAS.iter().map(|(name, _)| (name, REPLICA));
        let counts = COUNTS.iter().map(|(name, _)| (name, REPLICA));
        let all = pools.chain(replicas).chain(counts).chain([(&names::SLO_TARGET, TARGET)]);
        let descs = all.map(|(name, labels)| {
            let labels = labels.iter().map(|&label| label.to_owned()).collect();
            Desc::new(name.id.to_owned(), name.help.to_owned(), labels, HashMap::new())
        });
        let descs = descs.collect::<prometheus::Result<_>>()?;
        Ok(Self { source: Arc::default(), targets: Arc::default(), recent, descs })
    }

    /// Says where snapshots come from.
    pub(super) fn connect(&self, source: Arc<Source>) {
        *self.source.lock() = Some(source);
    }

    /// Says what requests are held to from now on.
    pub(super) fn hold_to(&self, targets: Vec<PoolTargets>) {
        self.targets.store(Arc::new(targets));
    }

    /// What requests are held to.
    pub(super) fn targets(&self) -> Arc<Vec<PoolTargets>> {
        self.targets.load_full()
    }

    /// The pools now; empty before [`Gauges::connect`].
    pub(super) fn pools(&self) -> Vec<PoolSnapshot> {
        // Cloned out, so that the lock is not held while the gates are asked.
        let source = self.source.lock().clone();
        source.map_or_else(Vec::new, |source| source())
    }

    fn views(&self) -> Vec<View> {
        let targets = self.targets();
        let view = |pool: PoolSnapshot| {
            let held_to = targets.iter().find(|held_to| held_to.model == pool.model);
            let targets = held_to.cloned().unwrap_or_default();
            let minute = self.recent.minute(&pool.model, pool.gate.at);
            View { pool, targets, minute }
        };
        self.pools().into_iter().map(view).collect()
    }
}

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let views = self.views();
        let of_pools = POOLS.iter().map(|(name, value)| {
            let metrics = views
                .iter()
                .filter_map(|view| Some(gauge(POOL, &[&view.pool.model], value(view)?)));
            family(*name, MetricType::GAUGE, metrics.collect())
        });
        let of_replicas = REPLICAS.iter().map(|(name, value)| {
            let metrics = replicas(&views).filter_map(|(pool, replica)| {
                Some(gauge(REPLICA, &names_of(pool, replica), value(pool, replica)?))
            });
            family(*name, MetricType::GAUGE, metrics.collect())
        });
        let counts = COUNTS.iter().map(|(name, value)| {
            let metrics = replicas(&views).filter_map(|(pool, replica)| {
                let count = value(replica.sample.as_ref()?)?;
                Some(counter(REPLICA, &names_of(pool, replica), whole(count)))
            });
            family(*name, MetricType::COUNTER, metrics.collect())
        });
        let all = of_pools.chain(of_replicas).chain(counts);
        all.chain([slo_targets(&views)]).filter(|family| !family.get_metric().is_empty()).collect()
    }
}

fn replicas(views: &[View]) -> impl Iterator<Item = (&PoolSnapshot, &ReplicaSnapshot)> {
    views.iter().flat_map(|view| view.pool.gate.replicas.iter().map(|one| (&view.pool, one)))
}

fn names_of(pool: &PoolSnapshot, replica: &ReplicaSnapshot) -> [Arc<str>; 2] {
    [Arc::clone(&pool.model), pool.name_of(replica.id)]
}

fn slo_targets(views: &[View]) -> proto::MetricFamily {
    let classes = views.iter().flat_map(|view| {
        view.targets.classes.iter().map(|(class, slo)| (&view.targets.model, class, *slo))
    });
    let metrics = classes.flat_map(|(model, class, slo)| {
        targets::words(slo).map(move |(word, target)| {
            gauge(TARGET, &[&**model, &**class, word], target.as_secs_f64())
        })
    });
    family(names::SLO_TARGET, MetricType::GAUGE, metrics.collect())
}

fn gauge(names: &[&str], values: &[impl AsRef<str>], value: f64) -> proto::Metric {
    let mut gauge = proto::Gauge::default();
    gauge.set_value(value);
    let mut metric = proto::Metric::from_label(label_pairs(names, values));
    metric.set_gauge(gauge);
    metric
}

fn counter(names: &[&str], values: &[impl AsRef<str>], value: f64) -> proto::Metric {
    let mut counter = proto::Counter::default();
    counter.set_value(value);
    let mut metric = proto::Metric::from_label(label_pairs(names, values));
    metric.set_counter(counter);
    metric
}

fn family(name: Name, kind: MetricType, metrics: Vec<proto::Metric>) -> proto::MetricFamily {
    let mut family = proto::MetricFamily::default();
    family.set_name(name.id.to_owned());
    family.set_help(name.help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}
