//! Where a run's warm-up ends: MSER-5 (K. P. White, SIMULATION 1997; Spratt's batches of five).
//!
//! The cut is where the rest has the least standard error of its mean. A cut in the second half
//! says that the run never settled; then half of it is cut and the caller's tests must see the
//! trend in what is left.

use super::quantile::as_f64;

const BATCH: usize = 5;

/// How many of `samples`, in the order of time, belong to the warm-up; at most half of them.
pub fn mser5(samples: &[f64]) -> usize {
    let means: Vec<f64> = samples
        .chunks_exact(BATCH)
        .map(|chunk| chunk.iter().sum::<f64>() / as_f64(BATCH))
        .collect();
    let half = means.len() / 2;
    // From the end on, so that each rest's sums come from the shorter one's.
    let (mut sum, mut squares, mut best) = (0.0, 0.0, (f64::INFINITY, 0));
    for (at, mean) in means.iter().enumerate().rev() {
        sum += mean;
        squares += mean * mean;
        let n = as_f64(means.len() - at);
        let error = ((squares - sum * sum / n) / (n * n)).max(0.0);
        if at <= half && error <= best.0 {
            best = (error, at);
        }
    }
    best.1 * BATCH
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A number from -1 to 1 that looks random.
    fn noise(at: usize) -> f64 {
        f64::from(u32::try_from((at * 2_654_435_761) % 2001).unwrap()) / 1000.0 - 1.0
    }

    #[test]
    fn a_slow_start_is_cut_and_a_steady_run_is_not() {
        let settled = |at: usize| 10.0 + noise(at);
        let run: Vec<f64> = (0..1000).map(|at| if at < 100 { 0.0 } else { settled(at) }).collect();
        assert!((95..=150).contains(&mser5(&run)), "{}", mser5(&run));
        let steady: Vec<f64> = (0..1000).map(settled).collect();
        assert!(mser5(&steady) < 250, "{}", mser5(&steady));
    }

    proptest! {
        #[test]
        fn at_most_half_is_cut(samples in prop::collection::vec(0.0_f64..1e3, 0..200)) {
            prop_assert!(mser5(&samples) * 2 <= samples.len());
        }
    }
}
