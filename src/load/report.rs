//! What a run says in the end: outcomes that add up, latencies of what was admitted, goodput.
//!
//! Everything is over the requests that were due in the measured window (of a closed loop: that
//! ended in it). Goodput is over *offered*, never over served: a gateway that refuses everybody
//! would else be perfect.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::attempt::{End, Refusal, Seen};
use super::{LoadOptions, Mode};
use crate::domain::Slo;
use crate::stats::{self, Interval, Quantiles};

/// A generator later than this at its p99 has measured itself.
const LATENESS_BOUND_SECONDS: f64 = 0.010;

/// Distinct reasons counted; a peer that invents more goes under `other`.
const MAX_REASONS: usize = 32;

/// The figures of one run. Counts are of planned requests; times are in seconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadReport {
    /// `open` or `closed`.
    pub mode: &'static str,
    /// Rate asked for, requests a second; of a closed loop none.
    pub rate: Option<f64>,
    /// Clients of a closed loop.
    pub clients: Option<u32>,
    /// Seed of the plan.
    pub seed: u64,
    /// The measured window.
    pub window_seconds: f64,
    /// Counted in the window: `ok + shed + errors + cancelled + dropped`.
    pub offered: u64,
    /// Answered whole.
    pub ok: u64,
    /// Refused for good by 503 or 429.
    pub shed: u64,
    /// Ended badly in any other way.
    pub errors: u64,
    /// Still open when the run ended.
    pub cancelled: u64,
    /// Not sent by the generator.
    pub dropped: u64,
    /// Met every target.
    pub good: u64,
    /// Offered a second.
    pub offered_per_second: f64,
    /// Answered whole a second.
    pub ok_per_second: f64,
    /// Good a second.
    pub goodput_per_second: f64,
    /// Good over offered, with its 95 % interval.
    pub goodput_share: f64,
    /// The interval of `goodput_share`.
    pub goodput_interval: Interval,
    /// Output tokens of whole answers a second.
    pub tokens_per_second: f64,
    /// Due to first content, of whole answers.
    pub ttft_seconds: Option<Quantiles>,
    /// Gaps between content frames of whole answers.
    pub itl_seconds: Option<Quantiles>,
    /// Time per output token after the first, of whole answers.
    pub tpot_seconds: Option<Quantiles>,
    /// Due to end, of whole answers.
    pub e2e_seconds: Option<Quantiles>,
    /// Refusals of every attempt, retried or not.
    pub refusals: u64,
    /// Those with a wait asked for.
    pub refusals_with_retry_after: u64,
    /// Sent to refused.
    pub refusal_seconds: Option<Quantiles>,
    /// Waits asked for.
    pub retry_after_seconds: Option<Quantiles>,
    /// Refusals by `x-weir-reason`.
    pub reasons: BTreeMap<String, u64>,
    /// Attempts by status; 0 where none came.
    pub statuses: BTreeMap<u16, u64>,
    /// Errors by kind.
    pub error_kinds: BTreeMap<&'static str, u64>,
    /// How late requests left.
    pub lateness_seconds: Option<Quantiles>,
    /// Why the figures say nothing, if so.
    pub void: Option<String>,
}

