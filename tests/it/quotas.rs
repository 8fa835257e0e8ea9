//! Quotas on a real socket: what is refused, what is charged, and what comes back.

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::Notify;
use weir::domain::{Outcome, Reason};

use crate::rig::{Client, Gateway, Kind, Replica, Stream, config, frames, post, script, until};
use crate::tenants::{body, tenants, with_key};

const CHAT: &str = "/v1/chat/completions";
const STREAM: &str = include_str!("../recorded/chat-stream-usage.sse");

fn number(headers: &HeaderMap, name: &str) -> u64 {
    headers[name].to_str().unwrap().parse().unwrap()
}

async fn whole(response: Response<Incoming>) -> (StatusCode, HeaderMap, String) {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

/// Answers at once with 15 prompt tokens and 8 generated ones.
async fn answering() -> Replica {
    Replica::start(script(|_, wire| async move {
        wire.whole("200 OK", include_bytes!("../recorded/chat.json")).await
    }))
    .await
}

/// Streams up to its third frame, and the rest when told.
async fn waiting() -> (Replica, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let replica = Replica::start(script(move |_, mut wire| {
        let told = Arc::clone(&told);
        async move {
            let frames = frames(STREAM);
            wire.stream_head().await;
            wire.chunk(frames[..3].concat().as_bytes()).await;
            tokio::select! {
                () = told.notified() => {}
                () = wire.closed() => return None,
            }
            wire.chunk(frames[3..].concat().as_bytes()).await;
            wire.end().await
        }
    }))
    .await;
    (replica, go)
}

fn streaming() -> String {
    body("tiny").replace("{\"model", "{\"stream\":true,\"model")
}

#[tokio::test]
async fn over_each_quota_there_is_a_reason_and_a_time_to_come_back() {
    let replica = answering().await;
    let listed = tenants(&[
        ("often", "sk-often", "requests_per_minute = 8"),
        ("much", "sk-much", "tokens_per_minute = 1200"),
        ("free", "sk-free", ""),
    ]);
    let gateway = Gateway::start(&[&replica], "", &listed);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    for (key, reason, limit, word) in [
        ("sk-often", Reason::RateRequests, "8", "requests"),
        ("sk-much", Reason::RateTokens, "1200", "tokens"),
    ] {
        let mut served = 0;
        let (headers, text) = loop {
            let (status, headers, text) =
                whole(client.send(with_key(post(CHAT, body("tiny")), key)).await).await;
            assert_eq!(
                number(&headers, &format!("x-ratelimit-limit-{word}")),
                limit.parse::<u64>().unwrap()
            );
            if status == 429 {
                break (headers, text);
            }
            assert_eq!(status, 200, "{text}");
            served += 1;
            assert!(served < 100, "{key} is never refused");
        };
        assert_eq!(headers["x-weir-reason"], reason.as_str());
        assert_eq!(headers["x-weir-limit"], limit);
        // What is left may be too little for this request, and yet something.
        let left = number(&headers, &format!("x-ratelimit-remaining-{word}"));
        assert!(left < limit.parse().unwrap(), "{headers:?}");
        let (whole_seconds, millis) =
            (number(&headers, "retry-after"), number(&headers, "retry-after-ms"));
        assert!((1..=55).contains(&whole_seconds) && whole_seconds == millis.div_ceil(1_000));
        assert!(headers["ratelimit-policy"].to_str().unwrap().contains(word), "{headers:?}");
        assert!(headers["ratelimit"].to_str().unwrap().contains(";r="), "{headers:?}");
        assert!(text.contains("rate limit of this key"), "{text}");
    }
    let (status, headers, _) =
        whole(client.send(with_key(post(CHAT, body("tiny")), "sk-free")).await).await;
    assert_eq!(status, 200, "another tenant is not touched");
    assert!(!headers.keys().any(|name| name.as_str().contains("ratelimit")), "{headers:?}");
    gateway.idle().await;
}

#[tokio::test]
async fn tokens_are_settled_by_what_the_replica_counted() {
    let replica = answering().await;
    let listed = tenants(&[("a", "sk-a", "tokens_per_minute = 600_000")]);
    let gateway = Gateway::start(&[&replica], "", &listed);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let first = client.send(with_key(post(CHAT, body("tiny")), "sk-a")).await;
    // The answer's head is told before its end is settled, or after: both are honest.
    assert_eq!(first.status(), 200);
    drop(whole(first).await);
    gateway.ended(1).await;
    // The list of models costs nothing, so it shows what the answer cost. The account fills by
    // ten tokens a millisecond, so that it can only be held from below.
    let bad = post(CHAT, "{}");
    let (status, headers, _) = whole(client.send(with_key(bad, "sk-a")).await).await;
    assert_eq!(status, 400);
    assert!(number(&headers, "x-ratelimit-remaining-tokens") >= 150_000 - 23);
}

#[tokio::test]
async fn as_many_run_as_may_and_an_end_of_any_kind_makes_room() {
    let (replica, go) = waiting().await;
    let listed = tenants(&[("a", "sk-a", "parallel = 1")]);
    let gateway = Gateway::start(&[&replica], "", &listed);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut other = Client::connect(&gateway, Kind::H1).await;
    for ends_well in [true, false, true] {
        let mut running = Stream::of(client.send(with_key(post(CHAT, streaming()), "sk-a")).await);
        running.until(1).await;
        let (status, headers, text) =
            whole(other.send(with_key(post(CHAT, streaming()), "sk-a")).await).await;
        assert_eq!(
            (status.as_u16(), &headers["x-weir-reason"]),
            (429, &"parallel".parse().unwrap())
        );
        assert_eq!((number(&headers, "x-weir-limit"), number(&headers, "x-weir-reading")), (1, 1));
        assert!(text.contains("Retry after"), "{text}");
        let before = gateway.records().len();
        if ends_well {
            go.notify_one();
            assert!(running.end().await.ends_with("data: [DONE]\n\n"));
        } else {
            drop(running);
            drop(client);
            client = Client::connect(&gateway, Kind::H1).await;
        }
        until("its end", || gateway.records().len() > before).await;
    }
    let ends: Vec<_> = gateway.records().iter().map(|record| record.outcome).collect();
    let refused = Outcome::Rejected(Reason::Parallel);
    let done = Outcome::Completed;
    assert_eq!(ends, [refused, done, refused, Outcome::Cancelled, refused, done]);
    gateway.idle().await;
}

#[tokio::test]
async fn what_is_refused_further_on_costs_nothing() {
    let replica = answering().await;
    replica
        .now(script(|_, wire| async move { wire.whole("500 Internal Server Error", b"{}").await }));
    let rates = "requests_per_minute = 8\ntokens_per_minute = 600_000";
    let listed = tenants(&[("a", "sk-a", rates)]);
    let gateway = Gateway::start(&[&replica], "", &listed);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    for (what, path, sent, status) in [
        ("no body of ours", CHAT, "{}".to_owned(), 400),
        ("an unknown model", CHAT, body("large"), 404),
        ("a replica that fails", CHAT, body("tiny"), 500),
    ] {
        for _ in 0..4 {
            let (seen, headers, text) =
                whole(client.send(with_key(post(path, sent.clone()), "sk-a")).await).await;
            assert_eq!(seen.as_u16(), status, "{what}: {text}");
            assert!(number(&headers, "x-ratelimit-remaining-requests") >= 1, "{what}");
        }
    }
    replica.now(script(|_, wire| async move {
        wire.whole("200 OK", include_bytes!("../recorded/chat.json")).await
    }));
    gateway.ended(12).await;
    for _ in 0..2 {
        let answer = client.send(with_key(post(CHAT, body("tiny")), "sk-a")).await;
        assert_eq!(whole(answer).await.0, 200, "the whole burst is still there");
    }
}

#[tokio::test]
async fn a_reload_changes_quotas_and_resets_no_counter() {
    let (replica, go) = waiting().await;
    let quotas = |rest: &str| tenants(&[("a", "sk-a", rest)]);
    let gateway = Gateway::start(&[&replica], "", &quotas("parallel = 2\nrequests_per_minute = 4"));
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut running = Stream::of(client.send(with_key(post(CHAT, streaming()), "sk-a")).await);
    running.until(1).await;
    let mut other = Client::connect(&gateway, Kind::H1).await;
    let mut refused = async |reason: Reason| {
        let answer = other.send(with_key(post(CHAT, streaming()), "sk-a")).await;
        let (status, headers, _) = whole(answer).await;
        assert_eq!(
            (status.as_u16(), headers["x-weir-reason"].to_str().unwrap()),
            (429, reason.as_str())
        );
    };
    refused(Reason::RateRequests).await;
    let apply = |rest: &str| gateway.proxy.apply(config(&[&replica], "", &quotas(rest)));
    apply("parallel = 1");
    refused(Reason::Parallel).await;
    apply("parallel = 2\nrequests_per_minute = 4");
    let mut second = Stream::of(other.send(with_key(post(CHAT, streaming()), "sk-a")).await);
    second.until(1).await;
    apply("parallel = 3");
    go.notify_one();
    go.notify_one();
    assert!(running.end().await.ends_with("data: [DONE]\n\n"), "nothing running is cut");
    assert!(second.end().await.ends_with("data: [DONE]\n\n"));
    gateway.idle().await;
}

/// The body that the replica saw last.
fn at_replica(replica: &Replica) -> serde_json::Value {
    replica.seen().last().unwrap().json()
}

#[tokio::test]
async fn one_request_is_held_to_its_tenants_size() {
    let replica = answering().await;
    let listed = tenants(&[
        ("lower", "sk-lower", "max_input_tokens = 50\nmax_output_tokens = 100"),
        ("refuse", "sk-refuse", "max_output_tokens = 100\nover_output = \"refuse\""),
        ("free", "sk-free", ""),
    ]);
    let gateway = Gateway::start(&[&replica], "", &listed);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let with = |fields: &str| body("tiny").replace("{\"model", &format!("{{{fields}\"model"));
    let long = with("").replace("one", &"four".repeat(51));
    // The key, what is asked for, and what the replica reads of it or why it reads nothing.
    let seen = |field: &'static str, tokens: u64| Ok((field, tokens));
    for (key, sent, expected) in [
        ("sk-lower", with(r#""max_tokens":100,"#), seen("max_tokens", 100)),
        ("sk-lower", with(r#""max_tokens":101,"#), seen("max_tokens", 100)),
        ("sk-lower", with(""), seen("max_completion_tokens", 100)),
        ("sk-lower", with(r#""max_completion_tokens":101,"#), seen("max_completion_tokens", 100)),
        ("sk-lower", with(r#""n":4,"#), seen("max_completion_tokens", 25)),
        ("sk-lower", with(r#""n":4,"max_tokens":20,"#), seen("max_tokens", 20)),
        ("sk-lower", with(r#""n":101,"#), Err(Reason::OutputTokens)),
        ("sk-lower", long.clone(), Err(Reason::InputTokens)),
        ("sk-refuse", with(r#""max_tokens":101,"#), Err(Reason::OutputTokens)),
        ("sk-refuse", with(r#""n":2,"max_tokens":51,"#), Err(Reason::OutputTokens)),
        ("sk-refuse", with(r#""n":2,"max_tokens":50,"#), seen("max_tokens", 50)),
        ("sk-refuse", with(""), seen("max_completion_tokens", 100)),
        ("sk-free", with(r#""max_tokens":4000,"#), seen("max_tokens", 4_000)),
        ("sk-free", long, seen("n", 0)),
    ] {
        let before = replica.seen().len();
        let (status, headers, text) =
            whole(client.send(with_key(post(CHAT, sent.clone()), key)).await).await;
        match expected {
            Ok((field, tokens)) => {
                assert_eq!(status, 200, "{sent}: {text}");
                let body = at_replica(&replica);
                assert_eq!(body[field].as_u64().unwrap_or(0), tokens, "{sent}: {body}");
                assert_eq!(body["messages"][0]["role"], "user", "the rest is as it was");
            }
            Err(reason) => {
                assert_eq!(status, 400, "{sent}");
                assert_eq!(headers["x-weir-reason"], reason.as_str(), "{sent}");
                assert_eq!(headers["x-weir-unit"], "tokens", "{sent}");
                assert_eq!(replica.seen().len(), before, "{sent} reached the replica");
            }
        }
    }
}

#[tokio::test]
async fn nobody_steers_the_engine_or_shares_a_cache_unasked() {
    let replica = answering().await;
    let listed = tenants(&[
        ("a", "sk-a", ""),
        ("b", "sk-b", "priority = 2"),
        ("c", "sk-c", "isolation = \"team\""),
        ("d", "sk-d", "isolation = \"team\""),
        ("e", "sk-e", "isolation = \"shared\""),
    ]);
    let gateway = Gateway::start(&[&replica], "", &listed);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut seen = async |key: &str, fields: &str| {
        let sent = body("tiny").replace("{\"model", &format!("{{{fields}\"model"));
        assert_eq!(whole(client.send(with_key(post(CHAT, sent), key)).await).await.0, 200);
        at_replica(&replica)
    };
    let steering = r#""kv_transfer_params":{"a":1},"ec_transfer_params":{},"vllm_xargs":{"x":1},"request_id":"x","priority":-7,"#;
    let body = seen("sk-a", steering).await;
    for gone in ["kv_transfer_params", "ec_transfer_params", "vllm_xargs", "request_id", "priority"]
    {
        assert!(body.get(gone).is_none(), "{gone} in {body}");
    }
    assert_eq!(seen("sk-b", steering).await["priority"], 2);
    assert_eq!(seen("sk-b", r#""priority":9,"#).await["priority"], 9);
    assert!(seen("sk-b", "").await.get("priority").is_none());

    let mut salt = async |key: &str, fields: &str| {
        seen(key, fields).await["cache_salt"].as_str().map(str::to_owned)
    };
    let own = salt("sk-a", "").await.unwrap();
    assert_eq!(salt("sk-a", "").await.as_ref(), Some(&own));
    let stolen = salt("sk-b", &format!("\"cache_salt\":\"{own}\",")).await.unwrap();
    assert_ne!(stolen, own, "another's salt opens nothing");
    assert_ne!(salt("sk-b", "").await.unwrap(), own);
    assert_eq!(salt("sk-c", "").await, salt("sk-d", "").await, "a group is one");
    assert_ne!(salt("sk-c", r#""cache_salt":"x","#).await, salt("sk-c", "").await);
    assert_eq!(salt("sk-e", "").await, None);
    let stolen = salt("sk-e", &format!("\"cache_salt\":\"{own}\",")).await.unwrap();
    assert_ne!(stolen, own, "nor does it from there");
}
