//! The beat of a loop that watches a replica: staggered, never overlapping, re-planned live.

use std::time::Duration;

use tokio::sync::watch;

use crate::domain::ReplicaId;
use crate::lifecycle::Clock;

use super::observe::Watch;

/// Shortest period: what a configuration would make 0 must not spin.
const SHORTEST: Duration = Duration::from_millis(10);

/// When to look next.
pub(super) struct Pace {
    plan: watch::Receiver<Watch>,
    clock: Clock,
    /// Process time of the next look.
    next: Duration,
    period: fn(&Watch) -> Duration,
}

impl Pace {
    /// The first look comes within a period, at a point that differs from replica to replica:
    /// the golden ratio spreads any number of them evenly, so that their answers do not come all
    /// at once, nor all their engines stall for a scrape at once.
    pub(super) fn new(
        plan: watch::Receiver<Watch>,
        clock: Clock,
        id: ReplicaId,
        period: fn(&Watch) -> Duration,
    ) -> Self {
        let phase = (f64::from(id.0) * 0.618_033_988_749_895).fract();
        let first = period(&plan.borrow()).max(SHORTEST).mul_f64(phase);
        Self { next: clock.elapsed() + first, plan, clock, period }
    }

    /// Waits for the next look and says what the plan is; `None` once the watch has ended.
    ///
    /// Looks keep their beat; one that took longer than a period is followed at once by the
    /// next, and the beats that were missed are not made up for.
    pub(super) async fn beat(&mut self) -> Option<Watch> {
        loop {
            tokio::select! {
                biased;
                changed = self.plan.changed() => {
                    changed.ok()?;
                    let period = (self.period)(&self.plan.borrow_and_update()).max(SHORTEST);
                    self.next = self.next.min(self.clock.elapsed() + period);
                }
                () = self.clock.sleep_until(self.next) => {
                    let plan = self.plan.borrow().clone();
                    let period = (self.period)(&plan).max(SHORTEST);
                    self.next = (self.next + period).max(self.clock.elapsed());
                    return Some(plan);
                }
            }
        }
    }

    /// Resolves when the watch has ended, so that a look in progress can be given up.
    pub(super) async fn ended(&self) {
        let mut plan = self.plan.clone();
        while plan.changed().await.is_ok() {}
    }
}
