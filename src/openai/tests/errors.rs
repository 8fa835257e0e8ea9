//! Error bodies, as SDKs read them, and the recorded ones of a real vLLM.

use std::time::Duration;

use serde_json::Value;

use crate::domain::{Dialect, Endpoint, Reason, Rejection, Unit, Usage};
use crate::openai::{ErrorBody, objectify_error, unary_usage};

macro_rules! body_of {
    ($file:literal) => {{
        let file: &[u8] = include_bytes!(concat!("../../../tests/recorded/", $file));
        let head = memchr::memmem::find(file, b"\r\n\r\n").unwrap();
        &file[head + 4..]
    }};
}

#[test]
fn every_reason_has_a_body_in_both_shapes() {
    for &reason in Reason::ALL {
        let status = reason.status();
        let quoted = ErrorBody::plain(status, reason, "a \"quoted\" word");
        let body = ErrorBody { param: Some("model"), ..quoted }.to_bytes(Dialect::Chat);
        let tree: Value = serde_json::from_slice(&body).unwrap();
        let error = &tree["error"];
        assert_eq!(error["message"], "a \"quoted\" word");
        assert_eq!(
            (error["code"].as_u64(), &error["param"]),
            (Some(status.into()), &"model".into())
        );
        assert_eq!(error["reason"], reason.as_str());
        assert!(error["type"].as_str().is_some_and(|kind| kind.ends_with("Error")));

        let body = ErrorBody::plain(status, reason, "m").to_bytes(Dialect::Messages);
        let tree: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&tree["type"], &tree["reason"]), (&"error".into(), &reason.as_str().into()));
        assert_eq!(tree["error"]["message"], "m");
    }
    let kind = |status| {
        let body = ErrorBody::plain(status, Reason::QueueWait, "m").to_bytes(Dialect::Messages);
        serde_json::from_slice::<Value>(&body).unwrap()["error"]["type"].clone()
    };
    assert_eq!((kind(503), kind(429)), ("overloaded_error".into(), "rate_limit_error".into()));
}

#[test]
fn a_string_under_error_becomes_an_object_and_nothing_else_changes() {
    let fixed = objectify_error(body_of!("error-401.http")).unwrap();
    let whole = r#"{"error":{"message":"Unauthorized","type":"error","param":null,"code":null}}"#;
    assert_eq!(fixed, whole);
    assert_eq!(objectify_error(&fixed), None);
    for good in [
        body_of!("error-400-context.http"),
        body_of!("error-404-model.http"),
        body_of!("error-503-engine-queue-full.http"),
        b"",
        b"Internal Server Error",
        b"{\"error\":\"cut o",
        b"[{\"error\":\"a\"}]",
        b"{\"detail\":{\"error\":\"a\"}}",
    ] {
        assert_eq!(objectify_error(good), None);
    }
    let odd = objectify_error(br#"{ "a":1, "error" : "x \"y\"" , "b":[ ] }"#).unwrap();
    assert!(odd.starts_with(br#"{ "a":1, "error" : {"message":"x \"y\"","#));
    assert!(odd.ends_with(br#" , "b":[ ] }"#));
}

#[test]
fn whole_answers_tell_their_usage() {
    let usage = |input, output, cached| Some(Usage { input, output, cached });
    let chat: &[u8] = include_bytes!("../../../tests/recorded/chat.json");
    assert_eq!(unary_usage(Endpoint::ChatCompletions, chat), usage(15, 8, None));
    let completion = body_of!("completions-orca-json.http");
    assert_eq!(unary_usage(Endpoint::Completions, completion), usage(1, 3, None));
    let details = br#"{"x":"\"usage\":{","usage":{"prompt_tokens":7,"completion_tokens":0,
        "prompt_tokens_details":{"cached_tokens":5}}}"#;
    assert_eq!(unary_usage(Endpoint::Embeddings, details), usage(7, 0, Some(5)));
    let messages = br#"{"usage":{"input_tokens":3,"output_tokens":4,"cache_read_input_tokens":1}}"#;
    assert_eq!(unary_usage(Endpoint::Messages, messages), usage(3, 4, Some(1)));
    for none in
        [&b"{\"usage\":null}"[..], b"{\"usage\":{\"prompt_tokens\":-1}}", b"{\"usage\":{", b""]
    {
        assert_eq!(unary_usage(Endpoint::Messages, none), None);
    }
}

#[test]
fn a_refusal_carries_its_numbers_beside_the_reason_in_both_shapes() {
    let rejection = Rejection {
        retry_after: Some(Duration::from_millis(1500)),
        unit: Some(Unit::Seconds),
        limit: 0.4,
        reading: 1.25,
        age: Duration::from_millis(300),
        ..Rejection::plain(Reason::QueueWait)
    };
    let body = ErrorBody {
        rejection: Some(&rejection),
        ..ErrorBody::plain(503, Reason::QueueWait, "full")
    };
    let tree = |dialect| serde_json::from_slice::<Value>(&body.to_bytes(dialect)).unwrap();
    for object in [&tree(Dialect::Chat)["error"], &tree(Dialect::Messages)] {
        assert_eq!(object["reason"], "queue_wait");
        assert_eq!((&object["unit"], &object["limit"]), (&"seconds".into(), &0.4.into()));
        assert_eq!(
            (&object["reading"], &object["reading_age_seconds"]),
            (&1.25.into(), &0.3.into())
        );
        assert_eq!(object["retry_after_seconds"], 1.5);
    }
    let plain = ErrorBody::plain(413, Reason::Body, "large").to_bytes(Dialect::Chat);
    let tree: Value = serde_json::from_slice(&plain).unwrap();
    assert!(tree["error"].get("limit").is_none(), "{tree}");
}
