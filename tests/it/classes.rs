//! Classes on the request's path, and sheds that say why: over real sockets, with a replica that
//! does as it is told.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use serde_json::Value;
use weir::domain::{ClassId, Outcome, Reason, Unit};
use weir::tenants::{KeyDigest, tenant_id};

use crate::relay::request;
use crate::rig::{Client, Gateway, Kind, Replica, Stream, Wire, post, script, spawn, until};

const CHAT: &str = include_str!("../recorded/chat-stream.sse");
const PATH: &str = "/v1/chat/completions";

const CLASSES: &str = r#"
[[classes]]
name = "agent"
slo = { ttft = "7s" }
match = { headers = { X-Workload = "agent", x-tier = "gold" } }

[[classes]]
name = "embed"
match = { endpoints = ["embeddings"] }

[[classes]]
name = "long"
match = { endpoints = ["chat_completions"], prompt_tokens = { min = 200 } }

[[classes]]
name = "tiny-completion"
match = { endpoints = ["completions"], prompt_bytes = { max = "2B" } }

[[classes]]
name = "any-completion"
match = { endpoints = ["completions"] }
"#;

async fn answer(path: String, mut wire: Wire) -> Option<Wire> {
    if path.contains("embeddings") {
        return wire.whole("200 OK", br#"{"data":[],"usage":{"prompt_tokens":1}}"#).await;
    }
    wire.stream_head().await;
    wire.chunk(CHAT.as_bytes()).await;
    wire.end().await
}

fn with(
    mut request: Request<Full<bytes::Bytes>>,
    headers: &[(&'static str, &'static str)],
) -> Request<Full<bytes::Bytes>> {
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn a_request_is_of_the_first_class_whose_conditions_all_hold() {
    let replica = Replica::start(script(|seen, wire| answer(seen.head, wire))).await;
    let gateway = Gateway::start(&[&replica], CLASSES, "slo = { ttft = \"20s\", e2e = \"30s\" }");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let long = "word ".repeat(160);
    let long = format!(
        r#"{{"model":"tiny","stream":true,"messages":[{{"role":"user","content":"{long}"}}]}}"#
    );
    let completion =
        |prompt: &str| format!(r#"{{"model":"tiny","stream":true,"prompt":{prompt}}}"#);
    let embedding = r#"{"model":"tiny","input":"text"}"#.to_owned();
    let (gold, free) = (("x-tier", "gold"), ("x-tier", "free"));
    let agent = ("x-workload", "agent");
    let ids = completion(&format!("[{}]", ["7"; 300].join(",")));
    let cases = [
        (PATH, request(PATH, ""), vec![], "default"),
        (PATH, request(PATH, ""), vec![agent, gold], "agent"),
        (PATH, request(PATH, ""), vec![agent, free], "default"),
        (PATH, request(PATH, ""), vec![agent], "default"),
        (PATH, request(PATH, ""), vec![("x-workload", "chat"), agent, gold], "agent"),
        (PATH, long.clone(), vec![], "long"),
        (PATH, long, vec![agent, gold], "agent"),
        ("/v1/embeddings", embedding, vec![], "embed"),
        ("/v1/completions", completion("\"hi\""), vec![], "tiny-completion"),
        ("/v1/completions", completion("\"hello\""), vec![], "any-completion"),
        ("/v1/completions", ids, vec![], "any-completion"),
    ];
    for (number, (path, body, headers, class)) in cases.into_iter().enumerate() {
        let response = client.send(with(post(path, body), &headers)).await;
        assert_eq!(response.status(), 200, "{class}");
        Stream::of(response).end().await;
        let record = gateway.ended(number + 1).await.pop().unwrap();
        assert_eq!(&*record.class, class, "{path} {headers:?}");
        // The class's own target where it has one, the pool's where not.
        let ttft = Duration::from_secs(if class == "agent" { 7 } else { 20 });
        assert_eq!(record.slo.ttft, Some(ttft), "{class}");
        assert_eq!(record.slo.e2e, Some(Duration::from_secs(30)), "{class}");
    }
    let seen = replica.seen();
    assert_eq!(seen[1].header("x-workload"), Some("agent"), "the client's headers go on");
    gateway.idle().await;
}

#[tokio::test]
async fn a_tenant_is_recognised_by_its_key_and_told_by_name() {
    let replica = Replica::start(script(|seen, wire| answer(seen.head, wire))).await;
    let digest = |key: &str| KeyDigest::of(key.as_bytes());
    let text = format!(
        "[[classes]]\nname = \"nights\"\nmatch = {{ tenants = [\"nightly\"] }}\n\
         [[tenants]]\nname = \"nightly\"\nkeys = [\"{}\"]\n\
         [[tenants]]\nname = \"search\"\nkeys = [\"{}\"]\n",
        digest("key-of-nightly"),
        digest("key-of-search"),
    );
    let gateway = Gateway::start(&[&replica], &text, "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    for (number, (key, tenant, class)) in
        [("key-of-nightly", "nightly", "nights"), ("key-of-search", "search", "default")]
            .into_iter()
            .enumerate()
    {
        let response =
            client.send(with(post(PATH, request(PATH, "")), &[("x-api-key", key)])).await;
        Stream::of(response).end().await;
        let record = gateway.ended(number + 1).await.pop().unwrap();
        assert_eq!((&*record.tenant, &*record.class), (tenant, class));
    }
    let parties = Arc::clone(&gateway.proxy.snapshots()[0].parties);
    assert_eq!(&*parties.tenant(tenant_id("nightly")), "nightly");
    gateway.idle().await;
}

#[tokio::test]
async fn a_shed_says_by_which_limit_and_to_whom_it_was() {
    let replica = Replica::start(script(|_, wire| wire.hang())).await;
    let pool = "slo = { ttft = \"20s\" }\nlimits = { in_flight = 1, queue_wait = \"60ms\" }";
    let gateway = Gateway::start(&[&replica], CLASSES, pool);
    let mut first = Client::connect(&gateway, Kind::H1).await;
    let running = spawn(async move { first.post(PATH, request(PATH, "")).await.status() });
    until("the slot is taken", || replica.seen().len() == 1).await;

    let mut client = Client::connect(&gateway, Kind::H1).await;
    let shed = with(post(PATH, request(PATH, "")), &[("x-workload", "agent"), ("x-tier", "gold")]);
    let response = client.send(shed).await;
    assert_eq!(response.status(), 503);
    let headers = response.headers().clone();
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let body: Value = serde_json::from_str(&Stream::of(response).end().await).unwrap();
    let error = &body["error"];
    assert_eq!((&*header("x-weir-reason"), &error["reason"]), ("queue_wait", &"queue_wait".into()));
    assert_eq!((&*header("x-weir-unit"), &error["unit"]), ("seconds", &"seconds".into()));
    assert_eq!((&*header("x-weir-limit"), &error["limit"]), ("0.06", &0.06.into()));
    let reading: f64 = header("x-weir-reading").parse().unwrap();
    assert!(reading >= 0.06 && error["reading"] == reading, "{error}");
    assert_eq!((&*header("x-weir-age"), &error["reading_age_seconds"]), ("0", &0.0.into()));
    let millis: f64 = header("retry-after-ms").parse().unwrap();
    let seconds = error["retry_after_seconds"].as_f64().unwrap();
    assert!((seconds * 1000.0 - millis).abs() <= 1.0, "{seconds} s and {millis} ms");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("0.06 s") && message.contains("Retry after"), "{message}");

    let record = gateway.records().pop().unwrap();
    assert_eq!(record.outcome, Outcome::Evicted(Reason::QueueWait));
    let rejection = record.rejection.unwrap();
    assert_eq!((rejection.unit, rejection.limit), (Some(Unit::Seconds), 0.06));
    let note = gateway.proxy.snapshots()[0].gate.sheds.last().copied().unwrap();
    assert_eq!((note.class, note.reason), (ClassId(1), Reason::QueueWait), "the gate knows it");
    assert_eq!(&*gateway.proxy.snapshots()[0].parties.class(note.class), "agent");
    running.abort();
}
