//! The one file that turns a refusal or a failure into an answer.
//!
//! Whatever went wrong, and wherever: the client sees one status a reason, the reason's word in
//! `x-weir-reason` and in the body, the body in its endpoint's own dialect, and how long to wait
//! where waiting is of use. Clients honour `Retry-After` in whole seconds and `retry-after-ms`
//! beside it; both are sent.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode, Version};

use crate::domain::{Dialect, Reason, Rejection, ShouldRetry};
use crate::openai::{describe, error_body, objectify_error};

use super::headers::{RETRY_AFTER_MS, X_REQUEST_ID, X_SHOULD_RETRY, X_WEIR_REASON, to_client};
use super::relay::RelayBody;

/// Told where waiting helps but nothing was computed: another gateway will be there by then.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);
/// Whole seconds above which clients ignore `Retry-After` and come back sooner is 60.
const LONGEST_WAIT_SECONDS: u64 = 55;

/// Why a request is answered by us.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Refusal {
    pub(super) reason: Reason,
    message: Cow<'static, str>,
    /// The field of the body that is at fault.
    param: Option<&'static str>,
    rejection: Option<Rejection>,
    /// The connection cannot or shall not be used again.
    close: bool,
}

impl Refusal {
    /// With the reason's own sentence.
    pub(super) fn plain(reason: Reason) -> Self {
        Self::because(reason, message(reason))
    }

