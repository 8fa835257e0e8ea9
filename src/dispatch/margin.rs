//! How much safety a wait's estimate needs.
//!
//! Completions do not come evenly, so a request admitted on the mean alone is late every third
//! time, and a late refusal is worth less to its client than one at once. How unevenly they come
//! depends on the mix, so the margin, in standard deviations of a random stream of completions,
//! is steered: up with each eviction, down with each refusal at once, level when evictions are
//! one in four hundred of both, so that the 99th percentile of refusals is one at once. (At one
//! in a hundred it was the whole wait: 401 ms in `benches/overload.sh`.) Each start in time takes
//! a little off it as well: who is hardly ever late should hardly ever be refused.
//!
//! There are two margins. A tenant that presses for more than its part is pushed back by every
//! other that comes, and needs a large one; with it, one that asks for little would be refused
//! for a wait that only the first will have.

const START: f64 = 1.0;
const MOST: f64 = 8.0;
const UP: f64 = 0.25;
const DOWN: f64 = UP / 400.0;
const DOWN_STARTED: f64 = UP / 2_000.0;

/// Whose wait is estimated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Crowd {
    /// Tenants of whose requests some were refused lately.
    Pressing,
    /// All others.
    Modest,
}

/// The margins of one pool, in standard deviations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margin {
    pressing: f64,
    modest: f64,
}

impl Default for Margin {
    fn default() -> Self {
        Self { pressing: START, modest: START }
    }
}

impl Margin {
    /// A wait was longer than estimated.
    pub(super) fn evicted(&mut self, crowd: Crowd) {
        self.steer(crowd, UP);
    }

    /// A wait was refused in advance.
    pub(super) fn refused(&mut self, crowd: Crowd) {
        self.steer(crowd, -DOWN);
    }

    /// A wait ended in time.
    pub(super) fn started(&mut self, crowd: Crowd) {
        self.steer(crowd, -DOWN_STARTED);
    }

    /// `ahead` completions, on the safe side.
    pub(super) fn over(self, crowd: Crowd, ahead: f64) -> f64 {
        ahead + self.of(crowd) * ahead.max(0.0).sqrt()
    }

    /// `ahead` completions, as soon as they may be there.
    pub(super) fn under(self, crowd: Crowd, ahead: f64) -> f64 {
        ahead - self.of(crowd).max(START) * ahead.max(0.0).sqrt()
    }

    const fn of(self, crowd: Crowd) -> f64 {
        match crowd {
            Crowd::Pressing => self.pressing,
            Crowd::Modest => self.modest,
        }
    }

    fn steer(&mut self, crowd: Crowd, by: f64) {
        let deviations = match crowd {
            Crowd::Pressing => &mut self.pressing,
            Crowd::Modest => &mut self.modest,
        };
        *deviations = (*deviations + by).clamp(0.0, MOST);
    }
}
