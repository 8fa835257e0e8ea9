//! What a run is told: where, what, how much, for how long.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;

use crate::workload::{Class, Workload};

/// How requests are paced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mode {
    /// Arrivals of the workload's own kind (Poisson where it names none) at this many calls a
    /// second, whatever becomes of earlier requests: what a public of independent users does,
    /// and the only mode that shows overload. A trace is sped up or slowed down to this rate.
    Open(f64),
    /// This many clients, each beginning when its last flow has ended. It slows down with the
    /// server and so hides overload; offered because others quote it.
    Closed(u32),
    /// A trace as it was recorded, at the speed that its file names.
    Recorded,
}

/// One run of load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where to send: `http://host:port`, or with a path that replaces
    /// `/v1/chat/completions`.
    pub url: Uri,
    /// Model to ask for.
    pub model: String,
    /// Sent as a bearer token where the workload's tenant has no key.
    pub key: Option<String>,
    /// Pacing.
    pub mode: Mode,
    /// Classes, tenants, kind of arrivals, and how clients come back.
    pub workload: Arc<Workload>,
    /// Seeds arrivals and lengths: the same at every rate.
    pub seed: u64,
    /// Seeds texts: unlike in two runs that are not to find each other's prompts in a prefix
    /// cache.
    pub texts: u64,
    /// Measure first how many tokens the server counts for a text, and write prompts to match.
    pub calibrate: bool,
    /// Sent, but left out of every figure.
    pub warm_up: Duration,
    /// The measured window after it: what is due in it counts.
    pub duration: Duration,
    /// How long after the last arrival answers may still end; what has not ended then is
    /// cancelled and counted so.
    pub grace: Duration,
    /// Requests open at once, a bound on memory and descriptors: one that is due beyond it is
    /// not sent, is counted as dropped, and voids the run.
    pub max_in_flight: usize,
}

impl LoadOptions {
    /// A small chat load on `url`; the fields are there to be changed.
    pub fn new(url: Uri, model: impl Into<String>, mode: Mode) -> Self {
        Self {
            url,
            model: model.into(),
            key: None,
            mode,
            workload: Arc::new(Workload::of(Class::fixed(128, 64))),
            seed: 1,
            texts: 0,
            calibrate: false,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            max_in_flight: 16_384,
        }
    }

    /// The end of arrivals, from the start of the run.
    pub(super) fn end(&self) -> Duration {
        self.warm_up.saturating_add(self.duration)
    }
}
