//! What requests are held to, beside what they saw, so that a rule need not know the numbers.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::Slo;

/// The targets of one configured pool.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PoolTargets {
    /// The model's name.
    pub model: Arc<str>,
    /// Each class's targets, by its name.
    pub classes: Vec<(Arc<str>, Slo)>,
    /// The bound of the queue.
    pub queue_wait: Duration,
}

impl PoolTargets {
    /// The targets of a class; none where nobody configured it.
    pub(super) fn slo(&self, class: &str) -> Slo {
        let found = self.classes.iter().find(|(name, _)| **name == *class);
        found.map(|(_, slo)| *slo).unwrap_or_default()
    }
}

/// The targets that are set, by the word of the label.
pub(super) fn words(slo: Slo) -> impl Iterator<Item = (&'static str, Duration)> {
    let Slo { ttft, tpot, itl, e2e } = slo;
    let all = [("ttft", ttft), ("tpot", tpot), ("itl", itl), ("e2e", e2e)];
    all.into_iter().filter_map(|(word, target)| Some((word, target?)))
}
