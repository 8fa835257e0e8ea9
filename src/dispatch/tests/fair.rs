//! Who gets what when there is not enough for all: classes and tenants before a pool of slots in
//! virtual time, each request holding its slot for about as long as its output is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::dispatch::{ClassPolicy, Dispatcher, Effect, Event, Policy, ReplicaSpec, TenantPolicy};
use crate::domain::{
    ClassId, Outcome, Reason, ReplicaId, RequestId, Slo, TenantId, Timestamp, Usage,
};

use super::kit::{facts, policy};

const REPLICAS: u32 = 4;
const LIMIT: u32 = 20;
/// Mean time in a slot, seconds.
const HOLD: f64 = 0.8;
/// What the pool serves of requests of mean length, a second.
const CAPACITY: f64 = REPLICAS as f64 * LIMIT as f64 / HOLD;

/// Requests of one kind that come at random.
#[derive(Clone, Copy)]
struct Stream {
    tenant: u32,
    class: u16,
    /// As a share of the pool's capacity.
    load: f64,
    prompt: u32,
    output: u32,
}

const fn stream(tenant: u32, load: f64) -> Stream {
    Stream { tenant, class: 0, load, prompt: 300, output: 64 }
}

/// What became of a stream's requests.
#[derive(Default, Debug)]
struct Seen {
    offered: u32,
    served: u32,
    refused: BTreeMap<Reason, u32>,
    waits: Vec<f64>,
    /// Input and twice the output, of what was served.
    tokens: f64,
}

impl Seen {
    fn goodput(&self) -> f64 {
        f64::from(self.served) / f64::from(self.offered)
    }

