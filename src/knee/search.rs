//! Which rate to try next: a geometric bracket, then bisection.
//!
//! A rate that stays undecided after its replicates is kept as such: the search goes on below and
//! above it, and the answer's interval then spans it. An honest wide interval is an answer; a
//! narrow wrong one is not.

use serde::Serialize;

use super::Verdict;

/// How far a search goes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SearchOptions {
    /// The first rate, requests a second.
    pub start: f64,
    /// Width of the answer, high over low less one, at which it ends.
    pub width: f64,
    /// Runs of one rate before it counts as undecided.
    pub most_runs: usize,
    /// Runs in all.
    pub budget: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { start: 1.0, width: 0.05, most_runs: 4, budget: 40 }
    }
}

/// What to run next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ask {
    /// Requests a second.
    pub rate: f64,
    /// Runs of this rate before this one.
    pub replicate: usize,
}

/// The answer: the knee lies between a rate that passed and one that failed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Found {
    /// The highest rate that passed below every one that failed; `None` when none passed.
    pub low: Option<f64>,
    /// The lowest rate that failed; `None` when none failed.
    pub high: Option<f64>,
}

impl Found {
    /// High over low less one.
    pub fn width(&self) -> Option<f64> {
        Some(self.high? / self.low? - 1.0)
    }
}

/// A search in progress.
#[derive(Clone, PartialEq, Debug)]
pub struct Search {
    options: SearchOptions,
    /// Rates tried, with the last verdict of each and the number of runs.
    tried: Vec<(f64, Verdict, usize)>,
    runs: usize,
}

/// Rates further from the start than this factor are not tried.
const FURTHEST: f64 = 4096.0;

impl Search {
    /// A search that has not begun.
    pub const fn new(options: SearchOptions) -> Self {
        Self { options, tried: Vec::new(), runs: 0 }
    }

    /// What to run next; `None` when there is an answer, or none can be had.
    pub fn next(&self) -> Option<Ask> {
        if self.runs >= self.options.budget {
            return None;
        }
        let open = self.tried.iter().find(|(_, verdict, runs)| {
            *verdict == Verdict::Replicate && *runs < self.options.most_runs
        });
        if let Some((rate, _, runs)) = open {
            return Some(Ask { rate: *rate, replicate: *runs });
        }
        let fresh = |rate: f64| Some(Ask { rate, replicate: 0 });
        let start = self.options.start;
        let within = |rate: &f64| (start / FURTHEST..=start * FURTHEST).contains(rate);
        let Found { low, high } = self.found();
        match (low, high) {
            _ if self.tried.is_empty() => fresh(start),
            (None, _) => {
                let least = self.rates().fold(f64::INFINITY, f64::min);
                Some(least / 2.0).filter(within).and_then(fresh)
            }
            (Some(_), None) => {
                let most = self.rates().fold(0.0, f64::max);
                Some(most * 2.0).filter(within).and_then(fresh)
            }
            (Some(low), Some(high)) => self.between(low, high).and_then(fresh),
        }
    }

    /// What was seen at `rate`, all its runs together.
    pub fn tell(&mut self, rate: f64, verdict: Verdict) {
        self.runs += 1;
        match self.tried.iter_mut().find(|(tried, ..)| tried.total_cmp(&rate).is_eq()) {
            Some((_, last, runs)) => {
                *last = verdict;
                *runs += 1;
            }
            None => self.tried.push((rate, verdict, 1)),
        }
    }

    /// The answer so far.
    pub fn found(&self) -> Found {
        let of = |wanted| {
            self.tried.iter().filter(move |(_, verdict, _)| *verdict == wanted).map(|one| one.0)
        };
        let high = of(Verdict::Fail).min_by(f64::total_cmp);
        let below = |rate: &f64| high.is_none_or(|high| *rate < high);
        Found { low: of(Verdict::Pass).filter(below).max_by(f64::total_cmp), high }
    }

    /// Runs so far, and the most that there may be.
    pub const fn progress(&self) -> (usize, usize) {
        (self.runs, self.options.budget)
    }

    fn rates(&self) -> impl Iterator<Item = f64> {
        self.tried.iter().map(|one| one.0)
    }

    /// The middle of the widest gap between tried rates from `low` to `high`, while the whole is
    /// wider than asked for and that gap is not yet as narrow as a third of it.
    fn between(&self, low: f64, high: f64) -> Option<f64> {
        if high / low - 1.0 <= self.options.width {
            return None;
        }
        let mut rates: Vec<f64> = self.rates().filter(|rate| (low..=high).contains(rate)).collect();
        rates.sort_unstable_by(f64::total_cmp);
        let ends = [rates.get(..2), rates.get(rates.len().saturating_sub(2)..)];
        let gaps = ends.into_iter().flatten().filter_map(|pair| match pair {
            [from, to] => Some((*from, *to)),
            _ => None,
        });
        let widest = gaps.max_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)))?;
        let undecided = rates.len() > 2;
        let narrow = undecided && widest.1 / widest.0 - 1.0 <= self.options.width / 3.0;
        (!narrow).then(|| f64::midpoint(widest.0, widest.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Searches where every verdict is right, but within `doubt` of the knee, where there is none.
    fn search(options: SearchOptions, knee: f64, doubt: f64) -> Search {
        let mut search = Search::new(options);
        while let Some(ask) = search.next() {
            let verdict = match ask.rate / knee {
                off if (off - 1.0).abs() < doubt => Verdict::Replicate,
                off if off < 1.0 => Verdict::Pass,
                _ => Verdict::Fail,
            };
            search.tell(ask.rate, verdict);
        }
        search
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_knee_and_is_narrow(knee in 0.1_f64..500.0, start in 0.1_f64..50.0) {
            let options = SearchOptions { start, ..SearchOptions::default() };
            let found = search(options, knee, 0.0).found();
            prop_assert!(found.low.unwrap() <= knee && knee <= found.high.unwrap());
            prop_assert!(found.width().unwrap() <= 0.05);
        }

        #[test]
        fn doubt_widens_the_interval_and_ends(knee in 1.0_f64..100.0, doubt in 0.0_f64..0.2) {
            let search = search(SearchOptions::default(), knee, doubt);
            let found = search.found();
            prop_assert!(found.low.is_none_or(|low| low <= knee));
            prop_assert!(found.high.is_none_or(|high| high >= knee));
            prop_assert!(search.progress().0 <= 40);
        }
    }

    #[test]
    fn without_a_knee_within_reach_there_is_no_answer() {
        let options = SearchOptions { budget: 100, ..SearchOptions::default() };
        assert_eq!(search(options, 1e9, 0.0).found().high, None);
        assert_eq!(search(options, 1e-9, 0.0).found().low, None);
    }
}
