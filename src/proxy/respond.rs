//! The one file that turns a refusal or a failure into an answer.
//!
//! Whatever went wrong, and wherever: the client sees one status a reason, the reason's word in
//! `x-weir-reason` and in the body, the limit behind it with what stood against it, the body in
//! its endpoint's own dialect, and how long to wait where waiting is of use. Clients honour
//! `Retry-After` in whole seconds and `retry-after-ms` beside it; both are sent. What others send
//! is nowhere told: `Rejection::told` is the one place that decides it.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode, Version};

use crate::domain::{Dialect, Reason, Rejection, ShouldRetry};
use crate::openai::{ErrorBody, describe, objectify_error, sentence};

use super::headers::{RETRY_AFTER_MS, X_REQUEST_ID, X_SHOULD_RETRY, X_WEIR_REASON, to_client};
use super::relay::RelayBody;

/// The limit that was met, in the unit of [`X_WEIR_UNIT`].
const X_WEIR_LIMIT: HeaderName = HeaderName::from_static("x-weir-limit");
/// What stood against it.
const X_WEIR_READING: HeaderName = HeaderName::from_static("x-weir-reading");
/// What both are counted in: a word of `domain::Unit`.
const X_WEIR_UNIT: HeaderName = HeaderName::from_static("x-weir-unit");
/// Age of the oldest outside reading that took part, seconds; 0 where local counts decided.
const X_WEIR_AGE: HeaderName = HeaderName::from_static("x-weir-age");

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
        Self::because(reason, sentence(reason))
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
        let body = ErrorBody {
            param: self.param,
            rejection: self.rejection.as_ref(),
            ..ErrorBody::plain(status.as_u16(), self.reason, &self.message)
        };
        let mut response = whole(status, "application/json", body.to_bytes(dialect));
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
    let body = ErrorBody::plain(status.as_u16(), reason, message);
    let mut response = whole(status, "application/json", body.to_bytes(dialect));
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

/// The reason, the numbers behind it, and when to come back.
fn explain(headers: &mut HeaderMap, reason: Reason, rejection: Option<Rejection>) {
    headers.insert(X_WEIR_REASON, HeaderValue::from_static(reason.as_str()));
    if let Some(told) = rejection.and_then(|rejection| rejection.told()) {
        headers.insert(X_WEIR_UNIT, HeaderValue::from_static(told.unit.as_str()));
        let numbers = [
            (X_WEIR_LIMIT, Some(told.limit)),
            (X_WEIR_READING, told.reading),
            (X_WEIR_AGE, Some(told.age_seconds)),
        ];
        for (name, number) in numbers {
            let value = number.map(|number| HeaderValue::from_str(&number.to_string()));
            if let Some(Ok(value)) = value {
                headers.insert(name, value);
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Unit;

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
    fn the_limit_and_what_stood_against_it_are_in_the_headers() {
        let rejection = Rejection {
            unit: Some(Unit::Seconds),
            limit: 0.4,
            reading: 1.234_56,
            age: Duration::from_millis(250),
            ..Rejection::plain(Reason::QueueWait)
        };
        let answer = Refusal::rejected(rejection).answer(Dialect::Chat, 503);
        let numbers = ["x-weir-unit", "x-weir-limit", "x-weir-reading", "x-weir-age"];
        let told = numbers.map(|name| header(&answer, name).unwrap());
        assert_eq!(told, ["seconds", "0.4", "1.235", "0.25"]);
        let plain = Refusal::plain(Reason::Body).answer(Dialect::Chat, 503);
        assert!(numbers.iter().all(|name| header(&plain, name).is_none()));
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
