//! Each a fault that users of such gateways reported; the test is for the whole kind.

use std::sync::Arc;
use std::time::Duration;

use crate::dispatch::{Effect, Event, Note, Policy};
use crate::domain::{Failure, Health, Outcome, Reason, ReplicaId, RequestId, ShouldRetry};

use super::kit::{Kit, facts, ms, policy, refused, sample, to};

#[test]
fn case_1_a_burst_between_two_scrapes_spreads() {
    let mut kit = Kit::new(policy(64), 4);
    for id in 0..4 {
        // Replica 0 looks idle, the others busy with others' load.
        let reading = sample(kit.now, if id == 0 { 0 } else { 10 }, 0);
        kit.does(Event::Telemetry(ReplicaId(id), reading));
    }
    for id in 0..100 {
        kit.sent(id);
    }
    let held = kit.in_flight();
    assert_eq!(held.iter().sum::<u32>(), 100);
    // 130 in all, level at 32 or 33 each: 10 foreign leave room for 22 or 23.
    assert!((32..=33).contains(&held[0]), "{held:?}");
    assert!(held[1..].iter().all(|n| (22..=23).contains(n)), "{held:?}");
}

#[test]
fn case_1_our_own_load_in_a_scrape_is_not_counted_twice() {
    let mut kit = Kit::new(policy(8), 2);
    for id in 0..8 {
        kit.sent(id);
    }
    let asked = kit.now;
    kit.later(50);
    (0..4).for_each(|id| drop(kit.finish(id)));
    // The engine was read when all eight (four each) ran.
    let mut reading = sample(kit.now, 4, 0);
    reading.asked = asked;
    kit.does(Event::Telemetry(ReplicaId(0), reading));
    assert_eq!(kit.gate.snapshot(kit.now).replicas[0].foreign, Some(0.0));
}

#[test]
fn case_2_the_bound_holds_for_each_replica() {
    let mut kit = Kit::new(policy(3), 3);
    for id in 0..9 {
        kit.sent(id);
    }
    assert_eq!(kit.in_flight(), [3, 3, 3]);
    assert_eq!(kit.arrive(9), []);
    // Replica 1 alone has room; it alone is used.
    let held: Vec<_> = (0..9).collect();
    let freed = held.into_iter().find(|id| to(&kit.finish(*id)).is_some());
    assert!(freed.is_some());
    assert_eq!(kit.in_flight(), [3, 3, 3]);
}

#[test]
fn case_3_a_request_of_any_length_keeps_its_slot() {
    let mut kit = Kit::new(policy(1), 1);
    kit.sent(0);
    kit.first(0);
    for _ in 0..48 {
        kit.later(3_600_000);
    }
    assert_eq!(kit.in_flight(), [1]);
    assert_eq!(kit.arrive(1), []);
}

#[test]
fn case_4_and_13_a_flapping_replica_keeps_its_ledger() {
    let mut kit = Kit::new(policy(4), 2);
    for id in 0..8 {
        kit.sent(id);
    }
    for _ in 0..20 {
        kit.list([0]);
        kit.list([0, 1]);
        kit.does(Event::Health(ReplicaId(1), Health::Down));
        kit.does(Event::Policy(Arc::new(policy(4))));
        kit.does(Event::Health(ReplicaId(1), Health::Up));
        assert_eq!(kit.in_flight(), [4, 4]);
    }
    kit.list([0]);
    (0..8).for_each(|id| drop(kit.finish(id)));
    // It left the list, so it is forgotten with its last request.
    assert_eq!(kit.in_flight(), [0]);
    kit.list([0, 1]);
    assert_eq!(kit.in_flight(), [0, 0]);
}

