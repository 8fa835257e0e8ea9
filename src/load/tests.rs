//! Runs against a scripted server on real sockets: the point here is the socket.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::lifecycle::Clock;
use crate::workload::{Class, ClientModel, FollowUp, Lengths, Pause, Workload};

type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// What the server does with its n-th request.
#[derive(Clone, Copy, Debug)]
enum Do {
    Stream,
    Refuse,
    Cut,
    Hang,
    CloseAfter,
    EngineError,
}

const CONTENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const END: &str = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":5}}\n\ndata: [DONE]\n\n";

fn full(text: String) -> Answer {
    Full::new(Bytes::from(text)).boxed_unsync()
}

fn answer(what: Do) -> Response<Answer> {
    let stream = format!("{CONTENT}{CONTENT}{END}");
    match what {
        Do::Stream => Response::new(full(stream)),
        Do::CloseAfter => {
            Response::builder().header("connection", "close").body(full(stream)).unwrap()
        }
        Do::Refuse => Response::builder()
            .status(503)
            .header("retry-after", "1")
            .header("retry-after-ms", "1")
            .header("x-weir-reason", "queue_full")
            .body(full("{}".to_owned()))
            .unwrap(),
        Do::EngineError => Response::new(full(format!(
            "{CONTENT}data: {{\"error\":{{\"message\":\"dead\"}}}}\n\ndata: [DONE]\n\n"
        ))),
        Do::Cut => Response::new(full(CONTENT.to_owned())),
        Do::Hang => {
            let first = Frame::data(Bytes::from_static(CONTENT.as_bytes()));
            Response::new(OneThenNever(Some(first)).boxed_unsync())
        }
    }
}

/// A body that begins and never ends.
struct OneThenNever(Option<Frame<Bytes>>);

impl http_body::Body for OneThenNever {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.take().map_or(Poll::Pending, |frame| Poll::Ready(Some(Ok(frame))))
    }
}

/// Serves `script` in turn, over and over, until dropped with its set.
async fn serve(script: &'static [Do]) -> (http::Uri, Arc<AtomicU64>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let served = Arc::new(AtomicU64::new(0));
    let count = served.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut lines = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let count = count.clone();
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let count = count.clone();
                async move {
                    assert_eq!(request.uri().path(), "/v1/chat/completions");
                    request.into_body().collect().await.unwrap();
                    let number = count.fetch_add(1, Ordering::Relaxed);
                    let at = usize::try_from(number).unwrap() % script.len();
                    Ok::<_, Infallible>(answer(script[at]))
                }
            });
            lines.spawn(async move {
                let line = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                drop(line.await);
            });
        }
    });
    (uri, served, tasks)
}

fn options(url: http::Uri, mode: Mode) -> LoadOptions {
    let mut options = LoadOptions::new(url, "tiny", mode);
    options.duration = Duration::from_millis(300);
    options.grace = Duration::from_millis(300);
    options
}

async fn run_all(options: LoadOptions) -> LoadReport {
    run(options, Clock::start(), Arc::default(), pending()).await.unwrap()
}

#[tokio::test]
async fn every_outcome_is_told_apart_and_they_add_up() {
    let script = &[Do::Stream, Do::Refuse, Do::Cut, Do::EngineError, Do::Hang];
    let (url, served, _server) = serve(script).await;
    let report = run_all(options(url, Mode::Open(200.0))).await;
    assert_eq!(
        report.all.offered,
        report.all.ok
            + report.all.shed
            + report.all.errors
            + report.all.cancelled
            + report.all.dropped
    );
    assert_eq!(report.all.offered, served.load(Ordering::Relaxed));
    let share = report.all.offered / 5;
    for (seen, of_five) in [
        (report.all.ok, 1),
        (report.all.shed, 1),
        (report.all.errors, 2),
        (report.all.cancelled, 1),
    ] {
        assert!(seen >= share * of_five && seen <= (share + 1) * of_five, "{report:?}");
    }
    assert_eq!(report.all.reasons["queue_full"], report.all.shed);
    assert_eq!(report.all.refusals_with_retry_after, report.all.refusals);
    assert_eq!(report.all.good, report.all.ok);
    assert!(
        report.all.error_kinds["no_done"] >= share
            && report.all.error_kinds["stream_error"] >= share
    );
}

