//! The last minute of each class, for `/status`: how requests ended and what they waited.
//!
//! Prometheus' histograms count since the start and as coarsely as vLLM's do, so that the two can
//! be compared. Whoever looks at a page wants the present, and a p95 that is no bound of a bucket.
//! So a class has a ring of twelve slots of five seconds, each with counts and histograms of two
//! significant digits; a slot is emptied when its time comes round again. Time is that of the
//! records: this room reads no clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::domain::{
    Ends, Gaps, ITL_BOUNDS, Outcome, Quantiles, Reason, Recent, RequestRecord, Timestamp,
};

/// Length of a slot.
const SLOT: Duration = Duration::from_secs(5);

/// Slots of a window.
const SLOTS: u32 = 12;

/// Latencies are kept in these units, to two digits.
const UNIT: Duration = Duration::from_micros(100);

/// All classes of all pools.
#[derive(Default)]
pub(super) struct RecentWindows {
    /// By pool and class, both from closed sets.
    windows: DashMap<(Arc<str>, Arc<str>), RecentWindow>,
}

/// One class of one pool: a handle to count with. Locked for the length of one record or reading.
#[derive(Clone, Default)]
pub(super) struct RecentWindow(Arc<Mutex<Window>>);

impl RecentWindow {
    /// Counts one request that has ended.
    pub(super) fn record(&self, record: &RequestRecord) {
        self.0.lock().record(record);
    }
}

impl RecentWindows {
    /// The window of a class.
    pub(super) fn of(&self, pool: &str, class: &str) -> RecentWindow {
        self.windows.entry((pool.into(), class.into())).or_default().clone()
    }

    /// How requests of a pool ended in the minute before `now`, all its classes together.
    pub(super) fn minute(&self, pool: &str, now: Timestamp) -> Ends {
        let mut sum = Counts::default();
        for entry in &self.windows {
            if *entry.key().0 == *pool {
                entry.value().0.lock().sum(now, |slot| sum.merge(&slot.counts));
            }
        }
        sum.ends()
    }

    /// The minute before `now` of each class, by pool and class.
    pub(super) fn read(&self, now: Timestamp) -> Vec<Recent> {
        let read = self.windows.iter().map(|entry| {
            let (pool, class) = entry.key();
            let recent = entry.value().0.lock().read(now);
            Recent { pool: Arc::clone(pool), class: Arc::clone(class), ..recent }
        });
        let mut all: Vec<_> = read.collect();
        all.sort_by(|a, b| (&a.pool, &a.class).cmp(&(&b.pool, &b.class)));
        all
    }
}

/// One class of one pool.
#[derive(Default)]
struct Window {
    slots: [Slot; SLOTS as usize],
    total: Counts,
}

#[derive(Default)]
struct Slot {
    /// Which five seconds since the origin it holds; 0 is unused, since the first counts as 1.
    number: u64,
    counts: Counts,
    ttft: Latencies,
    tpot: Latencies,
    gaps: Gaps,
}

fn number(at: Timestamp) -> u64 {
    1 + at.as_nanos() / u64::try_from(SLOT.as_nanos()).unwrap_or(u64::MAX)
}

impl Window {
    fn record(&mut self, record: &RequestRecord) {
        let number = number(record.received + record.e2e);
        self.total.add(record);
        let place = usize::try_from(number % u64::from(SLOTS)).unwrap_or_default();
        let Some(slot) = self.slots.get_mut(place) else { return };
        if slot.number < number {
            slot.restart(number);
        }
        // One that ended a minute before the newest is too late to be shown.
        if slot.number == number {
            slot.record(record);
        }
    }

    /// Shows each slot of the minute before `now`.
    fn sum(&self, now: Timestamp, mut take: impl FnMut(&Slot)) {
        let newest = number(now);
        let inside =
            |slot: &&Slot| slot.number <= newest && slot.number + u64::from(SLOTS) > newest;
        self.slots.iter().filter(|slot| slot.number > 0).filter(inside).for_each(&mut take);
    }

