//! How many tokens a prompt or an answer has.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal};
use serde::Deserialize;

use super::Faults;

/// More than any model takes; bounds the memory that a typing error can ask for.
const MOST_TOKENS: u32 = 10_000_000;

/// A distribution of lengths, tokens (or turns, or calls); never 0.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Lengths {
    /// All alike.
    Fixed(u32),
    /// Any from the first to the last, alike often.
    Uniform {
        /// Shortest.
        from: u32,
        /// Longest.
        to: u32,
    },
    /// As people write: a log-normal, cut at both ends.
    LogNormal {
        /// Mean before the cut.
        mean: f64,
        /// Standard deviation of the logarithm; 0.5 to 1.2 in published traces.
        sigma: f64,
        /// Shortest.
        #[serde(default = "one")]
        min: u32,
        /// Longest.
        max: u32,
    },
    /// Any of these, alike often; one that stands twice is twice as likely.
    List(Vec<u32>),
}

const fn one() -> u32 {
    1
}

impl Lengths {
    /// Any from `mean * (1 - spread)` to `mean * (1 + spread)`; `spread` from 0 to 1.
    pub fn around(mean: u32, spread: f64) -> Self {
        let half = f64::from(mean) * spread.clamp(0.0, 1.0);
        let from = truncated((f64::from(mean) - half).round()).max(1);
        let to = truncated((f64::from(mean) + half).round()).max(from);
        if from == to { Self::Fixed(from) } else { Self::Uniform { from, to } }
    }

    /// One length.
    pub fn draw(&self, rng: &mut StdRng) -> u32 {
        match self {
            Self::Fixed(length) => (*length).max(1),
            Self::Uniform { from, to } => rng.random_range((*from).max(1)..=*to.max(from).max(&1)),
            Self::LogNormal { mean, sigma, min, max } => {
                let (min, max) = ((*min).max(1), (*max).max(*min).max(1));
                let mu = mean.max(1.0).ln() - sigma * sigma / 2.0;
                let Ok(normal) = LogNormal::new(mu, *sigma) else { return max };
                truncated(normal.sample(rng)).clamp(min, max)
            }
            Self::List(lengths) if lengths.is_empty() => 1,
            Self::List(lengths) => {
                let at = rng.random_range(0..lengths.len());
                lengths.get(at).copied().unwrap_or(1).max(1)
            }
        }
    }

    /// The mean of what is drawn: exact, but for a log-normal, whose cut ends move it and which
    /// is averaged over 4,096 draws of a seed of its own.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(length) => f64::from(*length),
            Self::Uniform { from, to } => f64::midpoint(f64::from(*from), f64::from(*to)),
            Self::LogNormal { .. } => {
                const DRAWS: u32 = 4096;
                let mut rng = StdRng::seed_from_u64(0);
                let sum: f64 = (0..DRAWS).map(|_| f64::from(self.draw(&mut rng))).sum();
                sum / f64::from(DRAWS)
            }
            Self::List(lengths) => {
                let sum: f64 = lengths.iter().map(|length| f64::from(*length)).sum();
                sum / f64::from(u32::try_from(lengths.len()).unwrap_or(u32::MAX)).max(1.0)
            }
        }
    }

    /// Notes what is wrong with it.
    pub(super) fn check(&self, path: &str, faults: &mut Faults) {
        let mut within = |key: &str, length: u32| {
            if !(1..=MOST_TOKENS).contains(&length) {
                faults
                    .add(&format!("{path}.{key}"), format!("is {length}, not 1 to {MOST_TOKENS}"));
            }
        };
        match self {
            Self::Fixed(length) => within("fixed", *length),
            Self::Uniform { from, to } => {
                within("uniform.from", *from);
                within("uniform.to", *to);
                if from > to {
                    faults.add(&format!("{path}.uniform"), "`from` lies above `to`");
                }
            }
            Self::LogNormal { mean, sigma, min, max } => {
                within("lognormal.min", *min);
                within("lognormal.max", *max);
                if min > max {
                    faults.add(&format!("{path}.lognormal"), "`min` lies above `max`");
                }
                if !(mean.is_finite() && *mean >= 1.0) {
                    faults.add(
                        &format!("{path}.lognormal.mean"),
                        format!("is {mean}, not 1 or more"),
                    );
                }
                if !(0.0..=5.0).contains(sigma) {
                    faults
                        .add(&format!("{path}.lognormal.sigma"), format!("is {sigma}, not 0 to 5"));
                }
            }
            Self::List(lengths) => {
                for (at, length) in lengths.iter().enumerate() {
                    within(&format!("list[{at}]"), *length);
                }
                if lengths.is_empty() {
                    faults.add(&format!("{path}.list"), "is empty");
                }
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and the caller cuts it to a range"
)]
const fn truncated(length: f64) -> u32 {
    length as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_mean_of_a_log_normal_is_the_one_asked_for() {
        let lengths = Lengths::LogNormal { mean: 200.0, sigma: 0.7, min: 1, max: 100_000 };
        let mut rng = StdRng::seed_from_u64(1);
        let sum: u64 = (0..20_000).map(|_| u64::from(lengths.draw(&mut rng))).sum();
        assert!((3_900_000..4_100_000).contains(&sum), "{sum}");
        assert!((190.0..210.0).contains(&lengths.mean()), "{}", lengths.mean());
    }

    #[test]
    fn means_are_those_of_what_is_drawn() {
        let cases = [
            (Lengths::Fixed(7), 7.0),
            (Lengths::Uniform { from: 2, to: 6 }, 4.0),
            (Lengths::List(vec![1, 1, 10]), 4.0),
            (Lengths::around(100, 0.2), 100.0),
        ];
        for (lengths, mean) in cases {
            assert!((lengths.mean() - mean).abs() < 1e-9, "{lengths:?}");
            let mut rng = StdRng::seed_from_u64(3);
            let sum: f64 = (0..20_000).map(|_| f64::from(lengths.draw(&mut rng))).sum();
            assert!((sum / 20_000.0 - mean).abs() < mean * 0.05, "{lengths:?}");
        }
        assert_eq!(Lengths::around(100, 0.2), Lengths::Uniform { from: 80, to: 120 });
    }

    proptest! {
        #[test]
        fn never_zero_and_never_outside(mean: f64, sigma: f64, min: u32, max: u32, seed: u64) {
            let mut rng = StdRng::seed_from_u64(seed);
            let length = Lengths::LogNormal { mean, sigma, min, max }.draw(&mut rng);
            prop_assert!(length >= min.max(1) && length <= max.max(min).max(1));
            for odd in [Lengths::Uniform { from: max, to: 5 }, Lengths::List(vec![])] {
                prop_assert!(odd.draw(&mut rng) >= 1);
            }
        }
    }
}