    fn p95(&mut self) -> f64 {
        self.waits.sort_by(f64::total_cmp);
        self.waits[self.waits.len() * 95 / 100]
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Arrive(usize),
    End(RequestId),
    Tick,
}

/// Poisson arrivals for a minute, the first 10 s uncounted.
fn run(policy: Policy, streams: &[Stream], seed: u64) -> Vec<Seen> {
    let warm = Timestamp::ZERO + Duration::from_secs(10);
    let end = warm + Duration::from_mins(1);
    let mut gate = Dispatcher::new(Arc::new(policy), seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut all: Vec<Seen> = streams.iter().map(|_| Seen::default()).collect();
    let mut world = BinaryHeap::new();
    let mut out = Vec::new();
    let specs = (0..REPLICAS).map(|id| ReplicaSpec { id: ReplicaId(id), in_flight: None });
    gate.handle(Timestamp::ZERO, Event::Replicas(specs.collect()), &mut out);
    let gap = |rate: f64, rng: &mut StdRng| {
        Duration::from_secs_f64(-(1.0 - rng.random::<f64>()).ln() / (rate * CAPACITY))
    };
    for (at, stream) in streams.iter().enumerate() {
        world.push(Reverse((Timestamp::ZERO + gap(stream.load, &mut rng), Next::Arrive(at))));
    }
    let mut of = BTreeMap::new();
    let mut next_id = 0;
    let mut armed = None;
    while let Some(Reverse((now, next))) = world.pop() {
        if now > end {
            break;
        }
        let event = match next {
            Next::Arrive(at) => {
                let Stream { tenant, class, load, prompt, output } = streams[at];
                world.push(Reverse((now + gap(load, &mut rng), Next::Arrive(at))));
                let mut facts = facts(next_id, now);
                next_id += 1;
                (facts.tenant, facts.class) = (TenantId(tenant), ClassId(class));
                (facts.prompt_tokens, facts.max_output) = (Some(prompt), Some(output));
                all[at].offered += u32::from(now > warm);
                of.insert(facts.id, (at, now));
                Event::Arrive(facts)
            }
            Next::End(id) => {
                let (at, _) = of[&id];
                let usage = Usage {
                    input: streams[at].prompt.into(),
                    output: streams[at].output.into(),
                    cached: None,
                };
                Event::Finish(id, Outcome::Completed, Some(usage))
            }
            Next::Tick => {
                armed = armed.filter(|at| *at != now);
                Event::Tick
            }
        };
        gate.handle(now, event, &mut out);
        for effect in out.drain(..) {
            match effect {
                Effect::Dispatch(id, _) => {
                    let (at, came) = of[&id];
                    let stream = streams[at];
                    let hold = HOLD * f64::from(stream.output) / 64.0;
                    let hold = hold * (0.5 + rng.random::<f64>());
                    world.push(Reverse((now + Duration::from_secs_f64(hold), Next::End(id))));
                    if came > warm {
                        all[at].served += 1;
                        all[at].tokens += f64::from(stream.prompt + 2 * stream.output);
                        all[at].waits.push(now.saturating_since(came).as_secs_f64());
                    }
                }
                Effect::Reject(id, rejection) | Effect::Evict(id, rejection) => {
                    let (at, came) = of[&id];
                    if came > warm {
                        *all[at].refused.entry(rejection.reason).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
        if let Some(at) = gate.next_deadline().filter(|at| armed.is_none_or(|armed| *at < armed)) {
            armed = Some(at);
            world.push(Reverse((at, Next::Tick)));
        }
    }
    all
}

fn classes(of: &[(f64, bool)]) -> Vec<ClassPolicy> {
    let slo = Slo { ttft: Some(Duration::from_secs(1)), ..Slo::default() };
    let rules = (0..).zip(of).map(|(id, (share, critical))| ClassPolicy {
        share: *share,
        critical: *critical,
        ..ClassPolicy::plain(ClassId(id), slo)
    });
    rules.collect()
}

/// Jain's index of what each had for its weight: 1 is even, 1/n is all to one.
fn jain(parts: impl Iterator<Item = f64>) -> f64 {
    let (count, sum, squares) =
        parts.fold((0.0, 0.0, 0.0), |(n, s, q), x| (n + 1.0, s + x, q + x * x));
    sum * sum / (count * squares)
}

#[test]
fn the_harness_has_the_capacity_that_it_says() {
    let seen = run(policy(LIMIT), &[stream(1, 2.0)], 1);
    let rate = f64::from(seen[0].served) / 60.0;
    assert!((0.95..1.03).contains(&(rate / CAPACITY)), "{rate} of {CAPACITY}");
}

#[test]
fn a_flood_takes_nothing_from_those_who_ask_for_their_part() {
    for seed in 1..=5 {
        // Ten tenants: one at ten times its tenth, the others just below theirs.
        let mut streams: Vec<_> = (1..10).map(|tenant| stream(tenant, 0.08)).collect();
        streams.push(stream(10, 1.0));
        let mut seen = run(policy(LIMIT), &streams, seed);
        for light in &mut seen[..9] {
            assert!(light.goodput() >= 0.99, "{seed}: {} {:?}", light.goodput(), light.refused);
            assert!(light.p95() <= 0.3, "{seed}: {}", light.p95());
        }
        // And nothing is left lying.
        let total: u32 = seen.iter().map(|stream| stream.served).sum();
        assert!(f64::from(total) / 60.0 >= 0.95 * CAPACITY);
    }
}

#[test]
fn a_tenant_at_a_third_beside_one_at_twice_the_capacity_keeps_all() {
    for seed in 1..=5 {
        let seen = run(policy(LIMIT), &[stream(1, 0.3), stream(2, 2.0)], seed);
        assert!(seen[0].goodput() >= 0.99, "{seed}: {} {:?}", seen[0].goodput(), seen[0].refused);
        assert!(f64::from(seen[1].served) / 60.0 >= 0.65 * CAPACITY);
    }
}

#[test]
fn the_shortage_is_handed_out_by_weight_whatever_is_asked() {
    for seed in 1..=5 {
        let mut rules = policy(LIMIT);
        let weights = [1.0, 2.0, 1.0, 4.0];
        rules.tenants = (0..4)
            .map(|at| TenantPolicy { id: TenantId(at + 1), weight: weights[at as usize] })
            .collect();
        let mut streams = [stream(1, 0.4), stream(2, 1.0), stream(3, 3.0), stream(4, 1.5)];
        // Large requests weigh more.
        (streams[2].prompt, streams[2].output) = (2_000, 40);
        let seen = run(rules, &streams, seed);
        let parts = seen.iter().zip(weights).map(|(seen, weight)| seen.tokens / weight);
        let parts: Vec<_> = parts.collect();
        assert!(jain(parts.iter().copied()) >= 0.95, "{seed}: {parts:?}");
    }
}

#[test]
fn shares_of_classes_count_only_while_there_is_too_little() {
    let of = |class, load| Stream { class, ..stream(1, load) };
    let mut rules = policy(LIMIT);
    rules.classes = classes(&[(1.0, false), (3.0, false)]);
    // Both ask for too much: one to three.
    let seen = run(rules.clone(), &[of(0, 1.5), of(1, 1.5)], 1);
    let ratio = seen[1].tokens / seen[0].tokens;
    assert!((2.6..3.4).contains(&ratio), "{ratio}");
    // The one with the small share asks alone: it has all.
    let seen = run(rules.clone(), &[of(0, 1.5), of(1, 0.02)], 1);
    assert!(f64::from(seen[0].served) / 60.0 >= 0.93 * CAPACITY);
    assert!(seen[1].goodput() >= 0.99);
    // The large one asks for less than its share: it has that, and the other the rest.
    let seen = run(rules, &[of(0, 1.5), of(1, 0.5)], 1);
    assert!(seen[1].goodput() >= 0.98, "{:?}", seen[1].refused);
    let rest = f64::from(seen[0].served) / 60.0 / CAPACITY;
    assert!((0.43..0.53).contains(&rest), "{rest}");
}

#[test]
fn what_is_critical_is_never_held_back_for_a_share() {
    let of = |class, load| Stream { class, ..stream(1, load) };
    let mut rules = policy(LIMIT);
    rules.classes = classes(&[(1.0, false), (0.01, true)]);
    let mut seen = run(rules, &[of(0, 2.0), of(1, 0.1)], 1);
    assert!(seen[1].goodput() >= 0.995, "{:?}", seen[1].refused);
    assert!(seen[1].p95() <= 0.06, "{}", seen[1].p95());
}

#[test]
fn a_thousand_tenants_that_each_come_seldom_are_one_queue() {
    // Nobody has a line of more than one: the shortage falls on all alike.
    let streams: Vec<_> = (0..1_000).map(|tenant| stream(tenant, 0.0015)).collect();
    let seen = run(policy(LIMIT), &streams, 1);
    let (served, offered) =
        seen.iter().fold((0, 0), |(s, o), seen| (s + seen.served, o + seen.offered));
    let share = f64::from(served) / f64::from(offered);
    assert!((0.62..0.70).contains(&share), "{share}");
}
