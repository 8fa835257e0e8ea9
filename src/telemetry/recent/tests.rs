//! What a window shows, and what it has forgotten.

use std::time::Duration;

use super::*;
use crate::domain::{Gaps, Slo, Usage};

fn at(seconds: f64) -> Timestamp {
    Timestamp::since_origin(Duration::from_secs_f64(seconds))
}

/// A request that ended then, and how.
fn ended(seconds: f64, outcome: Outcome) -> RequestRecord {
    RequestRecord {
        request_id: "id".into(),
        endpoint: None,
        pool: Some("tiny".into()),
        tenant: "anyone".into(),
        class: "chat".into(),
        replica: None,
        stream: true,
        outcome,
        status: 200,
        attempts: 1,
        received: at(seconds),
        queue_wait: None,
        first_frame: None,
        ttft: None,
        tpot: None,
        e2e: Duration::ZERO,
        gaps: Gaps::default(),
        frames: 1,
        bytes: 1,
        usage: Some(Usage { input: 10, output: 2, cached: Some(5) }),
        slo: Slo::default(),
        rejection: None,
    }
}

fn read(windows: &RecentWindows, seconds: f64) -> Recent {
    windows.read(at(seconds)).pop().unwrap()
}

#[test]
fn ends_add_up_and_each_refusal_keeps_its_reason() {
    let windows = RecentWindows::default();
    let window = windows.of("tiny", "chat");
    for outcome in [
        Outcome::Completed,
        Outcome::Cancelled,
        Outcome::Failed(Reason::Connect),
        Outcome::Rejected(Reason::QueueWait),
        Outcome::Evicted(Reason::QueueWait),
        Outcome::Rejected(Reason::Malformed),
    ] {
        window.record(&ended(1.0, outcome));
    }
    let ends = read(&windows, 2.0).ends;
    let refused: u64 = ends.refused.iter().map(|(_, count)| count).sum();
    assert_eq!(ends.offered, ends.completed + refused + ends.cancelled + ends.failed);
    assert_eq!(ends.refused, [(Reason::QueueWait, 2), (Reason::Malformed, 1)]);
    assert_eq!((ends.shed(), ends.good), (2, 1));
    assert_eq!((ends.input_tokens, ends.output_tokens, ends.cached_tokens), (60, 12, 30));
}

#[test]
fn a_minute_is_forgotten_and_the_total_is_not() {
    let windows = RecentWindows::default();
    let window = windows.of("tiny", "chat");
    window.record(&ended(3.0, Outcome::Completed));
    window.record(&ended(50.0, Outcome::Completed));
    assert_eq!(read(&windows, 51.0).ends.offered, 2);
    let later = read(&windows, 63.0);
    assert_eq!((later.ends.offered, later.total.offered), (1, 2));
    assert_eq!(read(&windows, 500.0).ends.offered, 0);
    // The slot of the first comes round again, and holds only what is new.
    window.record(&ended(64.0, Outcome::Completed));
    assert_eq!(read(&windows, 65.0).ends.offered, 2);
    // What ended long ago and is told late is counted in the total alone.
    window.record(&ended(4.0, Outcome::Completed));
    let last = read(&windows, 66.0);
    assert_eq!((last.ends.offered, last.total.offered), (2, 4));
}

#[test]
fn the_window_is_as_long_as_what_it_shows() {
    let windows = RecentWindows::default();
    windows.of("tiny", "chat").record(&ended(1.0, Outcome::Completed));
    assert_eq!(read(&windows, 2.0).window, Duration::from_secs(2));
    assert_eq!(read(&windows, 100.0).window, Duration::from_secs(55));
    assert_eq!(read(&windows, 104.0).window, Duration::from_secs(59));
}

#[test]
fn quantiles_are_within_two_digits_of_the_truth() {
    let windows = RecentWindows::default();
    let window = windows.of("tiny", "chat");
    for ms in 1..=1000 {
        let ttft = Some(Duration::from_millis(ms));
        // Two slots, so that histograms are added up too.
        let second = if ms % 2 == 0 { 1.0 } else { 7.0 };
        window.record(&RequestRecord { ttft, ..ended(second, Outcome::Completed) });
        let late = Some(Duration::from_secs(99));
        window.record(&RequestRecord { ttft: late, ..ended(second, Outcome::Cancelled) });
    }
    let ttft = read(&windows, 8.0).ttft.unwrap();
    assert_eq!(ttft.count, 1000);
    for (seen, truth) in
        [(ttft.p50_seconds, 0.5), (ttft.p95_seconds, 0.95), (ttft.p99_seconds, 0.99)]
    {
        assert!((seen - truth).abs() / truth < 0.01, "{seen} for {truth}");
    }
    assert_eq!(read(&windows, 8.0).tpot, None);
}

#[test]
fn gaps_are_spread_within_their_bucket_and_none_beats_the_longest() {
    let windows = RecentWindows::default();
    let mut gaps = Gaps::default();
    for _ in 0..99 {
        gaps.observe(Duration::from_millis(20));
    }
    gaps.observe(Duration::from_millis(320));
    windows.of("tiny", "chat").record(&RequestRecord { gaps, ..ended(1.0, Outcome::Completed) });
    let itl = read(&windows, 2.0).itl.unwrap();
    assert_eq!(itl.count, 100);
    assert!(itl.p50_seconds > 0.01 && itl.p50_seconds <= 0.025, "{itl:?}");
    assert!(itl.p99_seconds <= 0.32, "{itl:?}");
}

#[test]
fn a_pools_minute_is_that_of_all_its_classes() {
    let windows = RecentWindows::default();
    windows.of("tiny", "chat").record(&ended(1.0, Outcome::Completed));
    windows.of("tiny", "rag").record(&ended(1.0, Outcome::Rejected(Reason::QueueFull)));
    windows.of("other", "rag").record(&ended(1.0, Outcome::Completed));
    let minute = windows.minute("tiny", at(2.0));
    assert_eq!((minute.offered, minute.shed()), (2, 1));
    assert_eq!(windows.minute("tiny", at(200.0)).offered, 0);
}
