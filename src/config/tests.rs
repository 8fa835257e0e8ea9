//! What the corpus of `tests/config` cannot say: values, paths, and that nothing panics.

use std::time::Duration;

use super::*;
use crate::domain::{ClassId, Slo};

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

[[classes]]
name = "default"
share = 2
slo = { e2e = "9s" }

[[classes]]
name = "agent"
share = 0.5
critical = true
slo = { ttft = "300ms" }
[classes.match]
headers = { X-Kind = "agent" }
endpoints = ["completions"]
prompt_tokens = { min = 200, max = 600 }
prompt_bytes = { min = "1KiB", max = "2KiB" }

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
fn own_targets_of_a_class_come_before_the_pools() {
    let config = other("sk-1");
    let pool = &config.pools[0];
    let target =
        |class: u16, pick: fn(&Slo) -> Option<Duration>| pick(&pool.slo_of(ClassId(class)));
    assert_eq!(target(0, |slo| slo.ttft), Some(Duration::from_secs(2)));
    assert_eq!(target(0, |slo| slo.e2e), Some(Duration::from_secs(9)));
    assert_eq!(target(1, |slo| slo.ttft), Some(Duration::from_millis(300)));
    assert_eq!(target(1, |slo| slo.e2e), Some(Duration::from_secs(20)));
    let policies = &pool.policy.classes;
    let said: Vec<_> = policies.iter().map(|class| (class.share, class.critical)).collect();
    assert_eq!(said, [(2.0, false), (0.5, true)]);
}

#[test]
fn the_queue_waits_by_the_tightest_class() {
    let text = format!(
        "{}\n[[classes]]\nname = \"voice\"\nslo = {{ ttft = \"250ms\" }}\n\
         match = {{ headers = {{ x-kind = \"voice\" }} }}\n",
        SMALLEST.replace("queue_wait = \"400ms\"", "")
    );
    let config = load(&Sources::only("weir.toml", &text)).unwrap();
    assert_eq!(config.pools[0].policy.queue.wait, Duration::from_millis(100));
}

#[test]
fn a_reload_leaves_every_class_its_id() {
    let class = |name: &str| {
        format!(
            "[[classes]]\nname = \"{name}\"\nmatch = {{ headers = {{ x-kind = \"{name}\" }} }}\n"
        )
    };
    let of = |names: &[&str]| {
        let text = names.iter().map(|name| class(name)).collect::<Vec<_>>().concat() + SMALLEST;
        load(&Sources::only("weir.toml", &text)).unwrap()
    };
    let running = of(&["chat", "batch"]);
    let held = hold_fixed(&running, of(&["agent", "batch"])).unwrap();
    let headers = http::HeaderMap::from_iter([(
        http::HeaderName::from_static("x-kind"),
        http::HeaderValue::from_static("batch"),
    )]);
    let asked = Asked {
        headers: &headers,
        tenant: crate::domain::TenantId::default(),
        endpoint: crate::domain::Endpoint::Completions,
        prompt_bytes: 1,
        prompt_tokens: None,
    };
    assert_eq!(running.classes.recognise(&asked), held.classes.recognise(&asked));
    let ids: Vec<_> = held.pools[0].policy.classes.iter().map(|class| class.id.0).collect();
    assert_eq!(ids, [0, 1, 2, 3], "the id of a class that is gone stays taken");
    let changes: Vec<_> = diff(&running, &held).into_iter().map(|change| change.path).collect();
    assert!(changes.contains(&"classes (in order)".to_owned()), "{changes:?}");
    let back = hold_fixed(&held, of(&["chat", "batch"])).unwrap();
    assert_eq!(diff(&running, &back), Vec::new());
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
    let held = hold_fixed(&running, new.clone()).unwrap();
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

const EXAMPLE: &str = include_str!("../../config/example.toml");

/// Lines that show a key without a default: `#key = value`.
fn shown(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
}

fn whole(text: &str) -> Sources {
    let mut sources = Sources::only("example.toml", text);
    let names = references(text);
    sources.files = names.files.into_iter().map(|file| (file, Ok("word".to_owned()))).collect();
    let folder = |path| (path, Ok(Folder::from([("key".to_owned(), Ok("word".to_owned()))])));
    sources.folders = names.folders.into_iter().map(folder).collect();
    sources.env = names.env.into_iter().map(|name| (name, Some("word".to_owned()))).collect();
    sources
}

#[test]
fn the_example_says_exactly_the_defaults() {
    let example = load(&Sources::only("example.toml", EXAMPLE)).unwrap();
    let bare = "[[pools]]\nmodel = \"tiny\"\nslo = { ttft = \"1s\", tpot = \"50ms\" }\n\
                replicas = [\"http://127.0.0.1:8101\", \"http://127.0.0.1:8102\"]";
    let defaults = load(&Sources::only("bare.toml", bare)).unwrap();
    assert_eq!(diff(&defaults, &example), Vec::new());
}

#[test]
fn every_line_that_the_example_shows_can_be_switched_on() {
    let lines: Vec<_> = EXAMPLE.lines().collect();
    let mut tried = 0;
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| shown(line)) {
        let mut text = lines.clone();
        text[at] = line.trim_start_matches('#');
        let loaded = load(&whole(&text.join("\n")));
        assert!(loaded.is_ok(), "{line}: {loaded:?}");
        tried += 1;
    }
    assert!(tried >= 10, "only {tried} lines");
}

