//! From what is written to what runs, with every fault at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::file::{ExpectFile, FaultFile, FleetFile, PolicyFile, RivalsFile, ScenarioFile};
use super::{Caps, Contender, Expectation, Scenario};
use crate::dispatch::{ClassPolicy, LimitPolicy, Policy, QueuePolicy, TenantPolicy};
use crate::domain::Span;
use crate::sim::EngineParams;
use crate::sim::fleet::{FaultPlan, Load, Setup, Trouble};
use crate::workload::{Faults, Pacing, Workload};

const SECOND: Duration = Duration::from_secs(1);

impl Scenario {
    /// Compiles `file`; `trace` is the text of [`ScenarioFile::trace_file`], where it names one.
    pub fn new(file: &ScenarioFile, trace: Option<&str>) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let workload = workload(file, trace, &mut faults);
        let setup = setup(&file.fleet, &file.faults, &mut faults);
        let policy = policy(&file.policy, &workload, setup.scrape, &mut faults);
        let load = load(file, &workload, &mut faults);
        let loads = file.loads.clone().unwrap_or_else(|| vec![1.0]);
        for (at, load) in loads.iter().enumerate() {
            number(*load, 1e-3..=1e3, &format!("loads[{at}]"), &mut faults);
        }
        let written = file.policies.clone().unwrap_or_else(|| vec!["weir".to_owned()]);
        let mut contenders = Vec::new();
        for (at, name) in written.iter().enumerate() {
            match name.parse() {
                Ok(contender) => contenders.push(contender),
                Err(why) => faults.add(&format!("policies[{at}]"), why),
            }
        }
        if loads.is_empty() || written.is_empty() {
            faults.add(if loads.is_empty() { "loads" } else { "policies" }, "is empty");
        }
        let caps = caps(file.rivals, &mut faults);
        let expectations = expectations(&file.expect, &loads, &contenders, &mut faults);
        let weights = &policy.tenants;
        let weights = weights.iter().map(|tenant| tenant.weight).collect();
        let seeds = file.seeds.unwrap_or(3);
        if !(1..=10_000).contains(&seeds) {
            faults.add("seeds", format!("is {seeds}, not 1 to 10000"));
        }
        faults.or(Self {
            about: file.about.clone(),
            setup,
            load,
            workload: Arc::new(workload),
            policy: Arc::new(policy),
            weights,
            caps,
            loads,
            contenders,
            seeds: (file.first_seed.unwrap_or(1).into(), seeds.into()),
            expectations,
        })
    }
}

fn workload(file: &ScenarioFile, trace: Option<&str>, faults: &mut Faults) -> Workload {
    let Some(written) = &file.workload else {
        faults.add("workload", "is missing, and so is `workload_file`");
        return Workload::default();
    };
    match Workload::new(written, trace) {
        Ok(workload) => workload,
        Err(found) => {
            for fault in found.all() {
                let within = if fault.path.is_empty() { "workload" } else { "workload." };
                faults.add(&format!("{within}{}", fault.path), fault.message.clone());
            }
            Workload::default()
        }
    }
}

fn load(file: &ScenarioFile, workload: &Workload, faults: &mut Faults) -> Load {
    let closed = matches!(workload.pacing, Pacing::Closed { .. });
    match file.rate {
        Some(_) if closed => faults.add("rate", "stands beside a closed loop, which has none"),
        Some(rate) => number(rate, 1e-3..=1e6, "rate", faults),
        None if closed || workload.own_rate().is_some() => {}
        None => faults.add("rate", "is missing"),
    }
    let rate = file.rate.or_else(|| workload.own_rate());
    Load {
        rate,
        warm_up: span(file.warm_up, 10 * SECOND, "warm_up", faults),
        window: least(file.window, 60 * SECOND, "window", faults),
        grace: span(file.grace, 60 * SECOND, "grace", faults),
        says_output: file.max_tokens.unwrap_or(true),
        patience: file.patience.map(|_| least(file.patience, SECOND, "patience", faults)),
    }
}

