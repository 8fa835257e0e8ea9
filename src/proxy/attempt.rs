//! One try of a request at one replica, up to the moment when its answer may be released.
//!
//! vLLM sends 200 and headers at once, while the request still waits in its queue. So nothing of
//! a stream is released before the first frame that the engine caused: until then a replica that
//! dies costs a retry and no broken stream, and an error in the first frame becomes a status.
//! A unary answer is held until it is whole (or too large to hold), for the same reason.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use http::response::Parts as Head;
use http::{StatusCode, header};
use http_body::Body;

use crate::domain::Failure;
use crate::openai::{Scanner, StreamError};
use crate::upstream::{Exchange, UpstreamBody};

use super::job::Job;
use super::permit::{Permit, Ticket};
use super::recorder::Recorder;

/// Bytes of a unary answer that are held, at most; the rest of a larger one is relayed as it
/// comes.
const UNARY_HOLD: usize = 4 * 1024 * 1024;
/// Bytes of an error's body that are kept, at most.
const ERROR_HOLD: usize = 64 * 1024;
/// Bytes of a stream held before its first engine-caused frame: comments and pings.
const PREFIX_HOLD: usize = 64 * 1024;

/// What the replica answered, ready for release.
pub(super) enum Answer {
    /// A stream, from its held-back start on.
    Stream { head: Head, source: Option<UpstreamBody>, scanner: Scanner, start: Start },
    /// An answer that was held until it was whole.
    Whole { head: Head, body: Bytes },
    /// One too large for that.
    Large { head: Head, source: UpstreamBody, prefix: BytesMut },
    /// The replica refused the request itself: its own 4xx.
    Refused { head: Head, body: Bytes },
    /// It did so in the first frame of a stream.
    RefusedInStream(StreamError),
}

/// A replica's own 5xx, kept in case that no other replica answers.
pub(super) struct OwnError {
    pub(super) head: Head,
    pub(super) body: Bytes,
}

/// What of a stream was read while its head was held.
#[derive(Default)]
pub(super) struct Start {
    /// Its bytes, to be relayed first.
    pub(super) bytes: BytesMut,
    /// The engine has said its last word already.
    pub(super) done: bool,
    /// And it was that it had failed, after some content.
    pub(super) engine_failed: bool,
}

/// How the try ended.
pub(super) enum Tried {
    /// With an answer; the permit goes on with it.
    Answered(Permit, Box<Answer>),
    /// Without one.
    Failed(Permit, Failure, Option<Box<OwnError>>),
    /// The dispatcher gave the replica up.
    Abandoned(Ticket),
}

/// Tries the request once, where the permit says.
pub(super) async fn attempt(job: &Job, permit: Permit, recorder: &mut Recorder) -> Tried {
    let Some(replica) = job.pool.replica(permit.replica()) else {
        return Tried::Failed(permit, Failure::Connect, None);
    };
    let sent = replica.send(job.upstream_request(), job.timeouts.connect);
    let exchange = if job.stream {
        match tokio::time::timeout(job.timeouts.first_byte, sent).await {
            Ok(exchange) => exchange,
            Err(_late) => return Tried::Failed(permit, Failure::FirstByteTimeout, None),
        }
    } else {
        sent.await
    };
    match exchange {
        Ok(exchange) => {
            recorder.answered(exchange.head.status.as_u16());
            sort(job, permit, recorder, exchange).await
        }
        Err(error) => {
            tracing::debug!(replica = %replica.name(), %error, "no answer");
            Tried::Failed(permit, error.failure, None)
        }
    }
}

/// By the answer's status and type.
async fn sort(job: &Job, permit: Permit, recorder: &mut Recorder, exchange: Exchange) -> Tried {
    let Exchange { head, body } = exchange;
    let status = head.status;
    if status.is_success() {
        return if is_event_stream(&head) {
            hold_stream(job, permit, recorder, head, body).await
        } else {
            hold_unary(permit, head, body).await
        };
    }
    if !status.is_client_error() && !status.is_server_error() {
        return Tried::Failed(permit, Failure::Protocol, None);
    }
    let body = match collect(body, ERROR_HOLD).await {
        Collected::Whole(bytes) => bytes,
        Collected::More(bytes, _rest) => bytes.freeze(),
        Collected::Broken => return Tried::Failed(permit, Failure::Reset, None),
    };
    if status.is_client_error() {
        return Tried::Answered(permit, Box::new(Answer::Refused { head, body }));
    }
    let failure = match status {
        StatusCode::SERVICE_UNAVAILABLE => Failure::Busy,
        other => Failure::Status(other.as_u16()),
    };
    Tried::Failed(permit, failure, Some(Box::new(OwnError { head, body })))
}

