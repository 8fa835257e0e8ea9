//! The replicas of the process: one address, one id, for good.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::config::ReplicaAddress;
use crate::domain::ReplicaId;
use crate::lifecycle::{Clock, Tasks};

use super::connections::Rules;
use super::replica::Replica;

/// How often idle connections are looked through.
const REAP_PERIOD: Duration = Duration::from_millis(250);

/// Hands out replicas by address and by id.
///
/// An address keeps its replica, with its id and its counts, however often reloads or discovery
/// take it away and bring it back. None is ever forgotten: what stays of one that is gone is a
/// few hundred bytes.
pub struct Replicas {
    rules: Arc<Rules>,
    /// Indexed by id; replaced as a whole when one is added, read without a lock.
    by_id: ArcSwap<Vec<Arc<Replica>>>,
    /// Held while an address is looked up or added; never across IO.
    by_address: Mutex<HashMap<ReplicaAddress, Arc<Replica>>>,
}

impl Replicas {
    /// None yet. `clock` ages idle connections.
    pub fn new(clock: Clock) -> Self {
        Self {
            rules: Arc::new(Rules::new(clock)),
            by_id: ArcSwap::default(),
            by_address: Mutex::default(),
        }
    }

    /// The replica at this address, from the first time on the same one.
    pub fn intern(&self, address: &ReplicaAddress) -> Arc<Replica> {
        let mut by_address = self.by_address.lock();
        if let Some(known) = by_address.get(address) {
            return Arc::clone(known);
        }
        let mut all = Vec::clone(&self.by_id.load());
        let id = ReplicaId(u32::try_from(all.len()).unwrap_or(u32::MAX));
        let replica = Arc::new(Replica::new(id, address.clone(), &self.rules));
        all.push(Arc::clone(&replica));
        self.by_id.store(Arc::new(all));
        by_address.insert(address.clone(), Arc::clone(&replica));
        replica
    }

    /// The replica with this id.
    pub fn replica(&self, id: ReplicaId) -> Option<Arc<Replica>> {
        let index = usize::try_from(id.0).ok()?;
        self.by_id.load().get(index).map(Arc::clone)
    }

    /// Every replica ever interned, in the order of the ids.
    pub fn all(&self) -> Arc<Vec<Arc<Replica>>> {
        self.by_id.load_full()
    }

    /// An unused connection is not used again after this. Keep it below the servers' own
    /// keep-alive timeout (5 s in vLLM), or requests meet closing connections.
    pub fn set_idle_time(&self, longest: Duration) {
        self.rules.set_idle_time(longest);
    }

    /// Starts the task that closes connections which nobody came back for.
    pub fn spawn_reaper(self: &Arc<Self>, tasks: &Tasks) {
        let replicas = Arc::clone(self);
        drop(tasks.background("upstream-reaper", async move {
            loop {
                tokio::time::sleep(REAP_PERIOD).await;
                for replica in replicas.by_id.load_full().iter() {
                    replica.reap();
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_keeps_its_id_for_good() {
        let replicas = Replicas::new(Clock::start());
        let parse = |text: &str| text.parse::<ReplicaAddress>().unwrap();
        let first = replicas.intern(&parse("http://127.0.0.1:8101"));
        let second = replicas.intern(&parse("http://127.0.0.1:8102"));
        let again = replicas.intern(&parse("HTTP://127.0.0.1:8101/"));
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!((first.id(), second.id()), (ReplicaId(0), ReplicaId(1)));
        assert!(Arc::ptr_eq(&replicas.replica(ReplicaId(1)).unwrap(), &second));
        assert!(replicas.replica(ReplicaId(2)).is_none());
        assert_eq!(&**first.name(), "127.0.0.1:8101");
    }
}
