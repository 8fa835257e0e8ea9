//! Files that change under a running reloader, the ways that editors and Kubernetes do it.
//!
//! Real files and the system's own watch, since these are the point. Nothing here asserts a
//! time; the long one only ends a test that would hang.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

use weir::lifecycle::{Clock, Signals, Tasks};
use weir::reload::{Asker, Cause, Handle, Loader, Outcome, Reloader, Report, Running};

const HANGS: Duration = Duration::from_secs(20);

fn text(in_flight: u32) -> String {
    format!(
        "[[pools]]\nmodel = \"tiny\"\nreplicas = [\"http://127.0.0.1:8101\"]\n\
         limits = {{ in_flight = {in_flight} }}\n"
    )
}

/// A reloader that runs, and has looked at its file once since it watches.
struct Watched {
    handle: Arc<Handle>,
    asker: Asker,
    changes: Receiver<Arc<Running>>,
    _tasks: Tasks,
}

impl Watched {
    async fn start(path: &Path) -> Self {
        let reloader = Reloader::start(Loader::new(path), Clock::start(), |_, _| {}).unwrap();
        let handle = Arc::clone(reloader.handle());
        let asker = reloader.asker();
        let tasks = Tasks::new(|name| panic!("{name} panicked"));
        drop(tasks.background("reload", reloader.run(None)));
        // Answered only from within the loop, so that the watch stands.
        asker.reload(Cause::Admin).await.unwrap();
        Self { changes: handle.subscribe(), handle, asker, _tasks: tasks }
    }

    async fn becomes(&mut self, in_flight: u32) {
        let wanted = |running: &Arc<Running>| {
            running.config.pools[0].policy.limit.in_flight == Some(in_flight)
        };
        let seen = timeout(HANGS, self.changes.wait_for(wanted)).await;
        drop(seen.unwrap_or_else(|_| panic!("{in_flight} was never seen")).unwrap());
    }
}

#[tokio::test]
async fn kubernetes_swaps_a_symbolic_link() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let publish = |version: &str, text: &str| {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("weir.toml"), text).unwrap();
        symlink(version, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
    };
    publish("..v1", &text(96));
    symlink("..data/weir.toml", at("weir.toml")).unwrap();
    let mut watched = Watched::start(&at("weir.toml")).await;
    for (version, in_flight) in [("..v2", 48), ("..v3", 24)] {
        publish(version, &text(in_flight));
        watched.becomes(in_flight).await;
    }
    fs::remove_dir_all(at("..v1")).unwrap();
    publish("..v4", "nonsense");
    publish("..v5", &text(12));
    watched.becomes(12).await;
}

#[tokio::test]
async fn editors_write_in_place_or_rename_over() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.toml");
    fs::write(&path, text(96)).unwrap();
    let mut watched = Watched::start(&path).await;
    fs::write(&path, text(48)).unwrap();
    watched.becomes(48).await;
    let aside = folder.path().join("weir.toml~");
    fs::write(&aside, text(24)).unwrap();
    fs::rename(&aside, &path).unwrap();
    watched.becomes(24).await;
    fs::remove_file(&path).unwrap();
    fs::write(&path, text(12)).unwrap();
    watched.becomes(12).await;
}

#[tokio::test]
async fn a_file_behind_a_plain_link_and_a_limits_file_elsewhere_are_followed() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (real, limits) = (elsewhere.path().join("real.toml"), elsewhere.path().join("limits.toml"));
    fs::write(&real, text(96)).unwrap();
    symlink(&real, folder.path().join("weir.toml")).unwrap();
    let mut watched = Watched::start(&folder.path().join("weir.toml")).await;
    fs::write(&limits, "[limits]\nin_flight = 48\n").unwrap();
    fs::write(&real, format!("{}limits_file = {limits:?}\n", text(96))).unwrap();
    watched.becomes(48).await;
    fs::write(&limits, "[limits]\nin_flight = 24\n").unwrap();
    watched.becomes(24).await;
}

#[tokio::test]
async fn a_hangup_reads_the_file_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.toml");
    fs::write(&path, text(96)).unwrap();
    let causes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&causes);
    let observer = move |report: &Report, _: &Running| seen.lock().unwrap().push(report.cause);
    let reloader = Reloader::start(Loader::new(&path), Clock::start(), observer).unwrap();
    let tasks = Tasks::new(|name| panic!("{name} panicked"));
    let hangup = Signals::listen().unwrap().hangup;
    let asker = reloader.asker();
    drop(tasks.background("reload", reloader.run(Some(hangup))));
    asker.reload(Cause::Admin).await.unwrap();
    let pid = std::process::id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    let hung_up = async {
        while !causes.lock().unwrap().contains(&Cause::Signal) {
            asker.reload(Cause::Admin).await.unwrap();
        }
    };
    timeout(HANGS, hung_up).await.unwrap();
}

#[tokio::test]
async fn whoever_asks_is_told_every_fault_and_the_old_one_stays() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.toml");
    fs::write(&path, text(96)).unwrap();
    let watched = Watched::start(&path).await;
    let before = watched.handle.running();
    fs::write(&path, text(0) + "colour = 1\n").unwrap();
    let report = watched.asker.reload(Cause::Admin).await.unwrap();
    let Outcome::Refused(errors) = &report.outcome else {
        panic!("{report:?}");
    };
    assert_eq!(errors.0.len(), 2, "{errors}");
    assert!(Arc::ptr_eq(&before, &watched.handle.running()));
}