fn setup(file: &FleetFile, written: &[FaultFile], faults: &mut Faults) -> Setup {
    let replicas = whole(file.replicas, 4, 1..=1_000, "fleet.replicas", faults);
    let plain = EngineParams::default();
    let mut nanos = |written: Option<Span>, default: u64, key: &str| {
        let at = Duration::from_nanos(default);
        let taken = span(written, at, &format!("fleet.{key}"), faults);
        u64::try_from(taken.as_nanos()).unwrap_or(default)
    };
    let base_nanos = nanos(file.step_base, plain.base_nanos, "step_base");
    let sequence_nanos = nanos(file.step_sequence, plain.sequence_nanos, "step_sequence");
    let prefill_nanos = nanos(file.step_prefill_token, plain.prefill_nanos, "step_prefill_token");
    let context_nanos = nanos(file.step_context_token, plain.context_nanos, "step_context_token");
    let mut count = |written, default, key: &str| {
        whole(written, default, 1..=1_000_000, &format!("fleet.{key}"), faults)
    };
    let engine = EngineParams {
        base_nanos: base_nanos.max(1),
        sequence_nanos,
        prefill_nanos,
        context_nanos,
        max_num_seqs: count(file.max_num_seqs, plain.max_num_seqs, "max_num_seqs"),
        max_num_batched_tokens: count(
            file.max_num_batched_tokens,
            plain.max_num_batched_tokens,
            "max_num_batched_tokens",
        ),
        block_size: count(file.block_size, plain.block_size, "block_size"),
        num_gpu_blocks: count(file.num_gpu_blocks, plain.num_gpu_blocks, "num_gpu_blocks"),
        prefix_caching: file.prefix_caching.unwrap_or(plain.prefix_caching),
    };
    let plans = written.iter().enumerate();
    Setup {
        replicas,
        engine,
        scrape: least(file.scrape, SECOND / 2, "fleet.scrape", faults),
        scrape_takes: span(file.scrape_takes, SECOND / 200, "fleet.scrape_takes", faults),
        probe: least(file.probe, SECOND, "fleet.probe", faults),
        head_hold: least(file.head_hold, 10 * SECOND, "fleet.head_hold", faults),
        first_byte: least(file.first_byte, 30 * SECOND, "fleet.first_byte", faults),
        faults: plans.map(|(at, one)| plan(one, replicas, at, faults)).collect(),
    }
}

fn plan(file: &FaultFile, replicas: u32, at: usize, faults: &mut Faults) -> FaultPlan {
    let path = format!("faults[{at}]");
    for (nth, replica) in file.replicas.iter().enumerate() {
        if *replica >= replicas {
            let message = format!("is {replica}, and there are {replicas}, counted from 0");
            faults.add(&format!("{path}.replicas[{nth}]"), message);
        }
    }
    if let Trouble::Slow(factor) = file.trouble {
        number(factor, 1e-3..=1e3, &format!("{path}.trouble.slow"), faults);
    }
    let all: Vec<u32> = (0..replicas).collect();
    let named = if file.replicas.is_empty() { &all } else { &file.replicas };
    FaultPlan {
        trouble: file.trouble,
        replicas: named.iter().filter_map(|one| usize::try_from(*one).ok()).collect(),
        at: file.at.0,
        lasts: file.lasts.map(|lasts| lasts.0),
    }
}

fn policy(file: &PolicyFile, workload: &Workload, scrape: Duration, faults: &mut Faults) -> Policy {
    let known = |name: &str| workload.classes.iter().any(|class| *class.name == *name);
    let named = file.shares.keys().map(|name| ("shares", name));
    let named = named.chain(file.critical.iter().map(|name| ("critical", name)));
    for (key, name) in named.filter(|(_, name)| !known(name)) {
        faults.add(&format!("policy.{key}.{name}"), "is none of the classes");
    }
    for name in file.weights.keys() {
        if !workload.tenants.iter().any(|tenant| *tenant.name == **name) {
            faults.add(&format!("policy.weights.{name}"), "is none of the tenants");
        }
    }
    let mut weight = |of: &BTreeMap<String, f64>, key: &str, name: &str| {
        let weight = of.get(name).copied().unwrap_or(1.0);
        number(weight, 1e-6..=1e6, &format!("policy.{key}.{name}"), faults);
        weight
    };
    let classes: Vec<_> = workload
        .classes
        .iter()
        .map(|class| ClassPolicy {
            id: class.id,
            slo: class.slo,
            share: weight(&file.shares, "shares", &class.name),
            critical: file.critical.iter().any(|name| **name == *class.name),
        })
        .collect();
    let tenants = workload.tenants.iter();
    let tenants = tenants
        .map(|one| TenantPolicy { id: one.id, weight: weight(&file.weights, "weights", &one.name) })
        .collect();
    let tightest = classes.iter().filter_map(|class| class.slo.ttft).min();
    let wait = tightest.map_or(SECOND * 2 / 5, |ttft| ttft.mul_f64(0.4));
    let mut count = |written, default, key: &str| {
        whole(written, default, 1..=1_000_000, &format!("policy.{key}"), faults)
    };
    let limit = LimitPolicy {
        in_flight: file.in_flight.map(|_| count(file.in_flight, 1, "in_flight")),
        max_num_seqs: file.max_num_seqs.map(|_| count(file.max_num_seqs, 1, "max_num_seqs")),
        adapt: file.adapt.unwrap_or(true),
    };
    let queue_count = count(file.queue_count, 1_024, "queue_count");
    let gateways = count(file.gateways, 1, "gateways");
    let attempts = count(file.attempts, 2, "attempts");
    Policy {
        limit,
        queue: QueuePolicy {
            wait: span(file.queue_wait, wait, "policy.queue_wait", faults),
            count: queue_count,
            bytes: file.queue_bytes.unwrap_or(256 << 20),
        },
        classes,
        tenants,
        shadow: file.shadow.unwrap_or(false),
        stale_after: least(file.stale_after, 4 * scrape, "policy.stale_after", faults),
        attempts,
        retry_budget: file.retry_budget.unwrap_or(0.2).clamp(0.0, 1.0),
        stall_after: least(file.stall_after, 5 * SECOND, "policy.stall_after", faults),
        gateways,
    }
}