#[test]
fn case_5_a_frozen_scrape_is_loud_and_stops_nothing() {
    let mut kit = Kit::new(policy(4), 1);
    kit.does(Event::Telemetry(ReplicaId(0), sample(kit.now, 2, 0)));
    let deadline = kit.gate.next_deadline().unwrap();
    assert_eq!(deadline, kit.now + Duration::from_secs(3));
    let notes = kit.later(3_000);
    assert_eq!(notes, [Effect::Note(Note::Stale(ReplicaId(0)))]);
    assert_eq!(kit.gate.next_deadline(), None, "said once");
    assert_eq!(kit.gate.snapshot(kit.now).replicas[0].foreign, None, "unknown, not zero");
    for id in 0..4 {
        kit.sent(id);
    }
    let reading = sample(kit.now, 4, 0);
    let notes = kit.does(Event::Telemetry(ReplicaId(0), reading));
    assert_eq!(notes, [Effect::Note(Note::Fresh(ReplicaId(0)))]);
}

#[test]
fn case_9_a_missing_metric_is_unknown_and_said_once() {
    let mut kit = Kit::new(policy(4), 1);
    let mut reading = sample(kit.now, 2, 0);
    reading.kv_usage = None;
    let said = [Effect::Note(Note::Unknown(ReplicaId(0), "kv_usage"))];
    assert_eq!(kit.does(Event::Telemetry(ReplicaId(0), reading.clone())), said);
    assert_eq!(kit.does(Event::Telemetry(ReplicaId(0), reading.clone())), []);
    reading.kv_usage = Some(0.5);
    assert_eq!(kit.does(Event::Telemetry(ReplicaId(0), reading.clone())), []);
    reading.kv_usage = None;
    assert_eq!(kit.does(Event::Telemetry(ReplicaId(0), reading)), said);
}

#[test]
fn case_12_and_22_a_burst_never_stands_above_limit_and_queue() {
    let mut kit = Kit::new(Policy { queue: with_count(50), ..policy(10) }, 2);
    let mut refusals = 0;
    for id in 0..48_331 {
        refusals += u32::from(refused(&kit.arrive(id)).is_some());
        assert!(kit.in_flight().iter().all(|n| *n <= 10));
    }
    assert_eq!((kit.in_flight(), kit.waiting()), (vec![10, 10], 50));
    assert_eq!(refusals, 48_331 - 70);
}

#[test]
fn case_15_refusals_and_busy_never_eject() {
    let mut kit = Kit::new(policy(64), 3);
    for id in 0..60 {
        kit.sent(id);
        if id % 2 == 0 {
            kit.fails(id, Failure::Busy);
        } else {
            kit.does(Event::Finish(RequestId(id), Outcome::Failed(Reason::ReplicaRefused), None));
        }
    }
    assert_eq!(ejected(&kit), 0);
}

#[test]
fn case_15_at_most_half_a_pool_and_never_the_last() {
    for replicas in 1..=5_u32 {
        let mut kit = Kit::new(policy(64), replicas);
        for id in 0..200 {
            if refused(&kit.arrive(id)).is_none() {
                kit.fails(id, Failure::Connect);
                kit.fails(id, Failure::Connect);
            }
        }
        assert_eq!(ejected(&kit), replicas / 2, "of {replicas}");
    }
}

#[test]
fn case_15_the_last_sound_replica_comes_back_when_the_other_goes_down() {
    let mut kit = Kit::new(policy(64), 2);
    let bad = eject_one(&mut kit);
    assert_eq!(refused(&kit.does(Event::Health(ReplicaId(1 - bad), Health::Down))), None);
    assert_eq!(ejected(&kit), 0);
    assert_eq!(kit.sent(900), bad);
}

#[test]
fn an_ejected_replica_comes_back_by_one_probe() {
    let mut kit = Kit::new(policy(64), 2);
    let bad = eject_one(&mut kit);
    (100..110).for_each(|id| assert_eq!(kit.sent(id), 1 - bad));
    kit.later(5_000);
    assert_eq!(kit.sent(200), bad, "the probe");
    (201..210).for_each(|id| assert_eq!(kit.sent(id), 1 - bad));
    assert_eq!(kit.first(200), [Effect::Note(Note::Reinstated(ReplicaId(bad)))]);
    assert_eq!(kit.sent(210), bad, "the emptier one again");
}

