//! When requests arrive in an open loop: a renewal process whose rate may be modulated.
//!
//! Gaps are drawn for a rate of one and then stretched by the rate that rules at the time. So
//! the same requests arrive in the same order at every rate, only closer together: what differs
//! between two runs is the load, not the luck. Modulation (bursts, MMPP) runs in real seconds
//! whatever the rate, since it models the public, not the server.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Gamma};
use serde::Deserialize;

use super::Faults;
use crate::domain::{Span, Timestamp};

/// Spans without an arrival that are looked through before the process is taken to have ended.
const MOST_EMPTY_SPANS: u32 = 1_000_000;

/// How arrivals follow one another.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Process {
    /// A public of independent users.
    #[default]
    Poisson,
    /// Gaps of a gamma distribution.
    Gamma {
        /// Its shape, as in `vllm bench serve --burstiness`: 1 is Poisson, less comes in clumps,
        /// more is nearer to a metronome.
        burstiness: f64,
    },
    /// A Poisson process whose rate jumps between states, each held for an exponential time. The
    /// next state is any other, alike often.
    Mmpp {
        /// Two or more.
        states: Vec<State>,
    },
}

/// One state of a modulated Poisson process.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Rate in it, beside the other states' rates: the process as a whole is scaled so that the
    /// mean over time is the rate asked for.
    pub rate: f64,
    /// Mean time in it.
    pub hold: Span,
}

/// Bursts on top: so much more at the end of each period.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// What a burst adds, as a multiple of the rate asked for: with 3, a burst is four times
    /// what lies between bursts.
    pub rate: f64,
    /// How long it lasts.
    pub length: Span,
    /// From one burst's end to the next one's.
    pub every: Span,
}

/// What an open loop offers, but for the rate.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ArrivalModel {
    /// How arrivals follow one another.
    pub process: Process,
    /// What comes on top.
    pub bursts: Option<Bursts>,
}

impl ArrivalModel {
    pub(super) fn check(&self, path: &str, faults: &mut Faults) {
        let positive = |number: f64, most: f64| number > 0.0 && number <= most;
        match &self.process {
            Process::Poisson => {}
            Process::Gamma { burstiness } => {
                if !(0.01..=1000.0).contains(burstiness) {
                    let path = format!("{path}.process.gamma.burstiness");
                    faults.add(&path, format!("is {burstiness}, not 0.01 to 1000"));
                }
            }
            Process::Mmpp { states } => {
                let path = format!("{path}.process.mmpp.states");
                for (at, state) in states.iter().enumerate() {
                    if !(0.0..=1e6).contains(&state.rate) {
                        let path = format!("{path}[{at}].rate");
                        faults.add(&path, format!("is {}, not 0 to 1000000", state.rate));
                    }
                    if state.hold.0 < Duration::from_millis(1) {
                        faults.add(&format!("{path}[{at}].hold"), "is shorter than 1ms");
                    }
                }
                if states.len() < 2 {
                    faults.add(&path, "has fewer than two states");
                } else if states.iter().all(|state| state.rate <= 0.0) {
                    faults.add(&path, "has no state with a rate above 0");
                }
            }
        }
        if let Some(bursts) = &self.bursts {
            if !positive(bursts.rate, 1e6) {
                let path = format!("{path}.bursts.rate");
                faults.add(&path, format!("is {}, not above 0 and at most 1000000", bursts.rate));
            }
            if bursts.length.0.is_zero() || bursts.length >= bursts.every {
                let path = format!("{path}.bursts.length");
                faults.add(&path, "is not above 0s and below `every`");
            }
        }
    }
}

/// Arrival times, for ever: an iterator over one seeded realisation.
#[derive(Debug)]
pub struct Arrivals {
    rng: StdRng,
    gap: Gap,
    per_second: f64,
    states: Option<States>,
    bursts: Option<Bursts>,
    start: Timestamp,
    /// Seconds since `start`.
    elapsed: f64,
}

/// Distribution of the gaps at a rate of one.
#[derive(Debug)]
enum Gap {
    Exponential,
    Gamma(Gamma<f64>),
}

