//! Admission by the replicas' own metrics: a replica is full when it shows 5 waiting requests or
//! 0.8 of its KV cache in use, as the saturation detector of the Gateway API's inference extension
//! has it (`QueueDepthThreshold`, `KVCacheUtilThreshold`; where all are full, the request is shed).

use super::Law;
use crate::domain::Sample;

const WAITING: u32 = 5;
const KV: f64 = 0.8;

/// The last reading of each replica.
#[derive(Debug, Default)]
pub struct Reading {
    full: Vec<bool>,
}

impl Law for Reading {
    fn admits(&self, _in_flight: u32) -> bool {
        true
    }

    fn admits_at(&self, replica: usize, _in_flight: u32) -> bool {
        !self.full.get(replica).copied().unwrap_or(false)
    }

    fn read(&mut self, replica: usize, sample: &Sample) {
        if self.full.len() <= replica {
            self.full.resize(replica + 1, false);
        }
        let waits = sample.waiting.is_some_and(|waiting| waiting >= WAITING);
        let fills = sample.kv_usage.is_some_and(|usage| usage >= KV);
        if let Some(full) = self.full.get_mut(replica) {
            *full = waits || fills;
        }
    }
}
