//! A workload file as it is written. What is wrong together is `compile`'s business.
//!
//! A key that does not exist is refused, by name and line. Lengths, pauses, arrivals and clients
//! are read straight into their own types; `docs/WORKLOADS.md` shows every key.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::arrivals::{Bursts, Process};
use super::fault::{Fault, Faults};
use super::trace::TimeUnit;
use super::{ClientModel, Lengths, Pause};
use crate::domain::{Slo, Span};

/// A whole workload file, or the part of another file that holds one.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadFile {
    pub(super) classes: Vec<ClassFile>,
    pub(super) tenants: Vec<TenantFile>,
    pub(super) arrivals: ArrivalsFile,
    pub(super) client: ClientModel,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassFile {
    pub(super) name: String,
    #[serde(default = "one")]
    pub(super) weight: f64,
    pub(super) prompt_tokens: Option<Lengths>,
    pub(super) output_tokens: Option<Lengths>,
    pub(super) prefix: Option<PrefixFile>,
    pub(super) session: Option<SessionFile>,
    pub(super) workflow: Option<WorkflowFile>,
    #[serde(default)]
    pub(super) slo: Slo,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) tenant: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrefixFile {
    #[serde(default = "single")]
    pub(super) count: u32,
    pub(super) tokens: u32,
    #[serde(default)]
    pub(super) zipf: f64,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionFile {
    pub(super) turns: Lengths,
    pub(super) new_tokens: Lengths,
    #[serde(default)]
    pub(super) think: Pause,
    pub(super) max_prompt_tokens: Option<u32>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkflowFile {
    #[serde(default = "once")]
    pub(super) stages: Lengths,
    #[serde(default = "once")]
    pub(super) width: Lengths,
    pub(super) new_tokens: Lengths,
    #[serde(default)]
    pub(super) pause: Pause,
    pub(super) max_prompt_tokens: Option<u32>,
    pub(super) e2e: Option<Span>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantFile {
    pub(super) name: String,
    #[serde(default = "one")]
    pub(super) weight: f64,
    pub(super) key: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ArrivalsFile {
    pub(super) process: Option<Process>,
    pub(super) bursts: Option<Bursts>,
    pub(super) closed: Option<ClosedFile>,
    pub(super) trace: Option<TraceFile>,
}

#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClosedFile {
    pub(super) clients: u32,
    #[serde(default)]
    pub(super) think: Pause,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceFile {
    pub(super) file: String,
    pub(super) unit: Option<TimeUnit>,
    #[serde(default = "one")]
    pub(super) speed: f64,
    #[serde(default = "mooncake")]
    pub(super) block_tokens: u32,
}

const fn one() -> f64 {
    1.0
}

const fn single() -> u32 {
    1
}

const fn once() -> Lengths {
    Lengths::Fixed(1)
}

/// Tokens that a hash id of the Mooncake traces stands for.
const fn mooncake() -> u32 {
    512
}

impl WorkloadFile {
    /// Reads the text of a workload file. Of faults in its shape the first is told.
    pub fn read(text: &str) -> Result<Self, Faults> {
        let line_of = |error: &toml::de::Error| {
            let before = text.get(..error.span()?.start)?;
            Some(before.matches('\n').count() + 1)
        };
        let fault = |path: String, error: &toml::de::Error| {
            let message = error.message().trim().replace('`', "\"").replace('\n', ", ");
            let mut faults = Faults::default();
            faults.push(Fault { line: line_of(error), path, message });
            faults
        };
        let document = toml::Deserializer::parse(text).map_err(|e| fault(String::new(), &e))?;
        serde_path_to_error::deserialize(document)
            .map_err(|error| fault(error.path().to_string(), error.inner()))
    }

    /// The trace that it replays, as its path is written there.
    pub fn trace_file(&self) -> Option<&str> {
        self.arrivals.trace.as_ref().map(|trace| trace.file.as_str())
    }
}
