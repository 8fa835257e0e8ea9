//! A load level: what was seen at one rate, and whether the targets hold there.

use serde::{Deserialize, Serialize};

use crate::stats::{self, Estimate, Slope};

/// Batches of a run.
const BATCHES: usize = 10;

/// More than this share of calls that failed is no service.
const MOST_FAILED: f64 = 0.01;

/// Where not one sample is above this share of the target, no interval is needed to pass...
const FAR_BELOW: f64 = 0.5;

/// ...given so many samples: idle levels have few.
const ENOUGH_WHEN_FAR: usize = 5;

/// What a level is held to, seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Targets {
    /// Of the 95th percentile of TTFT.
    pub ttft: f64,
    /// Of the 99th percentile of the gaps between frames, where there is one.
    pub itl: Option<f64>,
    /// Of the 95th percentile of the mean time an output token, where there is one.
    pub tpot: Option<f64>,
    /// Of the 95th percentile of the whole, where there is one.
    pub e2e: Option<f64>,
}

/// One run at one rate. Every series is in the order of time, without the failed calls.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// TTFT, seconds, by when the call was due.
    pub ttft: Vec<f64>,
    /// Gaps between frames, seconds.
    pub itl: Vec<f64>,
    /// Mean time an output token after the first, seconds.
    pub tpot: Vec<f64>,
    /// The whole call, seconds.
    pub e2e: Vec<f64>,
    /// Calls in flight, at even steps through the window.
    pub in_flight: Vec<f64>,
    /// Calls that were due.
    pub offered: u64,
    /// Of them, those not answered whole.
    pub failed: u64,
}

/// Whether the targets hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every upper bound lies within its target, and nothing grows.
    Pass,
    /// A lower bound lies over its target, or in-flight and TTFT both grow.
    Fail,
    /// Neither: another run is needed.
    Replicate,
}

/// A verdict and what it comes from.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in words.
    pub why: String,
    /// TTFT p95, seconds.
    pub ttft_p95: Option<Estimate>,
    /// ITL p99, seconds.
    pub itl_p99: Option<Estimate>,
    /// Mean calls in flight.
    pub in_flight: f64,
}

/// A quantity and its target.
struct Held {
    name: &'static str,
    estimate: Option<Estimate>,
    target: Option<f64>,
    /// The largest sample, where there are enough of them.
    most: Option<f64>,
}

/// All runs at one rate.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Level {
    runs: Vec<Observed>,
}

impl Level {
    /// Adds a run; its warm-up is cut here.
    pub fn add(&mut self, mut run: Observed) {
        let calls = run.ttft.len();
        let cut = stats::mser5(&run.ttft);
        let same_share = |len: usize| (len * cut).checked_div(calls).unwrap_or(0).min(len);
        let rest = same_share(run.itl.len());
        run.itl.drain(..rest);
        let rest = same_share(run.tpot.len());
        run.tpot.drain(..rest);
        let rest = same_share(run.e2e.len());
        run.e2e.drain(..rest);
        let rest = same_share(run.in_flight.len());
        run.in_flight.drain(..rest);
        run.ttft.drain(..cut.min(calls));
        self.runs.push(run);
    }

    /// Runs so far.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Judges all runs together.
    pub fn judge(&self, targets: &Targets) -> Judgement {
        let series = |of: fn(&Observed) -> &Vec<f64>| {
            self.runs.iter().map(|run| of(run).clone()).collect::<Vec<_>>()
        };
        let held = |name, of: fn(&Observed) -> &Vec<f64>, q, target| {
            let series = series(of);
            let samples = || series.iter().flatten().copied();
            let enough = samples().count() >= ENOUGH_WHEN_FAR;
            Held {
                name,
                estimate: stats::batched_quantile(&series, q, BATCHES),
                target,
                most: samples().reduce(f64::max).filter(|_| enough),
            }
        };
        let held = [
            held("TTFT p95", |run| &run.ttft, 0.95, Some(targets.ttft)),
            held("ITL p99", |run| &run.itl, 0.99, targets.itl),
            held("TPOT p95", |run| &run.tpot, 0.95, targets.tpot),
            held("E2E p95", |run| &run.e2e, 0.95, targets.e2e),
        ];
        let [ttft, itl, ..] = &held;
        let (ttft, itl) = (ttft.estimate, itl.estimate);
        let (verdict, why) = self.verdict(&held, targets);
        let in_flight: Vec<f64> =
            self.runs.iter().flat_map(|run| &run.in_flight).copied().collect();
        Judgement {
            verdict,
            why,
            ttft_p95: ttft,
            itl_p99: itl,
            in_flight: stats::mean(&in_flight).unwrap_or(0.0),
        }
    }

