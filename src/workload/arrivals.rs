//! When requests arrive.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::domain::Timestamp;
use std::time::Duration;

/// Poisson arrivals: gaps of an exponential distribution, for ever.
///
/// The same seed gives the same *arrivals in units of the mean gap* at every rate, so that a
/// sweep offers the same pattern, only denser.
#[derive(Debug)]
pub struct Arrivals {
    rng: StdRng,
    mean_gap_seconds: f64,
    at: Timestamp,
}

impl Arrivals {
    /// `rate` a second from `start` on; a rate that is not positive and finite never arrives.
    pub fn poisson(rate: f64, start: Timestamp, seed: u64) -> Self {
        let mean_gap_seconds =
            if rate.is_finite() && rate > 0.0 { rate.recip() } else { f64::INFINITY };
        Self { rng: StdRng::seed_from_u64(seed), mean_gap_seconds, at: start }
    }
}

impl Iterator for Arrivals {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        // 1 - u lies in (0, 1], so that its logarithm is finite.
        let drawn: f64 = self.rng.random();
        let gap = -(1.0 - drawn).ln() * self.mean_gap_seconds;
        self.at = self.at + Duration::try_from_secs_f64(gap).ok()?;
        Some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(rate: f64, count: usize) -> Vec<f64> {
        let arrivals = Arrivals::poisson(rate, Timestamp::ZERO, 7);
        arrivals.take(count).map(Timestamp::as_secs_f64).collect()
    }

    #[test]
    fn the_rate_holds_and_the_gaps_vary_as_they_should() {
        let at = first(20.0, 20_000);
        let rate = 20_000.0 / at[at.len() - 1];
        assert!((19.5..20.5).contains(&rate), "{rate}");
        let gaps: Vec<f64> = at.windows(2).map(|two| (two[1] - two[0]) * 20.0).collect();
        let above = gaps.iter().filter(|gap| **gap > 1.0).count();
        // e^-1 of the gaps are longer than their mean.
        assert!((7_000..7_700).contains(&above), "{above}");
    }

    #[test]
    fn another_rate_is_the_same_pattern() {
        for (slow, fast) in first(1.0, 100).iter().zip(first(10.0, 100)) {
            assert!((slow - fast * 10.0).abs() < 1e-5);
        }
    }

    #[test]
    fn no_rate_never_arrives() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Arrivals::poisson(rate, Timestamp::ZERO, 0).next(), None);
        }
    }
}
