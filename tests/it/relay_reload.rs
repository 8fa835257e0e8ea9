//! A new configuration while requests run: nothing is cut, and everything new goes by it.

use std::sync::Arc;

use tokio::sync::Notify;
use weir::domain::Outcome;

use crate::relay::request;
use crate::rig::{Client, Gateway, Kind, Replica, Stream, config, frames, script, until};

const CHAT: &str = include_str!("../recorded/chat-stream.sse");
const PATH: &str = "/v1/chat/completions";

/// Sends the first frames, and the rest when told to.
async fn in_two_parts() -> (Replica, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let replica = Replica::start(script(move |_, mut wire| {
        let told = Arc::clone(&told);
        async move {
            let frames = frames(CHAT);
            wire.stream_head().await;
            wire.chunk(frames[..3].concat().as_bytes()).await;
            told.notified().await;
            wire.chunk(frames[3..].concat().as_bytes()).await;
            wire.end().await
        }
    }))
    .await;
    (replica, go)
}

#[tokio::test]
async fn a_reload_in_mid_stream_cuts_nothing_and_moves_everything_new() {
    let ((old, go), (new, go_new)) = (in_two_parts().await, in_two_parts().await);
    let gateway = Gateway::start(&[&old], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut running = Stream::of(client.post(PATH, request(PATH, "")).await);
    running.until(1).await;

    gateway.proxy.apply(config(&[&new], "", ""));
    let mut other = Client::connect(&gateway, Kind::H1).await;
    let mut moved = Stream::of(other.post(PATH, request(PATH, "")).await);
    moved.until(1).await;
    assert_eq!((old.seen().len(), new.seen().len()), (1, 1), "what is new goes to the new list");
    assert_eq!(gateway.proxy.snapshots()[0].gate.in_flight, 2, "both are still counted");

    go.notify_one();
    go_new.notify_one();
    assert_eq!((running.end().await, moved.end().await), (CHAT.to_owned(), CHAT.to_owned()));
    let records = gateway.ended(2).await;
    assert!(records.iter().all(|record| record.outcome == Outcome::Completed));
    gateway.idle().await;
}

#[tokio::test]
async fn a_request_that_waits_is_served_by_the_replica_that_a_reload_brings() {
    let ((old, go), (new, go_new)) = (in_two_parts().await, in_two_parts().await);
    let full = "slo = { ttft = \"60s\" }\n\
                [pools.limits]\nin_flight = 1\nqueue_wait = \"20s\"";
    let gateway = Gateway::start(&[&old], "", full);
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut running = Stream::of(client.post(PATH, request(PATH, "")).await);
    running.until(1).await;
    let mut other = Client::connect(&gateway, Kind::H1).await;
    let reload = async {
        until("one in the queue", || gateway.proxy.snapshots()[0].gate.queue.waiting == 1).await;
        gateway.proxy.apply(config(&[&old, &new], "", full));
    };
    let (response, ()) = tokio::join!(other.post(PATH, request(PATH, "")), reload);
    assert_eq!(response.status(), 200);
    assert_eq!(new.seen().len(), 1);
    go_new.notify_one();
    assert_eq!(Stream::of(response).end().await, CHAT);
    go.notify_one();
    assert_eq!(running.end().await, CHAT);
    gateway.ended(2).await;
    gateway.idle().await;
}

#[tokio::test]
async fn a_model_that_a_reload_takes_away_is_unknown_and_its_streams_end_in_peace() {
    let (old, go) = in_two_parts().await;
    let gateway = Gateway::start(&[&old], "", "");
    let mut client = Client::connect(&gateway, Kind::H1).await;
    let mut running = Stream::of(client.post(PATH, request(PATH, "")).await);
    running.until(1).await;
    let renamed = config(&[&old], "", "").pools[0].clone();
    let mut gone = (*config(&[&old], "", "")).clone();
    let mut pool = (*renamed).clone();
    pool.model = "other".into();
    gone.pools = vec![Arc::new(pool)];
    gateway.proxy.apply(Arc::new(gone));
    let mut other = Client::connect(&gateway, Kind::H1).await;
    let (status, headers, _) = other.whole(PATH, request(PATH, "")).await;
    let reason = headers["x-weir-reason"].as_bytes();
    assert_eq!((status.as_u16(), reason), (404, &b"unknown_model"[..]));
    go.notify_one();
    assert_eq!(running.end().await, CHAT);
    gateway.ended(2).await;
}
