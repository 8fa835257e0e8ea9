//! The import law of `docs/ARCHITECTURE.md`: reads the sources and fails on any other arrow.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Who may import whom. A room not named here may import nothing of ours.
const LAW: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("lifecycle", &[]),
    ("stats", &[]),
    ("openai", &["domain"]),
    ("vllm", &["domain"]),
    ("workload", &["domain"]),
    ("tenants", &["domain"]),
    ("dispatch", &["domain", "stats"]),
    ("knee", &["domain", "stats"]),
    ("config", &["domain", "dispatch", "tenants"]),
    ("telemetry", &["domain"]),
    ("reload", &["config", "telemetry", "lifecycle"]),
    ("store", &["domain", "tenants", "telemetry", "lifecycle"]),
    ("sim", &["domain", "stats", "workload", "dispatch", "tenants", "config", "knee"]),
    ("replica", &["domain", "sim", "openai", "vllm", "lifecycle"]),
    ("load", &["domain", "stats", "workload", "openai", "vllm", "knee", "lifecycle"]),
    ("upstream", &["domain", "vllm", "config", "telemetry", "lifecycle"]),
    (
        "proxy",
        &[
            "domain",
            "dispatch",
            "tenants",
            "openai",
            "vllm",
            "upstream",
            "config",
            "telemetry",
            "lifecycle",
        ],
    ),
    ("server", &["domain", "proxy", "reload", "config", "telemetry", "lifecycle"]),
];

/// Composition roots: they see everything.
const ROOTS: &[&str] = &["app", "cli", "main", "lib"];

/// Rooms that must stay free of IO, clocks, environment and randomness of their own.
const PURE: &[&str] = &[
    "domain", "dispatch", "openai", "vllm", "stats", "tenants", "knee", "config", "workload", "sim",
];

/// What a pure room must not name.
const IMPURE: &[&str] = &[
    "tokio::",
    "hyper::",
    "hyper_util::",
    "std::fs",
    "std::net::Tcp",
    "std::env",
    "std::thread",
    "Instant",
    "SystemTime",
    "rand::rng(",
    "thread_rng",
    "std::process",
];

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

fn room(path: &Path, src: &Path) -> String {
    let first = path.strip_prefix(src).unwrap().components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// The code of a file: without comments, and without its inline tests.
fn code(text: &str) -> String {
    let body = text.split("#[cfg(test)]").next().unwrap();
    body.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The rooms that a file names by `crate::room` or `crate::{room, ..}`.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0_usize;
            let mut word = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => word.clear(),
                    ':' if depth == 0 && !word.is_empty() => {
                        found.push(std::mem::take(&mut word));
                    }
                    c if depth == 0 && (c.is_alphanumeric() || c == '_') => word.push(c),
                    _ => {}
                }
            }
        } else {
            found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

fn tree() -> Vec<(PathBuf, String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&src, &mut paths);
    paths.sort();
    paths
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name != "tests.rs"))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let room = room(&path, &src);
            (path, room, code(&text))
        })
        .collect()
}

#[test]
fn rooms_import_only_what_the_law_allows() {
    let law: BTreeMap<_, _> = LAW.iter().copied().collect();
    let mut faults = Vec::new();
    for (path, room, code) in tree() {
        if ROOTS.contains(&room.as_str()) {
            continue;
        }
        let Some(allowed) = law.get(room.as_str()) else {
            faults.push(format!("{}: the room {room} is not in the law", path.display()));
            continue;
        };
        for import in imports(&code) {
            if import != room && !allowed.contains(&import.as_str()) {
                faults.push(format!("{}: {room} -> {import}", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "arrows that the law forbids:\n{}", faults.join("\n"));
}

#[test]
fn pure_rooms_touch_nothing_outside() {
    let mut faults = Vec::new();
    for (path, room, code) in tree() {
        if !PURE.contains(&room.as_str()) {
            continue;
        }
        for word in IMPURE {
            if code.contains(word) {
                faults.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "pure rooms that are not:\n{}", faults.join("\n"));
}

#[test]
fn the_reader_sees_what_it_should() {
    let text = "use crate::{domain::{A, b::C}, openai::D};\nuse crate::vllm::E;\n// crate::proxy\n\
                #[cfg(test)]\nmod tests { use crate::sim; }";
    assert_eq!(imports(&code(text)), ["domain", "openai", "vllm"]);
}

#[test]
fn the_top_level_holds_only_what_it_should() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "config", "deploy", "benches", "tests", "docs", "target", "out"];
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && !name.starts_with('.') {
            assert!(folders.contains(&name.as_str()), "{name} is no top-level folder of ours");
        }
    }
}
