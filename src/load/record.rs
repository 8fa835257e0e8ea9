//! What has been seen so far, shared by the requests of a run.
//!
//! A call stands here from its beginning, so that one which is cancelled with its task is still
//! counted.

use std::collections::BTreeMap;
use std::time::Duration;

use super::attempt::{End, Seen, Who};

/// A whole flow that had more than one call.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FlowSeen {
    pub(super) who: Who,
    /// When its first call was due, from the start of the run.
    pub(super) due: Duration,
    /// From then to the end of its last call.
    pub(super) took: Duration,
    /// Every call was answered well.
    pub(super) whole: bool,
    /// Calls sent.
    pub(super) calls: u32,
}

/// Everything seen in a run.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) open: BTreeMap<u64, (Duration, Who)>,
    pub(super) next: u64,
    pub(super) seen: Vec<Seen>,
    pub(super) flows: Vec<FlowSeen>,
}

impl Record {
    /// A call begins: its number, or `None` when `most` are open already.
    pub(super) fn begin(&mut self, due: Duration, who: Who, most: usize) -> Option<u64> {
        if self.open.len() >= most {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.open.insert(number, (due, who));
        Some(number)
    }

    /// It has ended.
    pub(super) fn end(&mut self, number: u64, seen: Seen) {
        self.open.remove(&number);
        self.seen.push(seen);
    }

    /// What was open when the run ended becomes cancelled.
    pub(super) fn close(&mut self) {
        let open = std::mem::take(&mut self.open).into_values();
        self.seen.extend(open.map(|(due, who)| Seen::new(due, who, End::Cancelled)));
    }
}
