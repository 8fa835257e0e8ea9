//! The one task that replaces the running configuration.

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};

use crate::config::{Config, ConfigErrors, Sources, diff, hold_fixed, load, settings};
use crate::lifecycle::{Clock, Hangup};

use super::watch::Watch;
use super::{Cause, Handle, Loader, Outcome, Report, Running};

/// Requests for a reload that may stand at once.
const ASKED: usize = 8;

type Observer = Box<dyn Fn(&Report, &Running) + Send + Sync>;
type Ask = (Cause, oneshot::Sender<Arc<Report>>);

/// Asks for a reload, and hears how it went.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::Sender<Ask>);

impl Asker {
    /// Reloads now. `None` when the reloader has ended (the process drains).
    pub async fn reload(&self, cause: Cause) -> Option<Arc<Report>> {
        let (answer, report) = oneshot::channel();
        self.0.send((cause, answer)).await.ok()?;
        report.await.ok()
    }
}

/// Reads the configuration again when told to, and applies what is right.
pub struct Reloader {
    loader: Loader,
    handle: Arc<Handle>,
    clock: Clock,
    /// What was read last, good or bad, so that one fault is said once.
    seen: Result<Sources, ConfigErrors>,
    /// Told of every reload and of what runs after it, to count it.
    observer: Observer,
    asks: mpsc::Receiver<Ask>,
    asker: Asker,
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("loader", &self.loader).finish_non_exhaustive()
    }
}

impl Reloader {
    /// Loads the first configuration: here a fault is an error, since nothing runs yet.
    pub fn start(
        loader: Loader,
        clock: Clock,
        observer: impl Fn(&Report, &Running) + Send + Sync + 'static,
    ) -> Result<Self, ConfigErrors> {
        let sources = loader.fetch()?;
        let config = load(&sources)?;
        say_warnings(&config);
        let hash = hash(&config);
        let handle = Handle::new(config, &hash, clock.wall());
        let (sender, asks) = mpsc::channel(ASKED);
        Ok(Self {
            loader,
            handle,
            clock,
            seen: Ok(sources),
            observer: Box::new(observer),
            asks,
            asker: Asker(sender),
        })
    }

    /// The running configuration.
    pub fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Another way to ask for a reload.
    pub fn asker(&self) -> Asker {
        self.asker.clone()
    }

    /// Reloads whenever a file changes, on SIGHUP (where given) and when asked; never ends.
    pub async fn run(mut self, mut hangup: Option<Hangup>) {
        let mut watch = Watch::new();
        watch.follow(self.loader.folders(self.seen.as_ref().ok()));
        // Whatever changed between the first reading and the watch.
        self.reload(Cause::File);
        loop {
            let hung_up = async {
                match &mut hangup {
                    Some(hangup) => hangup.received().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = watch.settled() => {
                    self.reload(Cause::File);
                }
                () = hung_up => {
                    self.reload(Cause::Signal);
                }
                // Never `None`: we hold a sender ourselves.
                Some((cause, answer)) = self.asks.recv() => {
                    let report = Arc::new(self.reload(cause));
                    if answer.send(report).is_err() {
                        tracing::debug!("whoever asked for a reload has left");
                    }
                }
            }
            watch.follow(self.loader.folders(self.seen.as_ref().ok()));
        }
    }

    /// One reload, start to end.
    pub fn reload(&mut self, cause: Cause) -> Report {
        let fetched = self.loader.fetch();
        let outcome = if cause == Cause::File && fetched == self.seen {
            Outcome::Unchanged
        } else {
            match fetched.as_ref().map_err(Clone::clone).and_then(load) {
                Ok(config) => self.apply(config),
                Err(errors) => self.refuse(errors),
            }
        };
        self.seen = fetched;
        let report = Report { cause, outcome };
        report.log();
        if report.outcome != Outcome::Unchanged {
            self.handle.remember(report.clone(), self.clock.wall());
        }
        // The same faulty files looked at once more are no news: what was refused stays refused.
        if report.outcome != Outcome::Unchanged || self.handle.refusal().is_none() {
            (self.observer)(&report, &self.handle.running());
        }
        report
    }

    fn apply(&self, config: Config) -> Outcome {
        self.handle.set_refusal(None);
        let running = self.handle.config();
        let changes = diff(&running, &config);
        if changes.is_empty() {
            return Outcome::Unchanged;
        }
        let held = match hold_fixed(&running, config) {
            Ok(held) => held,
            Err(errors) => return self.refuse(errors),
        };
        say_warnings(&held);
        let hash = hash(&held);
        let generation = self.handle.replace(held, &hash, self.clock.wall());
        Outcome::Applied { generation, changes }
    }

    fn refuse(&self, errors: ConfigErrors) -> Outcome {
        self.handle.set_refusal(Some(errors.clone()));
        Outcome::Refused(errors)
    }
}

fn say_warnings(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{}: {}", warning.path, warning.message);
    }
}

/// The head of the SHA-256 of everything that a configuration says, secrets masked.
fn hash(config: &Config) -> String {
    let mut hasher = Sha256::new();
    for setting in settings(config) {
        hasher.update(format!("{} = {}\n", setting.path, setting.value));
    }
    let head = hasher.finalize();
    head.iter().take(6).fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}