impl Arrivals {
    /// `per_second` from `start` on; a rate that is not positive and finite never arrives.
    pub fn new(model: &ArrivalModel, per_second: f64, start: Timestamp, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let gap = match model.process {
            Process::Gamma { burstiness } => {
                Gamma::new(burstiness, burstiness.recip()).map_or(Gap::Exponential, Gap::Gamma)
            }
            Process::Poisson | Process::Mmpp { .. } => Gap::Exponential,
        };
        let states = match &model.process {
            // A generator of its own, so that states and gaps do not hang on one another.
            Process::Mmpp { states } => States::new(states, StdRng::seed_from_u64(rng.random())),
            Process::Poisson | Process::Gamma { .. } => None,
        };
        Self { rng, gap, per_second, states, bursts: model.bursts, start, elapsed: 0.0 }
    }

    /// Independent arrivals at one rate.
    pub fn poisson(per_second: f64, start: Timestamp, seed: u64) -> Self {
        Self::new(&ArrivalModel::default(), per_second, start, seed)
    }

    /// The rate that rules now, as a multiple of the one asked for, and until when.
    fn span(&mut self) -> (f64, f64) {
        let (mut rate, mut until) = (1.0, f64::INFINITY);
        if let Some(states) = &mut self.states {
            (rate, until) = states.at(self.elapsed);
        }
        if let Some(bursts) = &self.bursts {
            let (length, every) = (bursts.length.0.as_secs_f64(), bursts.every.0.as_secs_f64());
            let period = (self.elapsed / every).floor() * every;
            // The edge itself belongs to what begins there, or rounding could hold us on it.
            let calm = period + every - length - self.elapsed;
            let (more, left) = if calm > 1e-9 {
                (0.0, calm)
            } else {
                (bursts.rate, (period + every - self.elapsed).max(1e-9))
            };
            rate += more;
            until = until.min(self.elapsed + left);
        }
        (rate, until)
    }
}

impl Iterator for Arrivals {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        if !(self.per_second > 0.0 && self.per_second.is_finite()) {
            return None;
        }
        let mut left: f64 = match &self.gap {
            Gap::Exponential => Exp1.sample(&mut self.rng),
            Gap::Gamma(gamma) => gamma.sample(&mut self.rng),
        };
        for _ in 0..MOST_EMPTY_SPANS {
            let (rate, until) = self.span();
            let per_second = rate * self.per_second;
            let room = (until - self.elapsed) * per_second;
            if per_second > 0.0 && left <= room {
                self.elapsed += left / per_second;
                let elapsed = Duration::try_from_secs_f64(self.elapsed).ok()?;
                return Some(self.start + elapsed);
            }
            left -= room.max(0.0);
            self.elapsed = until;
        }
        None
    }
}

/// The states of a modulated process, walked through in time.
#[derive(Debug)]
struct States {
    /// Rates scaled to a mean of one, and mean seconds.
    all: Vec<(f64, f64)>,
    rng: StdRng,
    now: usize,
    until: f64,
}

impl States {
    fn new(states: &[State], mut rng: StdRng) -> Option<Self> {
        let hold = |state: &State| state.hold.0.as_secs_f64();
        let whole: f64 = states.iter().map(hold).sum();
        let mean = states.iter().map(|state| state.rate * hold(state)).sum::<f64>() / whole;
        if !(mean > 0.0 && mean.is_finite()) {
            return None;
        }
        let all: Vec<_> = states.iter().map(|one| (one.rate / mean, hold(one))).collect();
        // The first state is one in which a stranger would find the process.
        let mut left = rng.random::<f64>() * whole;
        let found = |(_, hold): &(f64, f64)| {
            left -= hold;
            left < 0.0
        };
        let now = all.iter().position(found).unwrap_or(0);
        let mut new = Self { all, rng, now, until: 0.0 };
        new.until = new.hold();
        Some(new)
    }

    fn hold(&mut self) -> f64 {
        let share: f64 = Exp1.sample(&mut self.rng);
        // Not so short that time would stand still.
        (share * self.all.get(self.now).map_or(1.0, |state| state.1)).max(1e-6)
    }

