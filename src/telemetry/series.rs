//! The handles of one (pool, endpoint, class): looked up once, then used without the registry.

use std::sync::{Arc, OnceLock};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};

use super::histogram::{GapHistogram, GapHistograms};
use super::names::{self, Name};
use super::recent::{RecentWindow, RecentWindows};
use crate::domain::{
    E2E_BOUNDS, ITL_BOUNDS, Outcome, QUEUE_BOUNDS, Reason, RequestRecord, TTFT_BOUNDS,
};

const LABELS: &[&str] = &["pool", "endpoint", "class"];

/// The families that [`Series`] come from.
pub(super) struct Families {
    offered: IntCounterVec,
    requests: IntCounterVec,
    good: IntCounterVec,
    ttft: HistogramVec,
    tpot: HistogramVec,
    tpot_excluded: IntCounterVec,
    itl: GapHistograms,
    e2e: HistogramVec,
    queue_wait: HistogramVec,
    first_frame: HistogramVec,
    input_tokens: IntCounterVec,
    output_tokens: IntCounterVec,
    cached_tokens: IntCounterVec,
    frames: IntCounterVec,
    bytes: IntCounterVec,
    recent: Arc<RecentWindows>,
}

/// A counter family in `registry`.
pub(super) fn counters(
    registry: &Registry,
    name: Name,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    let family = IntCounterVec::new(Opts::new(name.id, name.help), labels)?;
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}

/// A histogram family in `registry`, bounds in seconds.
pub(super) fn histograms(
    registry: &Registry,
    name: Name,
    labels: &[&str],
    bounds: &[f64],
) -> prometheus::Result<HistogramVec> {
    let options = HistogramOpts::new(name.id, name.help).buckets(bounds.to_vec());
    let family = HistogramVec::new(options, labels)?;
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}

impl Families {
    pub(super) fn new(registry: &Registry, recent: Arc<RecentWindows>) -> prometheus::Result<Self> {
        let counter = |name| counters(registry, name, LABELS);
        let histogram = |name, bounds: &[f64]| histograms(registry, name, LABELS, bounds);
        let itl = GapHistograms::new(names::ITL, LABELS)?;
        registry.register(Box::new(itl.clone()))?;
        Ok(Self {
            offered: counter(names::OFFERED)?,
            requests: counters(
                registry,
                names::REQUESTS,
                &["pool", "endpoint", "class", "outcome", "reason"],
            )?,
            good: counter(names::GOOD)?,
            ttft: histogram(names::TTFT, &TTFT_BOUNDS)?,
            tpot: histogram(names::TPOT, &ITL_BOUNDS)?,
            tpot_excluded: counter(names::TPOT_EXCLUDED)?,
            itl,
            e2e: histogram(names::E2E, &E2E_BOUNDS)?,
            queue_wait: histogram(names::QUEUE_WAIT, &QUEUE_BOUNDS)?,
            first_frame: histogram(names::FIRST_FRAME, &TTFT_BOUNDS)?,
            input_tokens: counter(names::INPUT_TOKENS)?,
            output_tokens: counter(names::OUTPUT_TOKENS)?,
            cached_tokens: counter(names::CACHED_TOKENS)?,
            frames: counter(names::FRAMES)?,
            bytes: counter(names::BYTES)?,
            recent,
        })
    }

    /// The handles for these label values, all from closed sets.
    pub(super) fn series(&self, pool: &str, endpoint: &str, class: &str) -> Series {
        let values = [pool, endpoint, class];
        Series {
            values: values.map(str::to_owned),
            requests: self.requests.clone(),
            outcomes: std::iter::repeat_with(OnceLock::new).take(OUTCOMES).collect(),
            offered: self.offered.with_label_values(&values),
            good: self.good.with_label_values(&values),
            ttft: self.ttft.with_label_values(&values),
            tpot: self.tpot.with_label_values(&values),
            tpot_excluded: self.tpot_excluded.with_label_values(&values),
            itl: self.itl.with(&values),
            e2e: self.e2e.with_label_values(&values),
            queue_wait: self.queue_wait.with_label_values(&values),
            first_frame: self.first_frame.with_label_values(&values),
            input_tokens: self.input_tokens.with_label_values(&values),
            output_tokens: self.output_tokens.with_label_values(&values),
            cached_tokens: self.cached_tokens.with_label_values(&values),
            frames: self.frames.with_label_values(&values),
            bytes: self.bytes.with_label_values(&values),
            recent: self.recent.of(pool, class),
        }
    }
}

