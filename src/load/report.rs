//! What a run says in the end: outcomes that add up, latencies of what was admitted, goodput.
//!
//! Everything is over the calls that were due in the measured window (of a closed loop: that
//! ended in it), as a whole, by class and by tenant.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::attempt::{End, Seen};
use super::figures::quantiles;
use super::record::Record;
use super::vllm_keys::VllmKeys;
use super::{Figures, LoadOptions, Mode, Ratio, Workflows};
use crate::stats::Quantiles;

/// A generator later than this at its p99 has measured itself.
const LATENESS_BOUND_SECONDS: f64 = 0.010;

/// A generator that used more than this share of its core may have measured itself.
const CPU_BOUND: f64 = 0.9;

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadReport {
    /// `open`, `closed` or `recorded`.
    pub mode: &'static str,
    /// Rate asked for, calls a second; of a closed loop none.
    pub rate: Option<f64>,
    /// Clients of a closed loop.
    pub clients: Option<u32>,
    /// Seed of arrivals and lengths.
    pub seed: u64,
    /// Seed of texts.
    pub texts: u64,
    /// The measured window.
    pub window_seconds: f64,
    /// Of all calls.
    #[serde(flatten)]
    pub all: Figures,
    /// By class, where there are several.
    pub classes: BTreeMap<String, Figures>,
    /// By tenant, where there are several.
    pub tenants: BTreeMap<String, Figures>,
    /// Flows of more than one call, by class.
    pub workflows: BTreeMap<String, Workflows>,
    /// How the server counted tokens, where that was measured.
    pub tokens: Option<Ratio>,
    /// How late calls left.
    pub lateness_seconds: Option<Quantiles>,
    /// Share of its core that the generator used, where that is known.
    pub generator_cpu: Option<f64>,
    /// Why the figures say nothing, if so.
    pub void: Option<String>,
    /// The same in the keys of vLLM.
    #[serde(flatten)]
    pub(super) vllm: VllmKeys,
}

impl LoadReport {
    pub(super) fn of(
        options: &LoadOptions,
        record: &Record,
        until: Duration,
        cpu: Option<f64>,
        ratio: Ratio,
    ) -> Self {
        let window = until.saturating_sub(options.warm_up).as_secs_f64().max(1e-9);
        let within = |at: &Duration| (options.warm_up..until).contains(at);
        let seen: Vec<&Seen> =
            record.seen.iter().filter(|one| within(&counted_at(options.mode, one))).collect();
        let workload = &options.workload;
        let classes = &workload.classes;
        let part = |belongs: &dyn Fn(&Seen) -> bool| {
            let part: Vec<&Seen> = seen.iter().copied().filter(|one| belongs(one)).collect();
            Figures::of(&part, classes, window)
        };
        let by_class = classes
            .iter()
            .map(|class| (class.name.to_string(), part(&|one| one.who.class == class.id)));
        let by_tenant = workload
            .tenants
            .iter()
            .map(|tenant| (tenant.name.to_string(), part(&|one| one.who.tenant == tenant.id)));
        let workflows = classes.iter().filter_map(|class| {
            let flows = record.flows.iter().filter(|flow| flow.who.class == class.id);
            let flows = Workflows::of(flows.filter(|flow| within(&flow.due)), classes)?;
            Some((class.name.to_string(), flows))
        });
        let all = Figures::of(&seen, classes, window);
        // Of what was cancelled it is not known: it went with its task.
        let told = seen.iter().filter(|one| one.end != End::Cancelled);
        let lateness = quantiles(told.map(|one| one.late));
        let rate = match options.mode {
            Mode::Open(rate) => Some(rate),
            Mode::Recorded => workload.own_rate(),
            Mode::Closed(_) => None,
        };
        let clients = if let Mode::Closed(clients) = options.mode { Some(clients) } else { None };
        Self {
            mode: match options.mode {
                Mode::Open(_) => "open",
                Mode::Closed(_) => "closed",
                Mode::Recorded => "recorded",
            },
            rate,
            clients,
            seed: options.seed,
            texts: options.texts,
            window_seconds: window,
            classes: if classes.len() > 1 { by_class.collect() } else { BTreeMap::new() },
            tenants: if workload.tenants.len() > 1 { by_tenant.collect() } else { BTreeMap::new() },
            workflows: workflows.collect(),
            tokens: options.calibrate.then_some(ratio),
            void: void(lateness.as_ref(), cpu, &all),
            lateness_seconds: lateness,
            generator_cpu: cpu,
            vllm: VllmKeys::of(&all, window, rate, clients),
            all,
        }
    }
}

/// When a call counts: in an open loop when it was due, since that is what was offered; in a
/// closed one when it ended, since its clients all begin at once and what they begin says less
/// about a short window than what they finish. What was cancelled has no end and counts when due.
fn counted_at(mode: Mode, seen: &Seen) -> Duration {
    match mode {
        Mode::Open(_) | Mode::Recorded => seen.due,
        Mode::Closed(_) => seen.due.saturating_add(seen.e2e),
    }
}