#[tokio::test]
async fn a_client_that_retries_gets_through_and_every_refusal_is_counted() {
    let (url, served, _server) = serve(&[Do::Refuse]).await;
    let mut options = options(url, Mode::Open(100.0));
    let mut workload = Workload::of(Class::fixed(128, 64));
    workload.client = ClientModel::OpenAiPython { retries: 2 };
    options.workload = Arc::new(workload);
    let report = run_all(options).await;
    assert_eq!(report.all.shed, report.all.offered);
    assert_eq!(report.all.refusals, report.all.offered * 3);
    assert_eq!(served.load(Ordering::Relaxed), report.all.offered * 3);
}

#[tokio::test]
async fn connections_closed_by_the_server_cost_nothing() {
    let (url, _, _server) = serve(&[Do::CloseAfter, Do::Stream]).await;
    let report = run_all(options(url, Mode::Open(200.0))).await;
    assert_eq!(report.all.ok, report.all.offered);
    assert_eq!(
        report.all.itl_seconds.unwrap().count,
        usize::try_from(report.all.ok).unwrap(),
        "two frames have one gap"
    );
    let tokens = report.all.tokens_per_second / report.all.ok_per_second;
    assert!((tokens - 5.0).abs() < 1e-6, "usage counts, not frames: {tokens}");
}

#[tokio::test]
async fn a_closed_loop_holds_its_clients() {
    let (url, served, _server) = serve(&[Do::Hang]).await;
    let report = run_all(options(url, Mode::Closed(3))).await;
    assert_eq!((report.all.offered, report.all.cancelled), (3, 3));
    assert_eq!(served.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn more_than_may_be_open_is_dropped_and_voids_the_run() {
    let (url, _, _server) = serve(&[Do::Hang]).await;
    let mut options = options(url, Mode::Open(100.0));
    options.max_in_flight = 2;
    let report = run_all(options).await;
    assert_eq!(report.all.dropped + 2, report.all.offered);
    assert!(report.void.is_some());
}

#[tokio::test]
async fn a_stopped_run_reports_what_was_sent() {
    let (url, served, _server) = serve(&[Do::Stream]).await;
    let mut options = options(url, Mode::Open(100.0));
    options.duration = Duration::from_hours(1);
    let report = run(options, Clock::start(), Arc::default(), ready(())).await.unwrap();
    assert_eq!(report.all.offered, served.load(Ordering::Relaxed));
}

#[tokio::test]
async fn only_plain_http_is_spoken() {
    let options = options("https://localhost".parse().unwrap(), Mode::Open(1.0));
    let refused = run(options, Clock::start(), Arc::default(), ready(())).await;
    assert!(matches!(refused, Err(TargetError::Url(_))));
}

#[tokio::test(start_paused = true)]
async fn pacing_keeps_its_schedule_far_above_a_thousand_a_second() {
    let mut options = options("http://127.0.0.1:1".parse().unwrap(), Mode::Open(5000.0));
    options.duration = Duration::from_secs(2);
    options.max_in_flight = 0;
    let report = run_all(options).await;
    assert!(report.all.offered_per_second > 4500.0);
    let late = report.lateness_seconds.unwrap();
    assert!(late.max <= 0.003, "timers have a millisecond: {late:?}");
}

fn session(stages: u32, width: u32) -> Arc<Workload> {
    let follow_up = FollowUp {
        stages: Lengths::Fixed(stages),
        width: Lengths::Fixed(width),
        new_tokens: Lengths::Fixed(5),
        pause: Pause::default(),
        max_prompt_tokens: u32::MAX,
        e2e: None,
    };
    Arc::new(Workload::of(Class { follow_up: Some(follow_up), ..Class::fixed(20, 5) }))
}

#[tokio::test]
async fn a_session_goes_on_after_each_answer_and_ends_at_the_first_that_fails() {
    for (script, whole) in [(&[Do::Stream][..], true), (&[Do::Cut][..], false)] {
        let (url, served, _server) = serve(script).await;
        let mut options = options(url, Mode::Closed(2));
        options.workload = session(3, 1);
        let report = run_all(options).await;
        let flows = &report.workflows["all"];
        assert!(flows.ended > 0, "{report:?}");
        assert_eq!(flows.whole == flows.ended, whole);
        assert_eq!(flows.calls, flows.ended * if whole { 3 } else { 1 });
        assert!(served.load(Ordering::Relaxed) >= flows.calls);
    }
}

#[tokio::test]
async fn a_stage_is_over_when_all_its_calls_are() {
    let (url, _, _server) = serve(&[Do::Stream, Do::Stream, Do::Hang]).await;
    let mut options = options(url, Mode::Closed(1));
    options.workload = session(1, 3);
    let report = run_all(options).await;
    assert!(report.workflows.is_empty(), "one of three hangs");
    assert_eq!((report.all.offered, report.all.ok, report.all.cancelled), (3, 2, 1));
}
