//! How many sequences one replica may hold.
//!
//! The measured knee where there is one; otherwise the engine's own facts, marked as assumed:
//! `max_num_seqs`, and how many requests of the learned size its KV cache holds. Several gateways
//! on one fleet leave each other room: each takes what the others' load leaves, but never less
//! than its even share, so that none starves.

use crate::domain::Sample;

use super::policy::Policy;

/// With nothing known at all: a quarter of vLLM's default `max_num_seqs` (256 on most GPUs),
/// so that a wrong guess queues in the gateway, where it is bounded, and not in the engine.
const ASSUMED: f64 = 64.0;
/// Tokens a request until it was learned, for the share of the KV cache that one takes.
const TOKENS_PER_REQUEST: f64 = 1_024.0;

/// A limit and whether it was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Limit {
    /// Sequences.
    pub(super) value: f64,
    /// Whether it rests on assumptions.
    pub(super) assumed: bool,
}

/// The limit of a replica, others' load not yet taken off.
pub(super) fn base(
    policy: &Policy,
    own: Option<u32>,
    sample: Option<&Sample>,
    tokens_per_request: Option<f64>,
) -> Limit {
    if let Some(measured) = own.or(policy.limit.in_flight) {
        return Limit { value: f64::from(measured.max(1)), assumed: false };
    }
    let by_sequences = policy.limit.max_num_seqs.map(f64::from);
    let by_memory = sample
        .and_then(|sample| sample.kv_capacity_tokens)
        .map(|tokens| super::num::real(tokens) / tokens_per_request.unwrap_or(TOKENS_PER_REQUEST));
    let value = match (by_sequences, by_memory) {
        (Some(sequences), Some(memory)) => sequences.min(memory),
        (Some(sequences), None) => sequences,
        (None, Some(memory)) => memory.min(4.0 * ASSUMED),
        (None, None) => ASSUMED,
    };
    Limit { value: value.floor().max(1.0), assumed: true }
}

/// What of a limit is ours, beside `gateways - 1` others whose load is `foreign`.
pub(super) fn share(limit: f64, gateways: u32, foreign: Option<f64>) -> f64 {
    if gateways <= 1 {
        return limit;
    }
    let even = limit / f64::from(gateways);
    even.max(foreign.map_or(even, |foreign| limit - foreign))
}
