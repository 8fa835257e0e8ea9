//! How long a person thinks, or a tool runs, between two calls.

use std::time::Duration;

use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp1};
use serde::Deserialize;

use super::Faults;
use crate::domain::Span;

/// A distribution of pauses.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Pause {
    /// All alike.
    Fixed(Span),
    /// Without memory, cut at a longest.
    Exponential {
        /// Mean before the cut.
        mean: Span,
        /// Longest.
        max: Span,
    },
}

impl Default for Pause {
    fn default() -> Self {
        Self::Fixed(Span::default())
    }
}

impl Pause {
    /// One pause.
    pub fn draw(&self, rng: &mut StdRng) -> Duration {
        match self {
            Self::Fixed(pause) => pause.0,
            Self::Exponential { mean, max } => {
                let share: f64 = Exp1.sample(rng);
                let drawn = Duration::try_from_secs_f64(mean.0.as_secs_f64() * share);
                drawn.unwrap_or(max.0).min(max.0)
            }
        }
    }

    pub(super) fn check(&self, path: &str, faults: &mut Faults) {
        if let Self::Exponential { mean, max } = self
            && mean > max
        {
            faults.add(&format!("{path}.exponential"), "`mean` lies above `max`");
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn an_exponential_pause_has_its_mean_and_its_longest() {
        let second = Span(Duration::from_secs(1));
        let pause = Pause::Exponential { mean: second, max: Span(Duration::from_secs(3)) };
        let mut rng = StdRng::seed_from_u64(1);
        let drawn: Vec<f64> = (0..20_000).map(|_| pause.draw(&mut rng).as_secs_f64()).collect();
        // 1 - e^-3: what the cut leaves of the mean.
        assert!((drawn.iter().sum::<f64>() / 20_000.0 - 0.950).abs() < 0.03);
        assert!(drawn.iter().all(|pause| *pause <= 3.0));
    }
}
