//! What a run says: named figures, so that a scenario can expect something of each, and the mean
//! and interval of each over several seeds.
//!
//! Shares are of the calls *offered*, whatever became of them. Latencies are seconds, of calls
//! that were answered.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fleet::{End, Seeing, Seen};
use crate::domain::Slo;
use crate::stats;
use crate::workload::Workload;

/// Figures by their names, such as `goodput`, `class.chat.ttft_p95`, `refused.queue_wait`.
pub type Figures = BTreeMap<String, f64>;

/// A tenant of whose calls more than this share was not answered is one that pressed for more.
const BACKLOGGED: f64 = 0.02;

/// Everything that a run came to. `weights` are those that fairness goes by, by tenant.
pub fn figures(
    seeing: &Seeing,
    workload: &Workload,
    window: Duration,
    gateways: usize,
    weights: &[f64],
) -> Figures {
    let mut all = Figures::new();
    let calls: Vec<&Seen> = seeing.calls.iter().collect();
    part(&mut all, "", &calls, workload);
    let seconds = window.as_secs_f64();
    all.insert("offered_per_second".into(), count(calls.len()) / seconds);
    let ok = calls.iter().filter(|call| call.end == End::Ok).count();
    all.insert("served_per_second".into(), count(ok) / seconds);
    for call in &calls {
        for reason in &call.refusals {
            let name = format!("refused.{}", reason.as_str());
            *all.entry(name).or_default() += 1.0 / count(calls.len().max(1));
        }
    }
    let mut goodputs = Vec::new();
    for class in &workload.classes {
        let its: Vec<&Seen> = calls.iter().copied().filter(|call| call.class == class.id).collect();
        part(&mut all, &format!("class.{}.", class.name), &its, workload);
        if !its.is_empty() {
            goodputs.push(good(&its, workload));
        }
    }
    let least = goodputs.iter().copied().fold(f64::INFINITY, f64::min);
    if let Some(mean) = stats::mean(&goodputs) {
        all.insert("class_gap".into(), mean - least);
    }
    tenants(&mut all, &calls, workload, weights);
    let sent = |gateway| calls.iter().filter(move |call| call.gateway == gateway).map(|c| c.tokens);
    let tokens: Vec<f64> =
        (0..gateways).map(|gateway| sent(gateway).map(f64::from).sum()).collect();
    let whole: f64 = tokens.iter().sum();
    let fewest = tokens.iter().copied().fold(f64::INFINITY, f64::min);
    all.insert("gateway_least".into(), fewest * count(gateways) / whole.max(1.0));
    all.insert("standing".into(), count(seeing.standing));
    all.insert("sent_per_second".into(), real(seeing.sent) / seconds);
    all.insert("preemptions".into(), real(seeing.preemptions));
    all.insert("hit_ratio".into(), real(seeing.prefix_hits) / real(seeing.prefix_queries.max(1)));
    all
}

/// The figures of some of the calls.
fn part(all: &mut Figures, prefix: &str, calls: &[&Seen], workload: &Workload) {
    let offered = count(calls.len().max(1));
    let mut put = |name: &str, value: f64| all.insert(format!("{prefix}{name}"), value);
    let share =
        |is: &dyn Fn(&Seen) -> bool| count(calls.iter().filter(|call| is(call)).count()) / offered;
    put("offered", count(calls.len()));
    put("goodput", good(calls, workload));
    let from_due = |call: &Seen| {
        let slo = slo(workload, call);
        call.is_good(&slo)
            && slo.ttft.is_none_or(|most| call.ttft_from_due.is_some_and(|took| took <= most))
    };
    put("goodput_from_due", share(&from_due));
    put("answered", share(&|call| call.end == End::Ok));
    put("shed", share(&|call| call.is_shed()));
    put("failed", share(&|call| matches!(call.end, End::Failed(_))));
    put("given_up", share(&|call| matches!(call.end, End::Cancelled | End::Open)));
    put("attempts", calls.iter().map(|call| f64::from(call.attempts)).sum::<f64>() / offered);
    let seconds = |of: &dyn Fn(&Seen) -> Option<Duration>| {
        let answered = calls.iter().filter(|call| call.end == End::Ok);
        let mut values: Vec<f64> =
            answered.filter_map(|call| of(call)).map(|took| took.as_secs_f64()).collect();
        stats::sort(&mut values);
        values
    };
    let ttft = seconds(&|call| call.ttft);
    let tpot = seconds(&|call| call.tpot);
    for (name, values, q) in
        [("ttft_p50", &ttft, 0.5), ("ttft_p95", &ttft, 0.95), ("tpot_p95", &tpot, 0.95)]
    {
        if let Some(value) = stats::quantile(values, q) {
            put(name, value);
        }
    }
}