#[test]
fn a_5xx_counts_only_when_another_replica_answered_well() {
    for answered in [false, true] {
        let mut kit = Kit::new(policy(64), 2);
        kit.does(Event::Health(ReplicaId(1), Health::Down));
        let mut notes = Vec::new();
        for id in 0..3 {
            assert_eq!(kit.sent(id), 0);
            kit.does(Event::Health(ReplicaId(1), Health::Up));
            assert_eq!(to(&kit.fails(id, Failure::Status(500))), Some(1));
            kit.does(Event::Health(ReplicaId(1), Health::Down));
            if answered {
                notes.extend(kit.first(id));
            } else {
                kit.fails(id, Failure::Status(500));
            }
        }
        kit.does(Event::Health(ReplicaId(1), Health::Up));
        assert_eq!(notes.is_empty(), !answered || ejected(&kit) == 0);
    }
}

#[test]
fn case_20_every_exit_gives_the_slot_back_once() {
    let mut kit = Kit::new(Policy { attempts: 1, ..policy(4) }, 1);
    let exits: [fn(&mut Kit, u64); 5] = [
        |kit, id| drop(kit.finish(id)),
        |kit, id| drop(kit.cancel(id)),
        |kit, id| drop(kit.fails(id, Failure::Reset)),
        |kit, id| {
            kit.first(id);
            kit.does(Event::Finish(RequestId(id), Outcome::Failed(Reason::UpstreamReset), None));
        },
        |kit, id| {
            kit.does(Event::Progress(RequestId(id), 900));
            kit.cancel(id);
        },
    ];
    for (id, exit) in (0..).zip(exits) {
        kit.sent(id);
        exit(&mut kit, id);
        exit(&mut kit, id);
        assert_eq!(kit.in_flight(), [0], "exit {id}");
    }
    let replica = &kit.gate.snapshot(kit.now).replicas[0];
    assert_eq!((replica.prefill_tokens, replica.kv_tokens), (0, 0));
}

#[test]
fn case_21_every_refusal_says_limit_and_reading() {
    let mut kit = Kit::new(Policy { queue: with_count(1), ..policy(1) }, 1);
    kit.sent(0);
    kit.arrive(1);
    let full = refused(&kit.arrive(2)).unwrap();
    assert_eq!((full.reason, full.limit, full.reading), (Reason::QueueFull, 1.0, 1.0));
    assert!(full.retry_after.is_some());
    let waited = refused(&kit.later(400)).unwrap();
    assert_eq!((waited.reason, waited.limit, waited.reading), (Reason::QueueWait, 0.4, 0.4));
    let mut late = facts(3, kit.now);
    late.deadline = Some(kit.now);
    let late = refused(&kit.does(Event::Arrive(late))).unwrap();
    assert_eq!((late.reason, late.should_retry), (Reason::Deadline, ShouldRetry::No));
    kit.does(Event::Health(ReplicaId(0), Health::Down));
    let none = refused(&kit.arrive(4)).unwrap();
    assert_eq!((none.reason, none.limit, none.reading), (Reason::NoReplicas, 1.0, 0.0));
    kit.does(Event::Drain);
    assert_eq!(refused(&kit.arrive(5)).unwrap().reason, Reason::Draining);
    assert_eq!(kit.gate.snapshot(kit.now).sheds.len(), 5);
}

#[test]
fn what_cannot_start_in_time_is_refused_at_once() {
    let mut kit = Kit::new(policy(10), 1);
    // Ten at a time, each for 100 ms: 100 a second, so 40 may wait 400 ms by the mean, and
    // fewer on the safe side.
    for id in 0..10 {
        kit.sent(id);
    }
    kit.later(100);
    (0..10).for_each(|id| drop(kit.finish(id)));
    for id in 10..20 {
        kit.sent(id);
    }
    let admitted = (20..100).filter(|id| refused(&kit.arrive(*id)).is_none()).count();
    assert!((24..40).contains(&admitted), "{admitted}");
    assert_eq!(refused(&kit.arrive(200)).unwrap().reason, Reason::QueueWait);
    // First come, first served.
    assert_eq!(kit.finish(10), [Effect::Dispatch(RequestId(20), ReplicaId(0))]);
}

