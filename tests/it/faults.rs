//! Replicas fail; clients see it only where a byte of the answer has gone out already.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weir::domain::{Outcome, Reason};

use crate::relay::request;
use crate::rig::{Client, Gateway, Kind, Replica, Stream, Wire, frames, script};

const CHAT: &str = include_str!("../recorded/chat-stream.sse");
const PATH: &str = "/v1/chat/completions";

async fn chat(mut wire: Wire) -> Option<Wire> {
    wire.stream_head().await;
    wire.chunk(CHAT.as_bytes()).await;
    wire.end().await
}

/// Two replicas: whichever is asked first does `bad`, whichever is asked next answers.
async fn pair<F, D>(bad: F) -> (Replica, Replica)
where
    F: Fn(Wire) -> D + Send + Sync + 'static,
    D: Future<Output = Option<Wire>> + Send + 'static,
{
    let asked = Arc::new(AtomicUsize::new(0));
    let bad = Arc::new(bad);
    let both = script(move |_, wire| {
        let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
        let bad = Arc::clone(&bad);
        async move { if first { bad(wire).await } else { chat(wire).await } }
    });
    (Replica::start(Arc::clone(&both)).await, Replica::start(both).await)
}

/// A request over a pair of which one fails so: all is well, after two attempts.
async fn costs_a_retry<F, D>(what: &str, server: &str, pool: &str, bad: F)
where
    F: Fn(Wire) -> D + Send + Sync + 'static,
    D: Future<Output = Option<Wire>> + Send + 'static,
{
    let (one, two) = pair(bad).await;
    let gateway = Gateway::start(&[&one, &two], server, pool);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let response = client.post(PATH, request(PATH, "")).await;
    assert_eq!(response.status(), 200, "{what}");
    assert_eq!(Stream::of(response).end().await, CHAT, "{what}");
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.outcome, record.attempts), (Outcome::Completed, 2), "{what}");
    assert_eq!((one.seen().len(), two.seen().len()), (1, 1), "{what}: each was asked once");
    assert_eq!(one.seen()[0].body, two.seen()[0].body, "{what}: the body is intact");
    gateway.idle().await;
}

#[tokio::test]
async fn a_replica_that_fails_before_its_first_frame_costs_a_retry_and_no_stream() {
    costs_a_retry("reset before the head", "", "", |wire| async move { wire.reset() }).await;
    costs_a_retry("closed before the head", "", "", |_| async move { None }).await;
    costs_a_retry("killed in prefill", "", "", |mut wire| async move {
        wire.stream_head().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        wire.reset()
    })
    .await;
    costs_a_retry("killed after a ping", "", "", |mut wire| async move {
        wire.stream_head().await;
        wire.chunk(b": ping\n\n").await;
        None
    })
    .await;
    costs_a_retry("its own queue is full", "", "", |wire| async move {
        wire.whole("503 Service Unavailable", b"{\"error\":{\"message\":\"busy\"}}").await
    })
    .await;
    costs_a_retry("500", "", "", |wire| async move {
        wire.whole("500 Internal Server Error", b"{\"error\":{\"message\":\"no\"}}").await
    })
    .await;
    costs_a_retry("an error in the first frame", "", "", |mut wire| async move {
        wire.stream_head().await;
        wire.chunk(b"data: {\"error\":{\"message\":\"dead\",\"code\":500}}\n\ndata: [DONE]\n\n")
            .await;
        wire.end().await
    })
    .await;
    let soon = "[timeouts]\nfirst_byte = \"200ms\"\nhead_hold = \"100ms\"";
    costs_a_retry("it hangs", soon, "", Wire::hang).await;
    let hold = "[timeouts]\nfirst_byte = \"20s\"\nhead_hold = \"200ms\"";
    let stalls = "[pools.retry]\nstall_after = \"100ms\"";
    costs_a_retry("its engine stands still", hold, stalls, |mut wire| async move {
        wire.stream_head().await;
        wire.hang().await
    })
    .await;
}

