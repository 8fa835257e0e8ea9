//! Turns one by one: who goes, who gives way, who may pass.

use std::sync::Arc;
use std::time::Duration;

use crate::dispatch::{ClassPolicy, Effect, Event, Policy, QueuePolicy};
use crate::domain::{
    ClassId, Failure, Outcome, Reason, ReplicaId, RequestFacts, RequestId, Slo, TenantId, Usage,
};

use super::kit::{Kit, facts, policy, refused, sample, to};

fn of(kit: &Kit, id: u64, tenant: u32) -> RequestFacts {
    RequestFacts { tenant: TenantId(tenant), ..facts(id, kit.now) }
}

fn come(kit: &mut Kit, id: u64, tenant: u32) -> Vec<Effect> {
    let facts = of(kit, id, tenant);
    kit.does(Event::Arrive(facts))
}

/// Who was evicted, and why.
fn evicted(effects: &[Effect]) -> Vec<(u64, Reason)> {
    let evicted = effects.iter().filter_map(|effect| match effect {
        Effect::Evict(id, rejection) => Some((id.0, rejection.reason)),
        _ => None,
    });
    evicted.collect()
}

/// The order in which those that wait are sent when one after the other ends.
fn order(kit: &mut Kit, mut running: Vec<u64>) -> Vec<u64> {
    let mut order = Vec::new();
    while let Some(id) = running.pop() {
        for effect in kit.finish(id) {
            if let Effect::Dispatch(next, _) = effect {
                order.push(next.0);
                running.push(next.0);
            }
        }
    }
    order
}

fn patient(in_flight: u32) -> Policy {
    let mut rules = policy(in_flight);
    rules.queue.wait = Duration::from_secs(100);
    rules.classes[0].slo.ttft = None;
    rules
}

#[test]
fn tenants_take_turns_and_each_keeps_its_own_order() {
    let mut kit = Kit::new(patient(1), 1);
    kit.sent(0);
    for id in 10..14 {
        assert_eq!(come(&mut kit, id, 1), []);
    }
    for id in 20..22 {
        assert_eq!(come(&mut kit, id, 2), []);
    }
    assert_eq!(order(&mut kit, vec![0]), [10, 20, 11, 21, 12, 13]);
}

#[test]
fn a_retry_stands_first_in_its_own_line_only() {
    let mut kit = Kit::new(patient(1), 2);
    come(&mut kit, 0, 1);
    come(&mut kit, 1, 2);
    for id in 10..12 {
        come(&mut kit, id, 1);
        come(&mut kit, id + 10, 2);
    }
    // It goes to the back of no line, but tenant 1 is charged only for what ran.
    kit.fails(0, Failure::Reset);
    let waiting = kit.gate.snapshot(kit.now).queue.parts;
    assert_eq!(waiting.iter().map(|part| part.waiting).sum::<u32>(), 4);
    let first = to(&kit.finish(1));
    assert!(first.is_some());
    let running: Vec<_> = [0, 10, 11, 20, 21].into_iter().filter(|id| kit.runs(*id)).collect();
    assert!(running.contains(&0), "{running:?}");
}

#[test]
fn at_the_count_whoever_is_furthest_ahead_gives_way() {
    let mut rules = patient(1);
    rules.queue.count = 10;
    let mut kit = Kit::new(rules, 1);
    kit.sent(0);
    for id in 100..110 {
        assert_eq!(come(&mut kit, id, 1), []);
    }
    // The flood's own next one is refused; another's takes the place of the flood's last.
    assert_eq!(refused(&come(&mut kit, 110, 1)).unwrap().reason, Reason::QueueFull);
    assert_eq!(evicted(&come(&mut kit, 200, 2)), [(109, Reason::QueueFull)]);
    assert_eq!(evicted(&come(&mut kit, 201, 2)), [(108, Reason::QueueFull)]);
    assert_eq!(kit.waiting(), 10);
    // Until both have as much waiting.
    for id in 202..220 {
        come(&mut kit, id, 2);
    }
    let parts = kit.gate.snapshot(kit.now).queue.parts;
    assert_eq!(parts.iter().map(|part| part.waiting).collect::<Vec<_>>(), [5, 5]);
}

#[test]
fn at_the_bytes_as_many_give_way_as_it_takes_or_none() {
    let mut rules = patient(1);
    rules.queue = QueuePolicy { bytes: 5_000, ..rules.queue };
    let mut kit = Kit::new(rules, 1);
    kit.sent(0);
    for id in 100..110 {
        come(&mut kit, id, 1);
    }
    let mut large = of(&kit, 200, 2);
    large.body_bytes = 1_400;
    let gone = evicted(&kit.does(Event::Arrive(large)));
    assert_eq!(gone.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [109, 108, 107]);
    let mut huge = of(&kit, 201, 3);
    huge.body_bytes = 5_001;
    let effects = kit.does(Event::Arrive(huge));
    assert_eq!(refused(&effects).unwrap().reason, Reason::QueueFull);
    assert_eq!(effects.len(), 1, "nobody left for nothing");
}

#[test]
fn whom_the_others_leave_no_time_is_told_before_it_is_over() {
    let mut rules = policy(10);
    rules.classes[0].slo.ttft = None;
    let mut kit = Kit::new(rules, 1);
    // Ten at a time, each for 100 ms: 100 a second.
    for id in 0..10 {
        kit.sent(id);
    }
    kit.later(100);
    (0..10).for_each(|id| drop(kit.finish(id)));
    for id in 10..20 {
        kit.sent(id);
    }
    let flood = (100..140).filter(|id| refused(&come(&mut kit, *id, 1)).is_none()).count();
    assert!(flood > 20);
    // Nine others come, each with a better right to the next places than the flood's last.
    let mut gone = Vec::new();
    for id in 0..60 {
        gone.extend(evicted(&come(&mut kit, 200 + id, 2 + u32::try_from(id).unwrap() % 9)));
    }
    assert!(!gone.is_empty());
    assert!(gone.iter().all(|(id, reason)| *id < 200 && *reason == Reason::QueueWait), "{gone:?}");
}

