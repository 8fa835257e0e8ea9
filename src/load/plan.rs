//! Which requests are sent, and when: all of it drawn from a seed before the run begins.
//!
//! Gaps are drawn for a rate of one a second and divided by the rate asked for, so that the
//! same requests in the same order arrive at every rate, only closer together. What differs
//! between two runs is then the load, not the luck.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp1};

/// Token counts drawn evenly from `mean * (1 - spread) ..= mean * (1 + spread)`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lengths {
    /// Mean, tokens.
    pub mean: u32,
    /// Half the width, as a share of the mean; 0 is fixed, at most 1.
    pub spread: f64,
}

impl Lengths {
    /// Every request alike.
    pub const fn fixed(tokens: u32) -> Self {
        Self { mean: tokens, spread: 0.0 }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and twice a u32's mean, which casts saturate"
    )]
    fn draw(self, rng: &mut StdRng) -> u32 {
        let spread = self.spread.clamp(0.0, 1.0);
        let factor = 1.0 + spread * (2.0 * rng.random::<f64>() - 1.0);
        (f64::from(self.mean) * factor).round().max(1.0) as u32
    }
}

/// One request to be sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Planned {
    /// When it is due, from the start of the run.
    pub due: Duration,
    /// Prompt tokens.
    pub input: u32,
    /// Output tokens asked for.
    pub output: u32,
    /// Seeds its text and its retries' jitter; unlike for every request of a plan.
    pub salt: u64,
}

/// An endless, seeded source of requests; [`Plan::open`] gives them arrival times.
#[derive(Debug)]
pub struct Plan {
    rng: StdRng,
    input: Lengths,
    output: Lengths,
    per_second: f64,
    elapsed_seconds: f64,
}

impl Plan {
    /// Poisson arrivals at `per_second`.
    pub fn open(seed: u64, input: Lengths, output: Lengths, per_second: f64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        Self { rng, input, output, per_second: per_second.max(1e-6), elapsed_seconds: 0.0 }
    }
}

impl Iterator for Plan {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        let gap: f64 = Exp1.sample(&mut self.rng);
        self.elapsed_seconds += gap / self.per_second;
        Some(Planned {
            due: Duration::try_from_secs_f64(self.elapsed_seconds).unwrap_or(Duration::MAX),
            input: self.input.draw(&mut self.rng),
            output: self.output.draw(&mut self.rng),
            salt: self.rng.next_u64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(seed: u64, per_second: f64) -> Vec<Planned> {
        let lengths = Lengths { mean: 100, spread: 0.5 };
        Plan::open(seed, lengths, lengths, per_second).take(2000).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn every_rate_sends_the_same_requests(seed: u64, factor in 0.1_f64..50.0) {
            let (slow, fast) = (plan(seed, 1.0), plan(seed, factor));
            for (slow, fast) in slow.iter().zip(&fast) {
                prop_assert_eq!((slow.input, slow.output, slow.salt),
                    (fast.input, fast.output, fast.salt));
                let scaled = slow.due.as_secs_f64() / factor;
                prop_assert!((scaled - fast.due.as_secs_f64()).abs() < 1e-6);
            }
        }

        #[test]
        fn gaps_are_exponential_at_the_rate_asked_for(seed: u64) {
            let plan = plan(seed, 10.0);
            let gaps: Vec<f64> = plan.windows(2)
                .map(|pair| pair[1].due.as_secs_f64() - pair[0].due.as_secs_f64()).collect();
            let mean = crate::stats::mean(&gaps).unwrap();
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 1999.0;
            prop_assert!((mean - 0.1).abs() < 0.015, "mean {}", mean);
            prop_assert!((variance.sqrt() / mean - 1.0).abs() < 0.2);
        }

        #[test]
        fn lengths_stay_in_their_range(seed: u64) {
            prop_assert!(plan(seed, 1.0).iter().all(|one| (50..=150).contains(&one.input)));
        }
    }
}
