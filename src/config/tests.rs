//! What the corpus of `tests/config` cannot say: values, paths, and that nothing panics.

use std::time::Duration;

use super::*;

const SMALLEST: &str = r#"
[server]
listen = "127.0.0.1:8080"
admin = "127.0.0.1:9090"

[[pools]]
model = "tiny"
replicas = ["http://127.0.0.1:8101", "http://127.0.0.1:8102"]
slo = { ttft = "1s", tpot = "50ms" }

[pools.limits]
in_flight = 96
queue_wait = "400ms"
"#;

fn faults(text: &str) -> Vec<String> {
    match load(&Sources::only("weir.toml", text)) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_smallest_file_is_whole() {
    let config = load(&Sources::only("weir.toml", SMALLEST)).unwrap();
    let pool = config.pool("tiny").unwrap();
    assert_eq!(pool.replicas.len(), 2);
    assert_eq!(pool.policy.limit.in_flight, Some(96));
    assert_eq!(pool.policy.queue.wait, Duration::from_millis(400));
    assert_eq!(pool.policy.classes[0].slo.ttft, Some(Duration::from_secs(1)));
    assert_eq!(pool.limits_from, LimitSource::Written);
    assert!(config.pool("other").is_none());
}

#[test]
fn the_queue_waits_two_fifths_of_the_target_where_nothing_is_said() {
    let text = SMALLEST.replace("queue_wait = \"400ms\"", "").replace("\"1s\"", "\"3s\"");
    let config = load(&Sources::only("weir.toml", &text)).unwrap();
    assert_eq!(config.pools[0].policy.queue.wait, Duration::from_millis(1_200));
}

#[test]
fn every_fault_is_said_at_once_with_its_line() {
    let text = r#"
[server]
listn = "127.0.0.1:8080"
admin = 5
[timeouts]
connect = "5 parsecs"
total = 9
[[pools]]
model = "tiny"
colour = "red"
replicas = ["http://r1:80/", "HTTP://R1", 7, "r2"]
[pools.limits]
in_flight = 0
[[pools]]
model = "tiny"
replicas = ["http://r1"]
"#;
    let found = faults(text);
    let starts = [
        "weir.toml:3: server.listn: unknown key",
        "weir.toml:4: server.admin: invalid type: integer",
        "weir.toml:6: timeouts.connect: invalid value",
        "weir.toml:7: timeouts.total: invalid type",
        "weir.toml:10: pools[0].colour: unknown key",
        "weir.toml:11: pools[0].replicas[1]: http://r1:80 is listed already",
        "weir.toml:11: pools[0].replicas[2]: invalid type",
        "weir.toml:11: pools[0].replicas[3]: \"r2\" is not a URL",
        "weir.toml:13: pools[0].limits.in_flight: 0 is out of range (allowed: 1 to",
        "weir.toml:15: pools[1].model: \"tiny\" is taken by pools[0].model",
        "weir.toml:16: pools[1].replicas[0]: http://r1:80 is listed already",
    ];
    for start in starts {
        assert!(found.iter().any(|line| line.starts_with(start)), "{start}\nin {found:#?}");
    }
    assert_eq!(found.len(), starts.len(), "{found:#?}");
}

/// A file that says something other than [`SMALLEST`] of every key that a reload can meet.
const OTHER: &str = r#"
[server]
listen = "127.0.0.1:8081"
admin = "127.0.0.1:9091"
allow_anonymous = true
tls = { cert = "cert.pem", key = "key.pem" }
admin_token_env = "TOKEN"
endpoints = ["completions"]
overload_status = 429

[server.limits]
max_connections = 5
header_timeout = "1s"
max_header_bytes = "8KiB"
max_headers = 20
max_body_bytes = "1MiB"
max_buffered_bytes = "2MiB"
body_timeout = "2s"
min_body_rate = "1B"
idle_timeout = "3s"

[timeouts]
connect = "2s"
first_byte = "20s"
head_hold = "2s"
between_frames = "5s"
total = "1m"
client_stall = "5s"
upstream_idle = "2s"

[drain]
delay = "0s"
deadline = "1s"

[log]
filter = "debug"
format = "json"
access = false

[[pools]]
model = "tiny"
aliases = ["small"]
replicas = ["http://127.0.0.1:8102", "http://127.0.0.1:8103"]
api_key_env = "KEY"
slo = { ttft = "2s", tpot = "60ms", itl = "1s", e2e = "20s" }
limits = { in_flight = 48, max_num_seqs = 64, queue_wait = "100ms", queue_count = 7, queue_bytes = "1MiB", gateways = 2 }
retry = { attempts = 1, budget = 0.1, stall_after = "3s" }
scrape = { period = "1s", timeout = "3s", stale_after = "9s" }
probe = { period = "3s", timeout = "3s" }
"#;

fn other(key: &str) -> Config {
    let mut sources = Sources::only("weir.toml", OTHER);
    sources.env.insert("TOKEN".to_owned(), Some("token".to_owned()));
    sources.env.insert("KEY".to_owned(), Some(key.to_owned()));
    load(&sources).unwrap()
}

#[test]
fn every_setting_that_differs_is_in_the_difference() {
    let old = load(&Sources::only("weir.toml", SMALLEST)).unwrap();
    let new = other("sk-1");
    let changes = diff(&old, &new);
    for setting in settings(&new) {
        let kept = settings(&old).contains(&setting);
        let said = changes.iter().any(|change| change.path == setting.path);
        assert!(kept != said, "{}", setting.path);
    }
    assert!(diff(&new, &new).is_empty());
    let gone = changes.iter().find(|change| change.new.is_none()).unwrap();
    assert_eq!(gone.path, r#"pools["tiny"].replicas["http://127.0.0.1:8101"]"#);
    let lowered = changes.iter().find(|c| c.path.ends_with("in_flight")).unwrap();
    assert_eq!(
        lowered.to_string(),
        r#"~ pools["tiny"].limits.in_flight: 96 -> 48 (live: cuts no stream; nothing new starts until enough have ended)"#
    );
}

#[test]
fn a_changed_secret_shows_and_is_not_shown() {
    let changes = diff(&other("sk-1"), &other("sk-2"));
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].path, r#"pools["tiny"].api_key"#);
    assert!(!changes[0].to_string().contains("sk-"));
}

#[test]
fn a_reload_keeps_exactly_what_needs_a_restart() {
    let running = load(&Sources::only("weir.toml", SMALLEST)).unwrap();
    let new = other("sk-1");
    let held = hold_fixed(&running, new.clone());
    assert!(diff(&running, &held).iter().all(|change| change.applies == Applies::Live));
    assert!(diff(&held, &new).iter().all(|change| change.applies == Applies::Restart));
    assert_eq!(diff(&running, &held).len() + diff(&held, &new).len(), diff(&running, &new).len());
}

#[test]
fn pools_that_come_and_go_are_one_line_each() {
    let old = load(&Sources::only("weir.toml", SMALLEST)).unwrap();
    let text = SMALLEST.replace("\"tiny\"", "\"large\"");
    let new = load(&Sources::only("weir.toml", &text)).unwrap();
    let changes: Vec<_> = diff(&old, &new).into_iter().map(|change| change.path).collect();
    assert_eq!(changes, [r#"pools["large"]"#, r#"pools["tiny"]"#]);
}