    fn verdict(&self, held: &[Held], targets: &Targets) -> (Verdict, String) {
        let (offered, failed) = self
            .runs
            .iter()
            .fold((0, 0), |(offered, failed), run| (offered + run.offered, failed + run.failed));
        if share(failed, offered) > MOST_FAILED {
            return (Verdict::Fail, format!("{failed} of {offered} calls were not answered whole"));
        }
        for Held { name, estimate, target, .. } in held {
            if let (Some(estimate), Some(target)) = (estimate, target)
                && estimate.interval.low > *target
            {
                let why = format!("{name} {:.3} s lies over {target} s", estimate.value);
                return (Verdict::Fail, why);
            }
        }
        let grown = self.runs.iter().filter(|run| grows(run, targets)).count();
        if grown * 2 > self.runs.len() {
            return (Verdict::Fail, "calls in flight and TTFT grow through the run".to_owned());
        }
        for Held { name, estimate, target, most } in held {
            let Some(target) = target else { continue };
            if most.is_some_and(|most| most <= target * FAR_BELOW) {
                continue;
            }
            match estimate {
                None => return (Verdict::Replicate, format!("too few samples of {name}")),
                Some(estimate) if estimate.interval.high > *target => {
                    let why = format!("{name} may lie on either side of {target} s");
                    return (Verdict::Replicate, why);
                }
                Some(_) => {}
            }
        }
        if grown > 0 {
            return (Verdict::Replicate, "calls in flight grew through one of the runs".to_owned());
        }
        (Verdict::Pass, "every target holds".to_owned())
    }
}

/// Both series grow, and TTFT by so much that it matters: noise grows too, by little.
fn grows(run: &Observed, targets: &Targets) -> bool {
    let surely = |slope: Slope| slope.interval.low > 0.0;
    let open = stats::slope(&run.in_flight).is_some_and(surely);
    let late = stats::slope(&run.ttft)
        .is_some_and(|slope| surely(slope) && slope.growth > 0.25 * targets.ttft);
    open && late
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: Targets = Targets { ttft: 1.0, itl: None, tpot: None, e2e: None };

    fn wave(at: usize) -> f64 {
        f64::from(u32::try_from((at * 7919) % 101).unwrap()) / 100.0
    }

    fn run(ttft: impl Fn(usize) -> f64) -> Observed {
        Observed {
            ttft: (0..1000).map(&ttft).collect(),
            in_flight: (0..50).map(|at| 20.0 * ttft(at * 20)).collect(),
            offered: 1000,
            ..Observed::default()
        }
    }

    fn verdict(run: Observed) -> Verdict {
        let mut level = Level::default();
        level.add(run);
        level.judge(&TARGETS).verdict
    }

    #[test]
    fn clear_levels_are_clear_and_near_ones_ask_for_another_run() {
        assert_eq!(verdict(run(|at| 0.3 + 0.2 * wave(at))), Verdict::Pass);
        assert_eq!(verdict(run(|at| 1.5 + 0.2 * wave(at))), Verdict::Fail);
        assert_eq!(
            verdict(run(|at| 0.06 + wave(at) * (0.6 + 0.8 * wave(at / 100)))),
            Verdict::Replicate
        );
    }

    #[test]
    fn a_queue_that_grows_fails_before_the_target_is_broken() {
        let growing = |at: usize| 0.1 + 0.8 * f64::from(u32::try_from(at).unwrap()) / 1000.0;
        assert_eq!(verdict(run(growing)), Verdict::Fail);
    }

    #[test]
    fn a_handful_of_samples_passes_only_far_below_the_target() {
        let few = |ttft| Observed { ttft: vec![ttft; 8], offered: 8, ..Observed::default() };
        assert_eq!(verdict(few(0.3)), Verdict::Pass);
        assert_eq!(verdict(few(0.8)), Verdict::Replicate);
    }

    #[test]
    fn failed_calls_fail_the_level_whatever_the_others_saw() {
        let run = Observed { failed: 20, ..run(|_| 0.1) };
        assert_eq!(verdict(run), Verdict::Fail);
    }
}
