use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::dispatch::{ClassPolicy, Dispatcher, LimitPolicy, Policy, QueuePolicy};
use crate::domain::{ClassId, Reason, Slo};
use crate::workload::{Class, ClientModel};

const SECOND: Duration = Duration::from_secs(1);

fn slo() -> Slo {
    Slo { ttft: Some(SECOND), tpot: Some(SECOND / 20), ..Slo::default() }
}

fn policy(in_flight: u32, gateways: u32) -> Policy {
    Policy {
        limit: LimitPolicy { in_flight: Some(in_flight), max_num_seqs: None, adapt: false },
        queue: QueuePolicy { wait: SECOND * 2 / 5, count: 1000, bytes: u64::MAX },
        classes: vec![ClassPolicy::plain(ClassId(0), slo())],
        tenants: Vec::new(),
        shadow: false,
        stale_after: 2 * SECOND,
        attempts: 2,
        retry_budget: 0.2,
        stall_after: 5 * SECOND,
        gateways,
    }
}

fn setup(replicas: u32) -> Setup {
    Setup {
        replicas,
        engine: EngineParams::default(),
        scrape: SECOND / 2,
        scrape_takes: SECOND / 200,
        probe: SECOND,
        head_hold: 10 * SECOND,
        first_byte: 30 * SECOND,
        faults: Vec::new(),
    }
}

fn load(rate: f64) -> Load {
    Load {
        rate: Some(rate),
        warm_up: 2 * SECOND,
        window: 8 * SECOND,
        grace: 30 * SECOND,
        says_output: true,
        patience: None,
    }
}

fn gates(policy: Policy) -> Vec<Box<dyn Gate>> {
    let count = policy.gateways;
    let policy = Arc::new(policy);
    (0..count)
        .map(|seed| {
            Box::new(Dispatcher::new(Arc::clone(&policy), u64::from(seed))) as Box<dyn Gate>
        })
        .collect()
}

fn workload(client: ClientModel) -> Arc<Workload> {
    let class = Class { slo: slo(), ..Class::fixed(500, 40) };
    Arc::new(Workload { client, ..Workload::of(class) })
}

const SEEDS: Seeds = Seeds { requests: 1, texts: 1 };

fn count(seeing: &Seeing, end: End) -> usize {
    seeing.calls.iter().filter(|call| call.end == end).count()
}

#[test]
fn below_capacity_all_is_answered_and_a_run_can_be_repeated() {
    let seen =
        || run(&setup(2), &load(20.0), &workload(ClientModel::None), gates(policy(64, 1)), SEEDS);
    let seeing = seen();
    assert!(seeing.calls.len() > 120, "{}", seeing.calls.len());
    assert!(seeing.calls.iter().all(|call| call.is_good(&slo()) && call.tokens == 40));
    assert!(seeing.standing > 0 && seeing.standing <= 64);
    assert_eq!(seeing, seen());
}

#[test]
fn beyond_it_the_rest_is_shed_and_the_limit_holds() {
    let seeing =
        run(&setup(1), &load(120.0), &workload(ClientModel::None), gates(policy(48, 1)), SEEDS);
    let shed = seeing.calls.iter().filter(|call| call.is_shed()).count();
    assert!(shed * 3 > seeing.calls.len() && count(&seeing, End::Ok) > 200, "{shed} shed");
    assert_eq!(seeing.standing, 48);
    assert_eq!(count(&seeing, End::Open), 0);
}

#[test]
fn clients_come_back_and_are_counted_once() {
    let client = ClientModel::OpenAiPython { retries: 2 };
    let once =
        run(&setup(1), &load(90.0), &workload(ClientModel::None), gates(policy(48, 1)), SEEDS);
    let thrice = run(&setup(1), &load(90.0), &workload(client), gates(policy(48, 1)), SEEDS);
    assert_eq!(once.calls.len(), thrice.calls.len());
    assert!(once.calls.iter().all(|call| call.attempts == 1));
    let again = thrice.calls.iter().filter(|call| call.attempts > 1 && call.end == End::Ok);
    let again: Vec<_> = again.collect();
    assert!(!again.is_empty());
    assert!(again.iter().all(|call| call.ttft_from_due > call.ttft));
}

#[test]
fn a_replica_that_dies_costs_its_streams_and_no_more() {
    let crash = FaultPlan {
        trouble: Trouble::Crash,
        replicas: vec![0],
        at: 4 * SECOND,
        lasts: Some(2 * SECOND),
    };
    let setup = Setup { faults: vec![crash], ..setup(2) };
    let seeing =
        run(&setup, &load(50.0), &workload(ClientModel::None), gates(policy(64, 1)), SEEDS);
    let broken = count(&seeing, End::Failed(Reason::UpstreamReset));
    assert!((1..60).contains(&broken), "{broken}");
    assert_eq!(count(&seeing, End::Ok) + broken, seeing.calls.len());
}

#[test]
fn an_engine_that_stood_still_goes_on() {
    let stall = FaultPlan {
        trouble: Trouble::Stall,
        replicas: vec![0],
        at: 4 * SECOND,
        lasts: Some(SECOND),
    };
    let setup = Setup { faults: vec![stall], ..setup(1) };
    let seeing =
        run(&setup, &load(30.0), &workload(ClientModel::None), gates(policy(64, 1)), SEEDS);
    assert_eq!(count(&seeing, End::Ok), seeing.calls.len());
    let slowest = seeing.calls.iter().filter_map(|call| call.tpot).max();
    assert!(slowest > Some(SECOND / 50), "{slowest:?}");
}

#[test]
fn two_gateways_share_a_fleet_by_what_they_read() {
    let seeing =
        run(&setup(2), &load(120.0), &workload(ClientModel::None), gates(policy(40, 2)), SEEDS);
    for gateway in 0..2 {
        let its = seeing.calls.iter().filter(|call| call.gateway == gateway).count();
        assert!(its * 5 > seeing.calls.len() * 2);
    }
    assert!(seeing.standing > 30 && seeing.standing < 64, "{}", seeing.standing);
}

#[test]
fn a_closed_loop_keeps_its_clients_busy() {
    let think = crate::workload::Pause::default();
    let mut closed = (*workload(ClientModel::None)).clone();
    closed.pacing = Pacing::Closed { clients: 16, think };
    let load = Load { rate: None, ..load(0.0) };
    let seeing = run(&setup(1), &load, &Arc::new(closed), gates(policy(64, 1)), SEEDS);
    assert_eq!(seeing.standing, 16);
    assert!(count(&seeing, End::Ok) > 100);
}
