//! The gate with the real dispatcher in it: every way in which a ticket or permit can end.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Gate, Permit, Ticket, Turn};
use crate::config::{Sources, load};
use crate::dispatch::{Event, ReplicaSpec};
use crate::domain::{
    ClassId, Failure, Outcome, Reason, ReplicaId, RequestFacts, RequestId, TenantId, Timestamp,
};
use crate::lifecycle::{Clock, Tasks};

const LIMIT: usize = 3;

/// Two replicas of [`LIMIT`] each, and half a second of queue.
fn gate(clock: Clock) -> Arc<Gate> {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:8080\"\nadmin = \"127.0.0.1:9090\"\n[[pools]]\n\
         model = \"m\"\nreplicas = [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]\n\
         slo = {{ ttft = \"10s\" }}\n\
         [pools.limits]\nin_flight = {LIMIT}\nqueue_wait = \"500ms\"\n"
    );
    let config = load(&Sources::only("t", &text)).unwrap();
    let gate = Gate::new(Arc::clone(&config.pools[0].policy), 1, clock, Box::new(|_| {}));
    let spec = |id| ReplicaSpec { id: ReplicaId(id), in_flight: None };
    gate.event(Event::Replicas(vec![spec(0), spec(1)]));
    gate
}

fn facts(id: u64, clock: Clock) -> RequestFacts {
    RequestFacts {
        id: RequestId(id),
        tenant: TenantId(0),
        class: ClassId(0),
        received: Timestamp::since_origin(clock.elapsed()),
        stream: true,
        sequences: 1,
        prompt_bytes: 100,
        prompt_tokens: None,
        max_output: Some(8),
        body_bytes: 200,
        deadline: None,
        prefix: Arc::from([]),
        client_retries: 0,
    }
}

/// What the ticket says now.
fn now(ticket: &mut Ticket) -> Option<Turn> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(ticket).poll(&mut cx) {
        std::task::Poll::Ready(turn) => Some(turn),
        std::task::Poll::Pending => None,
    }
}

fn empty(gate: &Gate) {
    let shown = gate.snapshot();
    assert_eq!((shown.in_flight, shown.queue.waiting, shown.queue.bytes), (0, 0, 0));
    assert!(shown.replicas.iter().all(|r| r.in_flight == 0 && r.prefill_tokens == 0));
    assert_eq!(gate.standing(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_let_go_wakes_the_next_in_line() {
    let clock = Clock::start();
    let gate = gate(clock);
    let mut running = Vec::new();
    for id in 0..6 {
        let Turn::Run(permit) = gate.arrive(facts(id, clock)).await else { panic!("refused") };
        running.push(permit);
    }
    let waiting = gate.arrive(facts(6, clock));
    assert_eq!(gate.snapshot().queue.waiting, 1);
    let freed = async {
        tokio::task::yield_now().await;
        drop(running.pop());
    };
    let (turn, ()) = tokio::join!(waiting, freed);
    let Turn::Run(permit) = turn else { panic!("refused") };
    permit.finish(Outcome::Completed, None);
    drop(running);
    empty(&gate);
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_in_seconds_by_the_gates_own_task() {
    let clock = Clock::start();
    let gate = gate(clock);
    let tasks = Tasks::default();
    drop(tasks.background("gate", gate.deadlines()));
    let mut running = Vec::new();
    for id in 0..6 {
        let Turn::Run(permit) = gate.arrive(facts(id, clock)).await else { panic!("refused") };
        running.push(permit);
    }
    match gate.arrive(facts(6, clock)).await {
        Turn::Refused { rejection, .. } => assert_eq!(rejection.reason, Reason::QueueWait),
        Turn::Run(_) => panic!("there was no slot"),
    }
    assert!(clock.elapsed() <= Duration::from_millis(510), "{:?}", clock.elapsed());
    drop(running);
    empty(&gate);
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_its_gate() {
    let clock = Clock::start();
    let gate = gate(clock);
    let tasks = Tasks::default();
    let task = tasks.spawn("gate", gate.deadlines());
    tokio::task::yield_now().await;
    drop(gate);
    task.await.unwrap();
}

/// What can be done to a request, whatever stage it has come to.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive,
    Look(usize),
    Drop(usize),
    First(usize),
    HoldEnded(usize),
    Fail(usize, Failure),
    Finish(usize),
    Wait(u64),
    Flap(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..12_usize;
    prop_oneof![
        4 => Just(Step::Arrive),
        4 => which.clone().prop_map(Step::Look),
        1 => which.clone().prop_map(Step::Drop),
        1 => which.clone().prop_map(Step::First),
        1 => which.clone().prop_map(Step::HoldEnded),
        2 => (which.clone(), prop::sample::select(Failure::ALL.to_vec()))
            .prop_map(|(at, failure)| Step::Fail(at, failure)),
        2 => which.prop_map(Step::Finish),
        1 => (1..700_u64).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::Flap),
    ]
}

enum Stage {
    Waiting(Ticket),
    Running(Permit),
}

fn act(gate: &Arc<Gate>, stages: &mut Vec<Stage>, step: Step, clock: Clock, next: &mut u64) {
    let at = match step {
        Step::Arrive => {
            *next += 1;
            return stages.push(Stage::Waiting(gate.arrive(facts(*next, clock))));
        }
        Step::Flap(both) => {
            let ids = if both { 0..2 } else { 0..1 };
            let spec = |id| ReplicaSpec { id: ReplicaId(id), in_flight: None };
            return gate.event(Event::Replicas(ids.map(spec).collect()));
        }
        Step::Wait(_) => return gate.event(Event::Tick),
        Step::Look(at)
        | Step::Drop(at)
        | Step::First(at)
        | Step::HoldEnded(at)
        | Step::Fail(at, _)
        | Step::Finish(at) => at,
    };
    if at >= stages.len() {
        return;
    }
    let stage = match (stages.swap_remove(at), step) {
        (_, Step::Drop(_)) => return,
        (Stage::Waiting(mut ticket), _) => match now(&mut ticket) {
            Some(Turn::Run(permit)) => Stage::Running(permit),
            Some(Turn::Refused { .. }) => return,
            None => Stage::Waiting(ticket),
        },
        (Stage::Running(permit), Step::First(_)) => {
            permit.first_token();
            Stage::Running(permit)
        }
        (Stage::Running(permit), Step::HoldEnded(_)) => match permit.hold_ended() {
            Ok(permit) => Stage::Running(permit),
            Err(ticket) => Stage::Waiting(ticket),
        },
        (Stage::Running(permit), Step::Fail(_, failure)) => Stage::Waiting(permit.failed(failure)),
        (Stage::Running(permit), Step::Finish(_)) => {
            return permit.finish(Outcome::Completed, None);
        }
        (running, _) => running,
    };
    stages.push(stage);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_interleaving_leaks_a_slot(steps in prop::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let clock = Clock::start();
            let gate = gate(clock);
            let (mut stages, mut next) = (Vec::new(), 0);
            for step in steps {
                if let Step::Wait(millis) = step {
                    tokio::time::advance(Duration::from_millis(millis)).await;
                }
                act(&gate, &mut stages, step, clock, &mut next);
                let shown = gate.snapshot();
                assert!(shown.replicas.iter().all(|r| r.in_flight as usize <= LIMIT), "{shown:?}");
                assert!(gate.standing() <= stages.len());
            }
            drop(stages);
            empty(&gate);
        });
    }
}