fn void(lateness: Option<&Quantiles>, cpu: Option<f64>, all: &Figures) -> Option<String> {
    match (lateness, cpu) {
        _ if all.dropped > 0 => {
            Some(format!("{} requests were not sent: too many were open", all.dropped))
        }
        _ if all.offered == 0 => Some("no request was due in the window".to_owned()),
        (Some(late), _) if late.p99 > LATENESS_BOUND_SECONDS => Some(format!(
            "the generator was late: p99 {:.1} ms, bound {:.0} ms",
            late.p99 * 1e3,
            LATENESS_BOUND_SECONDS * 1e3
        )),
        (_, Some(cpu)) if cpu > CPU_BOUND => Some(format!(
            "the generator used {:.0} % of its core, bound {:.0} %",
            cpu * 100.0,
            CPU_BOUND * 100.0
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::attempt::Who;
    use super::super::record::FlowSeen;
    use super::*;
    use crate::domain::{ClassId, Slo, TenantId};
    use crate::workload::{Class, Tenant, Workload};

    fn seen(due: u64, e2e: u64, end: End) -> Seen {
        let second = Duration::from_secs;
        let ttft = (end == End::Ok).then_some(Duration::from_millis(500));
        let new = Seen::new(second(due), Who::default(), end);
        Seen { e2e: second(e2e), ttft, attempts: 1, ..new }
    }

    fn options(mode: Mode) -> LoadOptions {
        let mut options = LoadOptions::new("http://localhost".parse().unwrap(), "tiny", mode);
        let slo = Slo { ttft: Some(Duration::from_secs(1)), ..Slo::default() };
        options.workload = Arc::new(Workload::of(Class { slo, ..Class::fixed(1, 1) }));
        options.warm_up = Duration::from_secs(10);
        options
    }

    fn report(options: &LoadOptions, seen: Vec<Seen>) -> LoadReport {
        let record = Record { seen, ..Record::default() };
        LoadReport::of(options, &record, Duration::from_secs(20), None, Ratio::default())
    }

    #[test]
    fn goodput_is_over_what_was_offered_and_the_warm_up_is_left_out() {
        let mut slow = seen(12, 3, End::Ok);
        slow.ttft = Some(Duration::from_secs(2));
        let all = vec![
            seen(9, 5, End::Ok),
            seen(10, 5, End::Ok),
            slow,
            seen(13, 0, End::Shed),
            seen(14, 9, End::Error("cut")),
            seen(20, 1, End::Ok),
        ];
        let all = report(&options(Mode::Open(1.0)), all).all;
        assert_eq!((all.offered, all.ok, all.good), (4, 2, 1));
        assert_eq!((all.shed, all.errors), (1, 1));
        assert!((all.goodput_share - 0.25).abs() < 1e-9);
        assert!((all.goodput_per_second - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_closed_loop_counts_what_ended_in_the_window() {
        let all = vec![seen(0, 12, End::Ok), seen(15, 10, End::Ok), seen(1, 2, End::Ok)];
        assert_eq!(report(&options(Mode::Closed(3)), all).all.ok, 1);
    }

    #[test]
    fn classes_and_tenants_are_told_apart_and_held_to_their_own_targets() {
        let mut options = options(Mode::Open(1.0));
        let strict = Slo { ttft: Some(Duration::from_millis(1)), ..Slo::default() };
        let class = |id, name: &str, slo| Class {
            id: ClassId(id),
            name: name.into(),
            slo,
            ..Class::fixed(1, 1)
        };
        let tenant =
            |id, name: &str| Tenant { id: TenantId(id), name: name.into(), ..Tenant::anyone() };
        options.workload = Arc::new(Workload {
            classes: vec![class(0, "lax", Slo::default()), class(1, "strict", strict)],
            tenants: vec![tenant(0, "a"), tenant(1, "b")],
            ..Workload::default()
        });
        let who = |class, tenant| Who { class: ClassId(class), tenant: TenantId(tenant) };
        let all = vec![
            Seen { who: who(0, 0), ..seen(11, 1, End::Ok) },
            Seen { who: who(1, 0), ..seen(12, 1, End::Ok) },
            Seen { who: who(1, 1), attempts: 3, ..seen(13, 1, End::Shed) },
        ];
        let report = report(&options, all);
        let good = |part: &Figures| (part.offered, part.good);
        assert_eq!(
            (good(&report.classes["lax"]), good(&report.classes["strict"])),
            ((1, 1), (2, 0))
        );
        assert_eq!((good(&report.tenants["a"]), good(&report.tenants["b"])), ((2, 1), (1, 0)));
        assert!((report.tenants["b"].attempts_per_call - 3.0).abs() < 1e-9);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["completed"], &json["offered"]), (&2.into(), &3.into()));
        assert_eq!(json["median_ttft_ms"], 500.0);
    }

    #[test]
    fn a_workflow_is_held_to_its_own_end() {
        let options = options(Mode::Open(1.0));
        let flow = |due, took, whole| FlowSeen {
            who: Who::default(),
            due: Duration::from_secs(due),
            took: Duration::from_secs(took),
            whole,
            calls: 3,
        };
        let flows = vec![flow(5, 1, true), flow(11, 4, true), flow(12, 2, false)];
        let record = Record { flows, ..Record::default() };
        let until = Duration::from_secs(20);
        let report = LoadReport::of(&options, &record, until, None, Ratio::default());
        let flows = &report.workflows["all"];
        assert_eq!((flows.ended, flows.whole, flows.good, flows.calls), (2, 1, 1, 6));
        assert!((flows.e2e_seconds.unwrap().max - 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_generator_without_cpu_to_spare_voids_the_run() {
        let options = options(Mode::Open(1.0));
        let record = Record { seen: vec![seen(11, 1, End::Ok)], ..Record::default() };
        let of = |cpu| {
            let until = Duration::from_secs(20);
            LoadReport::of(&options, &record, until, cpu, Ratio::default()).void
        };
        assert_eq!((of(None), of(Some(0.5))), (None, None));
        assert!(of(Some(0.95)).is_some_and(|why| why.contains("95 %")));
    }
}
