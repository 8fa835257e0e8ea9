//! What it does: aborts, caches, preempts, closes, and goes wrong as told.

use super::client::{Asked, Ended, chat, get, post, quick, request, sized, start};
use crate::replica::{Fault, FaultKind, NullStream, Options, RunningReplica};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CHAT: &str = "/v1/chat/completions";
const STREAM: &str = ",\"stream\":true";
/// More tokens than any test waits for.
const LONG: u32 = 20_000;

async fn open(replica: &RunningReplica) -> Asked {
    Asked::send(replica, "POST", CHAT, &chat(LONG, STREAM)).await
}

/// Waits until the replica's numbers are as they should be.
async fn until(replica: &RunningReplica, holds: impl Fn(&RunningReplica) -> bool) {
    while !holds(replica) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_client_that_goes_away_frees_the_engine() {
    let replica = start(quick()).await;
    let mut stream = open(&replica).await;
    stream.until("\"content\":\" ").await;
    let unary = Asked::send(&replica, "POST", CHAT, &chat(LONG, "")).await;
    until(&replica, |replica| replica.stats().running == 2).await;
    drop((stream, unary));
    until(&replica, |replica| replica.stats().running == 0).await;
    assert_eq!((replica.stats().aborted, replica.stats().finished), (2, 0));
}

#[tokio::test]
async fn headers_come_while_the_request_still_waits() {
    let replica = start(sized(1, 16_384)).await;
    let mut first = open(&replica).await;
    first.until("assistant").await;
    let mut second = open(&replica).await;
    second.until("\r\n\r\n").await;
    assert!(!second.got().contains("data:"));
    assert_eq!((replica.stats().running, replica.stats().waiting), (1, 1));
    drop(first);
    second.until("assistant").await;
}

#[tokio::test]
async fn a_prompt_seen_before_is_found() {
    let replica = start(quick()).await;
    let body = format!("{{\"prompt\":\"{}\",\"max_tokens\":1}}", "x".repeat(640));
    for _ in 0..2 {
        assert_eq!(post(&replica, "/v1/completions", &body).await.status, 200);
    }
    let page = get(&replica, "/metrics").await.body;
    let labels = "{engine=\"0\",model_name=\"tiny\"}";
    assert!(page.contains(&format!("vllm:prefix_cache_queries_total{labels} 320.0")), "{page}");
    // The last of the ten blocks is computed again, for its output.
    assert!(page.contains(&format!("vllm:prefix_cache_hits_total{labels} 144.0")), "{page}");
}

#[tokio::test]
async fn a_full_cache_preempts_and_every_answer_is_still_whole() {
    let replica = start(sized(8, 40)).await;
    let body = chat(300, STREAM);
    let answers = [0; 4].map(|_| post(&replica, CHAT, &body));
    let [a, b, c, d] = answers;
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    for answer in [a, b, c, d] {
        assert!(answer.body.ends_with("data: [DONE]\n\n"));
    }
    assert_eq!(replica.stats().finished, 4);
    let page = get(&replica, "/metrics").await.body;
    assert!(!page.contains("vllm:num_preemptions_total{engine=\"0\",model_name=\"tiny\"} 0.0"));
}

#[tokio::test]
async fn the_request_id_becomes_part_of_the_answers() {
    let replica = start(quick()).await;
    let mut stream = tokio::net::TcpStream::connect(replica.address()).await.unwrap();
    let asked = request("POST", CHAT, &chat(1, ""), "x-request-id: rec-1\r\nconnection: close\r\n");
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut got = String::new();
    stream.read_to_string(&mut got).await.unwrap();
    assert!(got.contains("\"id\":\"chatcmpl-rec-1\""), "{got}");
    assert_eq!(replica.seen()[0].headers["x-request-id"], "rec-1");
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_no_byte_said() {
    let replica = start(Options { keep_alive: Duration::from_millis(30), ..quick() }).await;
    let mut stream = tokio::net::TcpStream::connect(replica.address()).await.unwrap();
    stream.write_all(request("GET", "/version", "", "").as_bytes()).await.unwrap();
    let mut got = String::new();
    stream.read_to_string(&mut got).await.unwrap();
    assert!(got.ends_with("{\"version\":\"0.32.0\"}"), "{got}");
}

#[tokio::test]
async fn an_open_stream_outlives_the_idle_time() {
    let slow = Options { keep_alive: Duration::from_millis(20), speed: 0.2, ..quick() };
    let replica = start(slow).await;
    let answer = post(&replica, CHAT, &chat(4, STREAM)).await;
    assert!(answer.body.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn streams_break_as_told() {
    let replica = start(quick()).await;
    let cases = [
        (FaultKind::Cut, Ended::Whole),
        (FaultKind::Truncate, Ended::Fin),
        (FaultKind::Reset, Ended::Reset),
    ];
    for (kind, ended) in cases {
        replica.faults().set(Fault::new(kind).after(3).times(1));
        let answer = post(&replica, CHAT, &chat(50, STREAM)).await;
        assert_eq!((answer.status, answer.ended), (200, ended), "{kind:?}");
        assert!(!answer.body.contains("[DONE]"), "{kind:?}");
        if kind != FaultKind::Reset {
            // A reset may overtake what was sent before it.
            assert!(answer.body.contains("\"finish_reason\":null,\"token_ids\""), "{kind:?}");
        }
        let next = post(&replica, CHAT, &chat(5, STREAM)).await;
        assert!(next.body.ends_with("data: [DONE]\n\n"), "{kind:?} did not end");
    }
    assert_eq!(replica.stats().running, 0);
}

#[tokio::test]
async fn a_dying_engine_says_so_and_ends_cleanly() {
    let replica = start(quick()).await;
    replica.faults().set(Fault::new(FaultKind::EngineDeath).after(2));
    let answer = post(&replica, CHAT, &chat(50, STREAM)).await;
    let recorded = include_str!("../../../tests/recorded/engine-death-mid-stream.http");
    let (_, error) = recorded.split_once("data: {\"error\"").unwrap();
    let error = error.replace("\r\n", "\n");
    assert!(answer.body.ends_with(&format!("data: {{\"error\"{error}")), "{}", answer.body);
    assert_eq!(answer.ended, Ended::Whole);
    assert_eq!(post(&replica, CHAT, &chat(50, "")).await.status, 500);
}

#[tokio::test]
async fn death_in_prefill_comes_after_the_headers_and_before_any_frame() {
    let replica = start(Options { speed: 10.0, ..quick() }).await;
    replica.faults().set(Fault::new(FaultKind::PrefillDeath).times(1));
    let answer = post(&replica, CHAT, &chat(5, STREAM)).await;
    assert_eq!((answer.status, answer.ended, answer.body.as_str()), (200, Ended::Fin, ""));
    assert_eq!(post(&replica, CHAT, &chat(5, STREAM)).await.ended, Ended::Whole);
}

#[tokio::test]
async fn statuses_and_health_turn_with_their_switches() {
    let replica = start(quick()).await;
    let cases = [(FaultKind::Error500, CHAT, 500), (FaultKind::Busy503, CHAT, 503)];
    for (kind, path, status) in cases {
        replica.faults().set(Fault::new(kind));
        assert_eq!(post(&replica, path, &chat(1, "")).await.status, status);
        assert_eq!(get(&replica, "/health").await.status, 200);
        replica.faults().clear(kind);
    }
    replica.faults().set(Fault::new(FaultKind::Unhealthy));
    assert_eq!(get(&replica, "/health").await.status, 503);
    assert_eq!(post(&replica, CHAT, &chat(1, "")).await.status, 200);
}

#[tokio::test]
async fn faults_are_posted_listed_and_deleted() {
    let replica = start(quick()).await;
    let on = post(&replica, "/fault", "{\"fault\":\"503\",\"times\":3}").await;
    assert_eq!(on.status, 200, "{}", on.body);
    assert!(get(&replica, "/fault").await.body.contains("\"fault\":\"503\""));
    post(&replica, "/fault", "{\"fault\":\"503\",\"on\":false}").await;
    assert!(replica.faults().list().is_empty());
    assert_eq!(post(&replica, "/fault", "{\"fault\":\"rain\"}").await.status, 400);
    replica.faults().set(Fault::new(FaultKind::Slow));
    Asked::send(&replica, "DELETE", "/fault", "").await.rest().await;
    assert!(replica.faults().list().is_empty());
}

#[tokio::test]
async fn a_stalled_engine_is_silent_and_healthy_and_goes_on_later() {
    let replica = start(quick()).await;
    replica.faults().set(Fault::new(FaultKind::Stall));
    let mut stream = Asked::send(&replica, "POST", CHAT, &chat(5, STREAM)).await;
    stream.until("\r\n\r\n").await;
    assert_eq!(get(&replica, "/health").await.status, 200);
    assert!(!stream.got().contains("data:"));
    replica.faults().clear(FaultKind::Stall);
    assert_eq!(stream.rest().await.ended, Ended::Whole);
}

#[tokio::test]
async fn a_hung_process_answers_nothing_until_it_is_released() {
    let replica = start(quick()).await;
    replica.faults().set(Fault::new(FaultKind::Hang));
    let health = Asked::send(&replica, "GET", "/health", "").await;
    until(&replica, |replica| replica.stats().connections == 1).await;
    assert!(post(&replica, "/fault", "{\"fault\":\"hang\",\"on\":false}").await.status == 200);
    assert_eq!(health.rest().await.status, 200);
}

#[tokio::test]
async fn a_refusing_replica_closes_its_socket_and_finishes_what_runs() {
    let replica = start(quick()).await;
    let mut stream = Asked::send(&replica, "POST", CHAT, &chat(2000, STREAM)).await;
    stream.until("assistant").await;
    let idle = Asked::send(&replica, "GET", "/health", "").await;
    replica.faults().set(Fault::new(FaultKind::Refuse));
    idle.closed().await;
    while tokio::net::TcpStream::connect(replica.address()).await.is_ok() {}
    assert_eq!(stream.rest().await.ended, Ended::Whole);
    replica.faults().clear(FaultKind::Refuse);
    until_listening(&replica).await;
}

async fn until_listening(replica: &RunningReplica) {
    while tokio::net::TcpStream::connect(replica.address()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_crash_drops_all_and_starts_afresh() {
    let replica = start(quick()).await;
    let mut stream = open(&replica).await;
    stream.until("assistant").await;
    replica.faults().set(Fault::new(FaultKind::Crash));
    assert_ne!(stream.rest().await.ended, Ended::Whole);
    replica.faults().clear(FaultKind::Crash);
    until_listening(&replica).await;
    assert_eq!((replica.stats().running, replica.stats().aborted), (0, 0));
    assert_eq!(post(&replica, CHAT, &chat(3, "")).await.status, 200);
}

#[tokio::test]
async fn a_fault_ends_after_its_time() {
    let replica = start(quick()).await;
    post(&replica, "/fault", "{\"fault\":\"refuse\",\"for_ms\":20}").await;
    until(&replica, |replica| replica.faults().list().is_empty()).await;
    until_listening(&replica).await;
}

#[tokio::test]
async fn the_metrics_lie_as_told() {
    let replica = start(quick()).await;
    let page = async || get(&replica, "/metrics").await.body;
    replica.faults().set(Fault::new(FaultKind::FrozenMetrics));
    let before = page().await;
    post(&replica, CHAT, &chat(3, "")).await;
    assert_eq!(page().await, before);
    replica.faults().clear_all();
    assert_ne!(page().await, before);
    replica.faults().set(Fault::new(FaultKind::RenamedKvGauge));
    replica.faults().set(Fault::new(FaultKind::TwoEngines));
    let page = page().await;
    assert!(!page.contains("kv_cache_usage_perc") && page.contains("vllm:gpu_cache_usage_perc{"));
    assert!(page.contains("vllm:num_requests_running{engine=\"1\",model_name=\"tiny\"} 0.0"));
}

#[tokio::test]
async fn slow_is_slower_by_its_factor() {
    tokio::time::pause();
    let replica = start(Options { speed: 1.0, ..quick() }).await;
    let clock = crate::lifecycle::Clock::start();
    post(&replica, CHAT, &chat(10, "")).await;
    let usual = clock.elapsed();
    replica.faults().set(Fault::new(FaultKind::Slow).factor(5.0));
    post(&replica, CHAT, &chat(10, "")).await;
    let slow = clock.elapsed().saturating_sub(usual);
    assert!(slow > usual * 4 && slow < usual * 6, "{usual:?} {slow:?}");
}

#[tokio::test]
async fn null_streams_have_their_frames_and_sizes() {
    let null = NullStream { frames: 100, frame_bytes: 400, interval: Duration::ZERO };
    let replica = start(Options { null: Some(null), ..quick() }).await;
    let bodies = [
        (CHAT, chat(1, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"), "[DONE]"),
        ("/v1/completions", "{\"prompt\":\"hi\",\"stream\":true}".to_owned(), "[DONE]"),
        ("/v1/messages", chat(1, STREAM), "message_stop"),
        ("/v1/responses", "{\"input\":\"hi\",\"stream\":true}".to_owned(), "response.completed"),
    ];
    for (path, body, end) in bodies {
        let answer = post(&replica, path, &body).await;
        let frames = answer.body.split_terminator("\n\n").filter(|frame| frame.len() == 398);
        assert_eq!(frames.count(), 100, "{path}");
        assert!(answer.body.contains(end), "{path}");
    }
}

#[tokio::test]
async fn many_streams_at_once_each_get_all_of_their_tokens() {
    let replica = start(sized(256, 16_384)).await;
    let address = replica.address();
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..400 {
        streams.spawn(async move {
            let body = chat(20, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let asked = request("POST", CHAT, &body, "connection: close\r\n");
            stream.write_all(asked.as_bytes()).await.unwrap();
            let mut got = String::new();
            stream.read_to_string(&mut got).await.unwrap();
            got
        });
    }
    while let Some(got) = streams.join_next().await {
        let got = got.unwrap();
        assert!(got.contains("\"completion_tokens\":20}") && got.contains("data: [DONE]\n\n"));
    }
    assert_eq!(replica.stats().finished, 400);
}

#[tokio::test]
async fn a_late_reader_gets_several_tokens_in_one_frame() {
    let replica = start(sized(128, 16_384)).await;
    let late = Asked::send(&replica, "POST", CHAT, &chat(30_000, STREAM)).await;
    until(&replica, |replica| replica.stats().finished == 1).await;
    let body = late.rest().await.body;
    assert!(body.ends_with("data: [DONE]\n\n"));
    assert!(body.matches("\n\n").count() < 30_000);
}

#[tokio::test]
async fn a_dying_engine_speaks_the_dialect_of_messages() {
    let replica = start(quick()).await;
    replica.faults().set(Fault::new(FaultKind::EngineDeath).after(2));
    let answer = post(&replica, "/v1/messages", &chat(50, STREAM)).await;
    assert!(answer.body.contains("event: error\ndata: {\"type\":\"error\""), "{}", answer.body);
}
