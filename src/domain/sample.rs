//! One reading of a replica's own metrics.
//!
//! A missing metric is unknown, never zero: every field that a server may not have is an
//! `Option`. Several engines in one server are already added up (or, for shares, the highest
//! taken) by `vllm`.

use super::Timestamp;

/// What a scrape of `/metrics` said.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sample {
    /// When the request for it was sent.
    pub asked: Timestamp,
    /// When the answer was there.
    pub taken: Timestamp,
    /// Engines in the server (data-parallel ranks); 0 when none was named.
    pub engines: u32,
    /// Sequences that the engine is running.
    pub running: Option<u32>,
    /// Sequences that wait inside the engine.
    pub waiting: Option<u32>,
    /// Share of the KV blocks in use, 0..=1, the fullest engine's.
    pub kv_usage: Option<f64>,
    /// KV cache in tokens, all engines.
    pub kv_capacity_tokens: Option<u64>,
    /// Tokens a KV block.
    pub block_size: Option<u32>,
    /// Preemptions since the server started.
    pub preemptions: Option<u64>,
    /// Prompt tokens looked up in the prefix cache since the start.
    pub prefix_queries: Option<u64>,
    /// Prompt tokens found there since the start.
    pub prefix_hits: Option<u64>,
    /// Prompt tokens processed since the start.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated since the start.
    pub generation_tokens: Option<u64>,
    /// Requests finished since the start.
    pub finished: Option<u64>,
    /// Seconds since the epoch at which the server process started.
    pub start_time_seconds: Option<f64>,
    /// Whether the engine sleeps (its weights are unloaded).
    pub asleep: Option<bool>,
}

/// What a probe of `/health` said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Health {
    /// Answered 200.
    Up,
    /// Refused, timed out, or answered anything else.
    Down,
}

impl Health {
    /// The word for labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}