/// Tenants one by one, and how evenly those that pressed for more were served.
fn tenants(all: &mut Figures, calls: &[&Seen], workload: &Workload, weights: &[f64]) {
    let mut served = Vec::new();
    for (at, tenant) in workload.tenants.iter().enumerate() {
        let its: Vec<&Seen> =
            calls.iter().copied().filter(|call| call.tenant == tenant.id).collect();
        if workload.tenants.len() > 1 {
            part(all, &format!("tenant.{}.", tenant.name), &its, workload);
        }
        let answered = its.iter().filter(|call| call.end == End::Ok);
        let cost = |call: &&&Seen| f64::from(call.prompt) + 2.0 * f64::from(call.tokens);
        let tokens: f64 = answered.clone().map(|call| cost(&call)).sum();
        let share = count(answered.count()) / count(its.len().max(1));
        if share < 1.0 - BACKLOGGED {
            served.push(tokens / weights.get(at).copied().unwrap_or(1.0));
        }
    }
    let (sum, squares) = served.iter().fold((0.0, 0.0), |(a, b), x| (a + x, b + x * x));
    let jain = if squares > 0.0 { sum * sum / (count(served.len()) * squares) } else { 1.0 };
    all.insert("jain".into(), jain);
}

fn slo(workload: &Workload, call: &Seen) -> Slo {
    workload.classes.get(usize::from(call.class.0)).map(|class| class.slo).unwrap_or_default()
}

fn good(calls: &[&Seen], workload: &Workload) -> f64 {
    let good = calls.iter().filter(|call| call.is_good(&slo(workload, call))).count();
    count(good) / count(calls.len().max(1))
}

/// A figure over several seeds.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half the width of its 95 % interval; 0 of a single seed.
    pub half: f64,
    /// Seeds that had the figure.
    pub seeds: usize,
}

/// Mean and interval of each figure that any of the runs has.
pub fn spread(runs: &[Figures]) -> BTreeMap<String, Spread> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.iter().flatten() {
        values.entry(name).or_default().push(*value);
    }
    values.into_iter().map(|(name, values)| (name.to_owned(), Spread::of(&values))).collect()
}

impl Spread {
    /// Of these values. The interval is Student's, since seeds are few.
    pub fn of(values: &[f64]) -> Self {
        let mean = stats::mean(values).unwrap_or(0.0);
        let seeds = values.len();
        let Some(freedom) = seeds.checked_sub(1).filter(|freedom| *freedom > 0) else {
            return Self { mean, half: 0.0, seeds };
        };
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / count(freedom) / count(seeds)).sqrt();
        Self { mean, half: student(freedom) * error, seeds }
    }
}

/// Student's t for a two-sided 95 % interval.
fn student(freedom: usize) -> f64 {
    const T: [f64; 15] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131,
    ];
    // Beyond the table Z + (Z^3 + Z) / 4n is right to the third digit.
    let z = stats::Z95;
    let far = z + (z.powi(3) + z) / (4.0 * count(freedom));
    freedom.checked_sub(1).and_then(|at| T.get(at)).copied().unwrap_or(far)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn count(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_the_textbooks() {
        // 1..=5: mean 3, variance 2.5, t(4) = 2.776.
        let spread = Spread::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((spread.mean - 3.0).abs() < 1e-9);
        assert!((spread.half - 2.776 * (2.5_f64 / 5.0).sqrt()).abs() < 1e-6);
        assert!((student(30) - 2.042).abs() < 0.003, "{}", student(30));
        assert!(Spread::of(&[7.0]).half.abs() < 1e-9);
    }
}
