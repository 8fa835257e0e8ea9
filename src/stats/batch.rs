//! Intervals for percentiles of samples that hang together.
//!
//! Near a knee one slow request means that its neighbours are slow too, so an interval from ranks,
//! as if they were independent, is far too narrow. Here the run is cut into batches in the order
//! of time; the batches' percentiles scatter as the whole one would, were it measured again. What
//! correlation is left between neighbouring batches widens the interval (as an AR(1) process
//! would), and Student's t pays for there being few of them.

use super::quantile::as_f64;
use super::{Interval, mean, quantile, sort};

/// Fewest samples of a batch, so that its percentile is not its largest value alone.
const LEAST: usize = 20;

/// A percentile and where it may really lie.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Estimate {
    /// Of all samples.
    pub value: f64,
    /// At 95 %, both ends.
    pub interval: Interval,
    /// Batches that it comes from.
    pub batches: usize,
}

/// The `q` quantile of several independent runs, each in the order of time, with `batches` batches
/// a run. `None` when there are fewer than two batches in all.
pub fn batched_quantile(runs: &[Vec<f64>], q: f64, batches: usize) -> Option<Estimate> {
    let (mut of_batches, mut pairs) = (Vec::new(), Vec::new());
    for run in runs {
        let batches = batches.min(run.len() / LEAST).max(1);
        let size = run.len() / batches;
        let mut before = None;
        for batch in run.chunks(size.max(1)).take(batches) {
            let mut batch = batch.to_vec();
            sort(&mut batch);
            let Some(value) = quantile(&batch, q) else { continue };
            of_batches.push(value);
            pairs.extend(before.map(|before| (before, value)));
            before = Some(value);
        }
    }
    let mut all: Vec<f64> = runs.iter().flatten().copied().collect();
    sort(&mut all);
    let value = quantile(&all, q)?;
    let n = as_f64(of_batches.len());
    let centre = mean(&of_batches).filter(|_| of_batches.len() >= 2)?;
    let squares: f64 = of_batches.iter().map(|one| (one - centre).powi(2)).sum();
    let variance = squares / (n - 1.0);
    let left = correlation(&pairs, centre, squares / n);
    let inflated = variance * (1.0 + left) / (1.0 - left);
    let half = student(n - 1.0) * (inflated / n).sqrt();
    // The whole's percentile and the batches' mean differ by the batches' bias; the interval holds
    // both centres.
    let interval = Interval { low: value.min(centre) - half, high: value.max(centre) + half };
    Some(Estimate { value, interval, batches: of_batches.len() })
}

/// Correlation of neighbouring batches, 0 to 0.9.
fn correlation(pairs: &[(f64, f64)], centre: f64, variance: f64) -> f64 {
    if pairs.len() < 4 || variance <= 0.0 {
        return 0.0;
    }
    let sum: f64 = pairs.iter().map(|(a, b)| (a - centre) * (b - centre)).sum();
    (sum / as_f64(pairs.len()) / variance).clamp(0.0, 0.9)
}

/// Two-sided 95 % quantile of Student's t with `freedom` degrees, by the Cornish-Fisher expansion
/// (Abramowitz and Stegun 26.7.5); within 1 % from three degrees on.
pub(super) fn student(freedom: f64) -> f64 {
    if freedom < 1.5 {
        return 12.706;
    }
    if freedom < 2.5 {
        return 4.303;
    }
    let z = super::Z95;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom) + z
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn students_t_is_that_of_the_tables() {
        for (freedom, t) in [(1.0, 12.706), (3.0, 3.182), (5.0, 2.571), (9.0, 2.262), (29.0, 2.045)]
        {
            assert!((student(freedom) - t).abs() < 0.02 * t, "{freedom}: {}", student(freedom));
        }
    }

    /// An AR(1) series of exponential-like samples.
    fn correlated(seed: u64, n: usize, rho: f64) -> Vec<f64> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut state = 0.0;
        (0..n)
            .map(|_| {
                let sum: f64 = (0..12).map(|_| rng.random::<f64>()).sum();
                state = rho * state + (1.0 - rho * rho).sqrt() * (sum - 6.0);
                state
            })
            .collect()
    }

    #[test]
    fn correlated_samples_are_covered_where_ranks_would_be_sure_and_wrong() {
        // The 95th percentile of a standard normal.
        let truth = 1.645;
        let (mut batched, mut ranks) = (0, 0);
        for seed in 0..100 {
            let run = correlated(seed, 2000, 0.95);
            let mut sorted = run.clone();
            let interval = batched_quantile(&[run], 0.95, 10).unwrap().interval;
            batched += u32::from(interval.low <= truth && truth <= interval.high);
            sort(&mut sorted);
            let naive = super::super::quantile_interval(&sorted, 0.95, super::super::Z95).unwrap();
            ranks += u32::from(naive.low <= truth && truth <= naive.high);
        }
        assert!(batched >= 88, "{batched} of 100");
        assert!(ranks < 70, "{ranks} of 100: then batches would not be needed");
    }

    #[test]
    fn one_batch_says_nothing() {
        assert_eq!(batched_quantile(&[vec![1.0; 30]], 0.95, 10), None);
        assert_eq!(batched_quantile(&[], 0.95, 10), None);
    }
}