impl LoadReport {
    pub(super) fn of(options: &LoadOptions, all: &[Seen], until: Duration) -> Self {
        let window = until.saturating_sub(options.warm_up).as_secs_f64().max(1e-9);
        let seen: Vec<&Seen> = all
            .iter()
            .filter(|one| (options.warm_up..until).contains(&counted_at(options.mode, one)))
            .collect();
        let whole: Vec<&Seen> = seen.iter().copied().filter(|one| one.end == End::Ok).collect();
        let refusals: Vec<&Refusal> = seen.iter().flat_map(|one| &one.refusals).collect();
        let ends = |end: &End| count(seen.iter().filter(|one| one.end == *end));
        let errors = |one: &&&Seen| matches!(one.end, End::Error(_));
        let (offered, ok) = (count(seen.iter()), count(whole.iter()));
        let good = count(whole.iter().filter(|one| good(one, &options.slo)));
        // Of what was cancelled it is not known: it went with its task.
        let told = seen.iter().filter(|one| one.end != End::Cancelled);
        let lateness = quantiles(told.map(|one| one.late));
        let gaps = whole.iter().flat_map(|one| &one.gaps).map(|gap| f64::from(*gap));
        let dropped = ends(&End::Dropped);
        Self {
            mode: match options.mode {
                Mode::Open(_) => "open",
                Mode::Closed(_) => "closed",
            },
            rate: if let Mode::Open(rate) = options.mode { Some(rate) } else { None },
            clients: if let Mode::Closed(clients) = options.mode { Some(clients) } else { None },
            seed: options.seed,
            window_seconds: window,
            offered,
            ok,
            shed: ends(&End::Shed),
            errors: count(seen.iter().filter(errors)),
            cancelled: ends(&End::Cancelled),
            dropped,
            good,
            offered_per_second: per(offered, window),
            ok_per_second: per(ok, window),
            goodput_per_second: per(good, window),
            goodput_share: if offered == 0 { 0.0 } else { per(good, per(offered, 1.0)) },
            goodput_interval: stats::wilson(good, offered, stats::Z95),
            tokens_per_second: per(whole.iter().map(|one| one.tokens).sum(), window),
            ttft_seconds: quantiles(whole.iter().filter_map(|one| one.ttft)),
            itl_seconds: Quantiles::of(&mut gaps.collect::<Vec<_>>()),
            tpot_seconds: quantiles(whole.iter().filter_map(|one| one.tpot)),
            e2e_seconds: quantiles(whole.iter().map(|one| one.e2e)),
            refusals: count(refusals.iter()),
            refusals_with_retry_after: count(refusals.iter().filter(|r| r.retry_after.is_some())),
            refusal_seconds: quantiles(refusals.iter().map(|one| one.took)),
            retry_after_seconds: quantiles(refusals.iter().filter_map(|one| one.retry_after)),
            reasons: reasons(&refusals),
            statuses: statuses(&seen),
            error_kinds: error_kinds(&seen),
            void: void(lateness.as_ref(), dropped, offered),
            lateness_seconds: lateness,
        }
    }
}

/// When a request counts: in an open loop when it was due, since that is what was offered; in a
/// closed one when it ended, since its clients all begin at once and what they begin says less
/// about a short window than what they finish. What was cancelled has no end and counts when due.
fn counted_at(mode: Mode, seen: &Seen) -> Duration {
    match mode {
        Mode::Open(_) => seen.due,
        Mode::Closed(_) => seen.due.saturating_add(seen.e2e),
    }
}

/// Whether a whole answer met every target. A single token has no TPOT and meets it.
fn good(seen: &Seen, slo: &Slo) -> bool {
    let within = |target: Option<Duration>, value: Option<Duration>| match (target, value) {
        (Some(target), Some(value)) => value <= target,
        _ => true,
    };
    let longest = seen.gaps.iter().copied().fold(0.0_f32, f32::max);
    within(slo.ttft, seen.ttft)
        && within(slo.tpot, seen.tpot)
        && within(slo.itl, Duration::try_from_secs_f32(longest).ok())
        && within(slo.e2e, Some(seen.e2e))
}

