//! Bad input: each kind its own status and reason, nothing of it at a replica, nothing panics.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::relay::request;
use crate::rig::{Client, FOREVER, Gateway, Kind, Replica, script};

const CHAT: &str = "/v1/chat/completions";

async fn answering() -> Replica {
    Replica::start(script(|_, wire| async move {
        wire.whole("200 OK", include_bytes!("../recorded/chat.json")).await
    }))
    .await
}

fn chat_with(field: &str) -> String {
    format!(r#"{{"model":"tiny","messages":[{{"role":"user","content":"one"}}],{field}}}"#)
}

#[tokio::test]
async fn each_fault_of_a_body_has_its_own_status_and_reason() {
    let replica = answering().await;
    let limits = "[server.limits]\nmax_body_bytes = \"64KiB\"";
    let gateway = Gateway::start(&[&replica], limits, "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let long = chat_with(&format!(r#""x":"{}""#, "a".repeat(70_000)));
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("no JSON", b"{\"model\":".to_vec(), 400, "malformed"),
        ("nothing", Vec::new(), 400, "malformed"),
        ("a list", b"[]".to_vec(), 400, "malformed"),
        ("no UTF-8", b"{\"model\":\"ti\xffny\",\"messages\":[]}".to_vec(), 400, "malformed"),
        ("no model", br#"{"messages":[]}"#.to_vec(), 400, "malformed"),
        ("a number as model", br#"{"model":7,"messages":[]}"#.to_vec(), 400, "malformed"),
        ("an unknown model", br#"{"model":"x","messages":[]}"#.to_vec(), 404, "unknown_model"),
        ("max_tokens -1", chat_with(r#""max_tokens":-1"#).into_bytes(), 400, "output_tokens"),
        ("max_tokens 1e30", chat_with(r#""max_tokens":1e30"#).into_bytes(), 400, "output_tokens"),
        ("max_tokens text", chat_with(r#""max_tokens":"x""#).into_bytes(), 400, "output_tokens"),
        ("too long", long.into_bytes(), 413, "body"),
    ];
    let count = cases.len();
    for (what, body, status, reason) in cases {
        let (seen, headers, answer) = client.whole(CHAT, body).await;
        assert_eq!(seen.as_u16(), status, "{what}");
        assert_eq!(headers["x-weir-reason"], reason, "{what}");
        assert!(headers.contains_key("x-request-id"), "{what}");
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["error"]["reason"], reason, "{what}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{what}: {answer}");
    }
    gateway.ended(count).await;
    assert!(replica.seen().is_empty(), "nothing reached the replica");
    let (status, ..) = client.whole(CHAT, chat_with(r#""max_tokens":8"#)).await;
    assert_eq!(status, 200, "and the connection is as good as new");
    gateway.idle().await;
}

#[tokio::test]
async fn paths_and_methods_off_the_list_do_not_exist() {
    let replica = answering().await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    for path in [
        "/invocations",
        "/metrics",
        "/load",
        "/sleep",
        "/collective_rpc",
        "/v1/responses/resp_1",
        "/v1/chat/completions/",
        "/v1//chat/completions",
        "/v1/%63hat/completions",
        "/tokenize",
    ] {
        let (status, headers, _) = client.whole(path, request(CHAT, "")).await;
        assert_eq!(status, 404, "{path}");
        assert_eq!(headers["x-weir-reason"], "unknown_path", "{path}");
    }
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let wrong = Request::builder()
            .method(method)
            .uri(format!("http://localhost{CHAT}"))
            .header("host", "localhost")
            .body(Full::<Bytes>::default())
            .unwrap();
        assert_eq!(client.send(wrong).await.status(), 404, "{method}");
    }
    assert!(replica.seen().is_empty());
}

#[tokio::test]
async fn ten_thousand_names_and_paths_leave_no_trace_but_their_records() {
    let replica = answering().await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let count = 10_000;
    for number in 0..count / 2 {
        let (status, ..) = client.whole(&format!("/v1/{number}"), "{}").await;
        assert_eq!(status, 404);
        let body = format!(r#"{{"model":"model-{number}","messages":[]}}"#);
        let (status, ..) = client.whole(CHAT, body).await;
        assert_eq!(status, 404);
    }
    for record in gateway.ended(count).await {
        assert_eq!(record.pool, None, "no stranger's word becomes a label");
    }
    assert!(replica.seen().is_empty());
}

#[tokio::test]
async fn nonsense_in_our_own_header_is_refused_and_in_that_of_a_library_ignored() {
    let replica = answering().await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    for (name, value, status) in [
        ("x-slo-ttft-ms", "-1", 400),
        ("x-slo-ttft-ms", "NaN", 400),
        ("x-slo-ttft-ms", "99999999999999999999999999", 400),
        ("x-slo-ttft-ms", "5000", 200),
        ("x-stainless-retry-count", "-7", 200),
        ("x-stainless-retry-count", "1e400", 200),
        ("x-stainless-read-timeout", "soon", 200),
    ] {
        let mut call = crate::rig::post(CHAT, chat_with(r#""n":1"#));
        call.headers_mut().insert(name, value.parse().unwrap());
        let answer = client.send(call).await;
        assert_eq!(answer.status(), status, "{name}: {value}");
        let _end = crate::rig::Stream::of(answer).end().await;
    }
}

/// Sends bytes on a bare socket and reads whatever comes until the gateway closes.
async fn bare(gateway: &Gateway, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut seen = Vec::new();
    let _closed = tokio::time::timeout(FOREVER, stream.read_to_end(&mut seen)).await.unwrap();
    String::from_utf8_lossy(&seen).into_owned()
}

#[tokio::test]
async fn broken_framing_reaches_no_replica() {
    let replica = answering().await;
    let gateway = Gateway::start(&[&replica], "", "");
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n");
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    for broken in ["zz\r\n{}\r\n0\r\n\r\n", "5\r\n{\"a\":1}\r\n0\r\n\r\n", "-1\r\n\r\n"] {
        let seen = bare(&gateway, format!("{chunked}{broken}").as_bytes()).await;
        assert!(seen.starts_with("HTTP/1.1 400"), "{broken:?}: {seen}");
        assert!(seen.contains("x-weir-reason: malformed"), "{broken:?}: {seen}");
    }
    for length in ["-1", "1e3", "99999999999999999999999", "3\r\ncontent-length: 5"] {
        let text = format!("{head}content-length: {length}\r\n\r\n{{}}");
        let seen = bare(&gateway, text.as_bytes()).await;
        assert!(seen.starts_with("HTTP/1.1 400"), "{length}: {seen}");
        assert!(seen.contains("x-weir-reason: malformed"), "{length}: {seen}");
    }
    assert!(replica.seen().is_empty());
    gateway.idle().await;
}

#[tokio::test]
async fn a_flood_of_headers_is_431_and_reaches_no_replica() {
    let replica = answering().await;
    let gateway = Gateway::start(&[&replica], "", "");
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n");
    let many = "x-many: y\r\n".repeat(200);
    for flood in [many, format!("x: {}\r\n", "y".repeat(100_000))] {
        let seen = bare(&gateway, format!("{head}{flood}\r\n").as_bytes()).await;
        assert!(seen.starts_with("HTTP/1.1 431"), "{seen}");
        assert!(seen.contains("x-weir-reason: headers"), "{seen}");
    }
    assert!(replica.seen().is_empty());
}

#[tokio::test]
async fn two_framings_of_one_body_smuggle_nothing() {
    let replica = answering().await;
    let gateway = Gateway::start(&[&replica], "", "");
    let body = chat_with(r#""n":1"#);
    let inner = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}");
    let text = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\
         \r\n{:x}\r\n{body}\r\n0\r\n\r\n{inner}",
        body.len()
    );
    let seen = bare(&gateway, text.as_bytes()).await;
    assert!(seen.starts_with("HTTP/1.1 400"), "{seen}");
    assert!(seen.contains("x-weir-reason: malformed"), "{seen}");
    assert_eq!(seen.matches("HTTP/1.1 ").count(), 1, "{seen}");
    assert!(replica.seen().is_empty());
}

#[tokio::test]
async fn a_body_that_creeps_is_given_up() {
    let replica = answering().await;
    let gateway = Gateway::start(&[&replica], "[server.limits]\nbody_timeout = \"150ms\"", "");
    let text = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{{");
    let seen = bare(&gateway, text.as_bytes()).await;
    assert!(seen.starts_with("HTTP/1.1 408"), "{seen}");
    assert!(seen.contains("x-weir-reason: slow_request"), "{seen}");
    assert!(replica.seen().is_empty());
    gateway.idle().await;
}

#[tokio::test]
async fn bodies_together_have_a_bound() {
    let replica = answering().await;
    let limits = "[server.limits]\nmax_body_bytes = \"64KiB\"\nmax_buffered_bytes = \"64KiB\"";
    let gateway = Gateway::start(&[&replica], limits, "");
    let mut holding = TcpStream::connect(gateway.address).await.unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n");
    holding.write_all(head.as_bytes()).await.unwrap();
    holding.write_all(&vec![b' '; 50_000]).await.unwrap();
    crate::rig::until("bytes held", || gateway.proxy.held_bytes() == 50_000).await;
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let long = chat_with(&format!(r#""x":"{}""#, "a".repeat(30_000)));
    let (status, headers, _) = client.whole(CHAT, long).await;
    assert_eq!((status.as_u16(), headers["x-weir-reason"].as_bytes()), (503, &b"overloaded"[..]));
    let (status, ..) = client.whole(CHAT, chat_with(r#""n":1"#)).await;
    assert_eq!(status, 200, "a small one still fits");
    drop(holding);
    gateway.idle().await;
}

#[tokio::test]
async fn what_would_steer_the_engine_or_carries_a_key_ends_here() {
    let replica = answering().await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let body = chat_with(r#""priority":-100,"kv_transfer_params":{"a":[1]},"user":"u""#);
    let mut call = crate::rig::post(CHAT, body);
    for (name, value) in [
        ("authorization", "Bearer secret"),
        ("x-api-key", "secret"),
        ("x-vllm-priority", "1"),
        ("x-data-parallel-rank", "1"),
        ("accept-encoding", "gzip"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-request-id", "mine-7"),
    ] {
        call.headers_mut().insert(name, value.parse().unwrap());
    }
    let answer = client.send(call).await;
    assert_eq!(answer.headers()["x-request-id"], "mine-7");
    let _end = crate::rig::Stream::of(answer).end().await;
    let seen = replica.seen().remove(0);
    let lower = seen.head.to_ascii_lowercase();
    for gone in ["secret", "x-vllm", "x-data-parallel", "accept-encoding", "localhost"] {
        assert!(!lower.contains(gone), "{gone} went on:\n{lower}");
    }
    assert_eq!(seen.header("host"), Some(replica.address.to_string().as_str()));
    assert_eq!(seen.header("x-request-id"), Some("mine-7"));
    assert!(seen.header("traceparent").is_some());
    let sent = seen.json();
    assert!(sent.get("priority").is_none() && sent.get("kv_transfer_params").is_none());
    assert_eq!(sent["user"], "u");
}

#[tokio::test]
async fn background_work_is_refused() {
    let replica = answering().await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let body = r#"{"model":"tiny","input":"one","background":true}"#;
    let (status, ..) = client.whole("/v1/responses", body).await;
    assert_eq!(status, 400);
    assert!(replica.seen().is_empty());
}