#[test]
fn a_retry_goes_elsewhere_and_before_all_others() {
    let mut kit = Kit::new(policy(1), 2);
    let (a, b) = (kit.sent(0), kit.sent(1));
    assert_ne!(a, b);
    assert_eq!(kit.arrive(2), []);
    // Its own replica is free now, but it failed there: the next in line may use it.
    let effects = kit.fails(0, Failure::Reset);
    assert_eq!(effects, [Effect::Dispatch(RequestId(2), ReplicaId(a))]);
    assert_eq!(kit.arrive(3), []);
    assert_eq!(kit.finish(1), [Effect::Dispatch(RequestId(0), ReplicaId(b))]);
    let last = refused(&kit.fails(0, Failure::Reset)).unwrap();
    assert_eq!((last.reason, last.should_retry), (Reason::Poison, ShouldRetry::No));
}

#[test]
fn an_idle_connection_that_closed_may_be_tried_at_the_same_replica_once() {
    let mut kit = Kit::new(Policy { attempts: 9, ..policy(4) }, 1);
    kit.sent(0);
    assert_eq!(to(&kit.fails(0, Failure::IdleClosed)), Some(0));
    let end = refused(&kit.fails(0, Failure::IdleClosed)).unwrap();
    assert_eq!(end.reason, Reason::UpstreamReset);
}

#[test]
fn busy_is_tried_elsewhere_once() {
    let mut kit = Kit::new(Policy { attempts: 9, ..policy(4) }, 3);
    let first = kit.sent(0);
    let second = to(&kit.fails(0, Failure::Busy)).unwrap();
    assert_ne!(first, second);
    let end = refused(&kit.fails(0, Failure::Busy)).unwrap();
    assert_eq!(end.reason, Reason::ReplicaBusy);
    assert!(end.retry_after.is_some());
}

#[test]
fn the_death_of_a_replica_costs_its_requests_only_a_wait() {
    for failure in [Failure::EngineError, Failure::Reset, Failure::Connect] {
        let mut kit = Kit::new(policy(32), 2);
        let (dying, others): (Vec<u64>, Vec<u64>) = (0..64).partition(|id| kit.sent(*id) == 0);
        kit.does(Event::Health(ReplicaId(0), Health::Down));
        for id in &dying {
            assert_eq!(refused(&kit.fails(*id, failure)), None, "{failure:?}");
        }
        let mut again = 0;
        for id in &others {
            // A slot every 100 ms: longer in all than anybody new may wait.
            again += kit.later(100).iter().filter(|e| matches!(e, Effect::Dispatch(..))).count();
            again += usize::from(to(&kit.finish(*id)).is_some());
        }
        assert_eq!(again, dying.len(), "{failure:?}");
    }
}

#[test]
fn errors_of_every_replica_are_no_retry_storm() {
    let mut kit = Kit::new(policy(1_000), 2);
    let mut retries = 0;
    for id in 0..20_000 {
        kit.arrive(id);
        if to(&kit.fails(id, Failure::Status(500))).is_some() {
            retries += 1;
            kit.fails(id, Failure::Status(500));
        }
    }
    assert!((4_000..=6_010).contains(&retries), "{retries}");
}

#[test]
fn a_held_head_is_given_up_only_on_an_engine_without_progress() {
    let mut kit = Kit::new(policy(4), 2);
    let (a, b) = (kit.sent(0), kit.sent(1));
    let hold = |id| Event::HoldEnded(RequestId(id));
    kit.later(3_000);
    assert_eq!(kit.does(hold(0)), [], "too early to say");
    kit.does(Event::Progress(RequestId(1), 10));
    kit.later(3_000);
    assert_eq!(kit.does(hold(1)), [], "its engine moves");
    let effects = kit.does(hold(0));
    assert_eq!(
        effects,
        [Effect::Abandon(RequestId(0)), Effect::Dispatch(RequestId(0), ReplicaId(b))]
    );
    assert_eq!(kit.in_flight()[a as usize], 0);
}