    /// The rate at `elapsed`, which never goes back, and until when.
    fn at(&mut self, elapsed: f64) -> (f64, f64) {
        while self.until <= elapsed {
            let others = self.all.len().max(2) - 1;
            let step = 1 + self.rng.random_range(0..others);
            self.now = (self.now + step) % self.all.len().max(1);
            self.until += self.hold();
        }
        (self.all.get(self.now).map_or(1.0, |state| state.0), self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(model: &ArrivalModel, rate: f64, count: usize, seed: u64) -> Vec<f64> {
        let all = Arrivals::new(model, rate, Timestamp::ZERO, seed);
        all.take(count).map(Timestamp::as_secs_f64).collect()
    }

    fn process(process: Process) -> ArrivalModel {
        ArrivalModel { process, bursts: None }
    }

    fn span(millis: u64) -> Span {
        Span(Duration::from_millis(millis))
    }

    /// Arrivals a second, and the variance of the gaps over their squared mean.
    fn shape(at: &[f64]) -> (f64, f64) {
        let gaps: Vec<f64> = at.windows(2).map(|two| two[1] - two[0]).collect();
        let n = f64::from(u32::try_from(gaps.len()).unwrap());
        let mean = gaps.iter().sum::<f64>() / n;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / n;
        (mean.recip(), variance / (mean * mean))
    }

    #[test]
    fn rate_and_burstiness_are_those_asked_for() {
        for (model, scv) in [
            (Process::Poisson, 1.0),
            (Process::Gamma { burstiness: 0.25 }, 4.0),
            (Process::Gamma { burstiness: 4.0 }, 0.25),
        ] {
            let (rate, seen) = shape(&times(&process(model), 20.0, 40_000, 7));
            assert!((rate - 20.0).abs() < 0.5, "{rate}");
            assert!((seen / scv - 1.0).abs() < 0.1, "{seen} instead of {scv}");
        }
    }

    #[test]
    fn another_rate_is_the_same_pattern() {
        for model in [Process::Poisson, Process::Gamma { burstiness: 0.5 }] {
            let model = process(model);
            for (slow, fast) in times(&model, 1.0, 100, 7).iter().zip(times(&model, 10.0, 100, 7)) {
                assert!((slow - fast * 10.0).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn bursts_lie_at_the_end_of_each_period_and_come_on_top() {
        let bursts = Bursts { rate: 3.0, length: span(2_500), every: span(10_000) };
        let model = ArrivalModel { process: Process::Poisson, bursts: Some(bursts) };
        let at: Vec<f64> =
            times(&model, 50.0, 100_000, 1).into_iter().filter(|at| *at < 1000.0).collect();
        let within = at.iter().filter(|at| **at % 10.0 >= 7.5).count();
        let (calm, burst) = (at.len() - within, within);
        // 750 s at 50 a second and 250 s at 200.
        assert!((36_900..38_100).contains(&calm), "{calm}");
        assert!((49_300..50_700).contains(&burst), "{burst}");
        assert!(at.windows(2).all(|two| two[0] <= two[1]));
    }

    #[test]
    fn a_modulated_process_keeps_the_mean_and_is_far_more_bursty() {
        let states = vec![
            State { rate: 1.0, hold: span(4_000) },
            State { rate: 9.0, hold: span(1_000) },
            State { rate: 0.0, hold: span(500) },
        ];
        let at = times(&process(Process::Mmpp { states }), 20.0, 100_000, 3);
        let (rate, _) = shape(&at);
        assert!((rate - 20.0).abs() < 2.0, "{rate}");
        let mut counts = vec![0_u32; 4_800];
        for at in at.iter().filter(|at| **at < 4_800.0) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "below 4,800"
            )]
            let second = *at as usize;
            counts[second] += 1;
        }
        let mean = f64::from(counts.iter().sum::<u32>()) / 4_800.0;
        let variance = counts.iter().map(|n| (f64::from(*n) - mean).powi(2)).sum::<f64>() / 4_800.0;
        assert!(variance / mean > 5.0, "index of dispersion {}", variance / mean);
    }

    #[test]
    fn no_rate_never_arrives() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Arrivals::poisson(rate, Timestamp::ZERO, 0).next(), None);
        }
    }
}
