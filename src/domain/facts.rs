//! What the dispatcher knows of a request: numbers, never text.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::{ClassId, RequestId, Span, TenantId, Timestamp};

/// Targets that a request of a class is held to. `None` is "no target".
///
/// Read from a file, each target is a text with its unit ([`Span`]).
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slo {
    /// Fully received to the first frame with content.
    #[serde(deserialize_with = "Span::optional")]
    pub ttft: Option<Duration>,
    /// Mean time per output token after the first.
    #[serde(deserialize_with = "Span::optional")]
    pub tpot: Option<Duration>,
    /// Every single gap between content frames.
    #[serde(deserialize_with = "Span::optional")]
    pub itl: Option<Duration>,
    /// Fully received to the last byte.
    #[serde(deserialize_with = "Span::optional")]
    pub e2e: Option<Duration>,
}

/// A request as the gate sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct RequestFacts {
    /// Its name in this process.
    pub id: RequestId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Which kind of workload it is.
    pub class: ClassId,
    /// When it was fully received; waiting and TTFT count from here. A retry keeps it.
    pub received: Timestamp,
    /// Whether a first token will show (a unary answer shows only its end).
    pub stream: bool,
    /// Sequences that it makes the engine run (`n`, `best_of`, prompt lists); at least 1.
    pub sequences: u32,
    /// Bytes of the text that will be tokenized.
    pub prompt_bytes: u64,
    /// Prompt length in tokens where the client sent token ids, so that it is known exactly.
    pub prompt_tokens: Option<u32>,
    /// The client's own bound on output tokens, a sequence.
    pub max_output: Option<u32>,
    /// Bytes of body held while it waits.
    pub body_bytes: u64,
    /// After this a first token is of no use any more. `None`: only the class's SLO.
    pub deadline: Option<Timestamp>,
    /// Chained hashes of the prompt's leading blocks, longest last; empty when unknown.
    pub prefix: Arc<[u64]>,
    /// How often the client says that it has retried already (`x-stainless-retry-count`).
    pub client_retries: u32,
}
