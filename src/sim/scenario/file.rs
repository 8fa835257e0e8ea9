//! A scenario file as it is written.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::domain::Span;
use crate::sim::fleet::Trouble;
use crate::workload::{Faults, WorkloadFile};

/// A whole scenario file.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScenarioFile {
    pub(super) about: String,
    pub(super) rate: Option<f64>,
    pub(super) loads: Option<Vec<f64>>,
    pub(super) policies: Option<Vec<String>>,
    pub(super) seeds: Option<u32>,
    pub(super) first_seed: Option<u32>,
    pub(super) warm_up: Option<Span>,
    pub(super) window: Option<Span>,
    pub(super) grace: Option<Span>,
    pub(super) patience: Option<Span>,
    pub(super) max_tokens: Option<bool>,
    pub(super) workload_file: Option<String>,
    pub(super) workload: Option<WorkloadFile>,
    pub(super) fleet: FleetFile,
    pub(super) policy: PolicyFile,
    pub(super) rivals: RivalsFile,
    pub(super) faults: Vec<FaultFile>,
    pub(super) expect: Vec<ExpectFile>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FleetFile {
    pub(super) replicas: Option<u32>,
    pub(super) scrape: Option<Span>,
    pub(super) scrape_takes: Option<Span>,
    pub(super) probe: Option<Span>,
    pub(super) head_hold: Option<Span>,
    pub(super) first_byte: Option<Span>,
    pub(super) step_base: Option<Span>,
    pub(super) step_sequence: Option<Span>,
    pub(super) step_prefill_token: Option<Span>,
    pub(super) step_context_token: Option<Span>,
    pub(super) max_num_seqs: Option<u32>,
    pub(super) max_num_batched_tokens: Option<u32>,
    pub(super) block_size: Option<u32>,
    pub(super) num_gpu_blocks: Option<u32>,
    pub(super) prefix_caching: Option<bool>,
}

/// The keys of a pool's limits, and of what else the dispatcher is told.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicyFile {
    pub(super) in_flight: Option<u32>,
    pub(super) max_num_seqs: Option<u32>,
    pub(super) adapt: Option<bool>,
    pub(super) queue_wait: Option<Span>,
    pub(super) queue_count: Option<u32>,
    pub(super) queue_bytes: Option<u64>,
    pub(super) gateways: Option<u32>,
    pub(super) attempts: Option<u32>,
    pub(super) retry_budget: Option<f64>,
    pub(super) stall_after: Option<Span>,
    pub(super) stale_after: Option<Span>,
    pub(super) shadow: Option<bool>,
    pub(super) shares: BTreeMap<String, f64>,
    pub(super) critical: Vec<String>,
    pub(super) weights: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RivalsFile {
    pub(super) cap: Option<u32>,
    pub(super) queue_cap: Option<u32>,
    pub(super) queue: Option<u32>,
    pub(super) queue_wait: Option<Span>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultFile {
    pub(super) trouble: Trouble,
    /// All, where none is named.
    #[serde(default)]
    pub(super) replicas: Vec<u32>,
    #[serde(default)]
    pub(super) at: Span,
    #[serde(rename = "for")]
    pub(super) lasts: Option<Span>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectFile {
    pub(super) metric: String,
    pub(super) policy: Option<String>,
    pub(super) load: Option<f64>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
}

impl ScenarioFile {
    /// Reads a scenario's text; every key that is wrong is told.
    pub fn read(text: &str) -> Result<Self, Faults> {
        super::read::read(text)
    }

    /// The workload file that it names, as its path is written there.
    pub fn workload_file(&self) -> Option<&str> {
        self.workload_file.as_deref()
    }

    /// Takes the text of that file in.
    pub fn with_workload(mut self, text: &str) -> Result<Self, Faults> {
        let beside = self.workload.is_some();
        let mut faults = Faults::default();
        if beside {
            faults.add("workload", "stands beside `workload_file`");
        }
        match WorkloadFile::read(text) {
            Ok(file) => self.workload = Some(file),
            Err(found) => {
                for fault in found.all() {
                    faults.add("workload_file", fault.to_string());
                }
            }
        }
        faults.or(self)
    }

    /// The trace that its workload replays, as its path is written there.
    pub fn trace_file(&self) -> Option<&str> {
        self.workload.as_ref().and_then(WorkloadFile::trace_file)
    }
}
