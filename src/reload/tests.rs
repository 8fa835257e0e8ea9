//! What a reload does with a file, whatever made it look.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::*;
use crate::lifecycle::Clock;

fn text(in_flight: u32) -> String {
    format!(
        "[[pools]]\nmodel = \"tiny\"\nreplicas = [\"http://127.0.0.1:8101\"]\n\
         limits = {{ in_flight = {in_flight} }}\n"
    )
}

fn limit(handle: &Handle) -> Option<u32> {
    handle.config().pools[0].policy.limit.in_flight
}

fn start(folder: &TempDir) -> (Reloader, Arc<AtomicUsize>) {
    let path = folder.path().join("weir.toml");
    fs::write(&path, text(96)).unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let observer = move |report: &Report, _: &Running| {
        if matches!(report.outcome, Outcome::Refused(_)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    (Reloader::start(Loader::new(path), Clock::start(), observer).unwrap(), refused)
}

#[tokio::test]
async fn a_right_file_takes_the_place_of_the_running_one() {
    let folder = TempDir::new().unwrap();
    let (mut reloader, _) = start(&folder);
    let handle = Arc::clone(reloader.handle());
    let mut changes = handle.subscribe();
    let first = handle.running();
    fs::write(folder.path().join("weir.toml"), text(48)).unwrap();
    let report = reloader.reload(Cause::Signal);
    let Outcome::Applied { generation, changes: said } = report.outcome else {
        panic!("{report:?}");
    };
    assert_eq!((generation, said.len(), limit(&handle)), (2, 1, Some(48)));
    assert!(changes.has_changed().unwrap());
    assert_eq!(changes.borrow_and_update().config.pools[0].policy.limit.in_flight, Some(48));
    assert_ne!(handle.running().hash, first.hash);
    assert_eq!(reloader.reload(Cause::Signal).outcome, Outcome::Unchanged);
    assert_eq!(handle.running().generation, 2);
}

#[tokio::test]
async fn the_last_reloads_are_remembered_newest_first() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.toml");
    let (mut reloader, _) = start(&folder);
    let handle = Arc::clone(reloader.handle());
    assert_eq!(handle.past(), []);
    reloader.reload(Cause::Signal);
    assert_eq!(handle.past(), [], "what changed nothing is no news");
    for in_flight in 1..=12 {
        fs::write(&path, text(in_flight)).unwrap();
        reloader.reload(Cause::File);
    }
    fs::write(&path, "nonsense").unwrap();
    reloader.reload(Cause::Admin);
    let past = handle.past();
    assert_eq!(past.len(), 10);
    assert!(matches!(past[0].report.outcome, Outcome::Refused(_)));
    assert_eq!(past[0].report.cause, Cause::Admin);
    let Outcome::Applied { generation, changes } = &past[1].report.outcome else {
        panic!("{past:?}");
    };
    assert_eq!((*generation, changes[0].new.as_deref()), (13, Some("12")));
}

#[tokio::test]
async fn twenty_kinds_of_bad_file_keep_the_old_one() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.toml");
    let (mut reloader, refused) = start(&folder);
    let handle = Arc::clone(reloader.handle());
    let good = text(48);
    let with = |line: &str| format!("{line}\n{good}").into_bytes();
    let instead = |from: &str, to: &str| good.replace(from, to).into_bytes();
    let bad: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"[[pools]".to_vec(),
        b"\xff\xfe".to_vec(),
        vec![b'#'; (1 << 20) + 1],
        good.as_bytes()[..good.len() / 2].to_vec(),
        with("colour = 1"),
        with("server = 5"),
        with("[server]\nlisten = \"0.0.0.0:8080\""),
        with("[server]\nlisten = \"here\""),
        with("[server]\nadmin = \"0.0.0.0:9090\""),
        with("[server]\nadmin_token_file = \"missing\""),
        with("[server]\nadmin_token_env = \"WEIR_TEST_NO_SUCH_VARIABLE\""),
        with("[timeouts]\nconnect = \"5 parsecs\""),
        with("[timeouts]\nconnect = \"0s\""),
        with("[log]\nformat = \"xml\""),
        instead("48", "0"),
        instead("48", "-1"),
        instead("48", "1e30"),
        instead("\"http://127.0.0.1:8101\"", ""),
        instead("http://", "ftp://"),
        instead("\"tiny\"", "\"\""),
        format!("{good}{good}").into_bytes(),
        [good.as_bytes(), b"limits_file = \"missing.toml\"\n"].concat(),
    ];
    for (count, bytes) in bad.iter().enumerate() {
        fs::write(&path, bytes).unwrap();
        let report = reloader.reload(Cause::File);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
        assert!(matches!(report.outcome, Outcome::Refused(_)), "{report:?} of {shown}");
        assert_eq!(refused.load(Ordering::Relaxed), count + 1);
        assert_eq!((handle.running().generation, limit(&handle)), (1, Some(96)));
        assert!(handle.refusal().is_some());
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(reloader.reload(Cause::File).outcome, Outcome::Refused(_)));
    fs::write(&path, &good).unwrap();
    assert!(matches!(reloader.reload(Cause::File).outcome, Outcome::Applied { .. }));
    assert!(handle.refusal().is_none());
}

