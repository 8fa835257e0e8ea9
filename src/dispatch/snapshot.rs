//! What `/status` shows of a gate.

use crate::domain::{GateSnapshot, QueueSnapshot, ReplicaSnapshot, Timestamp};

use super::Dispatcher;
use super::num::seconds;
use super::replica::Replica;

impl Dispatcher {
    /// Everything at one moment.
    pub fn snapshot(&self, now: Timestamp) -> GateSnapshot {
        let limit = self.usable_limit();
        let wait = if self.queue.is_empty() { None } else { self.wait_at_end() };
        GateSnapshot {
            at: now,
            in_flight: self.replicas.iter().map(|replica| replica.ledger.n()).sum(),
            limit,
            queue: QueueSnapshot {
                waiting: u32::try_from(self.queue.len()).unwrap_or(u32::MAX),
                bytes: self.queue.bytes(),
                oldest_wait: self
                    .queue
                    .oldest()
                    .map(|since| now.saturating_since(since))
                    .unwrap_or_default(),
                estimated_wait: seconds(wait.unwrap_or_default()),
                parts: self.queue.parts(now),
            },
            replicas: self.replicas.iter().map(replica).collect(),
            completions_per_second: self.rates.completions(limit).unwrap_or_default(),
            sheds: self.sheds.iter().copied().collect(),
        }
    }
}

fn replica(replica: &Replica) -> ReplicaSnapshot {
    ReplicaSnapshot {
        id: replica.id,
        in_flight: replica.ledger.n(),
        limit: replica.limit,
        assumed: replica.assumed,
        foreign: replica.foreign,
        prefill_tokens: replica.ledger.prefill(),
        kv_tokens: replica.ledger.kv(),
        health: replica.health,
        ejected: replica.ejection.is_out(),
        draining: !replica.listed,
        sample: replica.sample.clone(),
    }
}
