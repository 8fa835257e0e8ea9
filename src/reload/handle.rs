//! The one place where the running configuration is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::{Config, ConfigErrors};

use super::Report;

/// Reloads that are remembered.
const REMEMBERED: usize = 10;

/// A reload that did something, and when.
#[derive(Clone, PartialEq, Debug)]
pub struct Past {
    /// The time of day.
    pub at: SystemTime,
    /// What it did.
    pub report: Report,
}

/// A configuration that runs, and how it came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Running {
    /// What it says.
    pub config: Arc<Config>,
    /// 1 for the one that the process started with, one more for each that took its place.
    pub generation: u64,
    /// The head of the SHA-256 of all that it says (secrets masked), to compare gateways by.
    pub hash: Arc<str>,
    /// Since when it runs.
    pub since: SystemTime,
}

/// Hands out the running configuration. Readers never wait: requests read it, one each.
#[derive(Debug)]
pub struct Handle {
    /// For those who read.
    current: ArcSwap<Running>,
    /// For those who wait for the next.
    changes: watch::Sender<Arc<Running>>,
    /// What was wrong with the newest file, while the running one is older than it.
    refusal: ArcSwapOption<ConfigErrors>,
    /// The last reloads that changed or refused something, newest first. Written by the
    /// reloader, read by `/status`.
    past: Mutex<VecDeque<Past>>,
}

impl Handle {
    /// A handle on a first configuration.
    pub fn new(config: Config, hash: &str, since: SystemTime) -> Arc<Self> {
        let config = Arc::new(config);
        let first = Arc::new(Running { config, generation: 1, hash: hash.into(), since });
        Arc::new(Self {
            current: ArcSwap::new(Arc::clone(&first)),
            changes: watch::Sender::new(first),
            refusal: ArcSwapOption::empty(),
            past: Mutex::default(),
        })
    }

    /// What runs now.
    pub fn running(&self) -> Arc<Running> {
        self.current.load_full()
    }

    /// What it says.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.current.load().config)
    }

    /// Tells of every later configuration; those that follow each other fast may be seen as one.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Running>> {
        self.changes.subscribe()
    }

    /// What is wrong with the newest file, where that is not the running one.
    pub fn refusal(&self) -> Option<Arc<ConfigErrors>> {
        self.refusal.load_full()
    }

    /// The last reloads that changed or refused something, newest first.
    pub fn past(&self) -> Vec<Past> {
        self.past.lock().iter().cloned().collect()
    }

    pub(super) fn remember(&self, report: Report, at: SystemTime) {
        let mut past = self.past.lock();
        past.push_front(Past { at, report });
        past.truncate(REMEMBERED);
    }

    /// Puts the next configuration in place and returns its generation. Only the reloader
    /// calls it, so that no two changes cross.
    pub(super) fn replace(&self, config: Config, hash: &str, since: SystemTime) -> u64 {
        let generation = self.current.load().generation.saturating_add(1);
        let config = Arc::new(config);
        let next = Arc::new(Running { config, generation, hash: hash.into(), since });
        self.current.store(Arc::clone(&next));
        self.changes.send_replace(next);
        generation
    }

    pub(super) fn set_refusal(&self, errors: Option<ConfigErrors>) {
        self.refusal.store(errors.map(Arc::new));
    }
}
