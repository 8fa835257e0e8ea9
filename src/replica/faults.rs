//! Faults that are switched on and off while the replica runs.
//!
//! By handle in tests and by `POST /fault` from outside. A fault acts on its own: `hang` does
//! not make `/health` say 503, `unhealthy` does. What is not switched on costs one atomic load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The process stands still: connections are accepted, nothing is answered, streams pause.
    Hang,
    /// The engine alone stands still: 200 and headers come, health is good, no token comes.
    Stall,
    /// The listening socket is closed; idle connections are closed, running answers go on.
    Refuse,
    /// The process dies: every connection drops, the socket closes, the engine's state is lost.
    /// When it is switched off, a fresh process (with a new start time) listens again.
    Crash,
    /// Inference is answered 500.
    #[serde(rename = "500")]
    Error500,
    /// Inference is answered 503, as an engine whose queue is full does.
    #[serde(rename = "503")]
    Busy503,
    /// Streams end cleanly after some frames, without `[DONE]` or its like.
    Cut,
    /// Streams lose their connection (FIN, no last chunk) after some frames.
    Truncate,
    /// Streams lose their connection by RST after some frames.
    Reset,
    /// Streams get the engine's error frame and `[DONE]` after some frames; other answers 500.
    EngineDeath,
    /// Streams lose their connection after their headers, when their first token is due.
    PrefillDeath,
    /// Every step takes `factor` times as long.
    Slow,
    /// `/health` is answered 503.
    Unhealthy,
    /// `/metrics` repeats what it said when this was switched on.
    FrozenMetrics,
    /// The KV gauge has the name of vLLM 0.11 and before.
    RenamedKvGauge,
    /// `/metrics` shows a second, idle engine.
    TwoEngines,
}

impl FaultKind {
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A fault with its particulars; those that do not concern its kind are of no matter.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What.
    #[serde(rename = "fault")]
    pub kind: FaultKind,
    /// Content frames that a stream still sends before it happens.
    #[serde(default = "one")]
    pub after_frames: u32,
    /// How much slower ([`FaultKind::Slow`]).
    #[serde(default = "ten")]
    pub factor: f64,
    /// How often it happens before it switches itself off; always, where not said. Counts
    /// requests or streams; of no matter for faults of the whole process.
    #[serde(default)]
    pub times: Option<u32>,
    /// Milliseconds until it switches itself off.
    #[serde(default)]
    pub for_ms: Option<u64>,
}

const fn one() -> u32 {
    1
}

const fn ten() -> f64 {
    10.0
}

impl Fault {
    /// The fault, after one frame, for good.
    pub const fn new(kind: FaultKind) -> Self {
        Self { kind, after_frames: 1, factor: 10.0, times: None, for_ms: None }
    }

    /// With so many content frames before it.
    #[must_use]
    pub const fn after(self, frames: u32) -> Self {
        Self { after_frames: frames, ..self }
    }

    /// So often.
    #[must_use]
    pub const fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// So much slower.
    #[must_use]
    pub const fn factor(self, factor: f64) -> Self {
        Self { factor, ..self }
    }
}

/// The switches of one replica. Clones are the same switches.
#[derive(Clone, Debug)]
pub struct Faults {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Held for a look or a change only.
    on: Mutex<BTreeMap<FaultKind, Fault>>,
    /// The bits of `on`, to pass by quickly.
    bits: AtomicU32,
    /// Bumped at each change.
    changed: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            inner: Arc::new(Inner {
                on: Mutex::new(BTreeMap::new()),
                bits: AtomicU32::new(0),
                changed: watch::Sender::new(0),
            }),
        }
    }
}

impl Faults {
    /// Switches a fault on, or changes its particulars.
    pub fn set(&self, fault: Fault) {
        self.change(|on| {
            on.insert(fault.kind, fault);
        });
    }

    /// Switches a fault off.
    pub fn clear(&self, kind: FaultKind) {
        self.change(|on| {
            on.remove(&kind);
        });
    }

    /// Switches all off.
    pub fn clear_all(&self) {
        self.change(BTreeMap::clear);
    }

    /// What is on.
    pub fn list(&self) -> Vec<Fault> {
        self.inner.on.lock().values().copied().collect()
    }

    /// Whether a fault is on.
    pub fn is_on(&self, kind: FaultKind) -> bool {
        self.inner.bits.load(Ordering::Acquire) & kind.bit() != 0
    }

    /// The fault, where it is on.
    pub(super) fn look(&self, kind: FaultKind) -> Option<Fault> {
        if self.is_on(kind) { self.inner.on.lock().get(&kind).copied() } else { None }
    }

    /// The fault, where it is on and a stream has sent its frames; uses up one of its times.
    pub(super) fn take(&self, kind: FaultKind, frames: u32) -> Option<Fault> {
        let fault = self.look(kind).filter(|fault| fault.after_frames <= frames)?;
        if let Some(times) = fault.times {
            match times {
                0 => return None,
                1 => self.clear(kind),
                _ => self.set(Fault { times: Some(times - 1), ..fault }),
            }
        }
        Some(fault)
    }

    /// Waits until none of these is on.
    pub(super) async fn released(&self, kinds: &[FaultKind]) {
        let bits = kinds.iter().fold(0, |bits, kind| bits | kind.bit());
        let mut changed = self.inner.changed.subscribe();
        while self.inner.bits.load(Ordering::Acquire) & bits != 0 {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// To be told of changes.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// The shortest `for_ms` among those that are on, with its kind.
    pub(super) fn next_to_end(&self) -> Option<(Duration, FaultKind)> {
        let on = self.inner.on.lock();
        let ends = on.values().filter_map(|fault| Some((fault.for_ms?, fault.kind)));
        ends.min().map(|(millis, kind)| (Duration::from_millis(millis), kind))
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<FaultKind, Fault>)) {
        let mut on = self.inner.on.lock();
        change(&mut on);
        let bits = on.keys().fold(0, |bits, kind| bits | kind.bit());
        self.inner.bits.store(bits, Ordering::Release);
        drop(on);
        self.inner.changed.send_modify(|version| *version += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_ends_after_its_times_and_waits_for_its_frames() {
        let faults = Faults::default();
        faults.set(Fault::new(FaultKind::Cut).after(3).times(2));
        assert!(faults.take(FaultKind::Cut, 2).is_none());
        assert!(faults.take(FaultKind::Cut, 3).is_some());
        assert!(faults.take(FaultKind::Cut, 9).is_some());
        assert!(faults.take(FaultKind::Cut, 9).is_none());
        assert!(!faults.is_on(FaultKind::Cut));
    }

    #[test]
    fn what_is_posted_is_read() {
        let fault: Fault = serde_json::from_str(r#"{"fault":"503","times":2}"#).unwrap();
        assert_eq!(fault, Fault::new(FaultKind::Busy503).times(2));
        assert!(serde_json::from_str::<Fault>(r#"{"fault":"flood"}"#).is_err());
        assert!(serde_json::from_str::<Fault>(r#"{"fault":"cut","after":1}"#).is_err());
    }
}
