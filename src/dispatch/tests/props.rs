//! What must hold for any interleaving of everything that can happen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use crate::dispatch::{ClassPolicy, Dispatcher, Effect, Event, Policy, ReplicaSpec, TenantPolicy};
use crate::domain::{
    ClassId, Failure, Health, Outcome, Reason, ReplicaId, RequestId, TenantId, Timestamp, Usage,
};

use super::kit::{facts, policy, sample};

#[derive(Clone, Debug)]
enum Step {
    Arrive { who: u32, stream: bool, sequences: u32, deadline: Option<u64>, bytes: u64 },
    Cancel(usize),
    First(usize),
    Progress(usize, u32),
    Hold(usize),
    Fail(usize, usize),
    Finish(usize, bool),
    Replicas(u8),
    Limits { in_flight: Option<u32>, count: u32, wait: u64, gateways: u32, parts: u32 },
    Health(u32, bool),
    Telemetry { replica: u32, running: Option<u32>, asked: u64, kv: Option<u64> },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let which = || any::<usize>();
    prop_oneof![
        8 => (0_u32..12, any::<bool>(), 1_u32..3, prop::option::of(0_u64..2_000), 0_u64..3_000)
            .prop_map(|(who, stream, sequences, deadline, bytes)| Step::Arrive {
                who, stream, sequences, deadline, bytes
            }),
        2 => which().prop_map(Step::Cancel),
        3 => which().prop_map(Step::First),
        2 => (which(), 0_u32..4_000).prop_map(|(at, tokens)| Step::Progress(at, tokens)),
        1 => which().prop_map(Step::Hold),
        2 => (which(), which()).prop_map(|(at, how)| Step::Fail(at, how)),
        4 => (which(), any::<bool>()).prop_map(|(at, well)| Step::Finish(at, well)),
        1 => any::<u8>().prop_map(Step::Replicas),
        1 => (prop::option::of(1_u32..6), 0_u32..8, 0_u64..900, 1_u32..3, 0_u32..3).prop_map(
            |(in_flight, count, wait, gateways, parts)| Step::Limits {
                in_flight, count, wait, gateways, parts
            }
        ),
        1 => (0_u32..4, any::<bool>()).prop_map(|(id, up)| Step::Health(id, up)),
        1 => (0_u32..4, prop::option::of(0_u32..9), 0_u64..300, prop::option::of(1_u64..4_000))
            .prop_map(|(replica, running, asked, kv)| Step::Telemetry {
                replica, running, asked, kv
            }),
        3 => (0_u64..3_000).prop_map(Step::Wait),
    ]
}

/// What the world outside believes; the dispatcher must agree.
#[derive(Default)]
struct World {
    /// Every request that has not ended: where it is held, or `None` in the queue.
    alive: BTreeMap<RequestId, (Option<ReplicaId>, u32)>,
    ended: BTreeMap<RequestId, u32>,
    next: u64,
}

impl World {
    fn id(&self, at: usize) -> RequestId {
        let known = self.alive.keys().nth(at % self.alive.len().max(1));
        // Now and then one that nobody knows.
        if at.is_multiple_of(17) { RequestId(1 << 40) } else { known.copied().unwrap_or_default() }
    }

