//! The figures of a set of calls: of a whole run, of one class, of one tenant.
//!
//! Goodput is over *offered*, never over served: a gateway that refuses everybody would else be
//! perfect. Each call is held to the targets of its own class.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::attempt::{End, Refusal, Seen};
use super::record::FlowSeen;
use crate::domain::Slo;
use crate::stats::{self, Interval, Quantiles};
use crate::workload::Class;

/// Distinct reasons counted; a peer that invents more goes under `other`.
pub(super) const MAX_REASONS: usize = 32;

/// Figures of a set of calls. Counts are of calls; times are in seconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
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
    /// Met every target of its class.
    pub good: u64,
    /// Attempts sent, retries too.
    pub attempts: u64,
    /// Attempts a call that was sent.
    pub attempts_per_call: f64,
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
    /// Prompt tokens of whole answers, as the server counted them.
    pub prompt_tokens: u64,
    /// Output tokens of whole answers.
    pub output_tokens: u64,
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
}

/// Flows of more than one call: sessions and workflows that began in the window and ended.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Workflows {
    /// How many there were.
    pub ended: u64,
    /// Those of which every call was answered whole.
    pub whole: u64,
    /// Whole ones within their class's target for a whole workflow, where it has one.
    pub good: u64,
    /// Calls of them.
    pub calls: u64,
    /// First due to last end, of whole ones, seconds; thinking and tools too.
    pub e2e_seconds: Option<Quantiles>,
}

impl Figures {
    /// Of `seen`, over a window of so many seconds.
    pub(super) fn of(seen: &[&Seen], classes: &[Class], window: f64) -> Self {
        let whole: Vec<&Seen> = seen.iter().copied().filter(|one| one.end == End::Ok).collect();
        let refusals: Vec<&Refusal> = seen.iter().flat_map(|one| &one.refusals).collect();
        let ends = |end: &End| count(seen.iter().filter(|one| one.end == *end));
        let errors = |one: &&&Seen| matches!(one.end, End::Error(_));
        let (offered, ok) = (count(seen.iter()), count(whole.iter()));
        let slo = |one: &Seen| classes.get(usize::from(one.who.class.0)).map(|class| class.slo);
        let good = count(whole.iter().filter(|one| good(one, &slo(one).unwrap_or_default())));
        let gaps = whole.iter().flat_map(|one| &one.gaps).map(|gap| f64::from(*gap));
        let attempts = seen.iter().map(|one| u64::from(one.attempts)).sum();
        let sent = count(seen.iter().filter(|one| one.attempts > 0));
        let output_tokens = whole.iter().map(|one| one.tokens).sum();
        Self {
            offered,
            ok,
            shed: ends(&End::Shed),
            errors: count(seen.iter().filter(errors)),
            cancelled: ends(&End::Cancelled),
            dropped: ends(&End::Dropped),
            good,
            attempts,
            attempts_per_call: if sent == 0 { 0.0 } else { per(attempts, per(sent, 1.0)) },
            offered_per_second: per(offered, window),
            ok_per_second: per(ok, window),
            goodput_per_second: per(good, window),
            goodput_share: if offered == 0 { 0.0 } else { per(good, per(offered, 1.0)) },
            goodput_interval: stats::wilson(good, offered, stats::Z95),
            prompt_tokens: whole.iter().map(|one| one.prompt).sum(),
            output_tokens,
            tokens_per_second: per(output_tokens, window),
            ttft_seconds: quantiles(whole.iter().filter_map(|one| one.ttft)),
            itl_seconds: Quantiles::of(&mut gaps.collect::<Vec<_>>()),
            tpot_seconds: quantiles(whole.iter().filter_map(|one| one.tpot)),
            e2e_seconds: quantiles(whole.iter().map(|one| one.e2e)),
            refusals: count(refusals.iter()),
            refusals_with_retry_after: count(refusals.iter().filter(|r| r.retry_after.is_some())),
            refusal_seconds: quantiles(refusals.iter().map(|one| one.took)),
            retry_after_seconds: quantiles(refusals.iter().filter_map(|one| one.retry_after)),
            reasons: reasons(&refusals),
            statuses: statuses(seen),
            error_kinds: error_kinds(seen),
        }
    }
}

impl Workflows {
    /// Of those flows that began in the window; `None` when there were none.
    pub(super) fn of<'a>(
        flows: impl Iterator<Item = &'a FlowSeen>,
        classes: &[Class],
    ) -> Option<Self> {
        let flows: Vec<&FlowSeen> = flows.collect();
        let whole: Vec<&FlowSeen> = flows.iter().copied().filter(|flow| flow.whole).collect();
        let target =
            |flow: &FlowSeen| classes.get(usize::from(flow.who.class.0))?.follow_up.as_ref()?.e2e;
        let within = |flow: &&&FlowSeen| target(flow).is_none_or(|target| flow.took <= target);
        (!flows.is_empty()).then(|| Self {
            ended: count(flows.iter()),
            whole: count(whole.iter()),
            good: count(whole.iter().filter(within)),
            calls: flows.iter().map(|flow| u64::from(flow.calls)).sum(),
            e2e_seconds: quantiles(whole.iter().map(|flow| flow.took)),
        })
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

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    items.fold(0, |count, _| count + 1)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub(super) fn per(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

pub(super) fn quantiles(durations: impl Iterator<Item = Duration>) -> Option<Quantiles> {
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
    use super::super::attempt::Who;
    use super::*;

    #[test]
    fn every_target_counts() {
        let one = Seen {
            ttft: Some(Duration::from_millis(500)),
            tpot: Some(Duration::from_millis(60)),
            e2e: Duration::from_secs(3),
            gaps: vec![0.01, 0.3],
            ..Seen::new(Duration::ZERO, Who::default(), End::Ok)
        };
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
