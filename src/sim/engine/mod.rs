//! The engine model: a continuous-batching scheduler over KV blocks, on time that it is told.
//!
//! It follows vLLM's V1 scheduler (`vllm/v1/core/sched/scheduler.py`): running sequences first,
//! then the waiting ones in order of arrival, all within one token budget a step; blocks on
//! demand; when none is left the sequence that came last is preempted and computed again.
//! A step costs `base + a * sequences + b * prefill tokens + c * context tokens`.
//!
//! It knows nothing of text: a prompt is a length and the chained hashes of its full blocks.
//! Generated blocks are not entered into the prefix cache, so a conversation's next turn finds
//! its former prompt there but not the former answer.

mod blocks;
mod counters;
mod params;
mod schedule;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub use blocks::chain_hash;
use blocks::{Block, BlockPool};
pub use counters::{Counters, Histogram};
pub use params::EngineParams;

use crate::domain::Timestamp;

/// One sequence to run.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Its name; the caller keeps it unique among those present.
    pub id: u64,
    /// Prompt length, tokens; at least 1.
    pub prompt_tokens: u32,
    /// Chained hashes of the prompt's full blocks, first block first (see [`chain_hash`]). May
    /// be shorter than the prompt: the rest is then never found in the prefix cache.
    pub prefix: Arc<[u64]>,
    /// Tokens that it will generate. 0: it ends with its prefill (embeddings).
    pub output: u32,
    /// Whether it then ends by itself, rather than by its token limit.
    pub stops: bool,
}

/// Why a sequence ended; the words are vLLM's `finished_reason`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// It came to its end.
    Stop,
    /// It met its token limit.
    Length,
}

impl Finish {
    /// vLLM's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// What one sequence got out of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Emission {
    /// The job.
    pub id: u64,
    /// New tokens; 0 only for a job without output.
    pub tokens: u32,
    /// Set with the last one.
    pub finish: Option<Finish>,
}

/// A step that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// How long it takes.
    pub duration: Duration,
    /// Sequences in it.
    pub sequences: u32,
    /// Prompt tokens computed in it (and tokens computed again after a preemption).
    pub prefill_tokens: u32,
    /// Sequences preempted to make room for it.
    pub preempted: u32,
}

/// One engine. Deterministic: the same calls give the same answers.
#[derive(Debug)]
pub struct Engine {
    params: EngineParams,
    /// Factor on every step's duration: slower above 1, faster below.
    pace: f64,
    blocks: BlockPool,
    /// In order of admission; the last one is preempted first.
    running: Vec<Sequence>,
    /// In order of arrival, preempted ones before them.
    waiting: VecDeque<Sequence>,
    counters: Counters,
}

/// A job with what the engine has done for it.
#[derive(Debug)]
struct Sequence {
    job: Job,
    arrived: Timestamp,
    /// Tokens whose KV is there.
    computed: u32,
    generated: u32,
    /// Tokens that the step under way computes for it.
    chunk: u32,
    /// Prompt blocks entered into the prefix cache so far.
    entered: usize,
    blocks: Vec<Block>,
    scheduled: Option<Timestamp>,
    first_token: Option<Timestamp>,
    last_token: Timestamp,
    preemptions: u32,
}

impl Sequence {
    const fn total(&self) -> u32 {
        self.job.prompt_tokens.saturating_add(self.generated)
    }

    const fn left(&self) -> u32 {
        self.total().saturating_sub(self.computed)
    }

    /// Whether its next token needs one token computed and no more.
    const fn decodes(&self) -> bool {
        self.generated > 0 && self.left() <= 1
    }
}

impl Engine {
    /// An idle engine with an empty cache.
    pub fn new(params: EngineParams) -> Self {
        Self {
            pace: 1.0,
            blocks: BlockPool::new(params.num_gpu_blocks, params.prefix_caching),
            running: Vec::new(),
            waiting: VecDeque::new(),
            counters: Counters::default(),
            params,
        }
    }

    /// What it was made with.
    pub const fn params(&self) -> &EngineParams {
        &self.params
    }

    /// Sets the factor on every later step's duration (2.0: half as fast). Anything that is not
    /// a positive finite number is taken as 1.
    pub fn set_pace(&mut self, pace: f64) {
        self.pace = if pace.is_finite() && pace > 0.0 { pace } else { 1.0 };
    }

    /// Longest sequence, prompt and output, that the KV cache can hold at all, in tokens.
    pub const fn capacity_tokens(&self) -> u64 {
        self.params.capacity_tokens()
    }

