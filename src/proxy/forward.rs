//! From a ticket to an answer: waits for the turn, tries replicas as the dispatcher says, and
//! releases what came.
//!
//! Whether a failed try is followed by another is the dispatcher's to decide; here it is only
//! carried out. Nothing of an answer is released before it is settled that this is the one.

use std::sync::Arc;

use http::response::Parts as Head;
use http::{Response, StatusCode};

use crate::domain::{Failure, Outcome, Reason, Rejection};
use crate::openai::{Scanner, unary_usage};
use crate::upstream::UpstreamBody;

use super::attempt::{Answer, OwnError, Start, Tried, attempt};
use super::headers::to_client;
use super::job::Job;
use super::permit::{Permit, Ticket, Turn};
use super::poison::Poisoned;
use super::recorder::Recorder;
use super::relay::RelayBody;
use super::respond::{self, Refusal};
use super::stream::{Parts, Patience, Stream};
use super::tender::Tender;

/// One request between the gate and its answer.
pub(super) struct Forward {
    pub(super) job: Job,
    pub(super) recorder: Recorder,
    pub(super) tender: Arc<Tender>,
    pub(super) poisoned: Arc<Poisoned>,
    /// The last replica's own 5xx.
    pub(super) own_error: Option<Box<OwnError>>,
}

/// How the tries ended.
enum Settled {
    Answer(Permit, Box<Answer>),
    Refused { rejection: Rejection, queued: bool },
}

impl Forward {
    /// The answer. `cutoff` is ready when the request may not go on, whatever it waits for.
    pub(super) async fn run(
        mut self,
        ticket: Ticket,
        cutoff: impl Future<Output = Reason>,
    ) -> Response<RelayBody> {
        let settled = tokio::select! {
            biased;
            settled = self.settle(ticket) => settled,
            reason = cutoff => {
                return self.fail(reason);
            }
        };
        match settled {
            Settled::Answer(permit, answer) => self.release(permit, *answer),
            Settled::Refused { rejection, queued } => self.refuse(rejection, queued),
        }
    }

    async fn settle(&mut self, mut ticket: Ticket) -> Settled {
        loop {
            let queued_at = self.recorder.now();
            let permit = match ticket.await {
                Turn::Run(permit) => permit,
                Turn::Refused { rejection, queued } => {
                    return Settled::Refused { rejection, queued };
                }
            };
            let waited = self.recorder.now().saturating_since(queued_at);
            let replica = self.job.pool.replica(permit.replica());
            self.recorder.dispatched(replica.map(|replica| Arc::clone(replica.name())), waited);
            match attempt(&self.job, permit, &mut self.recorder).await {
                Tried::Answered(permit, answer) => return Settled::Answer(permit, answer),
                Tried::Failed(permit, failure, own_error) => {
                    self.recorder.attempt_failed(failure);
                    self.own_error = own_error;
                    ticket = permit.failed(failure);
                }
                Tried::Abandoned(next) => {
                    self.recorder.attempt_failed(Failure::Stalled);
                    self.own_error = None;
                    ticket = next;
                }
            }
        }
    }

    /// The gate's refusal. After a failed try it is that failure's answer: the replica's own
    /// words where it had any.
    fn refuse(mut self, rejection: Rejection, queued: bool) -> Response<RelayBody> {
        let reason = rejection.reason;
        if reason == Reason::Poison {
            self.poisoned.remember(&self.job.body, self.recorder.now());
        }
        let outcome = match (reason.is_upstream(), queued) {
            (true, _) => Outcome::Failed(reason),
            (false, true) => Outcome::Evicted(reason),
            (false, false) => Outcome::Rejected(reason),
        };
        let own = self
            .own_error
            .take()
            .filter(|_| matches!(reason, Reason::ReplicaBusy | Reason::ReplicaError));
        let response = match own {
            Some(own) => {
                let OwnError { head, body } = *own;
                respond::replica_error(head.status, &head.headers, body, reason, Some(rejection))
            }
            None => Refusal::rejected(rejection).answer(self.job.dialect, self.job.overload_status),
        };
        self.recorder.refuse(outcome, response.status().as_u16(), Some(rejection));
        response
    }

    /// Ended by us, at a replica or before.
    fn fail(mut self, reason: Reason) -> Response<RelayBody> {
        let refusal = Refusal::plain(reason).closing(reason == Reason::DrainDeadline);
        self.recorder.refuse(Outcome::Failed(reason), reason.status(), None);
        refusal.answer(self.job.dialect, reason.status())
    }

    fn release(mut self, permit: Permit, answer: Answer) -> Response<RelayBody> {
        match answer {
            Answer::Whole { head, body } => {
                let usage = unary_usage(self.job.endpoint, &body);
                permit.finish(Outcome::Completed, usage);
                let size = body.len() as u64;
                self.recorder.usage(usage);
                self.recorder.note(|record| {
                    record.status = head.status.as_u16();
                    record.bytes = size;
                });
                self.recorder.finish(Outcome::Completed);
                let mut response = Response::new(RelayBody::whole(body));
                *response.status_mut() = head.status;
                *response.headers_mut() = to_client(&head.headers, false);
                response
            }
            Answer::Refused { head, body } => {
                let reason = Reason::ReplicaRefused;
                permit.finish(Outcome::Failed(reason), None);
                self.recorder.refuse(Outcome::Failed(reason), head.status.as_u16(), None);
                respond::replica_error(head.status, &head.headers, body, reason, None)
            }
            Answer::RefusedInStream(error) => {
                let reason = Reason::ReplicaRefused;
                permit.finish(Outcome::Failed(reason), None);
                let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_REQUEST);
                self.recorder.refuse(Outcome::Failed(reason), status.as_u16(), None);
                respond::in_stream_error(self.job.dialect, status, reason, &error.message)
            }
            Answer::Stream { head, source, scanner, start } => {
                let parts = self.parts(permit, Some(scanner), source, start);
                live(&head, parts, true)
            }
            Answer::Large { head, source, prefix } => {
                let start = Start { bytes: prefix, ..Start::default() };
                let parts = self.parts(permit, None, Some(source), start);
                live(&head, parts, false)
            }
        }
    }
}

impl Forward {
    fn parts(
        self,
        permit: Permit,
        scanner: Option<Scanner>,
        source: Option<UpstreamBody>,
        start: Start,
    ) -> (Parts, Arc<Tender>) {
        let Self { job, recorder, tender, poisoned: _, own_error: _ } = self;
        let timeouts = job.timeouts;
        let parts = Parts {
            source,
            scanner,
            start,
            permit: Some(permit),
            recorder,
            dialect: job.dialect,
            patience: Patience {
                first_byte: timeouts.first_byte,
                between_frames: timeouts.between_frames,
                total: timeouts.total,
                client_stall: timeouts.client_stall,
            },
            received: job.received,
            hangup: job.hangup,
        };
        (parts, tender)
    }
}

/// Releases a head, with a body that is still coming.
fn live(head: &Head, parts: (Parts, Arc<Tender>), stream: bool) -> Response<RelayBody> {
    let (mut parts, tender) = parts;
    parts.recorder.note(|record| record.status = head.status.as_u16());
    let mut response = Response::new(RelayBody::live(Stream::new(parts), tender));
    *response.status_mut() = head.status;
    *response.headers_mut() = to_client(&head.headers, stream);
    response
}