/// A pool whose replicas report a KV cache of so many tokens, with lengths learned.
fn with_cache(in_flight: u32, replicas: u32, tokens: u64) -> Kit {
    let mut kit = Kit::new(patient(in_flight), replicas);
    for id in 0..replicas {
        let mut reading = sample(kit.now, 0, 0);
        reading.kv_capacity_tokens = Some(tokens);
        kit.does(Event::Telemetry(ReplicaId(id), reading));
    }
    for id in 0..20 {
        kit.sent(id);
        let usage = Usage { input: 100, output: 20, cached: None };
        kit.does(Event::Finish(RequestId(id), Outcome::Completed, Some(usage)));
    }
    kit
}

fn sized(kit: &Kit, id: u64, tenant: u32, prompt: u32) -> RequestFacts {
    RequestFacts { prompt_tokens: Some(prompt), ..of(kit, id, tenant) }
}

#[test]
fn a_head_that_does_not_fit_is_passed_by_four_and_then_reserved_for() {
    let mut kit = with_cache(100, 1, 1_000);
    // 144 tokens each: six of them fill 864 of the 900 that may be promised.
    for id in 100..106 {
        let facts = sized(&kit, id, 1, 120);
        assert!(to(&kit.does(Event::Arrive(facts))).is_some(), "{id}");
    }
    let large = sized(&kit, 200, 1, 600);
    assert_eq!(kit.does(Event::Arrive(large)), []);
    for id in 300..310 {
        let facts = sized(&kit, id, 1, 120);
        assert_eq!(kit.does(Event::Arrive(facts)), [], "{id}");
    }
    let mut sent = Vec::new();
    for id in (100..106).chain(300..304) {
        sent.extend(kit.finish(id).iter().filter_map(|effect| match effect {
            Effect::Dispatch(id, _) => Some(id.0),
            _ => None,
        }));
        if sent.contains(&200) {
            break;
        }
    }
    assert_eq!(sent, [300, 301, 302, 303, 200], "four pass, nobody else");
}

#[test]
fn one_replica_is_kept_for_it_and_the_others_go_on() {
    let mut kit = with_cache(100, 3, 1_000);
    let mut running = Vec::new();
    for id in 100..118 {
        let facts = sized(&kit, id, 1, 120);
        running.push((id, to(&kit.does(Event::Arrive(facts))).unwrap()));
    }
    let large = sized(&kit, 200, 1, 800);
    assert_eq!(kit.does(Event::Arrive(large)), []);
    let mut next = 300;
    let mut kept = None;
    // One after the other ends, wherever it runs, and another comes for it.
    for round in 0..60 {
        let (id, _) = running.remove(round * 7 % running.len());
        for effect in kit.finish(id) {
            let Effect::Dispatch(id, replica) = effect else { continue };
            if id.0 == 200 {
                kept = Some((round, replica.0));
            } else {
                running.push((id.0, replica.0));
            }
        }
        let facts = sized(&kit, next, 1, 120);
        next += 1;
        for effect in kit.does(Event::Arrive(facts)) {
            if let Effect::Dispatch(id, replica) = effect {
                running.push((id.0, replica.0));
            }
        }
        if kept.is_some() {
            break;
        }
    }
    let (round, replica) = kept.expect("it was passed for ever");
    let held = kit.in_flight();
    let others: u32 = (0..3).filter(|at| *at != replica).map(|at| held[at as usize]).sum();
    assert!(others >= 10, "{held:?}: the others went on, {round}");
}

#[test]
fn critical_goes_first_and_classes_take_turns_by_share() {
    let mut rules = patient(1);
    let plain = |id| ClassPolicy::plain(ClassId(id), Slo::default());
    rules.classes = vec![
        plain(0),
        ClassPolicy { share: 2.0, ..plain(1) },
        ClassPolicy { critical: true, ..plain(2) },
    ];
    let mut kit = Kit::new(rules, 1);
    kit.sent(0);
    for (id, class) in [(10, 0), (11, 0), (12, 0), (20, 1), (21, 1), (22, 1), (23, 1), (30, 2)] {
        let facts = RequestFacts { class: ClassId(class), ..of(&kit, id, 1) };
        assert_eq!(kit.does(Event::Arrive(facts)), []);
    }
    let order = order(&mut kit, vec![0]);
    assert_eq!(order[0], 30);
    let first_six: Vec<_> = order[1..7].iter().map(|id| id / 10).collect();
    assert_eq!(first_six.iter().filter(|class| **class == 2).count(), 4, "{order:?}");
}

#[test]
fn shares_and_weights_may_change_while_they_wait() {
    let mut kit = Kit::new(patient(1), 1);
    kit.sent(0);
    for id in 0..20 {
        come(&mut kit, 100 + id, 1);
        come(&mut kit, 200 + id, 2);
    }
    let mut rules = patient(1);
    rules.tenants = vec![crate::dispatch::TenantPolicy { id: TenantId(2), weight: 4.0 }];
    kit.does(Event::Policy(Arc::new(rules)));
    let order = order(&mut kit, vec![0]);
    let early = order[..15].iter().filter(|id| **id >= 200).count();
    assert!((11..=13).contains(&early), "{order:?}");
}