    /// With a sentence for this case.
    pub(super) fn because(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, message: message.into(), param: None, rejection: None, close: false }
    }

    /// By the gate.
    pub(super) fn rejected(rejection: Rejection) -> Self {
        Self { rejection: Some(rejection), ..Self::because(rejection.reason, describe(&rejection)) }
    }

    /// Names the field at fault.
    pub(super) fn param(self, param: Option<&'static str>) -> Self {
        Self { param, ..self }
    }

    /// Ends the connection after the answer.
    pub(super) fn closing(self, close: bool) -> Self {
        Self { close: self.close || close, ..self }
    }

    pub(super) fn rejection(&self) -> Option<Rejection> {
        self.rejection
    }

    /// The whole answer. `overload_status` is what operators chose for shed load.
    pub(super) fn answer(&self, dialect: Dialect, overload_status: u16) -> Response<RelayBody> {
        let status = match self.reason {
            Reason::QueueFull | Reason::QueueWait | Reason::Deadline => overload_status,
            reason => reason.status(),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let body = error_body(dialect, status.as_u16(), self.reason, &self.message, self.param);
        let mut response = whole(status, "application/json", body);
        let headers = response.headers_mut();
        explain(headers, self.reason, self.rejection);
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// A replica's own error, passed on as it was, but for a string under `error`, which SDKs trip
/// over, and with our word for it.
pub(super) fn replica_error(
    status: StatusCode,
    replica: &HeaderMap,
    body: Bytes,
    reason: Reason,
    rejection: Option<Rejection>,
) -> Response<RelayBody> {
    let body = objectify_error(&body).unwrap_or(body);
    let mut response = Response::new(RelayBody::whole(body));
    *response.status_mut() = status;
    *response.headers_mut() = to_client(replica, false);
    explain(response.headers_mut(), reason, rejection);
    response
}

/// An error that a replica put into the first frame of a stream, as the status it should have
/// been.
pub(super) fn in_stream_error(
    dialect: Dialect,
    status: StatusCode,
    reason: Reason,
    message: &str,
) -> Response<RelayBody> {
    let body = error_body(dialect, status.as_u16(), reason, message, None);
    let mut response = whole(status, "application/json", body);
    explain(response.headers_mut(), reason, None);
    response
}

/// An answer that is known whole.
pub(super) fn whole(
    status: StatusCode,
    content_type: &'static str,
    body: Bytes,
) -> Response<RelayBody> {
    let mut response = Response::new(RelayBody::whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Puts the request's name on an answer; every answer passes here last.
pub(super) fn named(
    mut response: Response<RelayBody>,
    id: &HeaderValue,
    version: Version,
) -> Response<RelayBody> {
    response.headers_mut().insert(X_REQUEST_ID, id.clone());
    if version >= Version::HTTP_2 {
        // It has no such header (RFC 9113 8.2.2); the listener says GOAWAY instead.
        response.headers_mut().remove(header::CONNECTION);
    }
    response
}

/// The reason, and when to come back.
fn explain(headers: &mut HeaderMap, reason: Reason, rejection: Option<Rejection>) {
    headers.insert(X_WEIR_REASON, HeaderValue::from_static(reason.as_str()));
    let computed = rejection.and_then(|rejection| rejection.retry_after);
    let wait = computed.or_else(|| reason.retry_after().then_some(DEFAULT_WAIT));
    if let Some(wait) = wait {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let millis = millis.min(LONGEST_WAIT_SECONDS * 1000);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
        headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis));
    }
    if reason == Reason::Key {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let told_not_to = rejection.is_some_and(|r| r.should_retry == ShouldRetry::No);
    if told_not_to || reason == Reason::Poison {
        headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
    }
}

/// One sentence a reason, for the person who reads the client's log.
pub(super) const fn message(reason: Reason) -> &'static str {
    match reason {
        Reason::QueueFull => "The queue of this model is full.",
        Reason::QueueWait => "The model is at its capacity; the request would wait too long.",
        Reason::Deadline => "The request could not start within its own deadline.",
        Reason::NoReplicas => "No replica of this model is available now.",
        Reason::Draining => "This gateway is shutting down.",
        Reason::Overloaded => "This gateway is protecting itself from overload.",
        Reason::ReplicaBusy => "The replica's own queue is full.",
        Reason::RateRequests => "The requests a minute of this key are used up.",
        Reason::RateTokens => "The tokens a minute of this key are used up.",
        Reason::Parallel => "This key has as many requests running as it may.",
        Reason::Budget => "The token budget of this key is spent.",
        Reason::Malformed => "The request is not what this endpoint takes.",
        Reason::InputTokens => "The prompt is longer than allowed.",
        Reason::OutputTokens => "The output asked for is no number of tokens, or too many.",
        Reason::Key => "The key is missing or not known.",
        Reason::Model => "This key may not use this model.",
        Reason::Route => "This key may not use this route.",
        Reason::UnknownModel => "The model does not exist.",
        Reason::UnknownPath => "The path does not exist.",
        Reason::SlowRequest => "The request's body came too slowly.",
        Reason::Body => "The request's body is larger than allowed.",
        Reason::Headers => "The request's headers are larger or more than allowed.",
        Reason::Connect => "No connection to a replica could be made.",
        Reason::UpstreamReset => "The replica closed the connection before its answer was whole.",
        Reason::UpstreamProtocol => "The replica's answer was not what HTTP allows.",
        Reason::Poison => "The request made replicas fail and is not tried again.",
        Reason::FirstByte => "The replica sent nothing in time.",
        Reason::Total => "The request took longer than allowed.",
        Reason::EngineError => "The engine failed.",
        Reason::BetweenFrames => "The stream stood still for too long.",
        Reason::ClientStall => "The client did not read its stream.",
        Reason::DrainDeadline => "This gateway shut down before the stream had ended.",
        Reason::ReplicaRefused => "The replica refused the request.",
        Reason::ReplicaError => "The replica failed.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header<'a>(response: &'a Response<RelayBody>, name: &str) -> Option<&'a str> {
        response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn a_shed_request_is_told_when_to_come_back_in_both_units() {
        let rejection = Rejection {
            retry_after: Some(Duration::from_millis(1200)),
            ..Rejection::plain(Reason::QueueWait)
        };
        let answer = Refusal::rejected(rejection).answer(Dialect::Chat, 503);
        assert_eq!(answer.status(), 503);
        assert_eq!(header(&answer, "x-weir-reason"), Some("queue_wait"));
        assert_eq!(header(&answer, "retry-after"), Some("2"));
        assert_eq!(header(&answer, "retry-after-ms"), Some("1200"));
        assert_eq!(header(&answer, "x-should-retry"), None);
    }

    #[test]
    fn no_wait_is_longer_than_clients_honour() {
        let rejection = Rejection {
            retry_after: Some(Duration::from_secs(500)),
            should_retry: ShouldRetry::No,
            ..Rejection::plain(Reason::QueueFull)
        };
        let answer = Refusal::rejected(rejection).answer(Dialect::Messages, 429);
        assert_eq!(answer.status(), 429, "the operator's choice for shed load");
        assert_eq!(header(&answer, "retry-after"), Some("55"));
        assert_eq!(header(&answer, "x-should-retry"), Some("false"));
    }

    #[test]
    fn every_reason_has_its_status_and_a_wait_exactly_where_waiting_helps() {
        for reason in Reason::ALL {
            let answer = Refusal::plain(*reason).answer(Dialect::Completions, 503);
            assert_eq!(answer.status().as_u16(), reason.status());
            assert_eq!(header(&answer, "retry-after").is_some(), reason.retry_after());
        }
    }
}