    fn read(&self, now: Timestamp) -> Recent {
        let mut sum = Slot::default();
        self.sum(now, |slot| sum.merge(slot));
        let into = now.as_nanos() % nanos(SLOT);
        let whole = Duration::from_nanos(into) + SLOT * (SLOTS - 1);
        Recent {
            window: whole.min(Duration::from_nanos(now.as_nanos())),
            ends: sum.counts.ends(),
            total: self.total.ends(),
            ttft: sum.ttft.quantiles(),
            tpot: sum.tpot.quantiles(),
            itl: gap_quantiles(&sum.gaps),
            ..Recent::default()
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Slot {
    fn restart(&mut self, number: u64) {
        self.number = number;
        self.counts = Counts::default();
        self.ttft.reset();
        self.tpot.reset();
        self.gaps = Gaps::default();
    }

    fn record(&mut self, record: &RequestRecord) {
        self.counts.add(record);
        if record.outcome == Outcome::Completed {
            self.ttft.observe(record.ttft);
            self.tpot.observe(record.tpot);
            merge_gaps(&mut self.gaps, &record.gaps);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.ttft.merge(&other.ttft);
        self.tpot.merge(&other.tpot);
        merge_gaps(&mut self.gaps, &other.gaps);
    }
}

/// [`Ends`] as it is counted.
#[derive(Default)]
struct Counts {
    ends: Ends,
    refused: BTreeMap<Reason, u64>,
}

impl Counts {
    fn add(&mut self, record: &RequestRecord) {
        let ends = &mut self.ends;
        ends.offered += 1;
        match record.outcome {
            Outcome::Completed => ends.completed += 1,
            Outcome::Cancelled => ends.cancelled += 1,
            Outcome::Failed(_) => ends.failed += 1,
            Outcome::Rejected(reason) | Outcome::Evicted(reason) => {
                *self.refused.entry(reason).or_default() += 1;
            }
        }
        ends.good += u64::from(record.good());
        if let Some(usage) = record.usage {
            ends.input_tokens += usage.input;
            ends.output_tokens += usage.output;
            ends.cached_tokens += usage.cached.unwrap_or_default();
        }
    }

    fn merge(&mut self, other: &Self) {
        let (sum, more) = (&mut self.ends, &other.ends);
        sum.offered += more.offered;
        sum.completed += more.completed;
        sum.good += more.good;
        sum.cancelled += more.cancelled;
        sum.failed += more.failed;
        sum.input_tokens += more.input_tokens;
        sum.output_tokens += more.output_tokens;
        sum.cached_tokens += more.cached_tokens;
        for (reason, more) in &other.refused {
            *self.refused.entry(*reason).or_default() += more;
        }
    }

    fn ends(&self) -> Ends {
        let refused = self.refused.iter().map(|(reason, count)| (*reason, *count)).collect();
        Ends { refused, ..self.ends.clone() }
    }
}

/// A histogram that grows with what it is shown; `None` before the first.
#[derive(Default)]
struct Latencies(Option<Histogram<u32>>);

impl Latencies {
    fn observe(&mut self, seen: Option<Duration>) {
        let Some(seen) = seen else { return };
        let units = u64::try_from(seen.as_nanos() / UNIT.as_nanos()).unwrap_or(u64::MAX);
        if self.0.is_none() {
            // Two digits are always a legal precision.
            self.0 = Histogram::new(2).ok();
        }
        if let Some(histogram) = &mut self.0 {
            // Longer than any request: what does not fit is not worth a page.
            let _fits = histogram.record(units.min(u64::from(u32::MAX))).is_ok();
        }
    }

    fn merge(&mut self, other: &Self) {
        let Some(more) = &other.0 else { return };
        match &mut self.0 {
            Some(sum) => {
                let _fits = sum.add(more).is_ok();
            }
            None => self.0 = Some(more.clone()),
        }
    }

    fn reset(&mut self) {
        if let Some(histogram) = &mut self.0 {
            histogram.reset();
        }
    }

    fn quantiles(&self) -> Option<Quantiles> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        let at = |share| {
            let units = u32::try_from(histogram.value_at_quantile(share)).unwrap_or(u32::MAX);
            UNIT.as_secs_f64() * f64::from(units)
        };
        Some(Quantiles {
            count: histogram.len(),
            p50_seconds: at(0.5),
            p95_seconds: at(0.95),
            p99_seconds: at(0.99),
        })
    }
}

fn merge_gaps(sum: &mut Gaps, more: &Gaps) {
    for (sum, more) in sum.counts.iter_mut().zip(more.counts) {
        *sum += more;
    }
    sum.sum_seconds += more.sum_seconds;
    sum.longest_seconds = sum.longest_seconds.max(more.longest_seconds);
}

/// Quantiles of bucketed gaps: as Prometheus does it, evenly spread within a bucket; none is
/// longer than the longest.
fn gap_quantiles(gaps: &Gaps) -> Option<Quantiles> {
    let count = gaps.count();
    let at = |share: f64| {
        let rank = share * super::gauges::whole(count);
        let (mut below, mut lower) = (0.0, 0.0);
        for (bound, inside) in ITL_BOUNDS.into_iter().zip(gaps.counts) {
            let inside = super::gauges::whole(inside);
            if below + inside >= rank && inside > 0.0 {
                let spread = lower + (bound - lower) * (rank - below) / inside;
                return spread.min(gaps.longest_seconds);
            }
            (below, lower) = (below + inside, bound);
        }
        gaps.longest_seconds
    };
    (count > 0).then(|| Quantiles {
        count,
        p50_seconds: at(0.5),
        p95_seconds: at(0.95),
        p99_seconds: at(0.99),
    })
}

#[cfg(test)]
mod tests;
