//! A scrape's text to one [`Sample`].
//!
//! Several engines in one server are added up; of shares the fullest engine's is taken, since
//! that one is what binds. A quantity that is missing, or that is no number (NaN, infinite,
//! negative), is unknown and never zero: a router that reads a renamed gauge as zero sends
//! everything there. A line that names a known quantity and cannot be read spoils the scrape:
//! half a reading is worse than an old one.

use crate::domain::{Sample, Timestamp};

use super::exposition::{LineError, Series, lines, name, number, series};
use super::names::{Meaning, Quantity, RANK_LABELS, meaning};

/// Engines told apart at most; what a hostile server names beyond that is still added up.
const MAX_ENGINES: usize = 1024;

/// Why a scrape is no reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MetricsError {
    /// Not one engine metric that is known by any name: not an engine, or a new naming.
    #[error("no known engine metric in it")]
    Unknown,
    /// The line (counted from 1) names a known metric and its labels cannot be read.
    #[error("line {0}: broken labels")]
    Labels(usize),
    /// The line (counted from 1) names a known metric and its value cannot be read.
    #[error("line {0}: not a number")]
    Value(usize),
}

/// Reads Prometheus text or OpenMetrics.
///
/// `asked` is when the request for it was sent and `taken` when the answer was there; they are
/// carried over as they are.
pub fn parse_metrics(
    text: &[u8],
    asked: Timestamp,
    taken: Timestamp,
) -> Result<Sample, MetricsError> {
    let mut reading = Reading::default();
    for (at, line) in lines(text).enumerate() {
        let Some((name, rest)) = name(line) else { continue };
        let Some(meaning) = meaning(name) else { continue };
        let series = series(rest).map_err(|error| match error {
            LineError::Labels => MetricsError::Labels(at + 1),
            LineError::Value => MetricsError::Value(at + 1),
        })?;
        reading.take(meaning, &series);
    }
    reading.sample(asked, taken).ok_or(MetricsError::Unknown)
}

/// How several series of one name become one value.
#[derive(Clone, Copy)]
enum Merge {
    Sum,
    Highest,
}

/// One quantity while it is being read: the value under the highest-ranked name so far.
#[derive(Clone, Copy, Default)]
struct Slot {
    rank: u8,
    value: Option<f64>,
    /// One of the series was no number: the whole is unknown.
    spoilt: bool,
}

impl Slot {
    fn add(&mut self, rank: u8, value: f64, merge: Merge) {
        if self.value.is_some() || self.spoilt {
            if rank < self.rank {
                return;
            }
            if rank > self.rank {
                *self = Self::default();
            }
        }
        self.rank = rank;
        if !value.is_finite() || value < 0.0 {
            self.spoilt = true;
            return;
        }
        self.value = Some(match (self.value, merge) {
            (None, _) => value,
            (Some(before), Merge::Sum) => before + value,
            (Some(before), Merge::Highest) => before.max(value),
        });
    }

    fn number(self) -> Option<f64> {
        self.value.filter(|value| !self.spoilt && value.is_finite())
    }

    fn count(self) -> Option<u64> {
        self.number().map(whole)
    }

