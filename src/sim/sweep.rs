//! The search for the knee, driven by the engine model in virtual time.
//!
//! It shows what the live sweep cannot: how often the interval holds the true knee, which here can
//! be measured by runs as long as one likes. One engine, no gateway; the first call of each flow.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Engine, EngineParams, Job};
use crate::domain::Timestamp;
use crate::knee::{Found, Level, Observed, Search, SearchOptions, Targets};
use crate::workload::{Offered, Seeds, Workload};

/// Readings of the calls in flight in a run.
const READINGS: f64 = 100.0;

/// Offers `rate` to a fresh engine for `seconds` and lets it drain.
pub fn observe(
    params: &EngineParams,
    workload: &Arc<Workload>,
    rate: f64,
    seconds: f64,
    seeds: Seeds,
) -> Observed {
    let mut engine = Engine::new(params.clone());
    let mut arrivals = Offered::new(workload, Some(rate), Timestamp::ZERO, seeds)
        .take_while(|(due, _)| due.as_secs_f64() < seconds)
        .peekable();
    let mut now = Timestamp::ZERO;
    let mut open: BTreeMap<u64, Open> = BTreeMap::new();
    let mut seen: BTreeMap<u64, f64> = BTreeMap::new();
    let (mut out, mut observed) = (Vec::new(), Observed::default());
    let mut gaps: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    loop {
        while let Some((due, flow)) = arrivals.next_if(|(due, _)| *due <= now) {
            let Some(call) = flow.calls().next() else { continue };
            engine.submit(
                due,
                Job {
                    id: flow.number,
                    prompt_tokens: call.prompt_tokens(),
                    prefix: Arc::from([]),
                    output: call.output_tokens,
                    stops: false,
                },
            );
            observed.offered += 1;
            open.insert(flow.number, Open { due, last: None });
        }
        if now.as_secs_f64() * READINGS / seconds > as_f64(observed.in_flight.len())
            && now.as_secs_f64() < seconds
        {
            observed.in_flight.push(as_f64(open.len()));
        }
        match engine.step(now, &mut out) {
            Some(step) => now = now + step.duration,
            None => match arrivals.peek() {
                Some((due, _)) => now = *due,
                None => break,
            },
        }
        for emission in out.drain(..) {
            let Some(call) = open.get_mut(&emission.id) else { continue };
            match call.last.replace(now) {
                None => {
                    seen.insert(emission.id, now.saturating_since(call.due).as_secs_f64());
                }
                Some(last) => {
                    let gap = now.saturating_since(last).as_secs_f64();
                    gaps.entry(emission.id).or_default().push(gap);
                }
            }
            if emission.finish.is_some() {
                open.remove(&emission.id);
            }
        }
    }
    observed.ttft = seen.into_values().collect();
    observed.itl = gaps.into_values().flatten().collect();
    observed
}

/// A call in the engine.
struct Open {
    due: Timestamp,
    /// Its last token.
    last: Option<Timestamp>,
}

/// A whole search whose runs last `seconds` each; `seed` draws all of it.
pub fn search(
    params: &EngineParams,
    workload: &Arc<Workload>,
    targets: &Targets,
    options: SearchOptions,
    seconds: f64,
    seed: u64,
) -> Found {
    let mut search = Search::new(options);
    let mut levels: BTreeMap<u64, Level> = BTreeMap::new();
    while let Some(ask) = search.next() {
        let number = u64::try_from(ask.replicate).unwrap_or(0);
        let seeds = Seeds { requests: seed.wrapping_mul(1000) + number, texts: seed };
        let level = levels.entry(ask.rate.to_bits()).or_default();
        level.add(observe(params, workload, ask.rate, seconds, seeds));
        search.tell(ask.rate, level.judge(targets).verdict);
    }
    search.found()
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Class;

    const TARGETS: Targets = Targets { ttft: 1.0, itl: None, tpot: None, e2e: None };

    fn workload() -> Arc<Workload> {
        Arc::new(Workload::of(Class::fixed(1000, 200)))
    }

    /// The rate at which the p95 of long runs is the target.
    fn true_knee(params: &EngineParams) -> f64 {
        let (mut low, mut high) = (5.0, 40.0);
        for _ in 0..9 {
            let rate = f64::midpoint(low, high);
            let mut ttft: Vec<f64> = (0..4)
                .flat_map(|seed| {
                    let seeds = Seeds { requests: 900 + seed, texts: 1 };
                    let run = observe(params, &workload(), rate, 1500.0, seeds);
                    run.ttft.into_iter().skip(500).collect::<Vec<_>>()
                })
                .collect();
            crate::stats::sort(&mut ttft);
            let p95 = crate::stats::quantile(&ttft, 0.95).unwrap();
            if p95 <= TARGETS.ttft { low = rate } else { high = rate }
        }
        f64::midpoint(low, high)
    }

    fn coverage(repeats: u64, options: SearchOptions, seconds: f64, knee: f64) -> (u64, f64) {
        let params = EngineParams::default();
        let mut widths = Vec::new();
        let mut covered = 0;
        for seed in 0..repeats {
            let found = search(&params, &workload(), &TARGETS, options, seconds, seed);
            let within = found.low.is_some_and(|low| low <= knee)
                && found.high.is_some_and(|high| knee <= high);
            covered += u64::from(within);
            widths.extend(found.width());
        }
        crate::stats::sort(&mut widths);
        (covered, crate::stats::quantile(&widths, 0.5).unwrap())
    }

    #[test]
    fn a_search_of_short_runs_ends_near_the_designs_knee() {
        let options = SearchOptions { start: 10.0, width: 0.2, most_runs: 2, budget: 12 };
        let found = search(&EngineParams::default(), &workload(), &TARGETS, options, 40.0, 1);
        let (low, high) = (found.low.unwrap(), found.high.unwrap());
        assert!(low < 19.6 && high > 18.8, "{found:?}");
        assert!(found.width().unwrap() < 0.35, "{found:?}");
    }

    /// `cargo test --release --lib -- --ignored two_hundred`. It does not hold yet: with 40 repeats
    /// 17 and 3 covered 18.57/s, with median widths of 2.9 % and 5.3 %.
    #[test]
    #[ignore = "minutes, and it does not hold yet"]
    fn two_hundred_repeats_cover_the_true_knee() {
        let knee = true_knee(&EngineParams::default());
        let whole = SearchOptions { start: 4.0, ..SearchOptions::default() };
        let quick = SearchOptions { width: 0.1, most_runs: 2, budget: 16, ..whole };
        let told = [(whole, 120.0, 0.05), (quick, 20.0, 0.2)].map(|(options, seconds, width)| {
            let (covered, median) = coverage(200, options, seconds, knee);
            (covered >= 180 && median <= width, covered, median)
        });
        assert!(told.iter().all(|told| told.0), "knee {knee}: (holds, covered, width) {told:?}");
    }
}
