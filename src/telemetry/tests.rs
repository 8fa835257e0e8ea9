//! What a scrape shows, and what strangers cannot make it show.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{PoolLabels, PoolTargets, Telemetry, names};
use crate::domain::{
    Endpoint, Failure, Gaps, GateSnapshot, Health, Outcome, PoolSnapshot, Reason, Rejection,
    ReplicaId, ReplicaSnapshot, RequestRecord, Sample, Slo, Timestamp, Unit, Usage,
};

fn telemetry() -> Arc<Telemetry> {
    let telemetry = Telemetry::new().unwrap();
    telemetry.configure(&[PoolLabels {
        model: "tiny".into(),
        classes: vec!["chat".into()],
        replicas: vec!["r1".into(), "r2".into()],
    }]);
    telemetry
}

fn completed() -> RequestRecord {
    let mut gaps = Gaps::default();
    gaps.observe(Duration::from_millis(20));
    gaps.observe(Duration::from_millis(30));
    RequestRecord {
        request_id: "id".into(),
        endpoint: Some(Endpoint::ChatCompletions),
        pool: Some("tiny".into()),
        tenant: "anyone".into(),
        class: "chat".into(),
        replica: Some("r1".into()),
        stream: true,
        outcome: Outcome::Completed,
        status: 200,
        attempts: 2,
        received: Timestamp::ZERO,
        queue_wait: Some(Duration::from_millis(40)),
        first_frame: Some(Duration::from_millis(150)),
        ttft: Some(Duration::from_millis(200)),
        tpot: Some(Duration::from_millis(25)),
        e2e: Duration::from_millis(900),
        gaps,
        frames: 3,
        bytes: 300,
        usage: Some(Usage { input: 10, output: 3, cached: Some(8) }),
        slo: Slo { ttft: Some(Duration::from_secs(1)), ..Slo::default() },
        rejection: None,
    }
}

/// The value of the series that starts with `prefix`.
fn value(text: &str, prefix: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(prefix))?;
    line.trim().rsplit(' ').next()?.parse().ok()
}

const CHAT: &str = r#"{class="chat",endpoint="chat_completions",pool="tiny"}"#;

