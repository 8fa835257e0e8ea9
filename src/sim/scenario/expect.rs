//! What is expected of a scenario's figures, and whether it came.

use crate::sim::{Figures, spread};

/// A range for the mean of a figure over the seeds.
#[derive(Clone, PartialEq, Debug)]
pub struct Expectation {
    /// The figure's name. `lead` is the goodput over that of the best of the others.
    pub metric: String,
    /// Of whom.
    pub policy: String,
    /// At which load; at each where not said.
    pub load: Option<f64>,
    /// Least.
    pub min: f64,
    /// Most.
    pub max: f64,
}

/// All runs of one contender at one load.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// The contender's name.
    pub policy: String,
    /// The load.
    pub load: f64,
    /// A run for each seed, in their order.
    pub runs: Vec<Figures>,
}

impl Cell {
    /// The mean of a figure; `None` where no run has it.
    pub fn mean(&self, metric: &str) -> Option<f64> {
        spread(&self.runs).get(metric).map(|spread| spread.mean)
    }
}

/// What became of an expectation at one load.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Verdict {
    /// The figure.
    pub metric: String,
    /// Of whom.
    pub policy: String,
    /// At which load.
    pub load: f64,
    /// What it was; `None` where there is no such figure.
    pub value: Option<f64>,
    /// Least; `None` where there is no lower end.
    pub min: Option<f64>,
    /// Most.
    pub max: Option<f64>,
    /// Whether it lies between.
    pub holds: bool,
}

/// Holds the expectations against what came. One whose contender or load was not run is left out.
pub fn judge(expectations: &[Expectation], cells: &[Cell]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for expected in expectations {
        let meant = |cell: &&Cell| {
            let load = expected.load.is_none_or(|load| (load - cell.load).abs() < 1e-9);
            cell.policy == expected.policy && load
        };
        for cell in cells.iter().filter(meant) {
            let value = if expected.metric == "lead" {
                lead(cell, cells)
            } else {
                cell.mean(&expected.metric)
            };
            let holds = value.is_some_and(|value| (expected.min..=expected.max).contains(&value));
            verdicts.push(Verdict {
                metric: expected.metric.clone(),
                policy: expected.policy.clone(),
                load: cell.load,
                value,
                min: Some(expected.min).filter(|min| min.is_finite()),
                max: Some(expected.max).filter(|max| max.is_finite()),
                holds,
            });
        }
    }
    verdicts
}

/// Goodput over that of the best of the others at the same load.
fn lead(cell: &Cell, cells: &[Cell]) -> Option<f64> {
    let others =
        cells.iter().filter(|other| other.policy != cell.policy && same(other.load, cell.load));
    let best = others.filter_map(|other| other.mean("goodput")).reduce(f64::max)?;
    Some(cell.mean("goodput")? - best)
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}
