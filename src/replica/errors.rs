//! Errors in vLLM's words and shapes.

use http::StatusCode;
use serde_json::Value;

/// An answer that is an error.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) body: String,
}

/// What an engine that died says, in the stream or as a status.
pub(super) const ENGINE_DEATH: &str = "{\"error\": {\"message\": \"EngineCore encountered an issue. \
     See stack trace (above) for the root cause.\", \"type\": \"InternalServerError\", \
     \"param\": null, \"code\": 500}}";

/// The same in a messages stream, whose converter turns it into an event of its own. Read in
/// vLLM's source (`entrypoints/anthropic`), not recorded.
pub(super) const ENGINE_DEATH_MESSAGES: &str = "event: error\ndata: {\"type\":\"error\",\
     \"error\":{\"type\":\"internal_error\",\"message\":\"EngineCore encountered an issue. See stack \
     trace (above) for the root cause.\"}}\n\ndata: [DONE]\n\n";

impl Refusal {
    fn new(status: StatusCode, message: &str, kind: &str, param: Option<&str>) -> Self {
        let message = Value::from(message);
        let param = param.map_or(Value::Null, Value::from);
        let code = status.as_u16();
        let body = format!(
            "{{\"error\":{{\"message\":{message},\"type\":\"{kind}\",\"param\":{param},\"code\":{code}}}}}"
        );
        Self { status, body }
    }

    /// The request is not what it should be.
    pub(super) fn bad(message: &str, param: Option<&str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message, "BadRequestError", param)
    }

    /// The body is no JSON.
    pub(super) fn json(error: &serde_json::Error) -> Self {
        let message = format!("[{{'type': 'json_invalid', 'loc': ('body', 1), 'msg': '{error}'}}]");
        Self::new(StatusCode::BAD_REQUEST, &message, "Bad Request", None)
    }

    pub(super) fn model(asked: &str, served: &str) -> Self {
        let message = format!("The model `{asked}` does not exist. Valid aliases: {served}.");
        Self::new(StatusCode::NOT_FOUND, &message, "NotFoundError", Some("model"))
    }

    pub(super) fn context(prompt: u32, most: u32) -> Self {
        let message = format!(
            "This model's maximum context length is {most} tokens. However, your prompt contains \
             at least {prompt} input tokens, which exceeds this limit even without any output \
             tokens. Please reduce the length of the input prompt. (parameter=input_tokens, \
             value={prompt})"
        );
        Self::bad(&message, Some("input_tokens"))
    }

    pub(super) fn busy() -> Self {
        let message = "The engine is currently busy and cannot accept new requests. Please try \
                       again later or on a different instance.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message, "Service Unavailable", None)
    }

    pub(super) fn internal() -> Self {
        let message = "Internal server error";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message, "InternalServerError", None)
    }

    pub(super) fn dead() -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, body: ENGINE_DEATH.to_owned() }
    }

    pub(super) fn key() -> Self {
        let body = "{\"error\":\"Unauthorized\"}".to_owned();
        Self { status: StatusCode::UNAUTHORIZED, body }
    }

    pub(super) fn path() -> Self {
        let body = "{\"detail\":\"Not Found\"}".to_owned();
        Self { status: StatusCode::NOT_FOUND, body }
    }

    pub(super) fn method() -> Self {
        let body = "{\"detail\":\"Method Not Allowed\"}".to_owned();
        Self { status: StatusCode::METHOD_NOT_ALLOWED, body }
    }
}
