//! Errors in the shape that the client's SDK understands: vLLM's own, or Anthropic's for the
//! messages endpoints, each with our word for the reason beside it.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::domain::{Dialect, Reason, Rejection, ShouldRetry};

use super::json::{Cursor, Kind};
use super::scanner::StreamError;

/// The body of an error answer. `status` is what the answer carries, which operators may have
/// set to another than the reason's own; `param` is the field at fault.
pub fn error_body(
    dialect: Dialect,
    status: u16,
    reason: Reason,
    message: &str,
    param: Option<&str>,
) -> Bytes {
    Bytes::from(error_value(dialect, status, reason, message, param).to_string())
}

pub(super) fn error_value(
    dialect: Dialect,
    status: u16,
    reason: Reason,
    message: &str,
    param: Option<&str>,
) -> Value {
    if dialect == Dialect::Messages {
        let error = json!({ "type": anthropic_type(status), "message": message });
        return json!({ "type": "error", "error": error, "reason": reason.as_str() });
    }
    json!({ "error": {
        "message": message,
        "type": openai_type(status),
        "param": param,
        "code": status,
        "reason": reason.as_str(),
    } })
}

fn openai_type(status: u16) -> &'static str {
    match status {
        401 => "AuthenticationError",
        403 => "PermissionDeniedError",
        404 => "NotFoundError",
        408 | 504 => "TimeoutError",
        429 => "RateLimitError",
        503 => "ServiceUnavailableError",
        400..500 => "BadRequestError",
        _ => "InternalServerError",
    }
}

fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    }
}

/// A refusal in words for an application's developer: what was full, how full, when to come back.
pub fn describe(rejection: &Rejection) -> String {
    let Rejection { reason, limit, reading, .. } = *rejection;
    let why = match reason {
        Reason::QueueFull => {
            format!("The queue is full: {reading:.0} requests wait, {limit:.0} may.")
        }
        Reason::QueueWait => format!(
            "All replicas are busy: this request would wait {reading:.1} s, {limit:.1} s are \
             allowed."
        ),
        Reason::Deadline => format!(
            "This request would start after {reading:.1} s, its deadline leaves {limit:.1} s."
        ),
        Reason::NoReplicas => "No replica of this model can be used now.".to_owned(),
        Reason::Draining => "This gateway is shutting down.".to_owned(),
        Reason::Overloaded => "This gateway is overloaded.".to_owned(),
        Reason::ReplicaBusy => "The replicas refused the request as busy.".to_owned(),
        Reason::RateRequests => format!("The rate limit of {limit:.0} requests a minute is met."),
        Reason::RateTokens => format!("The rate limit of {limit:.0} tokens a minute is met."),
        Reason::Parallel => format!("{reading:.0} requests run already, {limit:.0} may."),
        Reason::Budget => "The token budget of this window is spent.".to_owned(),
        Reason::InputTokens => {
            format!("The prompt has about {reading:.0} tokens, {limit:.0} are allowed.")
        }
        Reason::OutputTokens => {
            format!("{reading:.0} output tokens were asked for, {limit:.0} are allowed.")
        }
        other => format!("The request was refused: {}.", other.as_str()),
    };
    match (rejection.retry_after, rejection.should_retry) {
        (_, ShouldRetry::No) => format!("{why} Do not retry."),
        (Some(wait), ShouldRetry::Unsaid) => {
            format!("{why} Retry after {:.1} s.", wait.as_secs_f64())
        }
        (None, ShouldRetry::Unsaid) => why,
    }
}

/// A replica's error body in which `error` is a string, as an object; SDKs look for `message` in
/// it. `None` where it needs no change; every byte but the string stays as it was.
pub fn objectify_error(body: &[u8]) -> Option<Bytes> {
    let mut cursor = Cursor::new(body);
    let mut found = None;
    cursor
        .members(|cursor, key| {
            let is_error = cursor.decode(key).as_deref() == Some("error");
            let value = cursor.value()?;
            if is_error && matches!(value.kind, Kind::Text(_)) {
                found = Some(value.span);
            }
            Ok(())
        })
        .ok()?;
    cursor.end().ok()?;
    let span = found?;
    let message = body.get(span.clone())?;
    let object = [b"{\"message\":", message, b",\"type\":\"error\",\"param\":null,\"code\":null}"];
    let whole = [body.get(..span.start)?, &object.concat(), body.get(span.end..)?].concat();
    Some(Bytes::from(whole))
}

impl StreamError {
    /// Reads the data of an error frame of any dialect.
    pub(super) fn parse(data: &[u8]) -> Self {
        let whole: Value = serde_json::from_slice(data).unwrap_or_default();
        let inner = ["/response/error", "/error"].iter().find_map(|path| whole.pointer(path));
        let error = inner.filter(|inner| !inner.is_null()).unwrap_or(&whole);
        let message = error.as_str().or_else(|| error.get("message").and_then(Value::as_str));
        let code = error.get("code").and_then(Value::as_u64);
        let code = code.and_then(|code| u16::try_from(code).ok());
        let kind = error.get("type").and_then(Value::as_str).unwrap_or_default();
        Self {
            status: code.filter(|code| (400..600).contains(code)).unwrap_or(match kind {
                "invalid_request_error" => 400,
                "rate_limit_error" => 429,
                "overloaded_error" => 503,
                _ => 500,
            }),
            message: message.unwrap_or("the replica reported an error").to_owned(),
        }
    }
}