    /// Queues a job. One that could never fit ([`Engine::capacity_tokens`]) would block all
    /// others for good, so its output is cut to what fits and its prompt likewise.
    pub fn submit(&mut self, now: Timestamp, mut job: Job) {
        let most = u32::try_from(self.capacity_tokens()).unwrap_or(u32::MAX);
        job.prompt_tokens = job.prompt_tokens.clamp(1, most.max(1));
        job.output = job.output.min(most.saturating_sub(job.prompt_tokens));
        self.waiting.push_back(Sequence {
            job,
            arrived: now,
            computed: 0,
            generated: 0,
            chunk: 0,
            entered: 0,
            blocks: Vec::new(),
            scheduled: None,
            first_token: None,
            last_token: now,
            preemptions: 0,
        });
    }

    /// Drops a job wherever it is; false when it is not here (any more).
    pub fn abort(&mut self, id: u64) -> bool {
        let gone = if let Some(at) = self.running.iter().position(|one| one.job.id == id) {
            Some(self.running.remove(at))
        } else if let Some(at) = self.waiting.iter().position(|one| one.job.id == id) {
            self.waiting.remove(at)
        } else {
            None
        };
        let Some(mut gone) = gone else { return false };
        self.blocks.free(&mut gone.blocks);
        self.counters.aborted += 1;
        true
    }

    /// Begins a step: decides who is in it. `None` when there is nothing to do.
    pub fn begin(&mut self, now: Timestamp) -> Option<Step> {
        let plan = self.schedule(now);
        if plan.sequences == 0 {
            return None;
        }
        let nanos = self.params.step_nanos(plan.sequences, plan.prefill_tokens, plan.context);
        let duration = Duration::from_nanos(nanos).mul_f64(self.pace);
        Some(Step {
            duration,
            sequences: plan.sequences,
            prefill_tokens: plan.prefill_tokens,
            preempted: plan.preempted,
        })
    }

    /// Ends the step that [`Engine::begin`] began: appends what each sequence got from it.
    pub fn finish(&mut self, now: Timestamp, out: &mut Vec<Emission>) {
        let mut at = 0;
        let mut tokens = 0_u64;
        while let Some(sequence) = self.running.get_mut(at) {
            let chunk = std::mem::take(&mut sequence.chunk);
            tokens += u64::from(chunk);
            sequence.computed = sequence.computed.saturating_add(chunk);
            self.blocks.enter(sequence, self.params.block_size);
            if chunk == 0 || sequence.left() > 0 {
                at += 1;
                continue;
            }
            let emission = emit(sequence, now, &mut self.counters);
            out.push(emission);
            if emission.finish.is_some() {
                let mut done = self.running.remove(at);
                self.blocks.free(&mut done.blocks);
                self.counters.finished(&done.outcome(now), emission.finish);
            } else {
                at += 1;
            }
        }
        self.counters.iteration_tokens.observe(to_f64(tokens));
    }

    /// A whole step in virtual time; its emissions are those of `now + duration`.
    pub fn step(&mut self, now: Timestamp, out: &mut Vec<Emission>) -> Option<Step> {
        let step = self.begin(now)?;
        self.finish(now + step.duration, out);
        Some(step)
    }

    /// Sequences that run.
    pub const fn running(&self) -> usize {
        self.running.len()
    }

    /// Sequences that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Share of the KV blocks that running sequences hold, 0..=1. Cached blocks that nobody
    /// holds count as free, as in vLLM.
    pub fn kv_usage(&self) -> f64 {
        self.blocks.usage()
    }

    /// Everything counted since the start.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Sequence {
    fn outcome(&self, now: Timestamp) -> counters::Ended {
        counters::Ended {
            prompt_tokens: self.job.prompt_tokens,
            generated: self.generated,
            arrived: self.arrived,
            scheduled: self.scheduled.unwrap_or(self.arrived),
            first_token: self.first_token.unwrap_or(now),
            at: now,
        }
    }
}

/// One more token of a sequence whose KV is complete.
fn emit(sequence: &mut Sequence, now: Timestamp, counters: &mut Counters) -> Emission {
    let tokens = u32::from(sequence.job.output > 0);
    sequence.generated += tokens;
    counters.generation_tokens += u64::from(tokens);
    if tokens > 0 {
        let gap = now.saturating_since(sequence.last_token).as_secs_f64();
        if sequence.first_token.is_none() {
            sequence.first_token = Some(now);
            counters.ttft.observe(gap);
        } else {
            counters.itl.observe(gap);
        }
        sequence.last_token = now;
    }
    let finish = (sequence.generated >= sequence.job.output).then_some(if sequence.job.stops {
        Finish::Stop
    } else {
        Finish::Length
    });
    Emission { id: sequence.job.id, tokens, finish }
}

#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
const fn to_f64(count: u64) -> f64 {
    count as f64
}
