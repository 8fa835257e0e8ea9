//! One replica as the dispatcher knows it: its ledger, its health, its readings and their age.
//!
//! A reading is unknown, never zero, until one came, and again when it has grown stale.

use crate::domain::{Health, ReplicaId, Sample, Timestamp};

use super::admission::{KAPPA, Prefill};
use super::ejection::Ejection;
use super::ledger::Ledger;
use super::num::real;

/// Bounds of [`Replica::sharing`], and the smoothing of what a scrape says about it.
const LEAST_SHARING: f64 = 0.3;
const SHARING_SMOOTHING: f64 = 0.2;
/// The ledger must hold this share of the cache before the ratio says anything.
const SHARING_FROM: f64 = 0.1;

/// A replica and all that is known of it.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) id: ReplicaId,
    /// Its own measured limit, where configured.
    pub(super) own_limit: Option<u32>,
    /// Whether it is on the list now.
    pub(super) listed: bool,
    /// When it came onto the list.
    pub(super) since: Timestamp,
    /// What it holds of ours.
    pub(super) ledger: Ledger,
    /// The last probe's word, and when it came.
    pub(super) health: Option<Health>,
    pub(super) health_at: Timestamp,
    /// The last reading.
    pub(super) sample: Option<Sample>,
    /// Whether readings are older than allowed, and that was said.
    pub(super) stale: bool,
    /// The metric whose absence was said.
    pub(super) unknown: Option<&'static str>,
    /// Others' load as of the last reading; `None` when unknown.
    pub(super) foreign: Option<f64>,
    /// What we may put on it.
    pub(super) limit: f64,
    /// Whether that is an assumption.
    pub(super) assumed: bool,
    /// When its engine last showed progress.
    pub(super) progress: Timestamp,
    /// Passive health.
    pub(super) ejection: Ejection,
    /// Its prefill speed.
    pub(super) prefill: Prefill,
    /// KV tokens in use over those that the ledger thinks are in use.
    pub(super) sharing: f64,
    /// Share of its KV cache that may be promised.
    pub(super) kappa: f64,
}

/// What a new reading showed beside its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Reading {
    /// The server was started anew.
    pub(super) restarted: bool,
    /// A metric that admission needs is missing, and that was not said before.
    pub(super) unknown: Option<&'static str>,
}

impl Replica {
    /// A replica that nothing is known of.
    pub(super) fn new(id: ReplicaId, now: Timestamp) -> Self {
        Self {
            id,
            own_limit: None,
            listed: true,
            since: now,
            ledger: Ledger::default(),
            health: None,
            health_at: now,
            sample: None,
            stale: false,
            unknown: None,
            foreign: None,
            limit: 1.0,
            assumed: true,
            progress: now,
            ejection: Ejection::default(),
            prefill: Prefill::default(),
            sharing: 1.0,
            kappa: KAPPA,
        }
    }

    /// Whether it may be used at all, full or not.
    pub(super) fn is_usable(&self) -> bool {
        self.is_sound() && self.ejection.deadline().is_none()
    }

    /// The same, leaving passive health aside.
    pub(super) fn is_sound(&self) -> bool {
        self.listed
            && self.health != Some(Health::Down)
            && self.sample.as_ref().and_then(|sample| sample.asleep) != Some(true)
    }

    /// Load relative to its limit, with `sequences` more on it.
    pub(super) fn load(&self, sequences: u32, unknown_foreign: f64, now: Timestamp) -> f64 {
        let foreign = self.foreign.unwrap_or(unknown_foreign);
        let held = f64::from(self.ledger.n() + sequences) + foreign;
        held / self.limit.max(1.0) + self.ejection.penalty(now)
    }

    /// Takes in a reading.
    pub(super) fn read(&mut self, now: Timestamp, sample: Sample, gateways: u32) -> Reading {
        let previous = self.sample.take();
        let restarted = previous.as_ref().is_some_and(|previous| is_restart(previous, &sample));
        if restarted {
            self.sharing = 1.0;
            self.prefill = Prefill::default();
        }
        let rose = |of: fn(&Sample) -> Option<u64>| {
            let before = previous.as_ref().and_then(of);
            matches!((before, of(&sample)), (Some(before), Some(after)) if after > before)
        };
        if restarted || rose(|s| s.generation_tokens) || rose(|s| s.prompt_tokens) {
            self.progress = now;
        }
        self.foreign = match (sample.running, sample.waiting) {
            (Some(running), Some(waiting)) => {
                let ours = self.ledger.peak_since(sample.asked);
                Some(f64::from(running.saturating_add(waiting).saturating_sub(ours)))
            }
            _ => None,
        };
        self.learn_sharing(&sample, gateways);
        let missing = missing(&sample);
        let unknown = if missing == self.unknown { None } else { missing };
        self.unknown = missing;
        self.sample = Some(sample);
        Reading { restarted, unknown }
    }

    fn learn_sharing(&mut self, sample: &Sample, gateways: u32) {
        let (Some(usage), Some(capacity)) = (sample.kv_usage, sample.kv_capacity_tokens) else {
            return;
        };
        let ours = real(self.ledger.total().used);
        if ours > SHARING_FROM * real(capacity) {
            let most = f64::from(gateways.max(1));
            let seen = (usage * real(capacity) / ours).clamp(LEAST_SHARING, most);
            self.sharing += SHARING_SMOOTHING * (seen - self.sharing);
        }
    }

    /// When its readings grow stale, unless they are already.
    pub(super) fn stale_at(&self, after: std::time::Duration) -> Option<Timestamp> {
        let fresh = self.sample.as_ref().map_or(self.since, |sample| sample.taken.max(self.since));
        (self.listed && !self.stale).then(|| fresh + after)
    }
}

/// Whether the server that gave `after` is another process than the one that gave `before`.
fn is_restart(before: &Sample, after: &Sample) -> bool {
    let fell = |of: fn(&Sample) -> Option<u64>| matches!((of(before), of(after)), (Some(before), Some(after)) if after < before);
    let moved = matches!(
        (before.start_time_seconds, after.start_time_seconds),
        (Some(before), Some(after)) if (after - before).abs() > 1.0
    );
    moved || fell(|s| s.generation_tokens) || fell(|s| s.prompt_tokens) || fell(|s| s.finished)
}

/// The first metric that admission needs and the reading lacks.
fn missing(sample: &Sample) -> Option<&'static str> {
    if sample.running.is_none() {
        Some("running")
    } else if sample.waiting.is_none() {
        Some("waiting")
    } else if sample.kv_usage.is_none() {
        Some("kv_usage")
    } else {
        None
    }
}
