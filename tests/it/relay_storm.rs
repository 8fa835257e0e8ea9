//! Everything at once: clients that come and go, replicas that fail in every way, a queue that
//! overflows. Each request has one record, and nothing is held when the last is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir::domain::{Outcome, Reason, RequestRecord};

use crate::relay::request;
use crate::rig::{Client, Gateway, Kind, Replica, Stream, Wire, frames, script, spawn, until};

const CHAT: &str = include_str!("../recorded/chat-stream.sse");
const PATH: &str = "/v1/chat/completions";
const CLIENTS: u64 = 60;
const REQUESTS: u64 = 8;

/// Spreads a number over all bits (`SplitMix64`'s finaliser): the storm's only randomness, so
/// that a seed is a storm.
fn mix(seed: u64) -> u64 {
    let a = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ (b >> 31)
}

/// One of the ways in which replicas answer; most are good ones.
async fn answer(mut wire: Wire, way: u64) -> Option<Wire> {
    let pause = || tokio::time::sleep(Duration::from_millis(way % 7));
    match way % 16 {
        0 => return wire.reset(),
        1 => return None,
        2 => return wire.hang().await,
        3 => return wire.whole("503 Service Unavailable", b"{}").await,
        4 => return wire.whole("500 Internal Server Error", b"no JSON").await,
        5 => return wire.whole("400 Bad Request", b"{\"error\":\"bad\"}").await,
        6 => return wire.whole("200 OK", include_bytes!("../recorded/chat.json")).await,
        _ => wire.stream_head().await,
    }
    pause().await;
    for (at, frame) in frames(CHAT).into_iter().enumerate() {
        wire.chunk(frame.as_bytes()).await;
        match (way % 16, at) {
            (7, 2) => return wire.reset(),
            (8, 3) => return wire.hang().await,
            (9, 3) => return wire.end().await,
            _ => pause().await,
        }
    }
    wire.end().await
}

/// One client's requests, some of which it does not wait for.
async fn client(gateway: &Gateway, seed: u64) {
    for number in 0..REQUESTS {
        let whim = mix(seed * 1000 + number);
        let kind = if whim & 1 == 0 { Kind::H1 } else { Kind::H2 };
        let mut client = Client::connect(gateway, kind).await;
        let body = request(PATH, &format!(r#","seed":{}"#, whim % 100_000));
        let patience = Duration::from_millis(whim % 300);
        let whole = async {
            let response = client.post(PATH, body).await;
            let mut stream = Stream::of(response);
            while stream.more().await.unwrap_or(false) {}
        };
        if whim.is_multiple_of(3) {
            let _gone = tokio::time::timeout(patience, whole).await;
        } else {
            whole.await;
        }
    }
}

/// The storm, over; with a drain and its deadline in the middle of it, or without.
async fn storm(drained: bool) -> Vec<RequestRecord> {
    let attempts = Arc::new(AtomicU64::new(0));
    let any_way = script(move |seen, wire| {
        let seed = seen.json()["seed"].as_u64().unwrap();
        // A retry goes another way than the attempt before it.
        let way = mix(seed ^ (attempts.fetch_add(1, Ordering::Relaxed) << 32));
        async move { answer(wire, way).await }
    });
    let one = Replica::start(Arc::clone(&any_way)).await;
    let two = Replica::start(any_way).await;
    let timeouts = "[timeouts]\nfirst_byte = \"300ms\"\nhead_hold = \"100ms\"\n\
                    between_frames = \"300ms\"\ntotal = \"3s\"\nconnect = \"200ms\"";
    let pool = "[pools.limits]\nin_flight = 8\nqueue_wait = \"200ms\"\nqueue_count = 20\n\
                [pools.slo]\nttft = \"1s\"";
    let gateway = Arc::new(Gateway::start(&[&one, &two], timeouts, pool));
    let mut clients = Vec::new();
    for seed in 0..CLIENTS {
        let gateway = Arc::clone(&gateway);
        clients.push(spawn(async move { client(&gateway, seed).await }));
    }
    if drained {
        until("a storm", || gateway.records().len() > 100 && gateway.proxy.streams() > 0).await;
        gateway.proxy.drain();
        until("refusals", || {
            gateway.records().iter().any(|r| r.outcome == Outcome::Rejected(Reason::Draining))
        })
        .await;
        gateway.proxy.cut_all();
    }
    for client in clients {
        client.await.unwrap();
    }
    gateway.proxy.drained().await;
    gateway.idle().await;
    gateway.records()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_storm_every_request_has_its_record_and_nothing_is_held() {
    for drained in [false, true] {
        let records = storm(drained).await;
        let count = usize::try_from(CLIENTS * REQUESTS).unwrap();
        // A client that leaves in time has sent nothing and leaves no record.
        assert!((count / 2..=count).contains(&records.len()), "{}", records.len());
        let of = |word| records.iter().filter(|record| record.outcome.as_str() == word).count();
        let each = Outcome::WORDS.map(of);
        assert_eq!(each.iter().sum::<usize>(), records.len(), "{each:?}");
        // One that is drained early may have completed nothing yet.
        let some = of("completed") > 0 || drained;
        assert!(some && of("failed") > 0 && of("cancelled") > 0, "{drained}: {each:?}");
    }
}
