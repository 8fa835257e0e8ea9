//! A client that goes away frees its slot and its engine, wherever its request stands.

use std::sync::Arc;

use tokio::sync::Notify;
use weir::domain::Outcome;

use crate::relay::request;
use crate::rig::{Client, FOREVER, Gateway, Kind, Replica, Stream, frames, script, until};

const CHAT: &str = include_str!("../recorded/chat-stream.sse");
const PATH: &str = "/v1/chat/completions";

/// What the replica does before it waits for the gateway to hang up.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    NoHead,
    HeadOnly,
    MidStream,
}

/// A replica that gets as far as that, and tells when its connection is closed.
async fn replica(phase: Phase) -> (Replica, Arc<Notify>) {
    let closed = Arc::new(Notify::new());
    let tell = Arc::clone(&closed);
    let replica = Replica::start(script(move |_, mut wire| {
        let tell = Arc::clone(&tell);
        async move {
            if phase != Phase::NoHead {
                wire.stream_head().await;
            }
            if phase == Phase::MidStream {
                wire.chunk(frames(CHAT)[..3].concat().as_bytes()).await;
            }
            wire.closed().await;
            tell.notify_one();
            None
        }
    }))
    .await;
    (replica, closed)
}

async fn closes(closed: &Notify) {
    tokio::time::timeout(FOREVER, closed.notified()).await.expect("the replica was hung up on");
}

#[tokio::test]
async fn at_every_phase_and_over_every_protocol_the_engine_is_let_go() {
    for kind in Kind::ALL {
        for phase in [Phase::NoHead, Phase::HeadOnly, Phase::MidStream] {
            let (replica, closed) = replica(phase).await;
            let gateway = Gateway::serve(&[&replica], "", "", kind.tls());
            let mut client = Client::connect(&gateway, kind).await;
            if phase == Phase::MidStream {
                let mut stream = Stream::of(client.post(PATH, request(PATH, "")).await);
                stream.until(frames(CHAT)[..3].concat().len()).await;
                drop(stream);
            } else {
                let call = client.post(PATH, request(PATH, ""));
                tokio::select! {
                    _ = call => panic!("no answer can have come"),
                    () = until("the request at the replica", || !replica.seen().is_empty()) => {}
                }
            }
            drop(client);
            closes(&closed).await;
            let record = gateway.ended(1).await.remove(0);
            assert_eq!(record.outcome, Outcome::Cancelled, "{kind:?} {phase:?}");
            assert_eq!(record.ttft.is_some(), phase == Phase::MidStream);
            gateway.idle().await;
        }
    }
}

#[tokio::test]
async fn a_unary_call_lets_the_engine_go_too() {
    let (replica, closed) = replica(Phase::NoHead).await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let body = r#"{"model":"tiny","input":"one"}"#;
    tokio::select! {
        _ = client.post("/v1/embeddings", body) => panic!("no answer can have come"),
        () = until("the request at the replica", || !replica.seen().is_empty()) => {}
    }
    drop(client);
    closes(&closed).await;
    assert_eq!(gateway.ended(1).await[0].outcome, Outcome::Cancelled);
    gateway.idle().await;
}

#[tokio::test]
async fn a_request_that_waits_leaves_the_queue_and_never_reaches_a_replica() {
    let (replica, closed) = replica(Phase::MidStream).await;
    let limits = "[pools.limits]\nin_flight = 1\nqueue_wait = \"10s\"\n[pools.slo]\nttft = \"30s\"";
    let gateway = Gateway::start(&[&replica], "", limits);
    let mut first = Client::connect(&gateway, Kind::H1).await;
    let mut stream = Stream::of(first.post(PATH, request(PATH, "")).await);
    stream.until(1).await;
    let mut second = Client::connect(&gateway, Kind::H1).await;
    tokio::select! {
        _ = second.post(PATH, request(PATH, "")) => panic!("no answer can have come"),
        () = until("one in the queue", || gateway.proxy.snapshots()[0].gate.queue.waiting == 1) => {}
    }
    drop(second);
    until("an empty queue", || gateway.proxy.snapshots()[0].gate.queue.waiting == 0).await;
    assert_eq!(gateway.ended(1).await[0].outcome, Outcome::Cancelled);
    assert_eq!(replica.seen().len(), 1);
    drop((stream, first));
    closes(&closed).await;
    gateway.ended(2).await;
    gateway.idle().await;
}

#[tokio::test]
async fn a_client_that_closes_on_the_last_word_has_not_cancelled() {
    let replica = Replica::start(script(|_, mut wire| async move {
        wire.stream_head().await;
        wire.chunk(CHAT.as_bytes()).await;
        // The end of the chunked body never comes.
        wire.closed().await;
        None
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut stream = Stream::of(client.post(PATH, request(PATH, "")).await);
    stream.until(CHAT.len()).await;
    // The slot is free on the engine's last word, before the connection says so.
    until("a free slot", || gateway.proxy.snapshots()[0].gate.in_flight == 0).await;
    drop((stream, client));
    assert_eq!(gateway.ended(1).await[0].outcome, Outcome::Completed);
    gateway.idle().await;
}
