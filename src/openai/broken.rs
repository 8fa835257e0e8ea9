//! The last frames of a stream that broke: a clean end would pass for a whole answer.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::domain::{Dialect, Reason};

use super::error::ErrorBody;
use super::scanner::Scanner;
use super::words::sentence;

/// Frames that tell a client, in its dialect, that its stream ended early and why. They follow
/// whatever `scanner` has forwarded, even half a frame, and say nothing where the replica has
/// reported an error or its end already.
pub fn stream_error(dialect: Dialect, reason: Reason, scanner: &Scanner) -> Bytes {
    if scanner.ended() {
        return Bytes::new();
    }
    let before = if scanner.mid_frame() { "\n\n" } else { "" };
    let message = sentence(reason);
    let error = ErrorBody::plain(reason.status(), reason, message).to_value(dialect);
    let frames = match dialect {
        Dialect::Chat | Dialect::Completions | Dialect::Unary => {
            format!("{before}data: {error}\n\ndata: [DONE]\n\n")
        }
        Dialect::Messages => format!("{before}event: error\ndata: {error}\n\n"),
        Dialect::Responses => {
            let failed = failed(reason, message, scanner);
            format!("{before}event: response.failed\ndata: {failed}\n\n")
        }
    };
    Bytes::from(frames)
}

fn failed(reason: Reason, message: &str, scanner: &Scanner) -> Value {
    let next = scanner.sequence_number().map_or(0, |last| last.saturating_add(1));
    json!({
        "type": "response.failed",
        "sequence_number": next,
        "response": {
            "id": scanner.response_id().unwrap_or("resp_unknown"),
            "object": "response",
            "status": "failed",
            "error": { "code": "server_error", "message": message, "reason": reason.as_str() },
            "output": [],
        },
    })
}