/// Two outcomes without a reason, three with one.
const OUTCOMES: usize = 2 + 3 * Reason::ALL.len();

/// One (pool, endpoint, class).
pub(super) struct Series {
    values: [String; 3],
    requests: IntCounterVec,
    /// By [`slot`]; made when the outcome is first seen, so that `/metrics` lists what happened
    /// and not a hundred zeros a class.
    outcomes: Box<[OnceLock<IntCounter>]>,
    offered: IntCounter,
    good: IntCounter,
    ttft: Histogram,
    tpot: Histogram,
    tpot_excluded: IntCounter,
    itl: GapHistogram,
    e2e: Histogram,
    queue_wait: Histogram,
    first_frame: Histogram,
    input_tokens: IntCounter,
    output_tokens: IntCounter,
    cached_tokens: IntCounter,
    frames: IntCounter,
    bytes: IntCounter,
    recent: RecentWindow,
}

/// The place of an outcome among [`OUTCOMES`].
const fn slot(outcome: Outcome) -> usize {
    let reasons = Reason::ALL.len();
    match outcome {
        Outcome::Completed => 0,
        Outcome::Cancelled => 1,
        Outcome::Rejected(reason) => 2 + reason as usize,
        Outcome::Evicted(reason) => 2 + reasons + reason as usize,
        Outcome::Failed(reason) => 2 + 2 * reasons + reason as usize,
    }
}

impl Series {
    /// Counts one request that has ended.
    pub(super) fn record(&self, record: &RequestRecord) {
        self.recent.record(record);
        self.offered.inc();
        self.count(record.outcome);
        self.frames.inc_by(record.frames);
        self.bytes.inc_by(record.bytes);
        if let Some(usage) = record.usage {
            self.input_tokens.inc_by(usage.input);
            self.output_tokens.inc_by(usage.output);
            self.cached_tokens.inc_by(usage.cached.unwrap_or(0));
        }
        if record.outcome == Outcome::Completed {
            self.latencies(record);
        }
    }

    fn count(&self, outcome: Outcome) {
        let made = || {
            let [pool, endpoint, class] = &self.values;
            let reason = outcome.reason().map_or("", Reason::as_str);
            let values = [pool.as_str(), endpoint, class, outcome.as_str(), reason];
            self.requests.with_label_values(&values)
        };
        if let Some(counter) = self.outcomes.get(slot(outcome)) {
            counter.get_or_init(made).inc();
        }
    }

    fn latencies(&self, record: &RequestRecord) {
        if record.good() {
            self.good.inc();
        }
        let observe = |histogram: &Histogram, seen: Option<std::time::Duration>| {
            if let Some(seen) = seen {
                histogram.observe(seen.as_secs_f64());
            }
        };
        observe(&self.ttft, record.ttft);
        observe(&self.tpot, record.tpot);
        observe(&self.queue_wait, record.queue_wait);
        observe(&self.first_frame, record.first_frame);
        observe(&self.e2e, Some(record.e2e));
        self.itl.merge(&record.gaps);
        let single = record.usage.is_some_and(|usage| usage.output == 1);
        if single && record.ttft.is_some() {
            self.tpot_excluded.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_outcome_has_a_slot_of_its_own() {
        let with_reason = Reason::ALL.iter().flat_map(|&reason| {
            [Outcome::Rejected(reason), Outcome::Evicted(reason), Outcome::Failed(reason)]
        });
        let slots: Vec<_> = [Outcome::Completed, Outcome::Cancelled]
            .into_iter()
            .chain(with_reason)
            .map(slot)
            .collect();
        assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), OUTCOMES);
        assert!(slots.iter().all(|slot| *slot < OUTCOMES));
    }
}
