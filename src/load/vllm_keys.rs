//! The same figures in the keys of `vllm bench serve --save-result`, for scripts that read those.
//! Times are milliseconds. What vLLM has and we do not measure is left out, never zero.

use serde::Serialize;

use super::Figures;
use crate::stats::Quantiles;

/// Keys of vLLM's `benchmark_serving` result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct VllmKeys {
    duration: f64,
    completed: u64,
    failed: u64,
    num_prompts: u64,
    total_input_tokens: u64,
    total_output_tokens: u64,
    request_throughput: f64,
    #[serde(rename = "request_goodput")]
    goodput: f64,
    output_throughput: f64,
    total_token_throughput: f64,
    request_rate: Option<f64>,
    max_concurrency: Option<u32>,
    #[serde(flatten)]
    ttft: Option<Ttft>,
    #[serde(flatten)]
    tpot: Option<Tpot>,
    #[serde(flatten)]
    itl: Option<Itl>,
    #[serde(flatten)]
    e2el: Option<E2el>,
}

macro_rules! keys {
    ($name:ident, $mean:literal, $median:literal, $p95:literal, $p99:literal) => {
        #[derive(Clone, Copy, PartialEq, Debug, Serialize)]
        struct $name {
            #[serde(rename = $mean)]
            mean: f64,
            #[serde(rename = $median)]
            median: f64,
            #[serde(rename = $p95)]
            p95: f64,
            #[serde(rename = $p99)]
            p99: f64,
        }

        impl From<Quantiles> for $name {
            fn from(of: Quantiles) -> Self {
                Self {
                    mean: of.mean * 1e3,
                    median: of.p50 * 1e3,
                    p95: of.p95 * 1e3,
                    p99: of.p99 * 1e3,
                }
            }
        }
    };
}

keys!(Ttft, "mean_ttft_ms", "median_ttft_ms", "p95_ttft_ms", "p99_ttft_ms");
keys!(Tpot, "mean_tpot_ms", "median_tpot_ms", "p95_tpot_ms", "p99_tpot_ms");
keys!(Itl, "mean_itl_ms", "median_itl_ms", "p95_itl_ms", "p99_itl_ms");
keys!(E2el, "mean_e2el_ms", "median_e2el_ms", "p95_e2el_ms", "p99_e2el_ms");

impl VllmKeys {
    pub(super) fn of(all: &Figures, window: f64, rate: Option<f64>, clients: Option<u32>) -> Self {
        let tokens = super::figures::per(all.prompt_tokens + all.output_tokens, window);
        Self {
            duration: window,
            completed: all.ok,
            failed: all.offered - all.ok,
            num_prompts: all.offered,
            total_input_tokens: all.prompt_tokens,
            total_output_tokens: all.output_tokens,
            request_throughput: all.ok_per_second,
            goodput: all.goodput_per_second,
            output_throughput: all.tokens_per_second,
            total_token_throughput: tokens,
            request_rate: rate,
            max_concurrency: clients,
            ttft: all.ttft_seconds.map(Into::into),
            tpot: all.tpot_seconds.map(Into::into),
            itl: all.itl_seconds.map(Into::into),
            e2el: all.e2e_seconds.map(Into::into),
        }
    }
}
