//! A histogram into which many observations are merged in one step.
//!
//! The gaps of a stream are kept apart until its outcome is known. The `prometheus` crate's
//! histogram takes one observation at a time, so a stream of a thousand gaps would be a
//! thousand atomic updates at its end; this one adds ready-made bucket counts under one short
//! lock. It also means that a scrape sees all of a stream's gaps or none of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto;

use super::names::Name;
use crate::domain::{Gaps, ITL_BOUNDS};

/// A family of such histograms, one for each combination of label values.
#[derive(Clone)]
pub(super) struct GapHistograms {
    desc: Desc,
    name: Name,
    labels: &'static [&'static str],
    /// By label values. Locked to find a series (once, when its handle is made) and to scrape.
    series: Arc<Mutex<BTreeMap<Vec<String>, GapHistogram>>>,
}

/// One of them: a handle to merge into.
#[derive(Clone, Default)]
pub(super) struct GapHistogram(Arc<Mutex<Gaps>>);

impl GapHistogram {
    /// Adds all gaps of one stream.
    pub(super) fn merge(&self, gaps: &Gaps) {
        if gaps.count() == 0 {
            return;
        }
        let mut sum = self.0.lock();
        for (sum, count) in sum.counts.iter_mut().zip(gaps.counts) {
            *sum = sum.wrapping_add(count);
        }
        sum.sum_seconds += gaps.sum_seconds;
    }

    fn metric(&self) -> proto::Histogram {
        let (counts, total) = {
            let sum = self.0.lock();
            (sum.counts, sum.sum_seconds)
        };
        let mut cumulative = 0_u64;
        let mut buckets = Vec::with_capacity(ITL_BOUNDS.len());
        for (bound, count) in ITL_BOUNDS.into_iter().zip(counts) {
            cumulative = cumulative.wrapping_add(count);
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(cumulative);
            buckets.push(bucket);
        }
        let mut histogram = proto::Histogram::default();
        histogram.set_sample_count(counts.iter().fold(0, |sum, count| sum.wrapping_add(*count)));
        histogram.set_sample_sum(total);
        histogram.set_bucket(buckets);
        histogram
    }
}

impl GapHistograms {
    /// A family without series yet.
    ///
    /// # Errors
    /// Where name or labels are not what Prometheus allows.
    pub(super) fn new(name: Name, labels: &'static [&'static str]) -> prometheus::Result<Self> {
        let variable = labels.iter().map(|&label| label.to_owned()).collect();
        let desc = Desc::new(name.id.to_owned(), name.help.to_owned(), variable, HashMap::new())?;
        Ok(Self { desc, name, labels, series: Arc::default() })
    }

    /// The series with these label values, in the order of the labels.
    pub(super) fn with(&self, values: &[&str]) -> GapHistogram {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        self.series.lock().entry(values).or_default().clone()
    }
}

impl Collector for GapHistograms {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let series = self.series.lock().clone();
        let mut family = proto::MetricFamily::default();
        family.set_name(self.name.id.to_owned());
        family.set_help(self.name.help.to_owned());
        family.set_field_type(proto::MetricType::HISTOGRAM);
        let metrics = series.iter().map(|(values, histogram)| {
            let mut metric = proto::Metric::from_label(label_pairs(self.labels, values));
            metric.set_histogram(histogram.metric());
            metric
        });
        family.set_metric(metrics.collect());
        vec![family]
    }
}

/// Label names and values side by side, by name, as the registry orders its own.
pub(super) fn label_pairs(names: &[&str], values: &[impl AsRef<str>]) -> Vec<proto::LabelPair> {
    let pairs = names.iter().zip(values).map(|(name, value)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value.as_ref().to_owned());
        pair
    });
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_by(|a, b| a.name().cmp(b.name()));
    pairs
}
