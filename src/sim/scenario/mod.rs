//! Scenarios: a fleet, a load, what goes wrong, who decides, and what is expected of it, as data.
//!
//! A [`ScenarioFile`] is what is written, a [`Scenario`] what runs. It opens no file: whoever has
//! a workload file or a trace beside the scenario brings its text. [`Scenario::run`] is one run
//! of one contender at one load with one seed; who runs them side by side is `cli`'s.

mod compile;
mod contender;
mod expect;
mod file;
mod read;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use contender::Contender;
pub use expect::{Cell, Expectation, Verdict, judge};
pub use file::ScenarioFile;

use super::fleet::{self, Load, Setup};
use super::{Figures, figures};
use crate::dispatch::Policy;
use crate::workload::{Seeds, Workload};

/// A scenario that can be run.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// What it is about.
    pub about: String,
    /// What stands there.
    pub setup: Setup,
    /// How long and how hard; its rate is that of a load of 1.
    pub load: Load,
    /// What is offered.
    pub workload: Arc<Workload>,
    /// What our gate goes by.
    pub policy: Arc<Policy>,
    /// Each of the tenants' weights in that.
    pub weights: Vec<f64>,
    /// The fixed caps of the rivals that have one, tuned by whoever wrote the scenario.
    pub caps: Caps,
    /// Multiples of the rate.
    pub loads: Vec<f64>,
    /// Who is tried.
    pub contenders: Vec<Contender>,
    /// How many seeds, and the first of them.
    pub seeds: (u64, u64),
    /// What is expected.
    pub expectations: Vec<Expectation>,
}

/// The caps of the rivals that have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// In flight at a replica, the rest refused.
    pub alone: u32,
    /// In flight at a replica, before a queue.
    pub queued: u32,
    /// That queue's length.
    pub queue: usize,
    /// Longest wait in it.
    pub wait: Duration,
}

impl Scenario {
    /// One run. The same arguments give the same figures.
    pub fn run(&self, contender: &Contender, load: f64, seed: u64) -> Figures {
        let at = Load { rate: self.load.rate.map(|rate| rate * load), ..self.load.clone() };
        let setup = contender.setup(&self.setup);
        let gates = contender.gates(self, seed);
        let count = gates.len();
        let seeds = Seeds { requests: seed, texts: seed };
        let came = fleet::run(&setup, &at, &self.workload, gates, seeds);
        let mut all = figures(&came, &self.workload, at.window, count, &self.weights);
        if let (Some(limit), Some(sent)) =
            (self.policy.limit.in_flight, all.get("sent_per_second").copied())
        {
            let each = sent / f64::from(setup.replicas.max(1)) * setup.scrape.as_secs_f64();
            let others = f64::from(self.policy.gateways.saturating_sub(1));
            let standing = all.get("standing").copied().unwrap_or(0.0);
            let over = standing - f64::from(limit) - others * each;
            all.insert("standing_over".into(), over);
        }
        all
    }
}
