//! What a run is told: where, how much, for how long, held to what.

use std::time::Duration;

use http::Uri;

use super::Lengths;
use crate::domain::Slo;

/// How requests are paced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mode {
    /// Poisson arrivals at this rate a second, whatever becomes of earlier requests: what a
    /// public of independent users does, and the only mode that shows overload.
    Open(f64),
    /// This many clients, each sending when its last answer has ended. It slows down with the
    /// server and so hides overload; offered because others quote it.
    Closed(u32),
}

/// One run of load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where to send: `http://host:port`, or with a path that replaces
    /// `/v1/chat/completions`.
    pub url: Uri,
    /// Model to ask for.
    pub model: String,
    /// Sent as a bearer token.
    pub key: Option<String>,
    /// Pacing.
    pub mode: Mode,
    /// Seeds arrivals, lengths and texts.
    pub seed: u64,
    /// Prompt lengths.
    pub input: Lengths,
    /// Output lengths; `max_tokens` with `ignore_eos`.
    pub output: Lengths,
    /// Tokens at the head of every prompt that are the same for all requests.
    pub shared_prefix: u32,
    /// Sent, but left out of every figure.
    pub warm_up: Duration,
    /// The measured window after it: what is due in it counts.
    pub duration: Duration,
    /// How long after the last arrival answers may still end; what has not ended then is
    /// cancelled and counted so.
    pub grace: Duration,
    /// Retries of a refused or failed request, as openai-python does them; 0 for none.
    pub retries: u32,
    /// Requests open at once, a bound on memory and descriptors: one that is due beyond it is
    /// not sent, is counted as dropped, and voids the run.
    pub max_in_flight: usize,
    /// What goodput is held to.
    pub slo: Slo,
}

impl LoadOptions {
    /// A small chat load on `url`; the fields are there to be changed.
    pub fn new(url: Uri, model: impl Into<String>, mode: Mode) -> Self {
        Self {
            url,
            model: model.into(),
            key: None,
            mode,
            seed: 1,
            input: Lengths::fixed(128),
            output: Lengths::fixed(64),
            shared_prefix: 0,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            retries: 0,
            max_in_flight: 16_384,
            slo: Slo {
                ttft: Some(Duration::from_secs(1)),
                tpot: Some(Duration::from_millis(50)),
                ..Slo::default()
            },
        }
    }
}