fn caps(file: RivalsFile, faults: &mut Faults) -> Caps {
    let mut count = |written, default, key: &str| {
        whole(written, default, 1..=1_000_000, &format!("rivals.{key}"), faults)
    };
    let alone = count(file.cap, 48, "cap");
    let queued = count(file.queue_cap, 48, "queue_cap");
    let queue = count(file.queue, 100, "queue");
    Caps {
        alone,
        queued,
        queue: usize::try_from(queue).unwrap_or(usize::MAX),
        wait: span(file.queue_wait, SECOND / 2, "rivals.queue_wait", faults),
    }
}

fn expectations(
    written: &[ExpectFile],
    loads: &[f64],
    contenders: &[Contender],
    faults: &mut Faults,
) -> Vec<Expectation> {
    let mut all = Vec::new();
    for (at, one) in written.iter().enumerate() {
        let path = format!("expect[{at}]");
        let policy = one.policy.clone().unwrap_or_else(|| "weir".to_owned());
        if !contenders.iter().any(|contender| contender.name() == policy) {
            faults.add(&format!("{path}.policy"), format!("\"{policy}\" is none of `policies`"));
        }
        let there = |load: f64| loads.iter().any(|known| (known - load).abs() < 1e-9);
        if let Some(load) = one.load.filter(|load| !there(*load)) {
            faults.add(&format!("{path}.load"), format!("{load} is none of `loads`"));
        }
        if one.min.is_none() && one.max.is_none() {
            faults.add(&path, "has neither `min` nor `max`");
        }
        all.push(Expectation {
            metric: one.metric.clone(),
            policy,
            load: one.load,
            min: one.min.unwrap_or(f64::NEG_INFINITY),
            max: one.max.unwrap_or(f64::INFINITY),
        });
    }
    all
}

fn span(written: Option<Span>, default: Duration, path: &str, faults: &mut Faults) -> Duration {
    let span = written.map_or(default, |span| span.0);
    if span > 24 * 3600 * SECOND {
        faults.add(path, "is longer than a day");
    }
    span
}

/// A span that must not be nothing.
fn least(written: Option<Span>, default: Duration, path: &str, faults: &mut Faults) -> Duration {
    let span = span(written, default, path, faults);
    if span < Duration::from_millis(1) {
        faults.add(path, "is shorter than 1ms");
    }
    span.max(Duration::from_millis(1))
}

fn whole(
    written: Option<u32>,
    default: u32,
    allowed: std::ops::RangeInclusive<u32>,
    path: &str,
    faults: &mut Faults,
) -> u32 {
    let value = written.unwrap_or(default);
    if !allowed.contains(&value) {
        let (least, most) = (allowed.start(), allowed.end());
        faults.add(path, format!("is {value}, not {least} to {most}"));
    }
    value
}

fn number(value: f64, allowed: std::ops::RangeInclusive<f64>, path: &str, faults: &mut Faults) {
    if !allowed.contains(&value) {
        let (least, most) = (allowed.start(), allowed.end());
        faults.add(path, format!("is {value}, not {least} to {most}"));
    }
}