/// The keys of a table that has no defaults, since none stands there unasked: an indented block.
fn block(of: &str) -> String {
    let lines = EXAMPLE.lines().skip_while(|line| line.trim_start_matches(['#', ' ']) != of);
    let lines = lines.take_while(|line| !line.is_empty()).map(|line| {
        line.strip_prefix("#   ").unwrap_or_else(|| panic!("not part of the block: {line}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_examples_tenant_differs_from_the_default_in_every_key() {
    let pool = "[[pools]]\nmodel = \"tiny\"\nreplicas = [\"http://127.0.0.1:8101\"]\n";
    let shown = load(&whole(&format!("{pool}{}", block("[[tenants]]")))).unwrap();
    let bare = load(&whole(&format!("{pool}[[tenants]]\nname = \"search\""))).unwrap();
    let changes: Vec<_> = diff(&bare, &shown).into_iter().map(|change| change.path).collect();
    let rights = ["keys", "weight", "models", "routes", "expires", "blocked"];
    let quotas = ["requests_per_minute", "tokens_per_minute", "parallel", "burst"];
    let caps = ["max_input_tokens", "max_output_tokens", "over_output", "priority", "isolation"];
    let keys = rights.into_iter().chain(quotas).chain(caps);
    assert_eq!(changes, keys.map(|key| format!("tenants[\"search\"].{key}")).collect::<Vec<_>>());
}

#[test]
fn the_examples_class_is_recognised_by_everything_that_there_is() {
    let tenant = "[[tenants]]\nname = \"nightly\"\n";
    let text = format!("{}\n{tenant}{SMALLEST}", block("[[classes]]"));
    let config = load(&Sources::only("weir.toml", &text)).unwrap();
    let class = &config.classes.all()[1];
    let ClassRule { headers, tenants, endpoints, prompt_tokens, prompt_bytes } =
        class.rule.clone().unwrap();
    assert_eq!((headers.len(), tenants.unwrap().len(), endpoints.unwrap().len()), (1, 1, 2));
    assert_eq!((prompt_tokens, prompt_bytes), (1_000..=100_000, 4 << 10..=1 << 20));
    assert!(class.share < 1.0 && class.slo.ttft.is_some());
}

#[test]
fn the_example_shows_every_key() {
    for table in [
        "",
        "server",
        "server.tls",
        "server.limits",
        "timeouts",
        "drain",
        "log",
        "classes",
        "classes.match",
        "classes.match.prompt_tokens",
        "classes.match.prompt_bytes",
        "pools",
        "pools.slo",
        "pools.limits",
        "pools.retry",
        "pools.scrape",
        "pools.probe",
        "tenants",
    ] {
        // serde itself says which keys there are.
        let text = match table {
            "pools" | "tenants" | "classes" => format!("[[{table}]]\nnone = 1"),
            "" => "none = 1".to_owned(),
            inner if inner.starts_with("pools.") => format!("[[pools]]\n[{inner}]\nnone = 1"),
            inner if inner.starts_with("classes.") => format!("[[classes]]\n[{inner}]\nnone = 1"),
            other => format!("[{other}]\nnone = 1"),
        };
        let errors = load(&Sources::only("", &text)).unwrap_err();
        let unknown = errors.0.iter().find(|error| error.path.ends_with("none")).unwrap();
        let keys = unknown.allowed.as_ref().unwrap().split(&[',', ' '][..]);
        for key in keys.map(|key| key.trim_matches('"')).filter(|key| *key != "or") {
            let said = |line: &str| {
                let line = line.trim_start_matches(['#', ' ', '[']);
                line.split(['=', ']', ' ', '.']).next() == Some(key)
                    || line.contains(&format!(".{key}]"))
                    || line.contains(&format!("{{ {key} ="))
                    || line.contains(&format!(", {key} ="))
            };
            assert!(key.is_empty() || EXAMPLE.lines().any(said), "{table}.{key}");
        }
    }
}

#[test]
fn a_file_of_nothing_but_faults_ends_soon() {
    let many = |piece: &str| piece.repeat(40_000);
    for text in [
        format!("[[pools]]\nreplicas = [{}]", many("5,")),
        format!("[[pools]]\naliases = [{}]", many("[],")),
        format!("[[pools]]\nreplicas = [{}]", many("'',")),
        many("[[pools]]\n"),
        (0..10_000).map(|n| format!("key{n} = {n}\n")).collect::<Vec<_>>().concat(),
        format!("{}x = 1", many("a.")),
        format!("x = {}", many("[")),
        format!("x = {}", many("{a=")),
        format!("[{}x]", many("a.")),
    ] {
        let errors = load(&Sources::only("weir.toml", &text)).unwrap_err();
        assert!(errors.0.len() <= 51, "{}", errors.0.len());
    }
}

mod anything {
    use proptest::prelude::*;

    use super::*;

    /// A change to a right text: cut out a stretch, and put something in its place.
    fn mutated() -> impl Strategy<Value = String> {
        let pieces = prop_oneof![
            Just(String::new()),
            Just("[[pools]]\n".to_owned()),
            Just("[[tenants]]\nname = \"a\"\nkeys = [[]]\n".to_owned()),
            Just("-1".to_owned()),
            Just("[]".to_owned()),
            Just("{}".to_owned()),
            Just("\"\"".to_owned()),
            Just("1979-05-27T07:32:00Z".to_owned()),
            Just("\"x.y\" = [[1], {a = 2}]\n".to_owned()),
            "\\PC{0,12}",
        ];
        let start = prop_oneof![Just(SMALLEST), Just(OTHER), Just(EXAMPLE)];
        (start, prop::collection::vec((any::<prop::sample::Index>(), 0..60_usize, pieces), 1..6))
            .prop_map(|(text, edits)| {
                let mut text: Vec<char> = text.chars().collect();
                for (at, length, piece) in edits {
                    let at = at.index(text.len() + 1);
                    let end = (at + length).min(text.len());
                    text.splice(at..end, piece.chars());
                }
                text.into_iter().collect()
            })
    }

    fn holds(text: &str) -> Result<(), TestCaseError> {
        match load(&whole(text)) {
            Ok(config) => {
                prop_assert!(!config.pools.is_empty());
                prop_assert!(diff(&config, &config).is_empty());
                let ids = config.classes.names().len();
                for pool in &config.pools {
                    prop_assert!(pool.policy.classes.len() == ids);
                    prop_assert!(pool.policy.classes.iter().all(|class| class.share > 0.0));
                    prop_assert!(!pool.replicas.is_empty() && !pool.model.is_empty());
                    prop_assert!(pool.policy.limit.in_flight != Some(0));
                    prop_assert!(!pool.policy.queue.wait.is_zero());
                    prop_assert!(pool.policy.gateways >= 1 && pool.policy.attempts >= 1);
                }
            }
            Err(errors) => {
                prop_assert!(!errors.0.is_empty() && errors.0.len() < 500);
                let lines = text.lines().count().max(1) + 1;
                prop_assert!(errors.0.iter().all(|error| error.line.is_none_or(|l| l <= lines)));
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
            holds(&text)?;
        }

        #[test]
        fn any_change_of_a_right_file_is_read_or_refused(text in mutated()) {
            holds(&text)?;
        }
    }
}
