//! Answers that are given before anybody was asked: heads that cannot be taken.
//!
//! The same reason stands in the header and the body as everywhere else. The shape is the one
//! that OpenAI's clients read; which dialect the path speaks is not known yet, since the head
//! never came to be read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use crate::domain::{Outcome, Reason};
use crate::lifecycle::Clock;
use crate::telemetry::Connections;

const X_WEIR_REASON: &str = "x-weir-reason";
const X_REQUEST_ID: &str = "x-request-id";

/// Names, counts and logs the refusals of one listener.
#[derive(Debug)]
pub(super) struct Refusals {
    connections: Connections,
    /// Tells this process's ids from those of others.
    seed: u64,
    number: AtomicU64,
}

impl Refusals {
    pub(super) fn new(connections: Connections, clock: Clock) -> Self {
        let wall = clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = u64::try_from(wall.as_nanos()).unwrap_or_default();
        Self { connections, seed, number: AtomicU64::new(0) }
    }

    /// One more: its `x-request-id`.
    pub(super) fn count(&self, reason: Reason) -> String {
        self.connections.refused(reason);
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let id = format!("weir-{:016x}-refused-{number:x}", self.seed);
        tracing::info!(
            target: "access",
            request_id = id,
            status = reason.status(),
            outcome = Outcome::Rejected(reason).as_str(),
            reason = reason.as_str(),
        );
        id
    }
}

/// What the reason means here, in a sentence for whoever reads the error.
fn message(reason: Reason) -> &'static str {
    match reason {
        Reason::Headers => "The request's headers are larger or more than this gateway takes.",
        Reason::SlowRequest => "The request's headers did not arrive in time.",
        Reason::Overloaded => "This gateway holds as many connections as it may.",
        _ => "The request's head is not valid HTTP.",
    }
}

fn body(reason: Reason) -> Bytes {
    let kind = match reason.status() {
        408 => "TimeoutError",
        503 => "ServiceUnavailableError",
        _ => "BadRequestError",
    };
    let json = serde_json::json!({
        "error": {
            "message": message(reason),
            "type": kind,
            "param": null,
            "code": reason.status(),
            "reason": reason.as_str(),
        }
    });
    Bytes::from(json.to_string())
}

/// The answer, for hyper to send.
pub(super) fn response(reason: Reason, id: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body(reason)));
    *response.status_mut() =
        StatusCode::from_u16(reason.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(X_WEIR_REASON, HeaderValue::from_static(reason.as_str()));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(X_REQUEST_ID, id);
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The answer as HTTP/1.1, for a connection that hyper has given up.
pub(super) fn raw(reason: Reason, id: &str) -> Vec<u8> {
    let body = body(reason);
    let status = reason.status();
    let phrase = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let retry =
        if reason.retry_after() { "retry-after: 1\r\nretry-after-ms: 1000\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         {X_WEIR_REASON}: {}\r\n{X_REQUEST_ID}: {id}\r\n{retry}connection: close\r\n\r\n",
        phrase.unwrap_or("Error"),
        body.len(),
        reason.as_str(),
    );
    [head.as_bytes(), &body].concat()
}

/// Whether a head that hyper took is one that we take.
pub(super) fn of_head(headers: &HeaderMap, max_bytes: usize, max_count: usize) -> Option<Reason> {
    if headers.len() > max_count {
        return Some(Reason::Headers);
    }
    // As on the wire in HTTP/1.1: name, colon, space, value, line end.
    let bytes: usize =
        headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    (bytes > max_bytes).then_some(Reason::Headers)
}

/// The reason behind the bare answer that hyper writes for a head it could not read; `None`
/// where `written` is no such answer.
pub(super) fn of_bare_answer(written: &[u8]) -> Option<Reason> {
    match written.get(..13)? {
        b"HTTP/1.1 400 " | b"HTTP/1.0 400 " => Some(Reason::Malformed),
        b"HTTP/1.1 431 " | b"HTTP/1.0 431 " | b"HTTP/1.1 414 " | b"HTTP/1.0 414 " => {
            Some(Reason::Headers)
        }
        _ => None,
    }
}