#[test]
fn a_scraped_counter_that_rises_is_progress() {
    let mut kit = Kit::new(policy(4), 2);
    let at = kit.sent(0);
    let mut reading = sample(kit.now, 1, 0);
    reading.generation_tokens = Some(100);
    kit.does(Event::Telemetry(ReplicaId(at), reading.clone()));
    kit.later(6_000);
    reading.generation_tokens = Some(101);
    kit.does(Event::Telemetry(ReplicaId(at), reading));
    assert_eq!(kit.does(Event::HoldEnded(RequestId(0))), []);
}

#[test]
fn a_restart_is_seen_and_keeps_the_ledger() {
    let mut kit = Kit::new(policy(4), 1);
    kit.sent(0);
    let mut reading = sample(kit.now, 1, 0);
    reading.finished = Some(100);
    kit.does(Event::Telemetry(ReplicaId(0), reading.clone()));
    reading.finished = Some(3);
    let notes = kit.does(Event::Telemetry(ReplicaId(0), reading));
    assert_eq!(notes, [Effect::Note(Note::Restarted(ReplicaId(0)))]);
    assert_eq!(kit.in_flight(), [1]);
}

#[test]
fn without_a_knee_the_limit_is_the_engines_own_and_marked() {
    let mut bare = policy(1);
    bare.limit.in_flight = None;
    let mut kit = Kit::new(bare, 1);
    let limit = |kit: &Kit| {
        let replica = &kit.gate.snapshot(ms(0)).replicas[0];
        (replica.limit, replica.assumed)
    };
    assert_eq!(limit(&kit), (64.0, true));
    let mut reading = sample(kit.now, 0, 0);
    reading.kv_capacity_tokens = Some(16_384);
    kit.does(Event::Telemetry(ReplicaId(0), reading));
    assert_eq!(limit(&kit), (16.0, true));
    kit.does(Event::Policy(Arc::new(policy(96))));
    assert_eq!(limit(&kit), (96.0, false));
}

#[test]
fn gateways_leave_each_other_room_and_none_starves() {
    let mut kit = Kit::new(Policy { gateways: 2, ..policy(20) }, 1);
    let limit = |kit: &Kit| kit.gate.snapshot(ms(0)).replicas[0].limit;
    assert!((limit(&kit) - 10.0).abs() < 1e-9, "its even share while nothing is known");
    kit.does(Event::Telemetry(ReplicaId(0), sample(kit.now, 4, 0)));
    assert!((limit(&kit) - 16.0).abs() < 1e-9);
    kit.does(Event::Telemetry(ReplicaId(0), sample(kit.now, 19, 30)));
    assert!((limit(&kit) - 10.0).abs() < 1e-9);
}

fn with_count(count: u32) -> crate::dispatch::QueuePolicy {
    crate::dispatch::QueuePolicy { count, ..policy(1).queue }
}

fn ejected(kit: &Kit) -> u32 {
    let snapshot = kit.gate.snapshot(kit.now);
    u32::try_from(snapshot.replicas.iter().filter(|replica| replica.ejected).count()).unwrap()
}

/// Ejects one of two replicas by connect errors; says which.
fn eject_one(kit: &mut Kit) -> u32 {
    for id in 0..50 {
        // Late enough for the penalty of the last failure to have faded.
        kit.later(60_000);
        let at = kit.sent(id);
        if at == 0 {
            kit.fails(id, Failure::Connect);
        }
        kit.finish(id);
        if ejected(kit) > 0 {
            return 0;
        }
    }
    panic!("nobody was ejected");
}
