//! What an open loop offers: flows with the times at which they are due.

use std::sync::Arc;
use std::time::Duration;

use super::flow::mix;
use super::{ArrivalModel, Arrivals, Flow, Flows, Pacing, Seeds, Workload};
use crate::domain::Timestamp;

/// Flows in the order of arrival. Endless, but for a trace, which ends with its last request.
#[derive(Debug)]
pub struct Offered {
    flows: Flows,
    due: Due,
}

#[derive(Debug)]
enum Due {
    Arrivals(Box<Arrivals>),
    /// Each request's recorded time over `speed`.
    Trace {
        workload: Arc<Workload>,
        next: usize,
        start: Timestamp,
        speed: f64,
    },
}

impl Offered {
    /// `calls_per_second` from `start` on: the mean of all calls, follow-ups too, before bursts.
    /// A trace is replayed faster or slower to come to that rate, as recorded where it is `None`;
    /// a workload without a rate of its own then offers nothing. One whose pacing is closed is
    /// offered as Poisson arrivals.
    ///
    /// The same seeds give the same flows in the same order at every rate.
    pub fn new(
        workload: &Arc<Workload>,
        calls_per_second: Option<f64>,
        start: Timestamp,
        seeds: Seeds,
    ) -> Self {
        let flows = Flows::new(Arc::clone(workload), seeds);
        let rate = calls_per_second.or_else(|| workload.own_rate()).unwrap_or(0.0);
        let open = |model: &ArrivalModel| {
            // A seed apart from that of the flows, which count from 0.
            let seed = mix(seeds.requests, u64::MAX);
            let rate = rate * flows.per_call();
            Due::Arrivals(Box::new(Arrivals::new(model, rate, start, seed)))
        };
        let due = match &workload.pacing {
            Pacing::Open(model) => open(model),
            Pacing::Closed { .. } => open(&ArrivalModel::default()),
            Pacing::Trace(replay) => {
                let recorded = replay.trace.rate();
                let asked = calls_per_second.zip(recorded).map(|(rate, recorded)| rate / recorded);
                let speed = asked.unwrap_or(replay.speed);
                Due::Trace { workload: Arc::clone(workload), next: 0, start, speed }
            }
        };
        Self { flows, due }
    }
}

impl Iterator for Offered {
    type Item = (Timestamp, Flow);

    fn next(&mut self) -> Option<Self::Item> {
        let due = match &mut self.due {
            Due::Arrivals(arrivals) => arrivals.next()?,
            Due::Trace { workload, next, start, speed } => {
                let Pacing::Trace(replay) = &workload.pacing else { return None };
                let at = replay.trace.rows().get(*next)?.at;
                *next += 1;
                let seconds = at.as_secs_f64() / *speed;
                *start + Duration::try_from_secs_f64(seconds).ok()?
            }
        };
        Some((due, self.flows.next()?))
    }
}
