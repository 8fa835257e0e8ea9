//! The one record of a request, on every exit path.
//!
//! It starts with the request and moves along its path into the answer's body. Whoever ends the
//! request says how; whoever drops it without a word has lost the client, so it is `Cancelled`.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::{
    Endpoint, Failure, Gaps, Outcome, Rejection, RequestRecord, Slo, Timestamp, Usage,
};
use crate::lifecycle::Clock;

use super::observer::Observed;
use super::quota::Hold;
use super::timing::Timing;

/// A record in the making.
pub(super) struct Recorder {
    observer: Observed,
    clock: Clock,
    /// `None` once it is out.
    record: Option<Box<RequestRecord>>,
    pub(super) timing: Timing,
    /// The last dispatch to a replica.
    dispatched: Option<Timestamp>,
    /// What its tenant's quotas were charged for it.
    hold: Option<Hold>,
    /// Counts the requests alive.
    _alive: Arc<()>,
}

impl Recorder {
    /// Starts with what the head of the request says.
    pub(super) fn new(
        observer: Observed,
        clock: Clock,
        request_id: Arc<str>,
        endpoint: Option<Endpoint>,
        alive: Arc<()>,
    ) -> Self {
        let record = RequestRecord {
            request_id,
            endpoint,
            pool: None,
            tenant: Arc::from("anyone"),
            class: Arc::from("default"),
            replica: None,
            stream: false,
            outcome: Outcome::Cancelled,
            status: 0,
            attempts: 0,
            received: Timestamp::since_origin(clock.elapsed()),
            queue_wait: None,
            first_frame: None,
            ttft: None,
            tpot: None,
            e2e: Duration::ZERO,
            gaps: Gaps::default(),
            frames: 0,
            bytes: 0,
            usage: None,
            slo: Slo::default(),
            rejection: None,
        };
        let timing = Timing::default();
        Self {
            observer,
            clock,
            record: Some(Box::new(record)),
            timing,
            dispatched: None,
            hold: None,
            _alive: alive,
        }
    }

    /// Changes what is known; nothing once the record is out.
    pub(super) fn note(&mut self, what: impl FnOnce(&mut RequestRecord)) {
        if let Some(record) = &mut self.record {
            what(record);
        }
    }

    /// It was charged to its tenant; the record's end settles that.
    pub(super) fn holds(&mut self, hold: Hold) {
        self.hold = Some(hold);
    }

    /// The time, from the process's one clock.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::since_origin(self.clock.elapsed())
    }

    /// It waited for `wait`, and goes to `replica` now.
    pub(super) fn dispatched(&mut self, replica: Option<Arc<str>>, wait: Duration) {
        self.dispatched = Some(self.now());
        self.timing = Timing::default();
        self.note(|record| {
            record.replica = replica;
            record.attempts += 1;
            record.queue_wait = Some(record.queue_wait.unwrap_or_default() + wait);
        });
    }

    /// When it went to its replica.
    pub(super) fn dispatched_at(&self) -> Option<Timestamp> {
        self.dispatched
    }

    /// Time since it went there; zero before.
    pub(super) fn since_dispatch(&self) -> Duration {
        self.dispatched.map_or(Duration::ZERO, |sent| self.now().saturating_since(sent))
    }

    /// The replica that it went to answered, before anything of it is judged.
    pub(super) fn answered(&self, status: u16) {
        self.tell(|observer, pool, replica| observer.answered(pool, replica, status));
    }

    /// The attempt there came to nothing.
    pub(super) fn attempt_failed(&self, failure: Failure) {
        self.tell(|observer, pool, replica| observer.attempt_failed(pool, replica, failure));
    }

    fn tell(&self, what: impl FnOnce(&Observed, &str, &str)) {
        let record = self.record.as_deref();
        let names = record.and_then(|r| r.pool.as_deref().zip(r.replica.as_deref()));
        if let Some((pool, replica)) = names {
            what(&self.observer, pool, replica);
        }
    }

    /// The record goes out with this end. Later words change nothing.
    pub(super) fn finish(&mut self, outcome: Outcome) {
        let Some(mut record) = self.record.take() else { return };
        record.outcome = outcome;
        record.e2e = self.now().saturating_since(record.received);
        record.ttft = self.timing.ttft(record.received);
        record.tpot = self.timing.tpot(record.usage);
        record.first_frame = match (self.dispatched, self.timing.first_frame()) {
            (Some(sent), Some(seen)) => Some(seen.saturating_since(sent)),
            _ => None,
        };
        record.frames = self.timing.frames();
        record.gaps = self.timing.take_gaps();
        if let Some(hold) = self.hold.take() {
            hold.settle(self.now(), &record);
        }
        self.observer.record(&record);
    }

    /// The same for an answer that was refused by us.
    pub(super) fn refuse(&mut self, outcome: Outcome, status: u16, rejection: Option<Rejection>) {
        self.note(|record| {
            record.status = status;
            record.rejection = rejection;
        });
        self.finish(outcome);
    }

    /// Tokens as the replica counted them.
    pub(super) fn usage(&mut self, usage: Option<Usage>) {
        self.note(|record| record.usage = usage.or(record.usage));
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish(Outcome::Cancelled);
    }
}
