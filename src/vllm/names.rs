//! What each reading is called, by which server, since when.
//!
//! Where a server sends a quantity under two names (vLLM 0.10 and 0.11 sent the KV use under
//! both), only the one with the higher rank counts, or it would be added up twice. Read in the
//! sources of vLLM 0.9 to 0.33 (`vllm/v1/metrics/loggers.py`) and of SGLang
//! (`python/sglang/srt/metrics/collector.py`).

/// A quantity that a [`Sample`](crate::domain::Sample) holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quantity {
    Running,
    Waiting,
    KvUsage,
    KvCapacity,
    Preemptions,
    PrefixQueries,
    PrefixHits,
    PromptTokens,
    GenerationTokens,
    Finished,
    StartTime,
    /// A series of labels alone: the KV cache's shape.
    CacheConfig,
    /// One series a state; 1 marks the state that the engine is in.
    SleepState,
}

/// What a name stands for, and its rank among the names of the same quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Meaning {
    pub(super) quantity: Quantity,
    pub(super) rank: u8,
}

/// The label that tells one engine of a server from another.
pub(super) const RANK_LABELS: [&str; 2] = ["engine", "dp_rank"];

/// The meaning of a series' name; `None` for the many that do not matter here.
pub(super) fn meaning(name: &[u8]) -> Option<Meaning> {
    if let Some(own) = name.strip_prefix(b"vllm:") {
        return vllm(own);
    }
    if let Some(own) = name.strip_prefix(b"sglang:") {
        return sglang(own);
    }
    (name == b"process_start_time_seconds")
        .then_some(Meaning { quantity: Quantity::StartTime, rank: 0 })
}

/// A counter's name without `_total`, and how much the suffix adds to its rank: the client
/// library of the server decides whether it is there.
fn counter(name: &[u8]) -> (&[u8], u8) {
    name.strip_suffix(b"_total").map_or((name, 0), |stem| (stem, 1))
}

fn vllm(name: &[u8]) -> Option<Meaning> {
    let (stem, suffixed) = counter(name);
    let (quantity, rank) = match stem {
        b"num_requests_running" => (Quantity::Running, 0),
        b"num_requests_waiting" => (Quantity::Waiting, 0),
        b"kv_cache_usage_perc" => (Quantity::KvUsage, 2),
        b"gpu_cache_usage_perc" => (Quantity::KvUsage, 0),
        b"num_preemptions" => (Quantity::Preemptions, 0),
        b"prefix_cache_queries" => (Quantity::PrefixQueries, 2),
        b"gpu_prefix_cache_queries" => (Quantity::PrefixQueries, 0),
        b"prefix_cache_hits" => (Quantity::PrefixHits, 2),
        b"gpu_prefix_cache_hits" => (Quantity::PrefixHits, 0),
        b"prompt_tokens" => (Quantity::PromptTokens, 0),
        b"generation_tokens" => (Quantity::GenerationTokens, 0),
        b"request_success" => (Quantity::Finished, 0),
        b"cache_config_info" => (Quantity::CacheConfig, 0),
        b"engine_sleep_state" => (Quantity::SleepState, 0),
        _ => return None,
    };
    Some(Meaning { quantity, rank: rank + suffixed })
}

fn sglang(name: &[u8]) -> Option<Meaning> {
    let (stem, suffixed) = counter(name);
    let (quantity, rank) = match stem {
        b"num_running_reqs" => (Quantity::Running, 0),
        b"num_queue_reqs" => (Quantity::Waiting, 0),
        b"token_usage" => (Quantity::KvUsage, 0),
        b"max_total_num_tokens" => (Quantity::KvCapacity, 0),
        b"num_retracted_requests" => (Quantity::Preemptions, 0),
        b"cached_tokens" => (Quantity::PrefixHits, 0),
        b"prompt_tokens" => (Quantity::PromptTokens, 0),
        b"generation_tokens" => (Quantity::GenerationTokens, 0),
        b"num_requests" => (Quantity::Finished, 0),
        _ => return None,
    };
    Some(Meaning { quantity, rank: rank + suffixed })
}
