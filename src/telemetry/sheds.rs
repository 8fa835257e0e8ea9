//! What was shed: how often, why, by which limit, and what clients were told.
//!
//! Limits and readings are those of the last shed of each reason: a queue that is full says so a
//! thousand times a second, and an operator wants to know what it stood at, not the sum of it.

use prometheus::{GaugeVec, HistogramVec, IntCounterVec, Opts, Registry};

use super::names::{self, Name};
use super::series::{counters, histograms};
use crate::domain::{Outcome, RequestRecord};

/// What shed clients are told lies between 1 s and 55 s.
const RETRY_AFTER_BOUNDS: [f64; 10] = [1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0];

/// The families of sheds.
pub(super) struct Sheds {
    count: IntCounterVec,
    retry_after: HistogramVec,
    limit: GaugeVec,
    reading: GaugeVec,
    age: GaugeVec,
}

impl Sheds {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: Name, labels: &[&str]| {
            let family = GaugeVec::new(Opts::new(name.id, name.help), labels)?;
            registry.register(Box::new(family.clone()))?;
            Ok::<_, prometheus::Error>(family)
        };
        Ok(Self {
            count: counters(registry, names::SHED, &["pool", "class", "reason"])?,
            retry_after: histograms(registry, names::RETRY_AFTER, &["pool"], &RETRY_AFTER_BOUNDS)?,
            limit: gauge(names::SHED_LIMIT, &["pool", "reason", "unit"])?,
            reading: gauge(names::SHED_READING, &["pool", "reason", "unit"])?,
            age: gauge(names::SHED_READING_AGE, &["pool", "reason"])?,
        })
    }

    /// Counts what was shed of this request, if it was; `pool` and `class` are from closed sets.
    pub(super) fn record(&self, pool: &str, class: &str, record: &RequestRecord) {
        if let Some(wait) = record.rejection.and_then(|rejection| rejection.retry_after) {
            self.retry_after.with_label_values(&[pool]).observe(wait.as_secs_f64());
        }
        let (Outcome::Rejected(reason) | Outcome::Evicted(reason)) = record.outcome else { return };
        let word = reason.as_str();
        if reason.retry_after() {
            self.count.with_label_values(&[pool, class, word]).inc();
        }
        if let Some((rejection, unit)) = record.rejection.and_then(|r| Some((r, r.unit?))) {
            let labels = [pool, word, unit.as_str()];
            self.limit.with_label_values(&labels).set(rejection.limit);
            self.reading.with_label_values(&labels).set(rejection.reading);
            self.age.with_label_values(&[pool, word]).set(rejection.age.as_secs_f64());
        }
    }
}