#[test]
fn a_completed_request_is_in_every_series() {
    let telemetry = telemetry();
    telemetry.record(&completed());
    let text = telemetry.render();
    let expect = [
        ("weir_requests_offered_total", 1.0),
        ("weir_requests_good_total", 1.0),
        ("weir_time_to_first_token_seconds_count", 1.0),
        ("weir_time_to_first_token_seconds_sum", 0.2),
        ("weir_time_per_output_token_seconds_sum", 0.025),
        ("weir_inter_token_latency_seconds_count", 2.0),
        ("weir_inter_token_latency_seconds_sum", 0.05),
        ("weir_e2e_request_latency_seconds_sum", 0.9),
        ("weir_request_queue_time_seconds_sum", 0.04),
        ("weir_first_frame_seconds_sum", 0.15),
        ("weir_input_tokens_total", 10.0),
        ("weir_output_tokens_total", 3.0),
        ("weir_cached_tokens_total", 8.0),
        ("weir_content_frames_total", 3.0),
        ("weir_response_bytes_total", 300.0),
    ];
    for (name, expected) in expect {
        let seen = value(&text, &format!("{name}{CHAT}"));
        assert!(seen.is_some_and(|seen| (seen - expected).abs() < 1e-9), "{name}: {seen:?}");
    }
    assert_eq!(value(&text, r#"weir_retries_total{pool="tiny"}"#), Some(1.0));
    let bucket = r#"weir_inter_token_latency_seconds_bucket{class="chat",endpoint="chat_completions",pool="tiny",le="0.025"}"#;
    assert_eq!(value(&text, bucket), Some(1.0));
}

#[test]
fn only_completed_requests_enter_the_latency_series() {
    let telemetry = telemetry();
    for outcome in [
        Outcome::Cancelled,
        Outcome::Failed(Reason::UpstreamReset),
        Outcome::Rejected(Reason::QueueWait),
        Outcome::Evicted(Reason::Deadline),
    ] {
        telemetry.record(&RequestRecord { outcome, ..completed() });
    }
    let text = telemetry.render();
    assert_eq!(value(&text, &format!("weir_requests_offered_total{CHAT}")), Some(4.0));
    for name in ["weir_time_to_first_token", "weir_inter_token_latency", "weir_e2e_request_latency"]
    {
        assert_eq!(value(&text, &format!("{name}_seconds_count{CHAT}")), Some(0.0), "{name}");
    }
    let cancelled = r#"weir_requests_total{class="chat",endpoint="chat_completions",outcome="cancelled",pool="tiny",reason=""}"#;
    assert_eq!(value(&text, cancelled), Some(1.0));
    let shed = r#"weir_requests_shed_total{class="chat",pool="tiny",reason="queue_wait"}"#;
    assert_eq!(value(&text, shed), Some(1.0));
}

#[test]
fn a_single_token_answer_is_counted_as_having_no_tpot() {
    let telemetry = telemetry();
    let usage = Some(Usage { input: 5, output: 1, cached: None });
    telemetry.record(&RequestRecord { tpot: None, usage, gaps: Gaps::default(), ..completed() });
    let text = telemetry.render();
    let name = "weir_time_per_output_token";
    assert_eq!(value(&text, &format!("{name}_excluded_total{CHAT}")), Some(1.0));
    assert_eq!(value(&text, &format!("{name}_seconds_count{CHAT}")), Some(0.0));
}

#[test]
fn a_target_that_was_missed_is_no_goodput() {
    let telemetry = telemetry();
    let slo = Slo { itl: Some(Duration::from_millis(25)), ..Slo::default() };
    telemetry.record(&RequestRecord { slo, ..completed() });
    assert_eq!(value(&telemetry.render(), &format!("weir_requests_good_total{CHAT}")), Some(0.0));
}

#[test]
fn what_shed_clients_were_told_is_a_histogram() {
    let telemetry = telemetry();
    let rejection = Rejection {
        retry_after: Some(Duration::from_secs(4)),
        ..Rejection::plain(Reason::QueueWait)
    };
    telemetry.record(&RequestRecord {
        outcome: Outcome::Rejected(Reason::QueueWait),
        rejection: Some(rejection),
        ..completed()
    });
    let text = telemetry.render();
    assert_eq!(value(&text, r#"weir_retry_after_seconds_sum{pool="tiny"}"#), Some(4.0));
}

#[test]
fn the_last_shed_of_each_reason_shows_its_limit_and_reading() {
    let telemetry = telemetry();
    let shed = |reason, reading| RequestRecord {
        outcome: Outcome::Evicted(reason),
        rejection: Some(Rejection {
            unit: Unit::of(reason),
            limit: 0.4,
            reading,
            age: Duration::from_millis(250),
            ..Rejection::plain(reason)
        }),
        ..completed()
    };
    for reading in [0.5, 1.25] {
        telemetry.record(&shed(Reason::QueueWait, reading));
    }
    telemetry.record(&shed(Reason::Draining, 7.0));
    let text = telemetry.render();
    let of = |name| {
        value(&text, &format!(r#"{name}{{pool="tiny",reason="queue_wait",unit="seconds"}}"#))
    };
    assert_eq!((of("weir_shed_limit"), of("weir_shed_reading")), (Some(0.4), Some(1.25)));
    let age = r#"weir_shed_reading_age_seconds{pool="tiny",reason="queue_wait"}"#;
    assert_eq!(value(&text, age), Some(0.25));
    assert!(
        !text.contains(r#"weir_shed_limit{pool="tiny",reason="draining""#),
        "no limit, no series"
    );
}

#[test]
fn ten_thousand_invented_names_add_no_series() {
    let telemetry = telemetry();
    let invent = |n: u16| {
        let noise = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        telemetry.record(&RequestRecord {
            pool: Some(format!("model-{noise:x}").into()),
            class: format!("class-{noise:x}").into(),
            tenant: format!("tenant-{noise:x}").into(),
            endpoint: None,
            ..completed()
        });
        telemetry.record(&RequestRecord { pool: None, endpoint: None, ..completed() });
        telemetry.attempt_failed("tiny", &format!("replica-{noise:x}"), Failure::Connect);
        telemetry.upstream_response(&format!("pool-{noise:x}"), "r1", n % 700);
    };
    (0..700).for_each(invent);
    let after_some = telemetry.render().lines().count();
    (700..10_000).for_each(invent);
    assert_eq!(telemetry.render().lines().count(), after_some);
    assert!(!telemetry.render().contains("model-"));
}

#[test]
fn a_replica_that_left_takes_its_counters_along() {
    let telemetry = telemetry();
    telemetry.attempt_failed("tiny", "r2", Failure::Status(502));
    telemetry.upstream_response("tiny", "r2", 502);
    telemetry.scrape_failed("tiny", "r2");
    telemetry.note("tiny", "r2", "stale");
    assert_eq!(telemetry.render().matches(r#"replica="r2""#).count(), 4);
    telemetry.configure(&[PoolLabels {
        model: "tiny".into(),
        classes: Vec::new(),
        replicas: vec!["r1".into()],
    }]);
    assert_eq!(telemetry.render().matches(r#"replica="r2""#).count(), 0);
}

fn replica(id: u32, sample: Option<Sample>) -> ReplicaSnapshot {
    ReplicaSnapshot {
        id: ReplicaId(id),
        in_flight: 3,
        limit: 96.0,
        assumed: false,
        foreign: None,
        prefill_tokens: 0,
        kv_tokens: 0,
        health: Some(Health::Up),
        ejected: false,
        draining: false,
        sample,
    }
}

fn pool() -> PoolSnapshot {
    let at = Timestamp::from_nanos(5_000_000_000);
    let taken = Timestamp::from_nanos(4_500_000_000);
    let sample = Sample { taken, running: Some(7), ..Sample::default() };
    let gate = GateSnapshot {
        at,
        replicas: vec![replica(0, Some(sample)), replica(1, None)],
        ..GateSnapshot::default()
    };
    let names = vec![(ReplicaId(0), "r1".into()), (ReplicaId(1), "r2".into())];
    PoolSnapshot { model: "tiny".into(), names, gate, ..PoolSnapshot::default() }
}

#[test]
fn the_unknown_has_no_series_and_readings_have_an_age() {
    let telemetry = telemetry();
    telemetry.watch_gates(|| vec![pool()]);
    let text = telemetry.render();
    let first = r#"{pool="tiny",replica="r1"}"#;
    let second = r#"{pool="tiny",replica="r2"}"#;
    let age = "weir_replica_reading_age_seconds";
    assert_eq!(value(&text, &format!("{age}{first}")), Some(0.5));
    assert_eq!(value(&text, &format!("{age}{second}")), None);
    assert_eq!(value(&text, &format!("weir_replica_running_requests{first}")), Some(7.0));
    assert_eq!(value(&text, &format!("weir_replica_waiting_requests{first}")), None);
    assert_eq!(value(&text, &format!("weir_replica_foreign_requests{second}")), None);
    assert_eq!(value(&text, &format!("weir_replica_in_flight_requests{second}")), Some(3.0));
}

fn targets() -> PoolTargets {
    let slo = Slo { ttft: Some(Duration::from_secs(1)), ..Slo::default() };
    PoolTargets {
        model: "tiny".into(),
        classes: vec![("chat".into(), slo)],
        queue_wait: Duration::from_millis(400),
    }
}

#[test]
fn targets_stand_beside_what_was_seen() {
    let telemetry = telemetry();
    telemetry.hold_to(vec![targets()]);
    telemetry.watch_gates(|| {
        let mut pool = pool();
        pool.gate.queue.oldest_wait = Duration::from_millis(100);
        pool.outdated = vec!["r1: vLLM 2, measured on 1".into()];
        vec![pool]
    });
    let text = telemetry.render();
    let ttft = r#"weir_slo_target_seconds{class="chat",pool="tiny",target="ttft"}"#;
    assert_eq!(value(&text, ttft), Some(1.0));
    assert!(!text.contains(r#"target="tpot""#));
    assert_eq!(value(&text, r#"weir_queue_wait_limit_seconds{pool="tiny"}"#), Some(0.4));
    assert_eq!(value(&text, r#"weir_scaling_queue_wait_ratio{pool="tiny"}"#), Some(0.25));
    assert_eq!(value(&text, r#"weir_limits_outdated{pool="tiny"}"#), Some(1.0));
}

#[test]
fn the_load_of_the_last_minute_asks_for_replicas() {
    let telemetry = telemetry();
    telemetry.watch_gates(|| {
        let mut pool = pool();
        pool.gate.in_flight = 96;
        vec![pool]
    });
    let wanted = r#"weir_scaling_wanted_replicas{pool="tiny"}"#;
    assert_eq!(value(&telemetry.render(), wanted), Some(1.0));
    telemetry.record(&completed());
    let outcome = Outcome::Rejected(Reason::QueueWait);
    telemetry.record(&RequestRecord { outcome, endpoint: None, ..completed() });
    assert_eq!(value(&telemetry.render(), wanted), Some(2.0));
}

#[test]
fn the_configuration_in_force_is_the_only_one_shown() {
    let telemetry = telemetry();
    telemetry.config_taken(1, "aaaa", SystemTime::UNIX_EPOCH + Duration::from_secs(9));
    telemetry.config_taken(2, "bbbb", SystemTime::UNIX_EPOCH + Duration::from_secs(10));
    telemetry.config_refused();
    let text = telemetry.render();
    assert_eq!(value(&text, r#"weir_config_info{hash="aaaa"}"#), None);
    assert_eq!(value(&text, r#"weir_config_info{hash="bbbb"}"#), Some(1.0));
    assert_eq!(value(&text, "weir_config_generation"), Some(2.0));
    assert_eq!(value(&text, "weir_config_last_reload_successful"), Some(0.0));
    assert_eq!(value(&text, "weir_config_reload_failures_total"), Some(1.0));
}

#[test]
fn the_process_is_shown() {
    let text = telemetry().render();
    for name in ["process_open_fds", "process_resident_memory_bytes", "process_start_time_seconds"]
    {
        assert!(value(&text, &format!("{name} ")).is_some_and(|seen| seen > 0.0), "{name}");
    }
    assert!(text.contains("# TYPE process_cpu_seconds_total counter"));
}

/// One of everything, so that every family has a series.
fn everything() -> Arc<Telemetry> {
    let telemetry = telemetry();
    telemetry.hold_to(vec![targets()]);
    telemetry.watch_gates(|| {
        let sample = Sample {
            running: Some(1),
            waiting: Some(1),
            kv_usage: Some(0.5),
            preemptions: Some(0),
            prefix_queries: Some(2),
            prefix_hits: Some(1),
            ..Sample::default()
        };
        let mut pool = pool();
        pool.gate.replicas =
            vec![ReplicaSnapshot { foreign: Some(0.0), ..replica(0, Some(sample)) }];
        vec![pool]
    });
    let rejection = Rejection {
        retry_after: Some(Duration::from_secs(1)),
        unit: Some(Unit::Requests),
        ..Rejection::plain(Reason::QueueFull)
    };
    telemetry.record(&RequestRecord {
        outcome: Outcome::Rejected(Reason::QueueFull),
        rejection: Some(rejection),
        ..completed()
    });
    telemetry.attempt_failed("tiny", "r1", Failure::Connect);
    telemetry.upstream_response("tiny", "r1", 200);
    telemetry.scrape_failed("tiny", "r1");
    telemetry.note("tiny", "r1", "stale");
    telemetry.task_panicked("relay");
    telemetry.connections().refused(Reason::Headers);
    telemetry.config_taken(1, "aaaa", SystemTime::UNIX_EPOCH);
    telemetry
}

/// `docs/METRICS.md` is written from the registry: `WEIR_BLESS=1 cargo test the_metrics_page`.
#[test]
fn the_metrics_page_is_true() {
    use std::fmt::Write as _;

    let families = everything().registry().gather();
    let mut page = String::from(
        "# Metrics\n\nWhat `/metrics` on the admin listener shows. This page is written from the \
         registry by a test\n(`WEIR_BLESS=1 cargo test the_metrics_page`), so that it cannot be \
         wrong.\n\nLabels take their values from closed sets: configured pools, classes and \
         replicas, and words of\nWeir's own. What is not among them is `unknown`. Histogram bounds \
         are vLLM's own, so that what\nclients saw minus what the server saw can be read off.\n\n\
         | metric | type | labels | what it says |\n|---|---|---|---|\n",
    );
    for name in names::ALL {
        let family = families.iter().find(|family| family.name() == name.id);
        let family = family.unwrap_or_else(|| panic!("{} is in no scrape", name.id));
        let labels = family.get_metric()[0].get_label();
        let labels: Vec<_> = labels.iter().map(|pair| format!("`{}`", pair.name())).collect();
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        writeln!(page, "| `{}` | {kind} | {} | {} |", name.id, labels.join(" "), family.help())
            .unwrap();
    }
    assert_eq!(families.len(), names::ALL.len(), "a family whose name is not in names.rs");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/METRICS.md");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/docs")).unwrap();
        std::fs::write(path, &page).unwrap();
    }
    let stands = std::fs::read_to_string(path).unwrap_or_default();
    assert!(stands == page, "docs/METRICS.md is not what the registry says; see this test");
}
