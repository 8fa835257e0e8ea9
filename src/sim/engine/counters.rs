//! What vLLM counts, counted the same way (`vllm/v1/metrics/loggers.py`).

use super::{Finish, to_f64};
use crate::domain::{E2E_BOUNDS, ITL_BOUNDS, TTFT_BOUNDS, Timestamp};

/// Bounds of `vllm:iteration_tokens_total`.
const ITERATION_BOUNDS: [f64; 11] =
    [1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0];

/// Bounds of token counts a request: 1, 2, 5 a decade.
const TOKEN_BOUNDS: [f64; 13] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0];

/// A histogram as Prometheus has them.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One a bound, and one for what lies above all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// An empty one with these upper bounds, rising.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Adds a value; one on a bound belongs to that bound's bucket.
    pub fn observe(&mut self, value: f64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum += value;
    }

    /// Each bound with the values at or below it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut below = 0;
        self.bounds.iter().zip(&self.counts).map(move |(bound, count)| {
            below += count;
            (*bound, below)
        })
    }

    /// Values in all.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub const fn sum(&self) -> f64 {
        self.sum
    }
}

/// Everything that an engine has counted since its start. Times are seconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Counters {
    /// Sequences preempted.
    pub preemptions: u64,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Prompt tokens found there.
    pub prefix_hits: u64,
    /// Prompt tokens of admitted sequences.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Sequences that ended by themselves.
    pub stopped: u64,
    /// Sequences that met their token limit.
    pub at_length: u64,
    /// Sequences aborted.
    pub aborted: u64,
    /// Arrival to first token.
    pub ttft: Histogram,
    /// Between tokens of one sequence.
    pub itl: Histogram,
    /// A request's mean time a token after its first.
    pub tpot: Histogram,
    /// Arrival to end.
    pub e2e: Histogram,
    /// Arrival to being scheduled.
    pub queue: Histogram,
    /// Scheduled to end.
    pub inference: Histogram,
    /// Scheduled to first token.
    pub prefill: Histogram,
    /// First token to end.
    pub decode: Histogram,
    /// Prompt tokens a request.
    pub request_prompt: Histogram,
    /// Generated tokens a request.
    pub request_generation: Histogram,
    /// Tokens computed a step.
    pub iteration_tokens: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        let e2e = || Histogram::new(&E2E_BOUNDS);
        Self {
            preemptions: 0,
            prefix_queries: 0,
            prefix_hits: 0,
            prompt_tokens: 0,
            generation_tokens: 0,
            stopped: 0,
            at_length: 0,
            aborted: 0,
            ttft: Histogram::new(&TTFT_BOUNDS),
            itl: Histogram::new(&ITL_BOUNDS),
            tpot: Histogram::new(&ITL_BOUNDS),
            e2e: e2e(),
            queue: e2e(),
            inference: e2e(),
            prefill: e2e(),
            decode: e2e(),
            request_prompt: Histogram::new(&TOKEN_BOUNDS),
            request_generation: Histogram::new(&TOKEN_BOUNDS),
            iteration_tokens: Histogram::new(&ITERATION_BOUNDS),
        }
    }
}

/// A sequence that has ended.
pub(super) struct Ended {
    pub(super) prompt_tokens: u32,
    pub(super) generated: u32,
    pub(super) arrived: Timestamp,
    pub(super) scheduled: Timestamp,
    pub(super) first_token: Timestamp,
    pub(super) at: Timestamp,
}

impl Counters {
    /// A sequence's prompt met the prefix cache.
    pub(super) fn looked_up(&mut self, prompt: u32, hit: u32) {
        self.prefix_queries += u64::from(prompt);
        self.prefix_hits += u64::from(hit);
        self.prompt_tokens += u64::from(prompt);
    }

    pub(super) fn finished(&mut self, ended: &Ended, finish: Option<Finish>) {
        match finish {
            Some(Finish::Stop) => self.stopped += 1,
            Some(Finish::Length) => self.at_length += 1,
            None => {}
        }
        let between = |from: Timestamp, to: Timestamp| to.saturating_since(from).as_secs_f64();
        self.e2e.observe(between(ended.arrived, ended.at));
        self.queue.observe(between(ended.arrived, ended.scheduled));
        self.inference.observe(between(ended.scheduled, ended.at));
        self.prefill.observe(between(ended.scheduled, ended.first_token));
        let decode = between(ended.first_token, ended.at);
        self.decode.observe(decode);
        if ended.generated > 1 {
            self.tpot.observe(decode / f64::from(ended.generated - 1));
        }
        self.request_prompt.observe(to_f64(u64::from(ended.prompt_tokens)));
        self.request_generation.observe(to_f64(u64::from(ended.generated)));
    }
}
