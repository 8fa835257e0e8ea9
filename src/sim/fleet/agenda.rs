//! What is to happen, in the order of time; what is due at one moment, in the order of asking.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::domain::{Sample, Timestamp};

/// Something that is due.
#[derive(Debug)]
pub(super) enum Due {
    /// The next flow of an open loop.
    Flow,
    /// A client of a closed loop begins its next flow.
    Client,
    /// The next stage of a flow.
    Stage(usize),
    /// A call is sent, for the first time or again.
    Call(usize),
    /// A client has waited long enough for this attempt's first token.
    Patience(usize),
    /// A replica's step ends; a step of a process that died (another life) does not.
    Step { replica: usize, life: u32 },
    /// The head of an attempt has been held long enough: request, and its dispatch.
    Hold(usize, u32),
    /// Nothing came for too long: request, and its dispatch.
    FirstByte(usize, u32),
    /// A gateway reads a replica's metrics.
    Scrape { gate: usize, replica: usize },
    /// It has read them.
    Scraped { gate: usize, replica: usize, sample: Box<Sample> },
    /// A gateway probes a replica.
    Probe { gate: usize, replica: usize },
    /// A fault begins.
    FaultOn(usize),
    /// A fault ends.
    FaultOff(usize),
}

#[derive(Debug)]
struct Entry {
    at: Timestamp,
    number: u64,
    due: Due,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, for a heap that gives the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Everything that is due.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Entry>,
    asked: u64,
}

impl Agenda {
    /// Notes something for `at`.
    pub(super) fn at(&mut self, at: Timestamp, due: Due) {
        self.asked += 1;
        self.heap.push(Entry { at, number: self.asked, due });
    }

    /// When the next is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Takes the next.
    pub(super) fn pop(&mut self) -> Option<(Timestamp, Due)> {
        self.heap.pop().map(|entry| (entry.at, entry.due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_equals_as_they_were_asked() {
        let mut agenda = Agenda::default();
        for (nanos, call) in [(5, 0), (3, 1), (5, 2), (1, 3)] {
            agenda.at(Timestamp::from_nanos(nanos), Due::Call(call));
        }
        let number = |(_, due)| match due {
            Due::Call(call) => call,
            _ => 9,
        };
        let order: Vec<usize> = std::iter::from_fn(|| agenda.pop()).map(number).collect();
        assert_eq!(order, [3, 1, 0, 2]);
    }
}
