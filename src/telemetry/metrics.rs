//! The registry and everything that is counted, in one place that all rooms share.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use dashmap::DashMap;
use parking_lot::Mutex;
use prometheus::{
    Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use super::gauges::{Gauges, whole};
use super::labels::{Known, PoolLabels, UNKNOWN};
use super::names::{self, Name};
use super::process::Process;
use super::recent::RecentWindows;
use super::scaling::wanted_replicas;
use super::series::{Families, Series, counters};
use super::sheds::Sheds;
use super::targets::PoolTargets;
use super::{access, build, logging};
use crate::domain::{
    Endpoint, Failure, GateSnapshot, PoolSnapshot, Reason, Recent, RequestRecord, Timestamp,
};

const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// A pool's, an endpoint's and a class's name, all from closed sets.
type SeriesKey = (Arc<str>, Option<Endpoint>, Arc<str>);

/// Everything that is counted. Made once, shared by all rooms.
pub struct Telemetry {
    registry: Registry,
    families: Families,
    /// Handles by label values; grows to (pools x endpoints x classes) and no further.
    series: DashMap<SeriesKey, Arc<Series>>,
    known: ArcSwap<Known>,
    gauges: Gauges,
    sheds: Sheds,
    recent: Arc<RecentWindows>,
    retries: IntCounterVec,
    attempt_failures: IntCounterVec,
    upstream: IntCounterVec,
    scrape_failures: IntCounterVec,
    notes: IntCounterVec,
    /// Kinds of notes seen, so that a replica that leaves takes its series along.
    note_kinds: Mutex<BTreeSet<&'static str>>,
    task_panics: IntCounterVec,
    log_dropped: IntCounter,
    connections: Connections,
    admin_connections: Connections,
    config: ConfigMetrics,
}

/// What is known of the configuration in force.
struct ConfigMetrics {
    generation: IntGauge,
    info: IntGaugeVec,
    success: IntGauge,
    failures: IntCounter,
    time: Gauge,
}

/// Counts of client connections; cheap to clone into a listener.
#[derive(Clone, Debug)]
pub struct Connections {
    /// Open now.
    pub open: IntGauge,
    /// Taken into service.
    pub accepted: IntCounter,
    /// Turned away at the cap.
    pub over_cap: IntCounter,
    /// Ended in the TLS handshake.
    pub tls_failed: IntCounter,
    /// Calls of `accept` that failed.
    pub accept_errors: IntCounter,
    /// By listener and reason; used rarely, so that no handles are kept.
    refused: IntCounterVec,
    listener: &'static str,
}

impl Connections {
    /// Counts a request that was refused before it was one.
    pub fn refused(&self, reason: Reason) {
        self.refused.with_label_values(&[self.listener, reason.as_str()]).inc();
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("series", &self.series.len()).finish_non_exhaustive()
    }
}

fn opts(name: Name) -> Opts {
    Opts::new(name.id, name.help)
}

fn counter(registry: &Registry, name: Name) -> prometheus::Result<IntCounter> {
    let counter = IntCounter::with_opts(opts(name))?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

fn gauge(registry: &Registry, name: Name) -> prometheus::Result<IntGauge> {
    let gauge = IntGauge::with_opts(opts(name))?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

impl Telemetry {
    /// An own registry with every metric in it and nothing counted.
    ///
    /// # Errors
    /// Only where two metrics share a name, which a test rules out.
    pub fn new() -> Result<Arc<Self>, prometheus::Error> {
        let registry = Registry::new();
        let recent = Arc::<RecentWindows>::default();
        let gauges = Gauges::new(Arc::clone(&recent))?;
        registry.register(Box::new(gauges.clone()))?;
        registry.register(Box::new(Process::new()?))?;
        let info = IntGaugeVec::new(opts(names::BUILD_INFO), &["version"])?;
        registry.register(Box::new(info.clone()))?;
        info.with_label_values(&[build::VERSION]).set(1);
        let listeners = Listeners::new(&registry)?;
        let replica = |name| counters(&registry, name, &["pool", "replica"]);
        Ok(Arc::new(Self {
            families: Families::new(&registry, Arc::clone(&recent))?,
            series: DashMap::new(),
            known: ArcSwap::default(),
            gauges,
            sheds: Sheds::new(&registry)?,
            recent,
            retries: counters(&registry, names::RETRIES, &["pool"])?,
            attempt_failures: counters(
                &registry,
                names::ATTEMPT_FAILURES,
                &["pool", "replica", "failure"],
            )?,
            upstream: counters(&registry, names::UPSTREAM, &["pool", "replica", "status"])?,
            scrape_failures: replica(names::SCRAPE_FAILURES)?,
            notes: counters(&registry, names::NOTES, &["pool", "replica", "note"])?,
            note_kinds: Mutex::default(),
            task_panics: counters(&registry, names::TASK_PANICS, &["task"])?,
            log_dropped: counter(&registry, names::LOG_DROPPED)?,
            connections: listeners.connections("public"),
            admin_connections: listeners.connections("admin"),
            config: ConfigMetrics::new(&registry)?,
            registry,
        }))
    }

    /// Says which pools, classes and replicas may be labels from now on. The counters of
    /// replicas that are gone go too, so that discovery cannot grow the registry.
    pub fn configure(&self, pools: &[PoolLabels]) {
        let known = Known::new(pools);
        let now = known.replicas();
        let before = self.known.swap(Arc::new(known)).replicas();
        for (pool, replica) in before.difference(&now) {
            self.forget(pool, replica);
        }
    }

    fn forget(&self, pool: &str, replica: &str) {
        // An error means that there was no such series.
        for failure in Failure::ALL {
            let labels = [pool, replica, failure.as_str()];
            let _absent = self.attempt_failures.remove_label_values(&labels).is_err();
        }
        for status in STATUS_CLASSES {
            let _absent = self.upstream.remove_label_values(&[pool, replica, status]).is_err();
        }
        for kind in self.note_kinds.lock().iter() {
            let _absent = self.notes.remove_label_values(&[pool, replica, kind]).is_err();
        }
        let _absent = self.scrape_failures.remove_label_values(&[pool, replica]).is_err();
    }

    /// Says what requests are held to from now on.
    pub fn hold_to(&self, targets: Vec<PoolTargets>) {
        self.gauges.hold_to(targets);
    }

    /// What requests of a pool are held to; `None` where it is not configured.
    pub fn targets_of(&self, model: &str) -> Option<PoolTargets> {
        self.gauges.targets().iter().find(|held_to| *held_to.model == *model).cloned()
    }

    /// The replicas that the load of a pool's last minute asks for; `None` while no limit is known.
    pub fn wanted_replicas(&self, gate: &GateSnapshot, model: &str) -> Option<f64> {
        wanted_replicas(gate, &self.recent.minute(model, gate.at))
    }

    /// The minute before `now` of each class that had a request, by pool and class.
    pub fn recent(&self, now: Timestamp) -> Vec<Recent> {
        let targets = self.gauges.targets();
        let mut recent = self.recent.read(now);
        for one in &mut recent {
            let held_to = targets.iter().find(|held_to| held_to.model == one.pool);
            one.slo = held_to.map(|held_to| held_to.slo(&one.class)).unwrap_or_default();
        }
        recent
    }

    /// Says where the gates' snapshots come from; asked at every scrape and by `/status`.
    pub fn watch_gates(&self, source: impl Fn() -> Vec<PoolSnapshot> + Send + Sync + 'static) {
        self.gauges.connect(Arc::new(source));
    }

    /// The pools at this moment; empty before [`Telemetry::watch_gates`].
    pub fn pools(&self) -> Vec<PoolSnapshot> {
        self.gauges.pools()
    }

    /// Counts one request that has ended and writes its access-log line.
    pub fn record(&self, record: &RequestRecord) {
        let known = self.known.load();
        let pool = known.pool(record.pool.as_deref());
        let class = known.class(pool, &record.class);
        self.series(pool, record.endpoint, class, record).record(record);
        if record.attempts > 1 {
            let retries = u64::from(record.attempts - 1);
            self.retries.with_label_values(&[pool]).inc_by(retries);
        }
        self.sheds.record(pool, class, record);
        access::write(record);
    }

    fn series(
        &self,
        pool: &str,
        endpoint: Option<Endpoint>,
        class: &str,
        record: &RequestRecord,
    ) -> Arc<Series> {
        let name = |label: &str, given: Option<&Arc<str>>| match given {
            Some(given) if **given == *label => Arc::clone(given),
            _ => Arc::from(label),
        };
        let key = (name(pool, record.pool.as_ref()), endpoint, name(class, Some(&record.class)));
        if let Some(series) = self.series.get(&key) {
            return Arc::clone(&series);
        }
        let made = || {
            let endpoint = endpoint.map_or(UNKNOWN, Endpoint::as_str);
            Arc::new(self.families.series(pool, endpoint, class))
        };
        Arc::clone(&self.series.entry(key).or_insert_with(made))
    }

    /// Counts an attempt that failed before a byte of its answer was relayed.
    pub fn attempt_failed(&self, pool: &str, replica: &str, failure: Failure) {
        self.with_replica(pool, replica, |pool, replica| {
            self.attempt_failures.with_label_values(&[pool, replica, failure.as_str()]).inc();
        });
    }

    /// Counts a replica's answer by the class of its status.
    pub fn upstream_response(&self, pool: &str, replica: &str, status: u16) {
        let class = usize::from(status / 100).checked_sub(1);
        let class = class.and_then(|at| STATUS_CLASSES.get(at)).copied().unwrap_or(UNKNOWN);
        self.with_replica(pool, replica, |pool, replica| {
            self.upstream.with_label_values(&[pool, replica, class]).inc();
        });
    }

    /// Counts a reading of a replica's metrics that failed.
    pub fn scrape_failed(&self, pool: &str, replica: &str) {
        self.with_replica(pool, replica, |pool, replica| {
            self.scrape_failures.with_label_values(&[pool, replica]).inc();
        });
    }

    /// Counts what the dispatcher noticed of a replica. `kind` is a word of the code's own.
    pub fn note(&self, pool: &str, replica: &str, kind: &'static str) {
        self.note_kinds.lock().insert(kind);
        self.with_replica(pool, replica, |pool, replica| {
            self.notes.with_label_values(&[pool, replica, kind]).inc();
        });
    }

    fn with_replica(&self, pool: &str, replica: &str, count: impl FnOnce(&str, &str)) {
        let known = self.known.load();
        let pool = known.pool(Some(pool));
        count(pool, known.replica(pool, replica));
    }

    /// Counts a panic; `task` is the name that the task was spawned with.
    pub fn task_panicked(&self, task: &'static str) {
        self.task_panics.with_label_values(&[task]).inc();
    }

    /// The public listener's counters.
    pub fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// The admin listener's counters.
    pub fn admin_connections(&self) -> Connections {
        self.admin_connections.clone()
    }

    /// A configuration was taken: the `generation`-th, with this hash, at this time of day.
    pub fn config_taken(&self, generation: u64, hash: &str, at: SystemTime) {
        self.config.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.config.info.reset();
        self.config.info.with_label_values(&[hash]).set(1);
        self.config.success.set(1);
        let since_epoch = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.config.time.set(whole(since_epoch.as_secs()));
    }

    /// A configuration was refused; the one before stays in force.
    pub fn config_refused(&self) {
        self.config.success.set(0);
        self.config.failures.inc();
    }

    /// Everything, in Prometheus' text format.
    pub fn render(&self) -> String {
        let dropped = logging::dropped().saturating_sub(self.log_dropped.get());
        self.log_dropped.inc_by(dropped);
        let families = self.registry.gather();
        TextEncoder::new().encode_to_string(&families).unwrap_or_else(|error| {
            tracing::error!(%error, "metrics could not be written");
            String::new()
        })
    }

    #[cfg(test)]
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// The families that [`Connections`] come from.
struct Listeners {
    open: IntGaugeVec,
    total: IntCounterVec,
    accept_errors: IntCounterVec,
    refused: IntCounterVec,
}

impl Listeners {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let open = IntGaugeVec::new(opts(names::CONNECTIONS), &["listener"])?;
        registry.register(Box::new(open.clone()))?;
        let total = counters(registry, names::CONNECTIONS_TOTAL, &["listener", "result"])?;
        let accept_errors = counters(registry, names::ACCEPT_ERRORS, &["listener"])?;
        let refused = counters(registry, names::HEADS_REFUSED, &["listener", "reason"])?;
        Ok(Self { open, total, accept_errors, refused })
    }

    fn connections(&self, listener: &'static str) -> Connections {
        let total = |result| self.total.with_label_values(&[listener, result]);
        Connections {
            open: self.open.with_label_values(&[listener]),
            accepted: total("accepted"),
            over_cap: total("over_cap"),
            tls_failed: total("tls_failed"),
            accept_errors: self.accept_errors.with_label_values(&[listener]),
            refused: self.refused.clone(),
            listener,
        }
    }
}

impl ConfigMetrics {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let info = IntGaugeVec::new(opts(names::CONFIG_INFO), &["hash"])?;
        registry.register(Box::new(info.clone()))?;
        let time = Gauge::with_opts(opts(names::CONFIG_TIME))?;
        registry.register(Box::new(time.clone()))?;
        Ok(Self {
            generation: gauge(registry, names::CONFIG_GENERATION)?,
            info,
            success: gauge(registry, names::CONFIG_SUCCESS)?,
            failures: counter(registry, names::CONFIG_FAILURES)?,
            time,
        })
    }
}
