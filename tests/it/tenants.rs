//! Tenants on a real socket: who is let in, what each may do, and what a replica sees of it.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::Value;
use weir::domain::{Outcome, Reason};
use weir::tenants::KeyDigest;

use crate::rig::{Client, Gateway, Kind, Replica, Stream, config, frames, post, script};

const CHAT: &str = "/v1/chat/completions";
const STREAM: &str = include_str!("../recorded/chat-stream.sse");

async fn answering() -> Replica {
    Replica::start(script(|_, wire| async move {
        wire.whole("200 OK", include_bytes!("../recorded/chat.json")).await
    }))
    .await
}

/// Tenants by name, key and further keys of the file.
pub(crate) fn tenants(list: &[(&str, &str, &str)]) -> String {
    let mut text = String::new();
    for (name, key, rest) in list {
        let digest = KeyDigest::of(key.as_bytes());
        write!(text, "[[tenants]]\nname = \"{name}\"\nkeys = [\"{digest}\"]\n{rest}\n").unwrap();
    }
    text
}

pub(crate) fn body(model: &str) -> String {
    format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"one"}}]}}"#)
}

pub(crate) fn with_key(mut request: Request<Full<Bytes>>, key: &str) -> Request<Full<Bytes>> {
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    request
}

async fn whole(response: Response<Incoming>) -> (StatusCode, HeaderMap, String) {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn each_right_right_and_wrong_has_its_status_and_reason() {
    let replica = answering().await;
    let listed = tenants(&[
        ("all", "sk-all", ""),
        ("small", "sk-small", "models = [\"gpt-4\"]"),
        ("lists", "sk-lists", "routes = [\"models\"]"),
        ("blocked", "sk-blocked", "blocked = true"),
        ("past", "sk-past", "expires = \"2020-01-01\""),
        ("future", "sk-future", "expires = \"2999-01-01\""),
    ]);
    let gateway = Gateway::start(&[&replica], "", &listed);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let cases = [
        ("sk-all", CHAT, "tiny", None),
        ("sk-all", CHAT, "gpt-4", None),
        ("sk-all", CHAT, "large", Some(Reason::UnknownModel)),
        ("sk-all", "/invocations", "tiny", Some(Reason::UnknownPath)),
        ("sk-small", CHAT, "gpt-4", None),
        ("sk-small", CHAT, "tiny", Some(Reason::Model)),
        // Whether such a model exists is not for this tenant to learn.
        ("sk-small", CHAT, "large", Some(Reason::Model)),
        ("sk-lists", CHAT, "tiny", Some(Reason::Route)),
        ("sk-blocked", CHAT, "tiny", Some(Reason::Key)),
        ("sk-past", CHAT, "tiny", Some(Reason::Key)),
        ("sk-future", CHAT, "tiny", None),
        ("sk-nobody", CHAT, "tiny", Some(Reason::Key)),
        ("", CHAT, "tiny", Some(Reason::Key)),
        // A stranger does not learn what is on the list either.
        ("", "/invocations", "tiny", Some(Reason::UnknownPath)),
    ];
    let mut served = 0;
    for (key, path, model, refused) in cases {
        let answer = client.send(with_key(post(path, body(model)), key)).await;
        let (status, headers, text) = whole(answer).await;
        let expected = refused.map_or(200, Reason::status);
        assert_eq!(status.as_u16(), expected, "{key} {path} {model}: {text}");
        assert_eq!(headers.contains_key("www-authenticate"), expected == 401, "{key}");
        let Some(reason) = refused else {
            served += 1;
            continue;
        };
        assert_eq!(headers["x-weir-reason"], reason.as_str(), "{key} {path} {model}");
        let error: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(error["error"]["reason"], reason.as_str());
        assert!(!text.contains("sk-"), "{text}");
        assert!(headers.get("connection").is_none(), "the connection is as good as new");
    }
    assert_eq!(replica.seen().len(), served, "what was refused never reached the replica");
    let records = gateway.ended(cases.len()).await;
    for (record, (key, ..)) in records.iter().zip(cases) {
        let known = key.strip_prefix("sk-").filter(|name| *name != "nobody");
        let expected = known.unwrap_or("unknown");
        let off_the_list = record.endpoint.is_none();
        assert!(off_the_list || &*record.tenant == expected, "{key}: {}", record.tenant);
    }
    gateway.idle().await;
}

#[tokio::test]
async fn a_replica_gets_the_pools_key_and_nothing_of_the_clients() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    let replica = answering().await;
    std::fs::write(folder.path().join("key"), "sk-of-the-replica\n").unwrap();
    let text = format!(
        "[[pools]]\nmodel = \"tiny\"\nreplicas = [\"http://{}\"]\napi_key_file = \"key\"\n{}",
        replica.address,
        tenants(&[("a", "sk-of-the-client", "")])
    );
    std::fs::write(&file, text).unwrap();
    let sources = weir::reload::Loader::new(&file).fetch().unwrap();
    let gateway = Gateway::start(&[&replica], "", "");
    gateway.proxy.apply(std::sync::Arc::new(weir::config::load(&sources).unwrap()));
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut request = with_key(post(CHAT, body("tiny")), "sk-of-the-client");
    request.headers_mut().insert("x-api-key", "sk-of-the-client".parse().unwrap());
    assert_eq!(client.send(request).await.status(), 200);
    let seen = replica.seen();
    let request = seen.last().unwrap();
    assert_eq!(request.header("authorization"), Some("Bearer sk-of-the-replica"));
    let whole = format!("{}{}", request.head, String::from_utf8_lossy(&request.body));
    assert!(!whole.contains("sk-of-the-client"), "{whole}");
}

