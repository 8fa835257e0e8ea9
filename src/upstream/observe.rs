//! Who is watched, how often, and where the readings go.
//!
//! Each replica has two loops of its own, one for `/metrics` and one for `/health`, so that a
//! replica which answers neither delays nobody. Within a loop a reading ends before the next
//! begins. Readings go out through a bounded sender and never wait for the receiver: when it is
//! full the reading is dropped, and the next period brings a newer one.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::config::{Config, ProbeConfig, ScrapeConfig, Secret};
use crate::domain::{Health, ReplicaId, Sample};
use crate::lifecycle::{Clock, Tasks};

use super::replica::Replica;
use super::replicas::Replicas;
use super::{probe, scrape};

/// What was seen of a replica.
#[derive(Clone, PartialEq, Debug)]
pub enum Observation {
    /// Its metrics, read.
    Sample(Sample),
    /// A reading of its metrics that failed, with a word of
    /// [`FetchError::WORDS`](super::FetchError::WORDS).
    ScrapeFailed(&'static str),
    /// Its health, probed.
    Health(Health),
}

/// Which replica, and what was seen of it.
pub type Observed = (ReplicaId, Observation);

/// How one replica is watched.
#[derive(Clone, PartialEq, Debug)]
pub struct Watch {
    /// Reading its metrics.
    pub scrape: ScrapeConfig,
    /// Asking for its health.
    pub probe: ProbeConfig,
    /// The key that it asks for.
    pub api_key: Option<Secret>,
}

impl Watch {
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let key = self.api_key.as_ref()?;
        let mut value = HeaderValue::from_str(&format!("Bearer {}", key.reveal())).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// What a loop needs.
pub(super) struct Post {
    pub(super) replica: Arc<Replica>,
    pub(super) clock: Clock,
    sink: mpsc::Sender<Observed>,
}

impl Post {
    /// Sends a reading on, if there is room.
    pub(super) fn report(&self, observation: Observation) {
        if self.sink.try_send((self.replica.id(), observation)).is_err() {
            tracing::debug!(replica = &**self.replica.name(), "reading dropped: nobody takes it");
        }
    }
}

/// Watches the replicas that a configuration names.
pub struct Watchers {
    clock: Clock,
    tasks: Tasks,
    sink: mpsc::Sender<Observed>,
    /// The plan of each replica that is watched; dropping one ends its loops. Held while a new
    /// configuration is gone through, never across an await.
    watched: Mutex<BTreeMap<ReplicaId, Watched>>,
}

/// A replica, and the plan that its loops go by.
type Watched = (Arc<Replica>, watch::Sender<Watch>);

impl Watchers {
    /// Nobody is watched yet. Readings will go to `sink`.
    pub fn new(clock: Clock, tasks: Tasks, sink: mpsc::Sender<Observed>) -> Self {
        Self { clock, tasks, sink, watched: Mutex::default() }
    }

    /// Watches the replicas of this configuration and nobody else. Who stays is watched on
    /// without a gap; who is gone has its idle connections closed.
    pub fn follow(&self, config: &Config, replicas: &Replicas) {
        replicas.set_idle_time(config.timeouts.upstream_idle);
        let mut wanted = BTreeMap::new();
        for pool in &config.pools {
            for address in &pool.replicas {
                let replica = replicas.intern(address);
                let plan =
                    Watch { scrape: pool.scrape, probe: pool.probe, api_key: pool.api_key.clone() };
                wanted.entry(replica.id()).or_insert((replica, plan));
            }
        }
        self.watch(wanted.into_values().collect());
    }

    /// Watches these replicas and nobody else.
    pub fn watch(&self, wanted: Vec<(Arc<Replica>, Watch)>) {
        let mut watched = self.watched.lock();
        let mut before = std::mem::take(&mut *watched);
        for (replica, plan) in wanted {
            let id = replica.id();
            let sender = match before.remove(&id) {
                Some((_, sender)) => {
                    let changed = *sender.borrow() != plan;
                    if changed {
                        sender.send_replace(plan);
                    }
                    sender
                }
                None => self.start(&replica, plan),
            };
            watched.insert(id, (replica, sender));
        }
        for (replica, _) in before.into_values() {
            replica.retire();
        }
    }

    fn start(&self, replica: &Arc<Replica>, plan: Watch) -> watch::Sender<Watch> {
        let (sender, receiver) = watch::channel(plan);
        let post =
            || Post { replica: Arc::clone(replica), clock: self.clock, sink: self.sink.clone() };
        drop(self.tasks.background("scrape", scrape::run(post(), receiver.clone())));
        drop(self.tasks.background("probe", probe::run(post(), receiver)));
        sender
    }
}

#[cfg(test)]
mod tests;