fn void(lateness: Option<&Quantiles>, dropped: u64, offered: u64) -> Option<String> {
    match lateness {
        _ if dropped > 0 => Some(format!("{dropped} requests were not sent: too many were open")),
        _ if offered == 0 => Some("no request was due in the window".to_owned()),
        Some(late) if late.p99 > LATENESS_BOUND_SECONDS => Some(format!(
            "the generator was late: p99 {:.1} ms, bound {:.0} ms",
            late.p99 * 1e3,
            LATENESS_BOUND_SECONDS * 1e3
        )),
        _ => None,
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    items.fold(0, |count, _| count + 1)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn per(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

fn quantiles(durations: impl Iterator<Item = Duration>) -> Option<Quantiles> {
    Quantiles::of(&mut durations.map(|one| one.as_secs_f64()).collect::<Vec<_>>())
}

fn reasons(refusals: &[&Refusal]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for reason in refusals.iter().filter_map(|one| one.reason.as_deref()) {
        let full = counts.len() >= MAX_REASONS && !counts.contains_key(reason);
        let key = if full { "other" } else { reason };
        *counts.entry(key.to_owned()).or_default() += 1;
    }
    counts
}

fn statuses(seen: &[&Seen]) -> BTreeMap<u16, u64> {
    let mut counts = BTreeMap::new();
    for (status, times) in seen.iter().flat_map(|one| &one.statuses) {
        *counts.entry(*status).or_default() += u64::from(*times);
    }
    counts
}

fn error_kinds(seen: &[&Seen]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for one in seen {
        if let End::Error(kind) = one.end {
            *counts.entry(kind).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(due: u64, e2e: u64, end: End) -> Seen {
        let second = Duration::from_secs;
        let ttft = (end == End::Ok).then_some(Duration::from_millis(500));
        Seen { e2e: second(e2e), ttft, ..Seen::new(second(due), end) }
    }

    fn options(mode: Mode) -> LoadOptions {
        let mut options = LoadOptions::new("http://localhost".parse().unwrap(), "tiny", mode);
        options.warm_up = Duration::from_secs(10);
        options
    }

    #[test]
    fn goodput_is_over_what_was_offered_and_the_warm_up_is_left_out() {
        let mut slow = seen(12, 3, End::Ok);
        slow.ttft = Some(Duration::from_secs(2));
        let all = [
            seen(9, 5, End::Ok),
            seen(10, 5, End::Ok),
            slow,
            seen(13, 0, End::Shed),
            seen(14, 9, End::Error("cut")),
            seen(20, 1, End::Ok),
        ];
        let report = LoadReport::of(&options(Mode::Open(1.0)), &all, Duration::from_secs(20));
        assert_eq!((report.offered, report.ok, report.good), (4, 2, 1));
        assert_eq!((report.shed, report.errors), (1, 1));
        assert!((report.goodput_share - 0.25).abs() < 1e-9);
        assert!((report.goodput_per_second - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_closed_loop_counts_what_ended_in_the_window() {
        let all = [seen(0, 12, End::Ok), seen(15, 10, End::Ok), seen(1, 2, End::Ok)];
        let report = LoadReport::of(&options(Mode::Closed(3)), &all, Duration::from_secs(20));
        assert_eq!(report.ok, 1);
    }

    #[test]
    fn every_target_counts() {
        let mut one = seen(0, 3, End::Ok);
        one.gaps = vec![0.01, 0.3];
        one.tpot = Some(Duration::from_millis(60));
        let hold = |slo: Slo| good(&one, &slo);
        let milliseconds = |count| Some(Duration::from_millis(count));
        assert!(hold(Slo::default()));
        assert!(!hold(Slo { ttft: milliseconds(499), ..Slo::default() }));
        assert!(!hold(Slo { tpot: milliseconds(59), ..Slo::default() }));
        assert!(!hold(Slo { itl: milliseconds(299), ..Slo::default() }));
        assert!(!hold(Slo { e2e: milliseconds(2999), ..Slo::default() }));
    }

    #[test]
    fn reasons_that_a_peer_invents_are_bounded() {
        let refusal = |number: u32| Refusal {
            took: Duration::ZERO,
            retry_after: None,
            reason: Some(number.to_string()),
        };
        let refusals: Vec<Refusal> = (0..1000).map(refusal).collect();
        let counts = reasons(&refusals.iter().collect::<Vec<_>>());
        assert_eq!(counts.len(), MAX_REASONS + 1);
        assert_eq!(counts.values().sum::<u64>(), 1000);
    }
}