    fn event(&mut self, step: &Step, now: Timestamp) -> Event {
        match *step {
            Step::Arrive { who, stream, sequences, deadline, bytes } => {
                let mut facts = facts(self.next, now);
                facts.tenant = TenantId(who % 4);
                facts.class = ClassId(u16::try_from(who / 4).unwrap());
                self.next += 1;
                (facts.stream, facts.sequences, facts.body_bytes) = (stream, sequences, bytes);
                facts.deadline = deadline.map(|millis| now + Duration::from_millis(millis));
                self.alive.insert(facts.id, (None, sequences));
                Event::Arrive(facts)
            }
            Step::Cancel(at) => {
                let id = self.id(at);
                self.end(id);
                Event::Cancel(id)
            }
            Step::First(at) => Event::FirstToken(self.id(at)),
            Step::Progress(at, tokens) => Event::Progress(self.id(at), tokens),
            Step::Hold(at) => Event::HoldEnded(self.id(at)),
            Step::Fail(at, how) => {
                let id = self.id(at);
                if let Some((held, _)) = self.alive.get_mut(&id) {
                    *held = None;
                }
                Event::AttemptFailed(id, Failure::ALL[how % Failure::ALL.len()])
            }
            Step::Finish(at, well) => {
                let id = self.id(at);
                self.end(id);
                let usage = Some(Usage { input: 100, output: 20, cached: Some(10) });
                let failed = Outcome::Failed(Reason::FirstByte);
                Event::Finish(id, if well { Outcome::Completed } else { failed }, usage)
            }
            Step::Replicas(mask) => Event::Replicas(
                (0..4)
                    .filter(|id| mask & (1 << id) != 0)
                    .map(|id| ReplicaSpec {
                        id: ReplicaId(id),
                        in_flight: (mask & 16 != 0).then_some(3),
                    })
                    .collect(),
            ),
            Step::Limits { in_flight, count, wait, gateways, parts } => {
                let mut new = classed(parts);
                new.limit.in_flight = in_flight;
                new.queue.count = count;
                new.queue.wait = Duration::from_millis(wait);
                new.gateways = gateways;
                Event::Policy(Arc::new(new))
            }
            Step::Health(id, up) => {
                Event::Health(ReplicaId(id), if up { Health::Up } else { Health::Down })
            }
            Step::Telemetry { replica, running, asked, kv } => {
                let mut reading = sample(now, 0, 0);
                reading.running = running;
                reading.asked = now.saturating_sub(Duration::from_millis(asked));
                reading.kv_capacity_tokens = kv;
                Event::Telemetry(ReplicaId(replica), reading)
            }
            Step::Wait(_) => Event::Tick,
        }
    }

    fn end(&mut self, id: RequestId) {
        if self.alive.remove(&id).is_some() {
            *self.ended.entry(id).or_default() += 1;
        }
    }

    fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Dispatch(id, replica) => {
                let (held, _) = self.alive.get_mut(id).expect("dispatched after its end");
                assert!(held.is_none(), "dispatched twice");
                *held = Some(*replica);
            }
            Effect::Reject(id, _) | Effect::Evict(id, _) => {
                assert!(self.alive.contains_key(id), "ended twice");
                assert_eq!(self.alive[id].0, None, "refused while a replica held it");
                self.end(*id);
            }
            Effect::Abandon(id) => {
                let (held, _) = self.alive.get_mut(id).expect("abandoned after its end");
                assert!(held.take().is_some(), "abandoned though nobody held it");
            }
            Effect::Cut(..) | Effect::Note(_) => {}
        }
    }
}

/// Three classes, the last of them critical, and a few tenants of other weights.
fn classed(parts: u32) -> Policy {
    let mut policy = policy(4);
    let slo = policy.classes[0].slo;
    let share = 1.0 + f64::from(parts);
    policy.classes = (0..3).map(|id| ClassPolicy::plain(ClassId(id), slo)).collect();
    policy.classes[1].share = share;
    policy.classes[2].critical = parts < 2;
    policy.tenants = (1..3).map(|id| TenantPolicy { id: TenantId(id), weight: share }).collect();
    policy
}

