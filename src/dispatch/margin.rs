//! How much safety a wait's estimate needs.
//!
//! Completions do not come evenly, so a request admitted on the mean alone is late every third
//! time, and a late refusal is worth less to its client than one at once. How unevenly they come
//! depends on the mix, so the margin, in standard deviations of a random stream of completions,
//! is steered: up with each eviction, down with each refusal at once, level when evictions are
//! one in four hundred of both, so that the 99th percentile of refusals is one at once. (At one
//! in a hundred it was the whole wait: 401 ms in `benches/overload.sh`.)

const START: f64 = 1.0;
const MOST: f64 = 8.0;
const UP: f64 = 0.25;
const DOWN: f64 = UP / 400.0;

/// The margin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margin {
    deviations: f64,
}

impl Default for Margin {
    fn default() -> Self {
        Self { deviations: START }
    }
}

impl Margin {
    /// A wait was longer than estimated.
    pub(super) fn evicted(&mut self) {
        self.deviations = (self.deviations + UP).min(MOST);
    }

    /// A wait was refused in advance.
    pub(super) fn refused(&mut self) {
        self.deviations = (self.deviations - DOWN).max(0.0);
    }

    /// `ahead` completions, on the safe side.
    pub(super) fn over(self, ahead: f64) -> f64 {
        ahead + self.deviations * ahead.max(0.0).sqrt()
    }
}
