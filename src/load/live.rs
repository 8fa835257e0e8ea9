//! Counts that can be read while a run goes on: the demo's line a second.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::attempt::{End, Seen};
use crate::stats;

/// First tokens remembered between two readings; later ones of the same second are not.
const MAX_RECENT: usize = 20_000;

/// Totals since the start of a run, written by its requests. Relaxed: each count stands alone.
#[derive(Debug, Default)]
pub struct Live {
    offered: AtomicU64,
    admitted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    frames: AtomicU64,
    /// TTFT in seconds since the last reading; held only to push or to take the whole.
    recent: Mutex<Vec<f64>>,
}

/// What has happened since the start, and the TTFTs since the last reading.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Reading {
    /// Requests sent.
    pub offered: u64,
    /// Streams whose first token came.
    pub admitted: u64,
    /// Refusals, each attempt counted.
    pub refused: u64,
    /// Requests that ended badly.
    pub failed: u64,
    /// Frames with content.
    pub frames: u64,
    /// p95 TTFT since the last reading, seconds.
    pub ttft_p95_seconds: Option<f64>,
}

impl Live {
    /// Reads the totals and begins a new span for TTFT.
    pub fn read(&self) -> Reading {
        let mut recent = std::mem::take(&mut *self.recent.lock());
        stats::sort(&mut recent);
        Reading {
            offered: self.offered.load(Relaxed),
            admitted: self.admitted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            failed: self.failed.load(Relaxed),
            frames: self.frames.load(Relaxed),
            ttft_p95_seconds: stats::quantile(&recent, 0.95),
        }
    }

    pub(super) fn sent(&self) {
        self.offered.fetch_add(1, Relaxed);
    }

    pub(super) fn first(&self, ttft: Duration) {
        self.admitted.fetch_add(1, Relaxed);
        let mut recent = self.recent.lock();
        if recent.len() < MAX_RECENT {
            recent.push(ttft.as_secs_f64());
        }
    }

    pub(super) fn content(&self) {
        self.frames.fetch_add(1, Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn ended(&self, seen: &Seen) {
        if matches!(seen.end, End::Error(_)) {
            self.failed.fetch_add(1, Relaxed);
        }
    }
}