fn run(steps: &[Step], seed: u64) -> Vec<Effect> {
    let mut gate = Dispatcher::new(Arc::new(classed(0)), seed);
    let (mut world, mut all, mut out) = (World::default(), Vec::new(), Vec::new());
    let mut now = Timestamp::ZERO + Duration::from_secs(10);
    let listed = (0..3).map(|id| ReplicaSpec { id: ReplicaId(id), in_flight: None }).collect();
    gate.handle(now, Event::Replicas(listed), &mut out);
    for step in steps {
        if let Step::Wait(millis) = step {
            now = now + Duration::from_millis(*millis);
        }
        let before = gate.snapshot(now);
        let event = world.event(step, now);
        let arrival = matches!(event, Event::Arrive(_));
        gate.handle(now, event, &mut out);
        for effect in &out {
            world.apply(effect);
        }
        let after = gate.snapshot(now);
        for replica in &after.replicas {
            let held = world.alive.values().filter(|(held, _)| *held == Some(replica.id));
            let held: u32 = held.map(|(_, sequences)| *sequences).sum();
            assert_eq!(replica.in_flight, held, "the ledger of {}", replica.id);
            let was = before.replicas.iter().find(|old| old.id == replica.id);
            // A limit lowered below what is held cuts nothing, and lets nothing in.
            let most = was.map_or(0.0, |old| f64::from(old.in_flight)).max(replica.limit.ceil());
            assert!(f64::from(held) <= most.max(2.0), "{held} of {}", replica.limit);
        }
        let queued = world.alive.values().filter(|(held, _)| held.is_none()).count();
        assert_eq!(after.queue.waiting as usize, queued);
        let parts: u32 = after.queue.parts.iter().map(|part| part.waiting).sum();
        assert_eq!(after.queue.waiting, parts);
        if arrival && !out.iter().any(|e| matches!(e, Effect::Reject(..) | Effect::Dispatch(..))) {
            assert!(gate.queue.len() - gate.queue.retries() <= gate.policy.queue.count as usize);
            assert!(gate.queue.bytes() <= gate.policy.queue.bytes);
        }
        assert!(gate.next_deadline().is_none_or(|at| at > now), "a deadline is left behind");
        all.append(&mut out);
    }
    finish(&mut gate, &mut world, now, &mut all);
    all
}

/// Ends all that is left; everything must be back at zero.
fn finish(gate: &mut Dispatcher, world: &mut World, now: Timestamp, all: &mut Vec<Effect>) {
    let mut out = Vec::new();
    for id in world.alive.keys().copied().collect::<Vec<_>>() {
        if !world.alive.contains_key(&id) {
            continue;
        }
        world.end(id);
        gate.handle(now, Event::Cancel(id), &mut out);
        for effect in &out {
            world.apply(effect);
        }
        all.append(&mut out);
    }
    assert!(world.ended.values().all(|ends| *ends == 1), "an end too many");
    assert_eq!(world.ended.len() as u64, world.next, "an end too few");
    let end = gate.snapshot(now);
    assert_eq!((end.in_flight, end.queue.waiting, end.queue.bytes), (0, 0, 0));
    for replica in &end.replicas {
        assert_eq!((replica.prefill_tokens, replica.kv_tokens), (0, 0));
    }
    assert!(gate.requests.is_empty() && gate.prefill_clock.is_empty());
    assert!(gate.queue.is_settled(), "somebody is still charged for what runs no more");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_keeps_the_bounds_and_ends_each_request_once(
        steps in prop::collection::vec(step(), 1..250), seed in any::<u64>(),
    ) {
        run(&steps, seed);
    }

    #[test]
    fn the_same_seed_and_events_give_the_same_effects(
        steps in prop::collection::vec(step(), 1..120), seed in any::<u64>(),
    ) {
        prop_assert_eq!(run(&steps, seed), run(&steps, seed));
    }

    /// While every request fits wherever there is a slot, no slot is free while somebody waits.
    #[test]
    fn nothing_is_idle_while_somebody_waits(
        steps in prop::collection::vec((0_u32..12, any::<bool>(), any::<usize>()), 1..200),
        seed in any::<u64>(),
    ) {
        let mut gate = Dispatcher::new(Arc::new(classed(1)), seed);
        let (mut world, mut out) = (World::default(), Vec::new());
        let mut now = Timestamp::ZERO;
        let listed = (0..3).map(|id| ReplicaSpec { id: ReplicaId(id), in_flight: None }).collect();
        gate.handle(now, Event::Replicas(listed), &mut out);
        for (who, comes, at) in steps {
            now = now + Duration::from_millis(5);
            gate.handle(now, Event::Tick, &mut out);
            out.drain(..).for_each(|effect| world.apply(&effect));
            let step = if comes {
                Step::Arrive { who, stream: true, sequences: 1, deadline: None, bytes: 10 }
            } else {
                Step::Finish(at, true)
            };
            let event = world.event(&step, now);
            gate.handle(now, event, &mut out);
            out.drain(..).for_each(|effect| world.apply(&effect));
            let seen = gate.snapshot(now);
            prop_assert!(seen.queue.waiting == 0 || seen.in_flight == 12, "{:?}", seen.queue);
        }
    }
}