#[tokio::test]
async fn a_tenant_sees_the_models_that_it_may_name() {
    let replica = answering().await;
    let listed = tenants(&[
        ("all", "sk-all", ""),
        ("small", "sk-small", "models = [\"gpt-4\"]"),
        ("chats", "sk-chats", "routes = [\"chat_completions\"]"),
    ]);
    let gateway = Gateway::start(&[&replica], "", &listed);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut list = async |key: &str| {
        let request = Request::get("http://localhost/v1/models").header("host", "localhost");
        let request = request.body(Full::default()).unwrap();
        let (status, _, text) = whole(client.send(with_key(request, key)).await).await;
        let list: Value = serde_json::from_str(&text).unwrap();
        let names = list["data"].as_array().map(|data| {
            data.iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        });
        (status.as_u16(), names.unwrap_or_default())
    };
    assert_eq!(list("sk-all").await, (200, vec!["tiny".to_owned(), "gpt-4".to_owned()]));
    assert_eq!(list("sk-small").await, (200, vec!["gpt-4".to_owned()]));
    assert_eq!(list("sk-chats").await, (403, Vec::new()));
    assert_eq!(list("sk-nobody").await, (401, Vec::new()));
}

#[tokio::test]
async fn a_reload_changes_keys_and_cuts_no_stream() {
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let told = std::sync::Arc::clone(&go);
    let replica = Replica::start(script(move |_, mut wire| {
        let told = std::sync::Arc::clone(&told);
        async move {
            let frames = frames(STREAM);
            wire.stream_head().await;
            wire.chunk(frames[..3].concat().as_bytes()).await;
            told.notified().await;
            wire.chunk(frames[3..].concat().as_bytes()).await;
            wire.end().await
        }
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", &tenants(&[("a", "sk-old", "")]));
    let request = || post(CHAT, body("tiny").replace("{\"model", "{\"stream\":true,\"model"));
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut running = Stream::of(client.send(with_key(request(), "sk-old")).await);
    running.until(1).await;

    // The key is changed, and with the next reload the tenant is gone; its stream goes on.
    gateway.proxy.apply(config(&[&replica], "", &tenants(&[("a", "sk-new", "")])));
    let mut other = Client::connect(&gateway, Kind::H1).await;
    assert_eq!(other.send(with_key(request(), "sk-old")).await.status(), 401);
    let mut moved = Stream::of(other.send(with_key(request(), "sk-new")).await);
    moved.until(1).await;
    gateway.proxy.apply(config(&[&replica], "", &tenants(&[("b", "sk-b", "")])));
    let mut third = Client::connect(&gateway, Kind::H1).await;
    assert_eq!(third.send(with_key(request(), "sk-new")).await.status(), 401);
    go.notify_one();
    go.notify_one();
    assert!(running.end().await.ends_with("data: [DONE]\n\n"));
    go.notify_one();
    assert!(moved.end().await.ends_with("data: [DONE]\n\n"));
    let records = gateway.ended(4).await;
    let completed = records.iter().filter(|record| record.outcome == Outcome::Completed);
    assert!(completed.clone().all(|record| &*record.tenant == "a"), "{records:?}");
    assert_eq!(completed.count(), 2);
    gateway.idle().await;
}

#[tokio::test]
async fn a_refused_body_is_read_within_bounds_so_that_the_answer_is_seen() {
    let replica = answering().await;
    let gateway = Gateway::start(&[&replica], "", &tenants(&[("a", "sk-a", "")]));
    for kind in Kind::ALL.into_iter().filter(|kind| !kind.tls()) {
        let mut client = Client::connect(&gateway, kind).await;
        let large = vec![b' '; 600 * 1024];
        let (status, headers, _) = whole(client.send(post(CHAT, large)).await).await;
        assert_eq!((status.as_u16(), &headers["x-weir-reason"]), (401, &"key".parse().unwrap()));
    }
    assert!(replica.seen().is_empty());
}
