//! `/metrics` as vLLM 0.32 writes it: names, labels and their order.

use std::fmt::Write;

use super::faults::{FaultKind, Faults};
use super::room::State;
use crate::sim::{Counters, Histogram};

type Count = fn(&Counters) -> u64;
type Spread = fn(&Counters) -> &Histogram;

/// What is not in the engine.
pub(super) struct Extra<'a> {
    pub(super) model: &'a str,
    /// Streams without an engine, shown as running.
    pub(super) null_streams: u32,
}

/// The whole exposition.
pub(super) fn render(state: &State, extra: &Extra<'_>, faults: &Faults) -> String {
    let engines = if faults.is_on(FaultKind::TwoEngines) { 2 } else { 1 };
    let idle = Counters::default();
    let mut page = Page { out: String::with_capacity(16_384), model: extra.model, engines: vec![] };
    let engine = &state.engine;
    page.engines.push(Engine {
        running: count(engine.running()) + f64::from(extra.null_streams),
        waiting: count(engine.waiting()),
        usage: engine.kv_usage(),
        counters: engine.counters(),
    });
    if engines == 2 {
        page.engines.push(Engine { running: 0.0, waiting: 0.0, usage: 0.0, counters: &idle });
    }
    page.bare("process_start_time_seconds", "gauge", state.started);
    page.gauges(faults);
    page.counters(state.refused);
    page.histograms();
    page.cache_config(state);
    page.out
}

struct Engine<'a> {
    running: f64,
    waiting: f64,
    usage: f64,
    counters: &'a Counters,
}

struct Page<'a> {
    out: String,
    model: &'a str,
    engines: Vec<Engine<'a>>,
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
const fn to_f64(value: u64) -> f64 {
    value as f64
}

fn count(value: usize) -> f64 {
    to_f64(u64::try_from(value).unwrap_or(u64::MAX))
}

