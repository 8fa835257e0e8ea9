//! How many tokens a prompt or an answer has.

use rand::Rng;
use rand::RngExt;
use rand_distr::{Distribution, LogNormal};

/// A distribution of lengths, tokens; never 0.
#[derive(Clone, Copy, PartialEq, Debug)]
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
    /// As people write: a log-normal with this mean and spread, cut at `most`.
    LogNormal {
        /// Mean before the cut.
        mean: f64,
        /// Standard deviation of the logarithm; 0.5 to 1.2 in published traces.
        sigma: f64,
        /// Longest.
        most: u32,
    },
}

impl Lengths {
    /// One length.
    pub fn draw(&self, rng: &mut impl Rng) -> u32 {
        match *self {
            Self::Fixed(length) => length.max(1),
            Self::Uniform { from, to } => rng.random_range(from.max(1)..=to.max(from).max(1)),
            Self::LogNormal { mean, sigma, most } => {
                let mu = mean.max(1.0).ln() - sigma * sigma / 2.0;
                let Ok(normal) = LogNormal::new(mu, sigma) else { return most.max(1) };
                truncated(normal.sample(rng)).clamp(1, most.max(1))
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
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn the_mean_of_a_log_normal_is_the_one_asked_for() {
        let lengths = Lengths::LogNormal { mean: 200.0, sigma: 0.7, most: 100_000 };
        let mut rng = StdRng::seed_from_u64(1);
        let sum: u64 = (0..20_000).map(|_| u64::from(lengths.draw(&mut rng))).sum();
        assert!((3_900_000..4_100_000).contains(&sum), "{sum}");
    }

    proptest! {
        #[test]
        fn never_zero_and_never_over_the_most(mean: f64, sigma: f64, most: u32, seed: u64) {
            let mut rng = StdRng::seed_from_u64(seed);
            let length = Lengths::LogNormal { mean, sigma, most }.draw(&mut rng);
            prop_assert!(length >= 1 && length <= most.max(1));
            let length = Lengths::Uniform { from: most, to: 5 }.draw(&mut rng);
            prop_assert!(length >= 1);
        }
    }
}