    fn small(self) -> Option<u32> {
        self.count().map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn share(self) -> Option<f64> {
        self.number().map(|share| share.min(1.0))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float to integer cast saturates, and the value is finite and not negative"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[derive(Default)]
struct Reading<'a> {
    engines: Vec<&'a [u8]>,
    running: Slot,
    waiting: Slot,
    kv_usage: Slot,
    kv_capacity: Slot,
    block_size: Option<u32>,
    preemptions: Slot,
    prefix_queries: Slot,
    prefix_hits: Slot,
    prompt_tokens: Slot,
    generation_tokens: Slot,
    finished: Slot,
    start_time: Slot,
    asleep: Option<bool>,
    known: bool,
}

impl<'a> Reading<'a> {
    fn take(&mut self, meaning: Meaning, series: &Series<'a>) {
        self.known |= meaning.quantity != Quantity::StartTime;
        let (slot, merge) = match meaning.quantity {
            Quantity::Running => {
                self.name_engine(series);
                (&mut self.running, Merge::Sum)
            }
            Quantity::Waiting => (&mut self.waiting, Merge::Sum),
            Quantity::KvUsage => (&mut self.kv_usage, Merge::Highest),
            Quantity::KvCapacity => (&mut self.kv_capacity, Merge::Sum),
            Quantity::Preemptions => (&mut self.preemptions, Merge::Sum),
            Quantity::PrefixQueries => (&mut self.prefix_queries, Merge::Sum),
            Quantity::PrefixHits => (&mut self.prefix_hits, Merge::Sum),
            Quantity::PromptTokens => (&mut self.prompt_tokens, Merge::Sum),
            Quantity::GenerationTokens => (&mut self.generation_tokens, Merge::Sum),
            Quantity::Finished => (&mut self.finished, Merge::Sum),
            Quantity::StartTime => (&mut self.start_time, Merge::Highest),
            Quantity::CacheConfig => return self.take_cache_config(series),
            Quantity::SleepState => return self.take_sleep_state(series),
        };
        slot.add(meaning.rank, series.value, merge);
    }

    fn name_engine(&mut self, series: &Series<'a>) {
        let engine = RANK_LABELS.iter().find_map(|label| series.label(label));
        if let Some(engine) = engine
            && self.engines.len() < MAX_ENGINES
            && !self.engines.contains(&engine)
        {
            self.engines.push(engine);
        }
    }

    /// `kv_cache_size_tokens` where the version has it, else blocks times their size. A value
    /// of `None` (Python's) is unknown.
    fn take_cache_config(&mut self, series: &Series<'a>) {
        let (mut tokens, mut blocks, mut size) = (None, None, None);
        for (name, value) in series.labels() {
            match name {
                b"kv_cache_size_tokens" => tokens = number(value),
                b"num_gpu_blocks" => blocks = number(value),
                b"block_size" => size = number(value),
                _ => {}
            }
        }
        let positive = |value: &f64| value.is_finite() && *value > 0.0;
        let size = size.filter(positive);
        let blocks = blocks.filter(positive).zip(size).map(|(blocks, size)| blocks * size);
        if let Some(tokens) = tokens.filter(positive).or(blocks) {
            self.kv_capacity.add(0, tokens, Merge::Sum);
        }
        self.block_size = self
            .block_size
            .or_else(|| size.map(|size| u32::try_from(whole(size)).unwrap_or(u32::MAX)));
    }

    /// Asleep as soon as one engine is not awake.
    fn take_sleep_state(&mut self, series: &Series<'a>) {
        if series.label("sleep_state") == Some(b"awake") && series.value.is_finite() {
            let asleep = series.value < 0.5;
            self.asleep = Some(self.asleep.unwrap_or(false) || asleep);
        }
    }

    fn sample(self, asked: Timestamp, taken: Timestamp) -> Option<Sample> {
        self.known.then(|| Sample {
            asked,
            taken,
            engines: u32::try_from(self.engines.len()).unwrap_or(u32::MAX),
            running: self.running.small(),
            waiting: self.waiting.small(),
            kv_usage: self.kv_usage.share(),
            kv_capacity_tokens: self.kv_capacity.count(),
            block_size: self.block_size,
            preemptions: self.preemptions.count(),
            prefix_queries: self.prefix_queries.count(),
            prefix_hits: self.prefix_hits.count(),
            prompt_tokens: self.prompt_tokens.count(),
            generation_tokens: self.generation_tokens.count(),
            finished: self.finished.count(),
            start_time_seconds: self.start_time.number(),
            asleep: self.asleep,
        })
    }
}

#[cfg(test)]
mod tests;
