//! Calls that no engine runs for (token counts): answered by any replica, with no permit.
//!
//! They are short and cost the replica's tokenizer alone, so they neither queue nor count. A
//! replica that does not answer is passed by once.

use std::sync::Arc;

use http::Response;

use crate::domain::{Failure, Outcome, Reason, ReplicaId};

use crate::upstream::Exchange;

use super::attempt::{Collected, collect};
use super::headers::to_client;
use super::job::Job;
use super::recorder::Recorder;
use super::relay::RelayBody;
use super::respond::{self, Refusal};

/// Bytes of such an answer, at most.
const LARGEST: usize = 8 * 1024 * 1024;

/// Answers the call.
pub(super) async fn answer(
    job: Job,
    mut recorder: Recorder,
    cutoff: impl Future<Output = Reason>,
) -> Response<RelayBody> {
    tokio::select! {
        biased;
        response = twice(&job, &mut recorder) => response,
        reason = cutoff => fail(&job, &mut recorder, reason),
    }
}

async fn twice(job: &Job, recorder: &mut Recorder) -> Response<RelayBody> {
    let mut skip = None;
    let mut last = Reason::NoReplicas;
    for _ in 0..2 {
        match once(job, recorder, skip).await {
            Ok(response) => return response,
            Err(Some((replica, reason))) => {
                skip = Some(replica);
                last = reason;
            }
            Err(None) => break,
        }
    }
    fail(job, recorder, last)
}

/// One try; `Err(None)` where there is no replica to ask.
async fn once(
    job: &Job,
    recorder: &mut Recorder,
    skip: Option<ReplicaId>,
) -> Result<Response<RelayBody>, Option<(ReplicaId, Reason)>> {
    let replica = job.pool.any_replica(skip).ok_or(None)?;
    recorder.note(|record| {
        record.attempts += 1;
        record.replica = Some(Arc::clone(replica.name()));
    });
    let failed = |failure: Failure| Some((replica.id(), failure.reason()));
    let sent = replica.send(job.upstream_request(), job.timeouts.connect);
    let Exchange { head, body } = sent.await.map_err(|error| failed(error.failure))?;
    let Collected::Whole(body) = collect(body, LARGEST).await else {
        return Err(failed(Failure::Reset));
    };
    if head.status.is_server_error() {
        return Err(failed(Failure::Status(head.status.as_u16())));
    }
    let size = body.len() as u64;
    recorder.note(|record| {
        record.status = head.status.as_u16();
        record.bytes = size;
    });
    if !head.status.is_success() {
        let reason = Reason::ReplicaRefused;
        recorder.finish(Outcome::Failed(reason));
        return Ok(respond::replica_error(head.status, &head.headers, body, reason, None));
    }
    recorder.finish(Outcome::Completed);
    let mut response = Response::new(RelayBody::whole(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = to_client(&head.headers, false);
    Ok(response)
}

fn fail(job: &Job, recorder: &mut Recorder, reason: Reason) -> Response<RelayBody> {
    let outcome =
        if reason.is_upstream() { Outcome::Failed(reason) } else { Outcome::Rejected(reason) };
    let answer = Refusal::plain(reason).answer(job.dialect, job.overload_status);
    recorder.refuse(outcome, answer.status().as_u16(), None);
    answer
}
