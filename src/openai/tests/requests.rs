//! Peek and splice against `serde_json`, and against what strangers send.

use bytes::Bytes;

use crate::domain::Endpoint;
use crate::openai::{Edits, peek};

const JSON: Option<&str> = Some("application/json");

#[test]
fn a_chat_request_is_read_and_spliced() {
    let body = Bytes::from_static(
        br#"{ "mod\u0065l": "tiny", "messages": [{"role":"user","content":"hi \"there\""}],
            "stream": true, "max_tokens": 900, "priority": 3, "temperature": 0.5 }"#,
    );
    let peek = peek(Endpoint::ChatCompletions, JSON, &body).unwrap();
    assert_eq!((peek.model.as_str(), peek.stream, peek.usage_asked), ("tiny", true, false));
    assert_eq!((peek.max_output, peek.sequences, peek.prompt_bytes), (Some(900), 1, 14));
    let edits = Edits {
        model: Some("real"),
        include_usage: true,
        max_output: Some(100),
        cache_salt: Some("s"),
        strip: &["priority"],
    };
    let text = String::from_utf8(peek.splice(&body, &edits).to_vec()).unwrap();
    assert_eq!(
        text,
        r#"{"cache_salt":"s","stream_options":{"include_usage":true}, "mod\u0065l": "real", "messages": [{"role":"user","content":"hi \"there\""}],
            "stream": true, "max_tokens": 100, "temperature": 0.5 }"#
    );
    assert_eq!(peek.splice(&body, &Edits::default()), body);
}
