//! Clients that do not read: their engine is let go, their memory is bounded, they are cut with
//! their reason, and nobody beside them notices.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use weir::domain::{Outcome, Reason};

use crate::relay::request;
use crate::rig::{Client, FOREVER, Gateway, Kind, Replica, Stream, script, spawn, until};

const CHAT: &str = "/v1/chat/completions";
/// The bound on what is read ahead of one client, bytes.
const AHEAD: usize = 64 * 1024;
const STALL: &str = "[timeouts]\nclient_stall = \"400ms\"";

fn filler(bytes: usize) -> Arc<str> {
    let text = "x".repeat(bytes);
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
        .into()
}

/// As many frames as `max_tokens` says, then the end; 8 stands for no end at all.
async fn replica() -> Replica {
    let filler = filler(4000);
    Replica::start(script(move |seen, mut wire| {
        let filler = Arc::clone(&filler);
        async move {
            let most = seen.json()["max_tokens"].as_u64().unwrap();
            wire.stream_head().await;
            let mut sent = 0;
            while most == 8 || sent < most {
                if !wire.chunk(filler.as_bytes()).await {
                    return None;
                }
                sent += 1;
            }
            wire.chunk(b"data: [DONE]\n\n").await;
            wire.end().await
        }
    }))
    .await
}

fn frames(count: u64) -> String {
    request(CHAT, "").replace("\"max_tokens\":8", &format!("\"max_tokens\":{count}"))
}

/// A client that sends its request and then reads nothing, with a small window.
async fn mute(gateway: &Gateway, body: &str) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(gateway.address).await.unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn clients_that_do_not_read_are_cut_and_the_brisk_beside_them_are_not() {
    let replica = replica().await;
    let gateway = Gateway::start(&[&replica], STALL, "");
    let mut stalled = Vec::new();
    for _ in 0..20 {
        stalled.push(mute(&gateway, &frames(8)).await);
    }
    let mut client = Client::connect(&gateway, Kind::H1).await;
    for _ in 0..20 {
        let text = Stream::of(client.post(CHAT, frames(20)).await).end().await;
        assert!(text.ends_with("data: [DONE]\n\n"), "a brisk client is not harmed");
    }
    let records = gateway.ended(40).await;
    let cut = records.iter().filter(|r| r.outcome == Outcome::Failed(Reason::ClientStall)).count();
    let whole = records.iter().filter(|r| r.outcome == Outcome::Completed).count();
    assert_eq!((cut, whole), (20, 20));
    gateway.idle().await;
    for mut stream in stalled {
        let mut rest = Vec::new();
        let end = tokio::time::timeout(FOREVER, stream.read_to_end(&mut rest)).await.unwrap();
        let clean = end.is_ok() && rest.ends_with(b"0\r\n\r\n");
        assert!(!clean, "a cut stream must not look whole");
    }
}

#[tokio::test]
async fn what_is_read_ahead_is_bounded() {
    let replica = replica().await;
    let gateway = Gateway::start(&[&replica], "", "");
    let silent = mute(&gateway, &frames(8)).await;
    until("a full read-ahead", || gateway.proxy.ahead_bytes() >= AHEAD).await;
    assert!(gateway.proxy.ahead_bytes() < 2 * AHEAD, "one read past the bound at most");
    assert_eq!(gateway.proxy.snapshots()[0].gate.in_flight, 1, "an endless one keeps its slot");
    drop(silent);
    gateway.ended(1).await;
    gateway.idle().await;
    assert_eq!(gateway.proxy.ahead_bytes(), 0);
}

#[tokio::test]
async fn the_engines_end_frees_the_slot_although_its_client_has_not_read_it() {
    let (more, asked) = mpsc::channel::<()>(1);
    let asked = Arc::new(Mutex::new(asked));
    let replica = Replica::start(script(move |_, mut wire| {
        let asked = Arc::clone(&asked);
        async move {
            // Small, so that what comes before the first look at it fits into the read-ahead.
            let frame = filler(200);
            wire.stream_head().await;
            while asked.lock().await.recv().await.is_some() {
                wire.chunk(frame.as_bytes()).await;
            }
            wire.chunk(b"data: [DONE]\n\n").await;
            wire.end().await
        }
    }))
    .await;
    let gateway = Gateway::start(&[&replica], "", "");
    let silent = mute(&gateway, &frames(8)).await;
    // More than one frame: the first stands there for a moment while the head is released.
    while gateway.proxy.ahead_bytes() < 1000 {
        more.send(()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(more);
    until("a free slot", || gateway.proxy.snapshots()[0].gate.in_flight == 0).await;
    assert_eq!(gateway.proxy.alive(), 1, "the client has not got it all");
    drop(silent);
    assert_eq!(gateway.ended(1).await[0].outcome, Outcome::Cancelled, "and never will");
    gateway.idle().await;
}

#[tokio::test]
async fn on_h2_only_the_stream_that_is_not_read_is_cut() {
    let replica = replica().await;
    let gateway = Gateway::start(&[&replica], STALL, "");
    let mut client = Client::connect(&gateway, Kind::H2).await;
    let stalled = client.post(CHAT, frames(8)).await;
    let record = gateway.ended(1).await.remove(0);
    assert_eq!(record.outcome, Outcome::Failed(Reason::ClientStall));
    assert_eq!(gateway.proxy.snapshots()[0].gate.in_flight, 0);
    assert_eq!(gateway.proxy.ahead_bytes(), 0, "what was read for it is given back");
    let text = Stream::of(client.post(CHAT, frames(2)).await).end().await;
    assert!(text.ends_with("data: [DONE]\n\n"), "its neighbour goes on");
    let mut stalled = Stream::of(stalled);
    let end = loop {
        match stalled.more().await {
            Ok(true) => {}
            other => break other,
        }
    };
    assert!(end.is_err(), "a cut stream must not look whole");
}

/// Resident memory of this process, bytes; replica, gateway and clients are all in it.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs 5,000 descriptors and half a minute"]
async fn a_thousand_clients_at_a_byte_a_second_cost_a_bounded_memory() {
    let replica = replica().await;
    let pool = "[pools.limits]\nin_flight = 1200\nqueue_count = 1200";
    // Long enough that none is cut before all have stalled, on a slow machine too.
    let stall = "[timeouts]\nclient_stall = \"24s\"";
    let gateway = Gateway::start(&[&replica], stall, pool);
    let before = resident();
    let mut creeping = Vec::new();
    for _ in 0..1000 {
        let mut stream = mute(&gateway, &frames(8)).await;
        creeping.push(spawn(async move {
            let mut byte = [0];
            while matches!(stream.read(&mut byte).await, Ok(1)) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }));
    }
    until("all of them stalled", || gateway.proxy.ahead_bytes() >= 1000 * AHEAD).await;
    let full = resident();
    let mut brisk = Vec::new();
    for _ in 0..100 {
        let mut client = Client::connect(&gateway, Kind::H1).await;
        brisk.push(spawn(
            async move { Stream::of(client.post(CHAT, frames(20)).await).end().await },
        ));
    }
    for client in brisk {
        assert!(client.await.unwrap().ends_with("data: [DONE]\n\n"));
    }
    tokio::time::sleep(Duration::from_secs(8)).await;
    let later = resident();
    assert!(later < full + full / 10, "memory is flat: {full} then {later}");
    assert!((full - before) / 1000 < 512 * 1024, "{} a reader", (full - before) / 1000);
    let records = gateway.ended(1100).await;
    let cut = records.iter().filter(|r| r.outcome == Outcome::Failed(Reason::ClientStall)).count();
    assert_eq!(cut, 1000);
    gateway.idle().await;
}
