//! Errors in the shape that the client's SDK understands: vLLM's own, or Anthropic's for the
//! messages endpoints, each with our word for the reason beside it.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::domain::{Dialect, Reason, Rejection};

use super::json::{Cursor, Kind};
use super::scanner::StreamError;

/// What an error answer says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ErrorBody<'a> {
    /// What the answer carries, which operators may have set to another than the reason's own.
    pub status: u16,
    /// Our word.
    pub reason: Reason,
    /// For the application's developer.
    pub message: &'a str,
    /// The field of the request's body that is at fault.
    pub param: Option<&'a str>,
    /// The limit behind it, and when to come back.
    pub rejection: Option<&'a Rejection>,
}

impl ErrorBody<'_> {
    /// With nothing but a sentence.
    pub fn plain(status: u16, reason: Reason, message: &str) -> ErrorBody<'_> {
        ErrorBody { status, reason, message, param: None, rejection: None }
    }

    /// The bytes, in the shape that this dialect's SDKs read.
    pub fn to_bytes(&self, dialect: Dialect) -> Bytes {
        Bytes::from(self.to_value(dialect).to_string())
    }

    pub(super) fn to_value(self, dialect: Dialect) -> Value {
        let Self { status, reason, message, param, rejection } = self;
        if dialect == Dialect::Messages {
            let error = json!({ "type": anthropic_type(status), "message": message });
            let mut whole = json!({ "type": "error", "error": error, "reason": reason.as_str() });
            explain(&mut whole, rejection);
            return whole;
        }
        let mut error = json!({
            "message": message,
            "type": openai_type(status),
            "param": param,
            "code": status,
            "reason": reason.as_str(),
        });
        explain(&mut error, rejection);
        json!({ "error": error })
    }
}

/// Adds the numbers behind a refusal beside its reason.
fn explain(object: &mut Value, rejection: Option<&Rejection>) {
    let Some((object, rejection)) = object.as_object_mut().zip(rejection) else { return };
    if let Some(told) = rejection.told() {
        object.insert("unit".to_owned(), json!(told.unit.as_str()));
        object.insert("limit".to_owned(), json!(told.limit));
        object.extend(told.reading.map(|reading| ("reading".to_owned(), json!(reading))));
        object.insert("reading_age_seconds".to_owned(), json!(told.age_seconds));
    }
    if let Some(wait) = rejection.retry_after {
        object.insert("retry_after_seconds".to_owned(), json!(wait.as_secs_f64()));
    }
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
