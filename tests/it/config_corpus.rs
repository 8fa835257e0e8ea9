//! The corpus of `tests/config`: what is right, and what is wrong with everything that is told.
//!
//! Beside each invalid file stands what `weir check` prints of it. After a change of words,
//! `cargo test --test it bless_the_corpus -- --ignored` writes these anew, to be read in the
//! diff.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir::cli::check::{CheckArgs, run};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn corpus(kind: &str) -> Vec<PathBuf> {
    let folder = root().join("tests/config").join(kind);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    assert!(paths.len() > 3, "no corpus of {kind} files");
    paths
}

/// What `weir check` prints, with the folder left out, and how it ends.
fn check(file: &Path, against: Option<PathBuf>) -> (String, ExitCode) {
    let args = CheckArgs { file: file.to_owned(), against, all: false };
    let mut out = Vec::new();
    let code = run(&args, &mut out).unwrap();
    let folder = format!("{}/", file.parent().unwrap().display());
    (String::from_utf8(out).unwrap().replace(&folder, ""), code)
}

/// `ExitCode` has no `==`.
fn same(one: ExitCode, other: ExitCode) -> bool {
    format!("{one:?}") == format!("{other:?}")
}

#[test]
fn valid_files_are_valid() {
    let shipped = ["config/example.toml", "config/demo.toml"].map(|path| root().join(path));
    for path in corpus("valid").into_iter().chain(shipped) {
        let (out, code) = check(&path, None);
        assert!(same(code, ExitCode::SUCCESS), "{out}");
        assert!(out.contains(": valid\n"), "{out}");
    }
}

#[test]
fn invalid_files_say_every_fault_and_end_with_2() {
    for path in corpus("invalid") {
        let (out, code) = check(&path, None);
        let expected = fs::read_to_string(path.with_extension("errors")).unwrap();
        assert_eq!(out, expected, "{}", path.display());
        assert!(same(code, ExitCode::from(2)), "{}", path.display());
    }
}

#[test]
#[ignore = "writes what invalid_files_say_every_fault_and_end_with_2 compares with"]
fn bless_the_corpus() {
    for path in corpus("invalid") {
        fs::write(path.with_extension("errors"), check(&path, None).0).unwrap();
    }
}

#[test]
fn a_check_against_the_running_file_shows_what_a_reload_would_change() {
    let valid = root().join("tests/config/valid");
    let (out, code) =
        check(&valid.join("smallest.toml"), Some(valid.join("no-slo-no-limits.toml")));
    assert!(same(code, ExitCode::SUCCESS));
    assert!(out.contains("a reload changes:\n"), "{out}");
    assert!(out.contains(r#"+ pools["tiny"]: new pool (live: "#), "{out}");
    assert!(out.contains(r#"- pools["m"]: pool (live: "#), "{out}");
    let (out, _) = check(&valid.join("smallest.toml"), Some(valid.join("smallest.toml")));
    assert!(out.ends_with("a reload changes nothing\n"), "{out}");
    let (_, code) = check(&valid.join("smallest.toml"), Some(valid.join("no-such-file.toml")));
    assert!(same(code, ExitCode::from(2)));
}
