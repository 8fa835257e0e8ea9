//! Watching a replica, against a small server that a test can spoil.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::super::testing::{LONG, Line, Peer};
use super::{Observation, Observed, Watch, Watchers};
use crate::config::{ProbeConfig, ScrapeConfig, Secret};
use crate::domain::Health;
use crate::lifecycle::{Clock, Tasks};

const METRICS: &str = include_str!("../../../tests/recorded/metrics-0.32-loaded.txt");
const MODELS: &str = include_str!("../../../tests/recorded/models.json");
const PERIOD: Duration = Duration::from_millis(10);

/// What the server answers on `/metrics`.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Well,
    Error,
    Hang,
    Html,
    Endless,
}

struct Scene {
    peer: Arc<Peer>,
    mode: Arc<Mutex<Mode>>,
    /// Scrapes being answered now, and the most at once.
    at_once: Arc<(AtomicUsize, AtomicUsize)>,
    tasks: Tasks,
    watchers: Watchers,
    seen: mpsc::Receiver<Observed>,
}

impl Scene {
    async fn start(timeout: Duration) -> Self {
        let peer = Arc::new(Peer::start().await);
        let tasks = Tasks::default();
        let mode = Arc::new(Mutex::new(Mode::Well));
        let at_once = Arc::default();
        let (served, known, count) = (Arc::clone(&peer), Arc::clone(&mode), Arc::clone(&at_once));
        let servers = Tasks::default();
        drop(servers.clone().background("server", async move {
            loop {
                let line = served.accept().await;
                let serving = serve(line, Arc::clone(&known), Arc::clone(&count));
                drop(servers.background("line", serving));
            }
        }));
        let (sink, seen) = mpsc::channel(64);
        let watchers = Watchers::new(Clock::start(), tasks.clone(), sink);
        watchers.watch(vec![(Arc::clone(&peer.replica), plan(timeout))]);
        Self { peer, mode, at_once, tasks, watchers, seen }
    }

    async fn next(&mut self, wanted: impl Fn(&Observation) -> bool) -> Observation {
        loop {
            let (id, observation) = self.seen.recv().await.unwrap();
            assert_eq!(id, self.peer.replica.id());
            if wanted(&observation) {
                return observation;
            }
        }
    }
}

fn plan(timeout: Duration) -> Watch {
    Watch {
        scrape: ScrapeConfig { period: PERIOD, timeout },
        probe: ProbeConfig { period: PERIOD, timeout },
        api_key: Some(Secret::new("k")),
    }
}

async fn serve(mut line: Line, mode: Arc<Mutex<Mode>>, at_once: Arc<(AtomicUsize, AtomicUsize)>) {
    let whole =
        |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    while let Some(request) = line.request_if_any().await {
        assert!(request.contains("authorization: Bearer k"), "{request}");
        let path = request.split(' ').nth(1).unwrap();
        let now = *mode.lock();
        let answer = match (path, now) {
            ("/metrics", Mode::Well) => {
                let (current, most) = &*at_once;
                most.fetch_max(current.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(PERIOD * 2).await;
                current.fetch_sub(1, Ordering::SeqCst);
                whole(METRICS)
            }
            ("/metrics", Mode::Hang) => std::future::pending().await,
            ("/metrics", Mode::Html) => whole("<html>no metrics here</html>"),
            ("/metrics", Mode::Endless) => {
                let length = 1_u64 << 40;
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{}",
                    "x".repeat(1 << 23)
                )
            }
            ("/health", Mode::Well) => whole(""),
            ("/v1/models", _) => whole(MODELS),
            ("/version", _) => whole("{\"version\":\"0.32.0\"}"),
            _ => "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n".to_owned(),
        };
        if line.try_write(&answer).await.is_err() {
            return;
        }
    }
}

fn is_sample(observation: &Observation) -> bool {
    matches!(observation, Observation::Sample(_))
}

#[tokio::test]
async fn samples_and_health_come_in_and_the_replica_says_what_it_serves() {
    let mut scene = Scene::start(LONG).await;
    let mut last = None;
    for _ in 0..5 {
        let Observation::Sample(sample) = scene.next(is_sample).await else { unreachable!() };
        assert_eq!((sample.running, sample.waiting), (Some(16), Some(24)));
        assert!(sample.asked <= sample.taken);
        assert!(last.is_none_or(|last| last <= sample.asked), "readings never overlap");
        last = Some(sample.taken);
    }
    assert_eq!(scene.at_once.1.load(Ordering::SeqCst), 1);
    let up = scene.next(|it| matches!(it, Observation::Health(_))).await;
    assert_eq!(up, Observation::Health(Health::Up));
    let facts = loop {
        if let Some(facts) = scene.peer.replica.facts() {
            break facts;
        }
        scene.next(|_| true).await;
    };
    assert_eq!(facts.version.as_deref(), Some("0.32.0"));
    assert_eq!(facts.model("tiny").unwrap().max_model_len, Some(4_096));
    assert_eq!(scene.peer.replica.connections().opened, 0, "requests' connections are untouched");
}

#[tokio::test]
async fn every_way_to_fail_has_its_word_and_good_readings_return() {
    let mut scene = Scene::start(Duration::from_secs(1)).await;
    for (mode, word) in [
        (Mode::Error, "status"),
        (Mode::Hang, "timeout"),
        (Mode::Html, "malformed"),
        (Mode::Endless, "too_large"),
    ] {
        scene.next(is_sample).await;
        *scene.mode.lock() = mode;
        let failed = scene.next(|it| !is_sample(it) && !matches!(it, Observation::Health(_))).await;
        assert_eq!(failed, Observation::ScrapeFailed(word));
        assert_eq!(
            scene.next(|it| matches!(it, Observation::Health(Health::Down))).await,
            Observation::Health(Health::Down)
        );
        *scene.mode.lock() = Mode::Well;
    }
    scene.next(is_sample).await;
    scene.next(|it| *it == Observation::Health(Health::Up)).await;
}

#[tokio::test]
async fn who_is_no_longer_wanted_is_watched_no_longer() {
    let mut scene = Scene::start(LONG).await;
    scene.next(is_sample).await;
    // The same plan again starts nothing new; nor does a changed one.
    scene.watchers.watch(vec![(Arc::clone(&scene.peer.replica), plan(LONG))]);
    scene.watchers.watch(vec![(Arc::clone(&scene.peer.replica), plan(LONG / 2))]);
    assert_eq!(scene.tasks.live(), 2);
    scene.next(is_sample).await;
    *scene.mode.lock() = Mode::Hang;
    scene.watchers.watch(Vec::new());
    // A reading in progress is given up, too.
    scene.tasks.idle().await;
}

#[tokio::test]
async fn a_receiver_that_does_not_read_stops_nobody() {
    let mut scene = Scene::start(LONG).await;
    // The channel's room is 64; the loops go on all the same, and drop what finds none.
    while scene.seen.len() < 64 {
        tokio::time::sleep(PERIOD).await;
    }
    let Observation::Sample(old) = scene.next(is_sample).await else { unreachable!() };
    while scene.seen.try_recv().is_ok() {}
    let Observation::Sample(new) = scene.next(is_sample).await else { unreachable!() };
    assert!(new.asked > old.taken);
}
