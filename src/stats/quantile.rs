//! Quantiles by nearest rank, and their intervals by ranks alone.
//!
//! Nearest rank answers with a value that was really measured: "p99 is 41 ms" names a request.

use super::Interval;

/// Sorts samples for the functions of this file; NaN goes to the end.
pub fn sort(samples: &mut [f64]) {
    samples.sort_unstable_by(f64::total_cmp);
}

/// The `q` quantile (0 to 1) of `sorted` by nearest rank; `None` of an empty slice.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    sorted.get(rank(sorted.len(), q)?).copied()
}

/// The arithmetic mean; `None` of an empty slice.
pub fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / as_f64(samples.len()))
}

/// An interval for the `q` quantile at confidence `z` (see [`super::Z95`]), free of any
/// assumption on the distribution: the ranks `nq -+ z sqrt(nq(1-q))`, widened outwards.
///
/// A bound whose rank falls off the sample is clamped to its end, so with few samples the upper
/// bound of a tail quantile is only the largest value seen. `None` of an empty slice.
pub fn quantile_interval(sorted: &[f64], q: f64, z: f64) -> Option<Interval> {
    let n = as_f64(sorted.len());
    let q = q.clamp(0.0, 1.0);
    let half = z * (n * q * (1.0 - q)).sqrt();
    let low = index((n * q - half).floor() - 1.0, sorted.len())?;
    let high = index((n * q + half).ceil() - 1.0, sorted.len())?;
    Some(Interval { low: *sorted.get(low)?, high: *sorted.get(high)? })
}

fn rank(n: usize, q: f64) -> Option<usize> {
    // The small step back keeps 0.95 * 100 = 95.00000000000001 at rank 95.
    index((as_f64(n) * q.clamp(0.0, 1.0) - 1e-9).ceil() - 1.0, n)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped into the slice's own indices"
)]
fn index(at: f64, n: usize) -> Option<usize> {
    let last = n.checked_sub(1)?;
    Some((at.max(0.0) as usize).min(last))
}

#[expect(clippy::cast_precision_loss, reason = "sample counts stay far below 2^52")]
pub(super) fn as_f64(n: usize) -> f64 {
    n as f64
}

/// What a report says of one measured quantity, in the unit of its samples.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Quantiles {
    /// How many samples there were.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Lower 95 % bound of the 95th percentile.
    pub p95_low: f64,
    /// Upper 95 % bound of the 95th percentile.
    pub p95_high: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Quantiles {
    /// Sorts `samples` and sums them up; `None` when there are none.
    pub fn of(samples: &mut [f64]) -> Option<Self> {
        sort(samples);
        let p95 = quantile_interval(samples, 0.95, super::Z95)?;
        Some(Self {
            count: samples.len(),
            mean: mean(samples)?,
            p50: quantile(samples, 0.50)?,
            p95: quantile(samples, 0.95)?,
            p95_low: p95.low,
            p95_high: p95.high,
            p99: quantile(samples, 0.99)?,
            max: quantile(samples, 1.0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn to(n: u32) -> Vec<f64> {
        (1..=n).map(f64::from).collect()
    }

    #[test]
    fn nearest_rank_on_a_hundred_is_the_percent_itself() {
        for percent in 1..=100 {
            let q = f64::from(percent) / 100.0;
            assert_eq!(quantile(&to(100), q), Some(f64::from(percent)));
        }
        assert_eq!(quantile(&to(100), 0.0), Some(1.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_interval_of_a_median_of_a_hundred_is_the_textbook_one() {
        // Binomial(100, 1/2): ranks 40 and 60 cover the median with about 95 %.
        let interval = quantile_interval(&to(100), 0.5, super::super::Z95).unwrap();
        assert_eq!((interval.low, interval.high), (40.0, 60.0));
    }

    proptest! {
        #[test]
        fn bounds_enclose_their_quantile_and_quantiles_rise(
            mut samples in prop::collection::vec(0.0_f64..1e6, 1..400),
        ) {
            let sum = Quantiles::of(&mut samples).unwrap();
            prop_assert!(sum.p95_low <= sum.p95 && sum.p95 <= sum.p95_high);
            prop_assert!(sum.p50 <= sum.p95 && sum.p95 <= sum.p99 && sum.p99 <= sum.max);
            prop_assert!(samples.contains(&sum.p99));
        }
    }
}