fn is_event_stream(head: &Head) -> bool {
    head.headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.trim_start().starts_with("text/event-stream"))
}

async fn hold_unary(permit: Permit, head: Head, body: UpstreamBody) -> Tried {
    let answer = match collect(body, UNARY_HOLD).await {
        Collected::Whole(body) => Answer::Whole { head, body },
        Collected::More(prefix, source) => Answer::Large { head, source, prefix },
        Collected::Broken => return Tried::Failed(permit, Failure::Reset, None),
    };
    Tried::Answered(permit, Box::new(answer))
}

/// What the hold of a stream waits for.
enum Held {
    Data(Bytes),
    End,
    Broken,
    HoldOver,
    TooLate,
}

/// Holds a stream's head until the engine has begun.
async fn hold_stream(
    job: &Job,
    mut permit: Permit,
    recorder: &mut Recorder,
    head: Head,
    source: UpstreamBody,
) -> Tried {
    let mut source = Some(source);
    let mut scanner = Scanner::new(job.dialect, job.strip_usage);
    let mut start = Start::default();
    let waited = recorder.since_dispatch();
    let mut hold =
        std::pin::pin!(tokio::time::sleep(job.timeouts.head_hold.saturating_sub(waited)));
    let late = job.timeouts.first_byte.saturating_sub(waited);
    let mut late = std::pin::pin!(tokio::time::sleep(late));
    loop {
        let step = tokio::select! {
            biased;
            step = next(source.as_mut()) => step,
            () = &mut hold => Held::HoldOver,
            () = &mut late => Held::TooLate,
        };
        match step {
            Held::Data(data) => {
                let scan = scanner.push(data);
                start.bytes.extend_from_slice(&scan.forward);
                start.done = scan.done;
                start.engine_failed = scan.error.is_some();
                if let Some(error) = scan.error.filter(|_| scan.content_frames == 0) {
                    return first_frame_error(permit, error);
                }
                let now = recorder.now();
                let begun = recorder.timing.read(now, scan.engine_caused, scan.content_frames);
                if begun {
                    permit.first_token();
                }
                if !begun && !scan.done && start.bytes.len() < PREFIX_HOLD {
                    continue;
                }
            }
            // A stream that ends well without any engine-caused frame is a whole answer all the
            // same; the stream that takes over from here judges it.
            Held::End if scanner.ended_well() => {
                start.bytes.extend_from_slice(&scanner.finish());
                source = None;
            }
            Held::End | Held::Broken => return Tried::Failed(permit, Failure::Reset, None),
            Held::TooLate => return Tried::Failed(permit, Failure::FirstByteTimeout, None),
            Held::HoldOver => match permit.hold_ended() {
                Ok(kept) => permit = kept,
                Err(ticket) => return Tried::Abandoned(ticket),
            },
        }
        let answer = Answer::Stream { head, source, scanner, start };
        return Tried::Answered(permit, Box::new(answer));
    }
}

/// The engine's word that the request is at fault is an answer; that itself is, a failure.
fn first_frame_error(permit: Permit, error: StreamError) -> Tried {
    if (400..500).contains(&error.status) {
        Tried::Answered(permit, Box::new(Answer::RefusedInStream(error)))
    } else {
        Tried::Failed(permit, Failure::EngineError, None)
    }
}

async fn next(source: Option<&mut UpstreamBody>) -> Held {
    let Some(source) = source else { return Held::End };
    loop {
        match poll_fn(|cx| Pin::new(&mut *source).poll_frame(cx)).await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Held::Data(data);
                }
            }
            Some(Err(_)) => return Held::Broken,
            None => return Held::End,
        }
    }
}

pub(super) enum Collected {
    Whole(Bytes),
    More(BytesMut, UpstreamBody),
    Broken,
}

/// Reads an answer whole, up to a bound.
pub(super) async fn collect(mut source: UpstreamBody, most: usize) -> Collected {
    let mut room = BytesMut::new();
    loop {
        match next(Some(&mut source)).await {
            Held::Data(data) => room.extend_from_slice(&data),
            Held::End => return Collected::Whole(room.freeze()),
            _ => return Collected::Broken,
        }
        if room.len() > most {
            return Collected::More(room, source);
        }
    }
}