#[tokio::test]
async fn when_every_replica_fails_the_last_ones_own_words_pass() {
    let body = br#"{"error":{"message":"boom","type":"X","param":null,"code":500}}"#;
    let broken = || {
        script(move |_, wire| async move { wire.whole("500 Internal Server Error", body).await })
    };
    let (one, two) = (Replica::start(broken()).await, Replica::start(broken()).await);
    let gateway = Gateway::start(&[&one, &two], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let (status, headers, answer) = client.whole(PATH, request(PATH, "")).await;
    assert_eq!(status, 500);
    assert_eq!(headers["x-weir-reason"], "replica_error");
    assert_eq!(&answer[..], body);
    let record = gateway.ended(1).await.remove(0);
    assert_eq!(record.outcome, Outcome::Failed(Reason::ReplicaError));
    gateway.idle().await;
}

#[tokio::test]
async fn no_replica_listening_is_said_and_not_waited_out() {
    let replica = Replica::start(script(|_, wire| wire.hang())).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut nobody = replica;
    nobody.address = gone.local_addr().unwrap();
    drop(gone);
    let gateway = Gateway::start(&[&nobody], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let (status, headers, _) = client.whole(PATH, request(PATH, "")).await;
    assert_eq!((status.as_u16(), headers["x-weir-reason"].as_bytes()), (502, &b"connect"[..]));
    gateway.idle().await;
}

#[tokio::test]
async fn the_replicas_own_refusals_pass_byte_for_byte_but_for_a_string_error() {
    let recorded = include_str!("../recorded/error-400-context.http");
    let body = recorded.split_once("\n\n").or_else(|| recorded.split_once("\r\n\r\n")).unwrap().1;
    let replica = Replica::start(script(move |_, wire| async move {
        wire.whole("400 Bad Request", body.as_bytes()).await
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let (status, headers, answer) = client.whole(PATH, request(PATH, "")).await;
    assert_eq!((status.as_u16(), &answer[..]), (400, body.as_bytes()));
    assert_eq!(headers["x-weir-reason"], "replica_refused");

    replica.now(script(|_, wire| async move {
        wire.whole("401 Unauthorized", br#"{"error":"Unauthorized"}"#).await
    }));
    let (status, _, answer) = client.whole(PATH, request(PATH, "")).await;
    assert_eq!(status, 401);
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert!(answer["error"].is_object(), "{answer}");

    replica.now(script(|_, mut wire| async move {
        wire.stream_head().await;
        wire.chunk(b"data: {\"error\":{\"message\":\"too long\",\"code\":400}}\n\n").await;
        wire.chunk(b"data: [DONE]\n\n").await;
        wire.end().await
    }));
    let (status, _, answer) = client.whole(PATH, request(PATH, "")).await;
    assert_eq!(status, 400, "an error in the first frame becomes a status");
    assert!(String::from_utf8_lossy(&answer).contains("too long"));

    for record in gateway.ended(3).await {
        assert_eq!((record.outcome, record.attempts), (Outcome::Failed(Reason::ReplicaRefused), 1));
    }
    gateway.idle().await;
}

#[tokio::test]
async fn an_idle_connection_that_the_replica_has_closed_loses_no_request() {
    let replica = Replica::start(script(|_, wire| async move {
        // Answers, then closes without a word, as a server's keep-alive timeout does.
        chat(wire).await;
        None
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    for _ in 0..20 {
        let response = client.post(PATH, request(PATH, "")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(Stream::of(response).end().await, CHAT);
    }
    let records = gateway.ended(20).await;
    assert!(records.iter().all(|record| record.outcome == Outcome::Completed));
    gateway.idle().await;
}

#[tokio::test]
async fn each_phase_has_its_timeout_and_its_reason() {
    let cases: [(&str, &str, Reason); 2] = [
        ("between_frames = \"100ms\"", "between_frames", Reason::BetweenFrames),
        (
            "total = \"150ms\"\nfirst_byte = \"100ms\"\nhead_hold = \"50ms\"\nconnect = \"50ms\"",
            "total",
            Reason::Total,
        ),
    ];
    for (key, word, reason) in cases {
        let replica = Replica::start(script(|_, mut wire| async move {
            wire.stream_head().await;
            wire.chunk(frames(CHAT)[..3].concat().as_bytes()).await;
            wire.hang().await
        }))
        .await;
        let gateway = Gateway::start(&[&replica], &format!("[timeouts]\n{key}"), "");
        let mut client = Client::connect(&gateway, Kind::H1).await;
        let text = Stream::of(client.post(PATH, request(PATH, "")).await).end().await;
        assert!(text.contains(word) && text.trim_end().ends_with("data: [DONE]"), "{text}");
        assert_eq!(gateway.ended(1).await[0].outcome, Outcome::Failed(reason));
        gateway.idle().await;
    }
}

#[tokio::test]
async fn what_is_left_at_the_drains_deadline_is_cut_with_its_reason() {
    let replica = Replica::start(script(|_, mut wire| async move {
        wire.stream_head().await;
        wire.chunk(frames(CHAT)[..3].concat().as_bytes()).await;
        wire.hang().await
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut stream = Stream::of(client.post(PATH, request(PATH, "")).await);
    stream.until(1).await;

    gateway.proxy.drain();
    let mut late = Client::connect(&gateway, Kind::H1).await;
    let (status, headers, _) = late.whole(PATH, request(PATH, "")).await;
    assert_eq!((status.as_u16(), headers["x-weir-reason"].as_bytes()), (503, &b"draining"[..]));
    assert_eq!(headers["connection"], "close");
    assert!(headers.contains_key("retry-after"));

    assert_eq!(gateway.proxy.alive(), 1, "what runs goes on");
    gateway.proxy.cut_all();
    assert!(stream.end().await.contains("drain_deadline"));
    gateway.proxy.drained().await;
    assert_eq!(replica.seen().len(), 1);
    gateway.idle().await;
}

#[tokio::test]
async fn a_head_is_held_for_its_time_and_not_longer() {
    let go = Arc::new(tokio::sync::Notify::new());
    let begun = Arc::clone(&go);
    let replica = Replica::start(script(move |_, mut wire| {
        let begun = Arc::clone(&begun);
        async move {
            wire.stream_head().await;
            begun.notified().await;
            wire.chunk(CHAT.as_bytes()).await;
            wire.end().await
        }
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "[timeouts]\nhead_hold = \"50ms\"", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let response = client.post(PATH, request(PATH, "")).await;
    assert_eq!(response.status(), 200, "with no frame yet");
    go.notify_one();
    assert_eq!(Stream::of(response).end().await, CHAT);
    assert_eq!(gateway.ended(1).await[0].outcome, Outcome::Completed);
    gateway.idle().await;
}

#[tokio::test]
async fn a_body_that_kills_replicas_is_not_sent_to_a_third() {
    let deadly = || {
        script(|seen, wire| async move {
            if seen.json()["user"] == "deadly" { wire.reset() } else { chat(wire).await }
        })
    };
    let (one, two) = (Replica::start(deadly()).await, Replica::start(deadly()).await);
    let three = Replica::start(deadly()).await;
    let pool = "[pools.retry]\nattempts = 3\nbudget = 1.0";
    let gateway = Gateway::start(&[&one, &two, &three], "", pool);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let body = request(PATH, r#","user":"deadly""#);
    for again in [false, true] {
        let (status, headers, _) = client.whole(PATH, body.clone()).await;
        assert_eq!((status.as_u16(), headers["x-weir-reason"].as_bytes()), (502, &b"poison"[..]));
        assert_eq!(headers["x-should-retry"], "false");
        let asked: usize = [&one, &two, &three].iter().map(|r| r.seen().len()).sum();
        assert_eq!(asked, 2, "two replicas, and none when it comes again: {again}");
    }
    let response = client.post(PATH, request(PATH, r#","user":"mild""#)).await;
    assert_eq!(response.status(), 200, "others go on");
    assert_eq!(Stream::of(response).end().await, CHAT);
    gateway.ended(3).await;
    gateway.idle().await;
}

#[tokio::test]
async fn replicas_that_are_all_busy_are_a_503_with_a_time_to_come_back() {
    let recorded = include_str!("../recorded/error-503-engine-queue-full.http");
    let body = recorded.split_once("\n\n").or_else(|| recorded.split_once("\r\n\r\n")).unwrap().1;
    let busy = || {
        script(move |_, wire| async move {
            wire.whole("503 Service Unavailable", body.as_bytes()).await
        })
    };
    let (one, two) = (Replica::start(busy()).await, Replica::start(busy()).await);
    let gateway = Gateway::start(&[&one, &two], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let (status, headers, answer) = client.whole(PATH, request(PATH, "")).await;
    assert_eq!((status.as_u16(), &answer[..]), (503, body.as_bytes()));
    assert_eq!(headers["x-weir-reason"], "replica_busy");
    let seconds: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=55).contains(&seconds), "which vLLM itself does not say");
    assert_eq!((one.seen().len(), two.seen().len()), (1, 1));
    let record = gateway.ended(1).await.remove(0);
    assert_eq!(record.outcome, Outcome::Failed(Reason::ReplicaBusy));
    gateway.idle().await;
}
