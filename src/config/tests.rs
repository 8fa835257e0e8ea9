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