#[tokio::test]
async fn one_fault_is_counted_once_however_often_the_folder_stirs() {
    let folder = TempDir::new().unwrap();
    let (mut reloader, refused) = start(&folder);
    fs::write(folder.path().join("weir.toml"), "nonsense").unwrap();
    for _ in 0..3 {
        reloader.reload(Cause::File);
    }
    assert_eq!(refused.load(Ordering::Relaxed), 1);
    reloader.reload(Cause::Admin);
    assert_eq!(refused.load(Ordering::Relaxed), 2, "who asks is told again");
}

#[tokio::test]
async fn what_needs_a_restart_is_said_and_stays() {
    let folder = TempDir::new().unwrap();
    let (mut reloader, _) = start(&folder);
    let listen = reloader.handle().config().server.listen;
    let moved = format!("[server]\nlisten = \"127.0.0.1:18080\"\n{}", text(48));
    fs::write(folder.path().join("weir.toml"), moved).unwrap();
    for _ in 0..2 {
        let Outcome::Applied { changes, .. } = reloader.reload(Cause::Admin).outcome else {
            panic!("the waiting change is said each time");
        };
        assert_eq!(changes[0].path, "server.listen");
        assert_eq!(reloader.handle().config().server.listen, listen);
        assert_eq!(limit(reloader.handle()), Some(48));
    }
}

#[tokio::test]
async fn a_limits_file_wins_and_is_followed() {
    let folder = TempDir::new().unwrap();
    let (mut reloader, _) = start(&folder);
    let limits = folder.path().join("limits.toml");
    let measured = "[limits]\nin_flight = 30\n[provenance]\nvllm = \"0.32.0\"\n";
    fs::write(&limits, measured).unwrap();
    let main = text(96) + "limits_file = \"limits.toml\"\n";
    fs::write(folder.path().join("weir.toml"), main).unwrap();
    reloader.reload(Cause::File);
    assert_eq!(limit(reloader.handle()), Some(30));
    fs::write(&limits, measured.replace("30", "20")).unwrap();
    reloader.reload(Cause::File);
    assert_eq!(limit(reloader.handle()), Some(20));
    fs::write(&limits, measured.replace("30", "0")).unwrap();
    let Outcome::Refused(errors) = reloader.reload(Cause::File).outcome else {
        panic!("a zero limit");
    };
    assert!(errors.to_string().starts_with("limits.toml:2: limits.in_flight: 0 is out of range"));
}

#[tokio::test]
async fn a_refused_file_that_is_looked_at_again_is_still_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.toml");
    fs::write(&path, text(96)).unwrap();
    let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let observer = move |report: &Report, _: &Running| tell.lock().push(report.outcome.as_str());
    let mut reloader =
        Reloader::start(Loader::new(path.clone()), Clock::start(), observer).unwrap();
    fs::write(&path, "nonsense").unwrap();
    reloader.reload(Cause::File);
    reloader.reload(Cause::File);
    assert_eq!(*told.lock(), ["refused"], "the gauge would say that it was taken");
    fs::write(&path, text(96)).unwrap();
    reloader.reload(Cause::File);
    assert_eq!(*told.lock(), ["refused", "unchanged"]);
}
