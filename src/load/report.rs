//! What a run says in the end: outcomes that add up, latencies of what was admitted, goodput.
//!
//! Everything is over the requests that were due in the measured window. Goodput is over
//! *offered*, never over served: a gateway that refuses everybody would else be perfect.

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
    /// Due in the window: `ok + shed + errors + cancelled + dropped`.
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
        let due = |seen: &&Seen| seen.due >= options.warm_up && seen.due < until;
        let seen: Vec<&Seen> = all.iter().filter(due).collect();
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
