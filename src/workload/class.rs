//! Kinds of workload, who sends them, and how their calls hang together.
//!
//! What makes a class is its lengths and how much of a prompt others share: chat shares a system
//! prompt, retrieval a document, an agent nearly its whole past.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Lengths, Pause};
use crate::domain::{ClassId, Slo, TenantId};

/// One kind of workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// Its place in the workload.
    pub id: ClassId,
    /// Its name.
    pub name: Arc<str>,
    /// Its share of the *calls*, beside the others' weights: a class of ten-call workflows is
    /// begun a tenth as often as a chat of the same weight.
    pub weight: f64,
    /// Prompt tokens of a first call in all, those that it shares among them.
    pub prompt: Lengths,
    /// Tokens of an answer.
    pub output: Lengths,
    /// What the heads of its prompts share.
    pub prefix: Option<Prefix>,
    /// Calls that follow a first one.
    pub follow_up: Option<FollowUp>,
    /// Targets of each call.
    pub slo: Slo,
    /// Headers of its calls.
    pub headers: Vec<Header>,
    /// Who sends it, where that is one tenant; else any, by their weights.
    pub tenant: Option<TenantId>,
}

impl Class {
    /// Single calls with prompts and answers of one length and nothing shared.
    pub fn fixed(prompt: u32, output: u32) -> Self {
        Self {
            id: ClassId(0),
            name: "all".into(),
            weight: 1.0,
            prompt: Lengths::Fixed(prompt),
            output: Lengths::Fixed(output),
            prefix: None,
            follow_up: None,
            slo: Slo::default(),
            headers: Vec::new(),
            tenant: None,
        }
    }

    /// Calls of a flow of this class, on average, when none of them fails.
    pub fn mean_calls(&self) -> f64 {
        self.follow_up.as_ref().map_or(1.0, |more| more.stages.mean() * more.width.mean()).max(1.0)
    }
}

/// Heads of prompts that several calls share: a system prompt, a document.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prefix {
    /// How many there are.
    pub count: u32,
    /// Tokens of each.
    pub tokens: u32,
    /// How unevenly they are used: the k-th is used in proportion to k^-zipf; 0 is evenly.
    pub zipf: f64,
}

/// What a first call leads to: the turns of a session, or the calls of an agent's workflow.
///
/// Each stage begins when every call of the one before has ended and the pause is over; its
/// prompts are all that was said before, and something new.
#[derive(Clone, PartialEq, Debug)]
pub struct FollowUp {
    /// Stages of a flow, the first one too.
    pub stages: Lengths,
    /// Calls of a stage, sent at once; 1 in a session.
    pub width: Lengths,
    /// Tokens that a call adds to what was said.
    pub new_tokens: Lengths,
    /// Between two stages: a person thinks, a tool runs.
    pub pause: Pause,
    /// A flow ends before a call whose prompt would be longer than this.
    pub max_prompt_tokens: u32,
    /// Target of a whole flow, first due to last end.
    pub e2e: Option<Duration>,
}

/// A header and its value, both fit for HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Lower case.
    pub name: Arc<str>,
    /// Printable ASCII.
    pub value: Arc<str>,
}

/// A holder of a key.
#[derive(Clone, PartialEq)]
pub struct Tenant {
    /// Its place in the workload.
    pub id: TenantId,
    /// Its name.
    pub name: Arc<str>,
    /// Its share of the flows, beside the others' weights.
    pub weight: f64,
    /// Sent as a bearer token.
    pub key: Option<Arc<str>>,
    /// Headers of its calls.
    pub headers: Vec<Header>,
}

impl Tenant {
    /// The one sender of a workload that names none.
    pub fn anyone() -> Self {
        Self { id: TenantId(0), name: "anyone".into(), weight: 1.0, key: None, headers: Vec::new() }
    }
}

impl fmt::Debug for Tenant {
    /// Without its key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("weight", &self.weight)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