impl Page<'_> {
    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        let written = self.out.write_fmt(what);
        debug_assert!(written.is_ok());
    }

    fn kind(&mut self, name: &str, kind: &str) {
        self.put(format_args!("# HELP {name} {name}\n# TYPE {name} {kind}\n"));
    }

    fn bare(&mut self, name: &str, kind: &str, value: f64) {
        self.kind(name, kind);
        self.put(format_args!("{name} {value:?}\n"));
    }

    /// One series an engine.
    fn series(&mut self, name: &str, kind: &str, value: impl Fn(&Engine<'_>) -> f64) {
        self.kind(name, kind);
        self.labelled(name, "", "", value);
    }

    /// One series an engine; `more` are labels that stand before `model_name` in the alphabet,
    /// `last` those after it.
    fn labelled(&mut self, name: &str, more: &str, last: &str, value: impl Fn(&Engine<'_>) -> f64) {
        let values: Vec<f64> = self.engines.iter().map(value).collect();
        let model = self.model;
        for (at, value) in values.iter().enumerate() {
            self.put(format_args!(
                "{name}{{engine=\"{at}\"{more},model_name=\"{model}\"{last}}} {value:?}\n"
            ));
        }
    }

    fn gauges(&mut self, faults: &Faults) {
        self.series("vllm:num_requests_running", "gauge", |engine| engine.running);
        self.series("vllm:num_requests_waiting", "gauge", |engine| engine.waiting);
        let by_reason = "vllm:num_requests_waiting_by_reason";
        self.kind(by_reason, "gauge");
        self.labelled(by_reason, "", ",reason=\"capacity\"", |engine| engine.waiting);
        self.labelled(by_reason, "", ",reason=\"deferred\"", |_| 0.0);
        let sleep = "vllm:engine_sleep_state";
        self.kind(sleep, "gauge");
        self.labelled(sleep, "", ",sleep_state=\"awake\"", |_| 1.0);
        self.labelled(sleep, "", ",sleep_state=\"weights_offloaded\"", |_| 0.0);
        self.labelled(sleep, "", ",sleep_state=\"discard_all\"", |_| 0.0);
        let renamed = faults.is_on(FaultKind::RenamedKvGauge);
        let usage = if renamed { "vllm:gpu_cache_usage_perc" } else { "vllm:kv_cache_usage_perc" };
        self.series(usage, "gauge", |engine| engine.usage);
    }

    fn counters(&mut self, refused: u64) {
        let all: [(&str, Count); 8] = [
            ("vllm:prefix_cache_queries_total", |all| all.prefix_queries),
            ("vllm:prefix_cache_hits_total", |all| all.prefix_hits),
            ("vllm:external_prefix_cache_queries_total", |_| 0),
            ("vllm:external_prefix_cache_hits_total", |_| 0),
            ("vllm:num_preemptions_total", |all| all.preemptions),
            ("vllm:prompt_tokens_total", |all| all.prompt_tokens),
            ("vllm:prompt_tokens_cached_total", |all| all.prefix_hits),
            ("vllm:generation_tokens_total", |all| all.generation_tokens),
        ];
        for (name, value) in all {
            self.series(name, "counter", |engine| to_f64(value(engine.counters)));
        }
        let success = "vllm:request_success_total";
        self.kind(success, "counter");
        let ends: [(&str, Count); 5] = [
            ("stop", |all| all.stopped),
            ("length", |all| all.at_length),
            ("abort", |all| all.aborted),
            ("error", |_| 0),
            ("repetition", |_| 0),
        ];
        for (reason, value) in ends {
            let label = format!(",finished_reason=\"{reason}\"");
            self.labelled(success, &label, "", |engine| to_f64(value(engine.counters)));
        }
        let rejections = "vllm:admission_rejections_total";
        self.kind(rejections, "counter");
        let model = self.model;
        self.put(format_args!(
            "{rejections}{{model_name=\"{model}\",reason=\"max_num_queued_reqs\"}} {:?}\n\
             {rejections}{{model_name=\"{model}\",reason=\"max_num_queued_tokens\"}} 0.0\n",
            to_f64(refused)
        ));
    }

    fn histograms(&mut self) {
        let all: [(&str, Spread); 11] = [
            ("vllm:request_prompt_tokens", |all| &all.request_prompt),
            ("vllm:request_generation_tokens", |all| &all.request_generation),
            ("vllm:iteration_tokens_total", |all| &all.iteration_tokens),
            ("vllm:time_to_first_token_seconds", |all| &all.ttft),
            ("vllm:inter_token_latency_seconds", |all| &all.itl),
            ("vllm:request_time_per_output_token_seconds", |all| &all.tpot),
            ("vllm:e2e_request_latency_seconds", |all| &all.e2e),
            ("vllm:request_queue_time_seconds", |all| &all.queue),
            ("vllm:request_inference_time_seconds", |all| &all.inference),
            ("vllm:request_prefill_time_seconds", |all| &all.prefill),
            ("vllm:request_decode_time_seconds", |all| &all.decode),
        ];
        let model = self.model;
        for (name, histogram) in all {
            self.kind(name, "histogram");
            let histograms: Vec<&Histogram> =
                self.engines.iter().map(|engine| histogram(engine.counters)).collect();
            for (at, histogram) in histograms.into_iter().enumerate() {
                for (bound, below) in histogram.cumulative() {
                    self.put(format_args!(
                        "{name}_bucket{{engine=\"{at}\",le=\"{bound:?}\",model_name=\"{model}\"}} {:?}\n",
                        to_f64(below)
                    ));
                }
                let (all, sum) = (to_f64(histogram.count()), histogram.sum());
                self.put(format_args!(
                    "{name}_bucket{{engine=\"{at}\",le=\"+Inf\",model_name=\"{model}\"}} {all:?}\n\
                     {name}_count{{engine=\"{at}\",model_name=\"{model}\"}} {all:?}\n\
                     {name}_sum{{engine=\"{at}\",model_name=\"{model}\"}} {sum:?}\n"
                ));
            }
        }
    }

    fn cache_config(&mut self, state: &State) {
        let params = state.engine.params();
        let (block, blocks) = (params.block_size, params.num_gpu_blocks);
        let tokens = params.capacity_tokens();
        let caching = if params.prefix_caching { "True" } else { "False" };
        let name = "vllm:cache_config_info";
        self.kind(name, "gauge");
        for at in 0..self.engines.len() {
            self.put(format_args!(
                "{name}{{block_size=\"{block}\",cache_dtype=\"auto\",enable_prefix_caching=\"{caching}\",\
                 engine=\"{at}\",gpu_memory_utilization=\"0.92\",kv_cache_size_tokens=\"{tokens}\",\
                 num_cpu_blocks=\"None\",num_gpu_blocks=\"{blocks}\",\
                 prefix_caching_hash_algo=\"sha256\"}} 1.0\n"
            ));
        }
    }
}
