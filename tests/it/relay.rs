//! Streams pass through: unbuffered, unchanged, and judged by what they said.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::sync::{Mutex, mpsc};
use weir::domain::{Outcome, Reason};

use crate::rig::{Client, Gateway, Kind, Replica, Stream, frames, script};

const CHAT: &str = include_str!("../recorded/chat-stream.sse");
const CHAT_USAGE: &str = include_str!("../recorded/chat-stream-usage.sse");
const CHAT_N2: &str = include_str!("../recorded/chat-stream-n2.sse");
const CHAT_ONE: &str = include_str!("../recorded/chat-stream-one-token.sse");
const CHAT_MERGED: &str = include_str!("../recorded/chat-stream-interval4.sse");
const CHAT_CONTINUOUS: &str = include_str!("../recorded/chat-stream-continuous-usage.sse");
const COMPLETIONS: &str = include_str!("../recorded/completions-stream-usage.sse");
const RESPONSES: &str = include_str!("../recorded/responses-stream.sse");
const MESSAGES: &str = include_str!("../recorded/messages-stream.sse");

const ASKS_USAGE: &str = r#","stream_options":{"include_usage":true}"#;

/// A request for a stream of this endpoint.
pub(crate) fn request(path: &str, more: &str) -> String {
    let what = match path {
        "/v1/completions" => r#""prompt":"one""#,
        "/v1/responses" => r#""input":"one""#,
        _ => r#""messages":[{"role":"user","content":"one"}],"max_tokens":8"#,
    };
    format!(r#"{{"model":"tiny",{what},"stream":true{more}}}"#)
}

/// Each recorded stream with its endpoint; `true` where the client had asked for usage.
const RECORDED: [(&str, &str, bool); 9] = [
    ("/v1/chat/completions", CHAT, false),
    ("/v1/chat/completions", CHAT_N2, true),
    ("/v1/chat/completions", CHAT_ONE, true),
    ("/v1/chat/completions", CHAT_MERGED, true),
    ("/v1/chat/completions", CHAT_USAGE, true),
    ("/v1/chat/completions", CHAT_CONTINUOUS, true),
    ("/v1/completions", COMPLETIONS, true),
    ("/v1/responses", RESPONSES, false),
    ("/v1/messages", MESSAGES, false),
];

/// Frames that the engine has no part in, so that the head is still held when they come.
fn before_the_engine(frame: &str) -> bool {
    frame.contains("event: response.created")
        || frame.contains("event: response.in_progress")
        || frame.contains("event: response.queued")
}

/// The replica sends a frame only after the client has reported the one before it: had any
/// part between them waited for more, nothing would ever move again.
async fn one_by_one(kind: Kind, path: &'static str, recorded: &'static str, usage: bool) {
    let (report, reported) = mpsc::channel::<()>(1);
    let reported = Arc::new(Mutex::new(reported));
    let replica = Replica::start(script(move |_, mut wire| {
        let reported = Arc::clone(&reported);
        async move {
            wire.stream_head().await;
            for frame in frames(recorded) {
                assert!(wire.chunk(frame.as_bytes()).await);
                if !before_the_engine(&frame) {
                    reported.lock().await.recv().await?;
                }
            }
            wire.end().await
        }
    }))
    .await;
    let gateway = Gateway::serve(&[&replica], "", "", kind.tls());
    let mut client = Client::connect(&gateway, kind).await;
    let body = request(path, if usage { ASKS_USAGE } else { "" });
    let response = client.post(path, body).await;
    assert_eq!(response.status(), 200, "{kind:?} {path}");
    let mut stream = Stream::of(response);
    let mut sent = 0;
    for frame in frames(recorded) {
        sent += frame.len();
        if !before_the_engine(&frame) {
            stream.until(sent).await;
            assert_eq!(stream.text.len(), sent, "no byte before its time: {kind:?} {path}");
            report.send(()).await.unwrap();
        }
    }
    assert_eq!(stream.end().await, recorded);
    let records = gateway.ended(1).await;
    assert_eq!(records[0].outcome, Outcome::Completed);
    gateway.idle().await;
}

#[tokio::test]
async fn nothing_is_buffered_on_any_endpoint_over_any_protocol() {
    for kind in Kind::ALL {
        for (path, recorded, usage) in [RECORDED[0], RECORDED[6], RECORDED[7], RECORDED[8]] {
            one_by_one(kind, path, recorded, usage).await;
        }
    }
}

/// Plays a recording in pieces of the given sizes, over and over.
async fn played(path: &str, recorded: &'static str, usage: bool, sizes: Vec<usize>) -> String {
    let replica = Replica::start(script(move |_, mut wire| {
        let sizes = sizes.clone();
        async move {
            wire.stream_head().await;
            let mut rest = recorded.as_bytes();
            for size in sizes.iter().cycle() {
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                if piece.is_empty() {
                    break;
                }
                wire.chunk(piece).await;
                rest = after;
                tokio::task::yield_now().await;
            }
            wire.end().await
        }
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let response = client.post(path, request(path, if usage { ASKS_USAGE } else { "" })).await;
    assert_eq!(response.status(), 200);
    let text = Stream::of(response).end().await;
    let record = gateway.ended(1).await.remove(0);
    assert_eq!(record.outcome, Outcome::Completed, "{path}");
    assert!(record.ttft.is_some(), "{path}: content was seen");
    assert_eq!(record.bytes, text.len() as u64);
    gateway.idle().await;
    text
}

fn blocking<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_recording_passes_unchanged_however_it_is_cut(
        which in 0..RECORDED.len(),
        sizes in prop::collection::vec(1_usize..400, 1..8),
    ) {
        let (path, recorded, usage) = RECORDED[which];
        prop_assert_eq!(blocking(played(path, recorded, usage, sizes)), recorded);
    }

    #[test]
    fn usage_that_we_asked_for_is_cut_out_and_nothing_else(
        which in 0..2_usize,
        sizes in prop::collection::vec(1_usize..400, 1..8),
    ) {
        let (path, recorded) =
            [("/v1/chat/completions", CHAT_USAGE), ("/v1/completions", COMPLETIONS)][which];
        let expected: String = frames(recorded)
            .into_iter()
            .filter(|frame| !frame.contains(r#""choices":[]"#))
            .collect();
        prop_assert_ne!(&expected, recorded);
        prop_assert_eq!(blocking(played(path, recorded, false, sizes)), expected);
    }
}

#[tokio::test]
async fn usage_is_asked_for_and_counted_although_the_client_never_sees_it() {
    let replica = Replica::start(script(|_, mut wire| async move {
        wire.stream_head().await;
        wire.chunk(CHAT_USAGE.as_bytes()).await;
        wire.end().await
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let path = "/v1/chat/completions";
    let text = Stream::of(client.post(path, request(path, "")).await).end().await;
    assert!(!text.contains("\"usage\":{"), "{text}");
    let sent = replica.seen()[0].json();
    assert_eq!(sent["stream_options"]["include_usage"], true);
    let record = gateway.ended(1).await.remove(0);
    assert!(record.usage.is_some_and(|usage| usage.output > 1 && usage.input > 0));
    assert!(record.tpot.is_some());
}

#[tokio::test]
async fn an_engine_that_dies_in_mid_stream_is_a_failure_although_it_says_done() {
    let answer = include_str!("../recorded/engine-death-mid-stream.http");
    let body = &answer
        [answer.find("\r\n\r\n").map_or_else(|| answer.find("\n\n").unwrap() + 2, |at| at + 4)..];
    let replica = Replica::start(script(move |_, mut wire| async move {
        wire.stream_head().await;
        wire.chunk(body.as_bytes()).await;
        wire.end().await
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let path = "/v1/completions";
    let text = Stream::of(client.post(path, request(path, "")).await).end().await;
    assert_eq!(text, body, "the engine's own words pass");
    let record = gateway.ended(1).await.remove(0);
    assert_eq!(record.outcome, Outcome::Failed(Reason::EngineError));
    gateway.idle().await;
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error_in_its_own_dialect() {
    for (path, recorded, word) in [
        ("/v1/chat/completions", CHAT, "data: [DONE]"),
        ("/v1/completions", COMPLETIONS, "data: [DONE]"),
        ("/v1/responses", RESPONSES, "event: response.failed"),
        ("/v1/messages", MESSAGES, "event: error"),
    ] {
        let half = frames(recorded);
        let half: String = half[..half.len() / 2].concat();
        let begun = half.clone();
        let replica = Replica::start(script(move |_, mut wire| {
            let begun = begun.clone();
            async move {
                wire.stream_head().await;
                wire.chunk(begun.as_bytes()).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                wire.reset()
            }
        }))
        .await;
        let gateway = Gateway::start(&[&replica], "", "");
        let mut client = Client::connect(&gateway, Kind::H1).await;
        let text = Stream::of(client.post(path, request(path, "")).await).end().await;
        let added = text.strip_prefix(&half).expect("all that came before the break");
        assert!(added.contains(word), "{path}: {added}");
        assert!(added.contains("upstream_reset"), "{path}: {added}");
        let record = gateway.ended(1).await.remove(0);
        assert_eq!(record.outcome, Outcome::Failed(Reason::UpstreamReset), "{path}");
        assert!(record.attempts == 1, "nothing is retried after the first byte");
        gateway.idle().await;
    }
}

#[tokio::test]
async fn a_clean_end_without_the_last_word_is_a_break() {
    let replica = Replica::start(script(|_, mut wire| async move {
        wire.stream_head().await;
        wire.chunk(frames(CHAT)[..3].concat().as_bytes()).await;
        wire.end().await
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let path = "/v1/chat/completions";
    let text = Stream::of(client.post(path, request(path, "")).await).end().await;
    assert!(text.contains("upstream_reset") && text.trim_end().ends_with("data: [DONE]"));
    let record = gateway.ended(1).await.remove(0);
    assert_eq!(record.outcome, Outcome::Failed(Reason::UpstreamReset));
}

#[tokio::test]
async fn a_unary_answer_passes_as_it_is_and_its_usage_is_counted() {
    let recorded = include_bytes!("../recorded/chat.json");
    let replica = Replica::start(script(|_, wire| async move {
        wire.whole("200 OK", include_bytes!("../recorded/chat.json")).await
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let body = r#"{"model":"gpt-4","messages":[{"role":"user","content":"one"}]}"#;
    let (status, headers, answer) = client.whole("/v1/chat/completions", body).await;
    assert_eq!((status.as_u16(), &answer[..]), (200, &recorded[..]));
    assert!(headers.contains_key("x-request-id"));
    assert_eq!(replica.seen()[0].json()["model"], "tiny", "an alias becomes the model's name");
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.outcome, record.ttft), (Outcome::Completed, None));
    assert!(record.usage.is_some());
    gateway.idle().await;
}

#[tokio::test]
async fn models_are_listed_with_their_aliases_whether_or_not_replicas_answer() {
    let replica = Replica::start(script(|_, wire| async move {
        wire.whole("200 OK", include_bytes!("../recorded/models.json")).await
    }))
    .await;
    for up in [true, false] {
        if !up {
            replica.now(script(|_, wire| async move { wire.reset() }));
        }
        let gateway = Gateway::start(&[&replica], "", "");
        let mut client = Client::connect(&gateway, Kind::H1).await;
        let request = http::Request::get("http://localhost/v1/models")
            .header("host", "localhost")
            .body(http_body_util::Full::default())
            .unwrap();
        let text = Stream::of(client.send(request).await).end().await;
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        let ids: Vec<_> =
            list["data"].as_array().unwrap().iter().map(|m| m["id"].clone()).collect();
        assert_eq!(ids, ["tiny", "gpt-4"]);
        assert_eq!(list["data"][0].get("max_model_len").is_some(), up);
    }
}
