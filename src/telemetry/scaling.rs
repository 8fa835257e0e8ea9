//! How many replicas the offered load asks for: what an autoscaler should go by.
//!
//! Offered load over the rate of a replica at its knee is how many replicas it takes. By Little's
//! law that is the same as the requests that *would* be in flight over those that a replica may
//! hold: what is in flight, blown up by the share that was refused, and what waits. Both sides are
//! known exactly here, without a measured rate. Each gateway says what it sees; the sum over all
//! gateways is the number of replicas, so it is not rounded.
//!
//! A client that tries again after a 503 is counted once a try, so under a long overload this is
//! an upper bound.

use crate::domain::{Ends, GateSnapshot, Health, ReplicaSnapshot};

use super::gauges::whole;

/// Replicas that the load of the last minute asks for; `None` while no limit is known.
pub(super) fn wanted_replicas(gate: &GateSnapshot, minute: &Ends) -> Option<f64> {
    let shed = minute.shed();
    let admitted = whole(minute.offered.saturating_sub(shed));
    let spilled = if admitted > 0.0 { whole(shed) / admitted } else { 0.0 };
    let demand = f64::from(gate.in_flight) * (1.0 + spilled) + f64::from(gate.queue.waiting);
    Some(demand / limit_of_one(gate)?)
}

/// What one replica may hold: the mean over those that take requests, or over all while none does.
fn limit_of_one(gate: &GateSnapshot) -> Option<f64> {
    let serves = |replica: &&ReplicaSnapshot| {
        replica.health != Some(Health::Down) && !replica.ejected && !replica.draining
    };
    let mean = |limits: Vec<f64>| {
        let count = u32::try_from(limits.len()).ok().filter(|count| *count > 0)?;
        let mean = limits.iter().sum::<f64>() / f64::from(count);
        (mean > 0.0).then_some(mean)
    };
    let limits = gate.replicas.iter().filter(serves).map(|replica| replica.limit).collect();
    mean(limits).or_else(|| mean(gate.replicas.iter().map(|replica| replica.limit).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{QueueSnapshot, Reason, ReplicaId};

    fn replica(limit: f64, health: Health) -> ReplicaSnapshot {
        ReplicaSnapshot {
            id: ReplicaId(0),
            in_flight: 0,
            limit,
            assumed: false,
            foreign: None,
            prefill_tokens: 0,
            kv_tokens: 0,
            health: Some(health),
            ejected: false,
            draining: false,
            sample: None,
        }
    }

    fn gate(in_flight: u32, waiting: u32, replicas: Vec<ReplicaSnapshot>) -> GateSnapshot {
        let queue = QueueSnapshot { waiting, ..QueueSnapshot::default() };
        GateSnapshot { in_flight, queue, replicas, ..GateSnapshot::default() }
    }

    fn ends(offered: u64, shed: u64, wrong: u64) -> Ends {
        let refused = vec![(Reason::QueueWait, shed), (Reason::Malformed, wrong)];
        Ends { offered, refused, ..Ends::default() }
    }

    fn close(seen: Option<f64>, expected: f64) {
        assert!(seen.is_some_and(|seen| (seen - expected).abs() < 1e-9), "{seen:?}");
    }

    #[test]
    fn twice_the_load_asks_for_twice_the_replicas() {
        let two = || vec![replica(96.0, Health::Up), replica(96.0, Health::Up)];
        close(wanted_replicas(&gate(48, 0, two()), &ends(100, 0, 0)), 0.5);
        close(wanted_replicas(&gate(192, 0, two()), &ends(100, 0, 0)), 2.0);
        // Both full, and every second request spilled: twice as many.
        close(wanted_replicas(&gate(192, 0, two()), &ends(100, 50, 0)), 4.0);
        close(wanted_replicas(&gate(192, 96, two()), &ends(100, 50, 0)), 5.0);
    }

    #[test]
    fn requests_that_were_wrong_are_no_load() {
        let one = vec![replica(10.0, Health::Up)];
        close(wanted_replicas(&gate(10, 0, one), &ends(100, 0, 90)), 1.0);
    }

    #[test]
    fn a_dead_replica_has_no_say_while_another_lives() {
        let mixed = vec![replica(10.0, Health::Up), replica(90.0, Health::Down)];
        close(wanted_replicas(&gate(10, 0, mixed), &Ends::default()), 1.0);
        let dead = vec![replica(10.0, Health::Down)];
        close(wanted_replicas(&gate(0, 5, dead), &ends(5, 5, 0)), 0.5);
    }

    #[test]
    fn without_a_limit_nothing_is_said() {
        assert_eq!(wanted_replicas(&gate(5, 0, Vec::new()), &Ends::default()), None);
        let unknown = vec![replica(0.0, Health::Up)];
        assert_eq!(wanted_replicas(&gate(5, 0, unknown), &Ends::default()), None);
    }
}
