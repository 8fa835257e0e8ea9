//! The dispatcher before a small engine model in virtual time: what it holds beyond capacity,
//! and that it sheds nothing below.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::dispatch::{Dispatcher, Effect, Event, Policy, ReplicaSpec};
use crate::domain::{Outcome, Reason, ReplicaId, RequestId, Sample, Timestamp, Usage};

use super::kit::{facts, policy};

const PROMPT: u32 = 1_000;
const OUTPUT: u32 = 200;
const REPLICAS: u32 = 2;
/// What two replicas of the model serve at 96 in flight each, requests a second.
const CAPACITY: f64 = 38.0;

/// Output tokens of a request: 50 to 350, `OUTPUT` in the mean.
fn output(id: RequestId) -> u32 {
    let mixed = id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    OUTPUT - 150 + u32::try_from(mixed % 301).unwrap()
}

/// Continuous batching: a step takes 7 ms, 0.1 ms a sequence and 0.018 ms a prompt token.
#[derive(Default)]
struct Engine {
    waiting: VecDeque<(RequestId, u32)>,
    /// Tokens so far.
    running: BTreeMap<RequestId, u32>,
    prefilled: Vec<RequestId>,
    busy_until: Option<Timestamp>,
}

impl Engine {
    /// Begins a step at `now` when there is work.
    fn begin(&mut self, now: Timestamp, slowness: f64) {
        let mut budget = 4_096_u32.saturating_sub(u32::try_from(self.running.len()).unwrap());
        let mut prefill = 0;
        while let Some((id, left)) = self.waiting.front_mut() {
            let part = budget.min(*left);
            (budget, prefill, *left) = (budget - part, prefill + part, *left - part);
            if *left > 0 {
                break;
            }
            self.prefilled.push(*id);
            self.waiting.pop_front();
        }
        let sequences = f64::from(u32::try_from(self.running.len()).unwrap());
        if prefill == 0 && self.running.is_empty() && self.prefilled.is_empty() {
            self.busy_until = None;
            return;
        }
        let millis = 7.0 + 0.1 * sequences + 0.018 * f64::from(prefill);
        self.busy_until = Some(now + Duration::from_secs_f64(slowness * millis / 1e3));
    }

    /// Ends the step: first tokens, then the tokens that each running sequence has.
    fn end(&mut self) -> Vec<(RequestId, u32)> {
        let mut tokens = Vec::new();
        for (id, count) in &mut self.running {
            *count += 1;
            tokens.push((*id, *count));
        }
        for id in self.prefilled.drain(..) {
            self.running.insert(id, 1);
            tokens.push((id, 1));
        }
        self.running.retain(|id, count| *count < output(*id));
        tokens
    }
}

struct Outcomes {
    offered: u32,
    refused: BTreeMap<Reason, u32>,
    /// Refused after a wait in the queue.
    evicted: u32,
    completed: u32,
    /// Received to sent, and received to the first token, seconds.
    waits: Vec<f64>,
    ttft: Vec<f64>,
    /// Most in flight at one replica, at any time and once warm.
    peak: u32,
    warm_peak: u32,
}

struct World {
    gate: Dispatcher,
    engines: Vec<Engine>,
    received: BTreeMap<RequestId, Timestamp>,
    slowness: f64,
    seen: Outcomes,
    /// Before this nothing is counted.
    warm: Timestamp,
}

impl World {
    fn event(&mut self, now: Timestamp, event: Event) {
        let mut out = Vec::new();
        self.gate.handle(now, event, &mut out);
        for effect in out {
            match effect {
                Effect::Dispatch(id, replica) => {
                    let engine = &mut self.engines[replica.0 as usize];
                    engine.waiting.push_back((id, PROMPT));
                    if engine.busy_until.is_none() {
                        engine.begin(now, self.slowness);
                    }
                    if now > self.warm {
                        let wait = now.saturating_since(self.received[&id]).as_secs_f64();
                        self.seen.waits.push(wait);
                    }
                }
                Effect::Reject(id, rejection) => self.refuse(now, id, rejection.reason),
                Effect::Evict(id, rejection) => {
                    self.refuse(now, id, rejection.reason);
                    self.seen.evicted += u32::from(now > self.warm);
                }
                other => assert!(matches!(other, Effect::Note(_)), "{other:?}"),
            }
        }
        let held = self.gate.snapshot(now).replicas.iter().map(|r| r.in_flight).max();
        let held = held.unwrap_or(0);
        self.seen.peak = self.seen.peak.max(held);
        if now > self.warm {
            self.seen.warm_peak = self.seen.warm_peak.max(held);
        }
    }

    fn refuse(&mut self, now: Timestamp, id: RequestId, reason: Reason) {
        self.received.remove(&id);
        if now > self.warm {
            *self.seen.refused.entry(reason).or_default() += 1;
        }
    }

    fn step(&mut self, now: Timestamp, at: usize) {
        for (id, tokens) in self.engines[at].end() {
            if tokens == 1 {
                if now > self.warm {
                    let ttft = now.saturating_since(self.received[&id]);
                    self.seen.ttft.push(ttft.as_secs_f64());
                }
                self.event(now, Event::FirstToken(id));
            } else if tokens == output(id) {
                self.received.remove(&id);
                self.seen.completed += u32::from(now > self.warm);
                let usage = Usage { input: PROMPT.into(), output: tokens.into(), cached: Some(0) };
                self.event(now, Event::Finish(id, Outcome::Completed, Some(usage)));
            } else if tokens.is_multiple_of(16) {
                self.event(now, Event::Progress(id, tokens));
            }
        }
        self.engines[at].begin(now, self.slowness);
    }

    fn scrape(&mut self, now: Timestamp, kv: Option<u64>) {
        for id in 0..REPLICAS {
            let engine = &self.engines[id as usize];
            let used: u32 = engine.running.values().map(|tokens| tokens + PROMPT).sum();
            let sample = Sample {
                asked: now,
                taken: now,
                running: Some(u32::try_from(engine.running.len()).unwrap()),
                waiting: Some(u32::try_from(engine.waiting.len()).unwrap()),
                kv_usage: kv.and_then(|kv| {
                    u32::try_from(kv).ok().map(|kv| f64::from(used) / f64::from(kv))
                }),
                kv_capacity_tokens: kv,
                ..Sample::default()
            };
            self.event(now, Event::Telemetry(ReplicaId(id), sample));
        }
    }
}

/// Poisson arrivals at `rate` a second for a minute, the first 20 s uncounted.
fn run(policy: Policy, rate: f64, slowness: f64, kv: Option<u64>, seed: u64) -> Outcomes {
    let mut world = World {
        gate: Dispatcher::new(policy.into(), seed),
        engines: (0..REPLICAS).map(|_| Engine::default()).collect(),
        received: BTreeMap::new(),
        slowness,
        seen: Outcomes {
            offered: 0,
            refused: BTreeMap::new(),
            evicted: 0,
            completed: 0,
            waits: Vec::new(),
            ttft: Vec::new(),
            peak: 0,
            warm_peak: 0,
        },
        warm: Timestamp::ZERO + Duration::from_secs(20),
    };
    let mut rng = StdRng::seed_from_u64(seed);
    let specs = (0..REPLICAS).map(|id| ReplicaSpec { id: ReplicaId(id), in_flight: None });
    world.event(Timestamp::ZERO, Event::Replicas(specs.collect()));
    let (mut arrival, mut scrape) = (Timestamp::ZERO, Timestamp::ZERO);
    let end = Timestamp::ZERO + Duration::from_mins(1);
    for id in 0.. {
        arrival = arrival + Duration::from_secs_f64(-(1.0 - rng.random::<f64>()).ln() / rate);
        if arrival > end {
            break;
        }
        loop {
            let steps = world.engines.iter().enumerate();
            let step = steps.filter_map(|(at, e)| e.busy_until.map(|until| (until, at))).min();
            let wake = world.gate.next_deadline().unwrap_or(Timestamp::MAX);
            let next = scrape.min(wake).min(step.map_or(Timestamp::MAX, |(until, _)| until));
            if next > arrival {
                break;
            }
            if next == scrape {
                world.scrape(next, kv);
                scrape = scrape + Duration::from_millis(500);
            } else if next == wake {
                world.event(next, Event::Tick);
            } else if let Some((until, at)) = step {
                world.step(until, at);
            }
        }
        let mut facts = facts(id, arrival);
        facts.prompt_bytes = u64::from(PROMPT) * 4;
        facts.max_output = Some(2 * OUTPUT);
        world.received.insert(facts.id, arrival);
        world.seen.offered += u32::from(arrival > world.warm);
        world.event(arrival, Event::Arrive(facts));
    }
    world.seen
}

fn p95(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * 95 / 100]
}

fn many() -> Policy {
    let mut policy = policy(96);
    policy.queue.count = 10_000;
    policy.queue.bytes = u64::MAX;
    policy
}

#[test]
fn beyond_capacity_waits_stay_bounded_and_the_engines_full() {
    for (factor, seed) in [(1.5, 1), (2.0, 2), (3.0, 3)] {
        let mut seen = run(many(), factor * CAPACITY, 1.0, Some(400_000), seed);
        let longest = seen.waits.iter().copied().fold(0.0, f64::max);
        assert!(longest <= 0.4, "{factor}: waited {longest}");
        let rate = f64::from(seen.completed) / 40.0;
        assert!(rate >= 0.97 * CAPACITY, "{factor}: {rate} a second");
        let ttft = p95(&mut seen.ttft);
        assert!(ttft <= 1.0, "{factor}: TTFT {ttft}");
        assert!(seen.peak <= 96);
        let refused: u32 = seen.refused.values().sum();
        assert_eq!(seen.refused.keys().collect::<Vec<_>>(), [&Reason::QueueWait], "{factor}");
        // Told at once, not after the wait.
        assert!(seen.evicted * 150 <= refused, "{factor}: {} of {refused}", seen.evicted);
    }
}

#[test]
fn below_the_knee_nothing_is_shed() {
    for seed in 1..=5 {
        let seen = run(many(), 0.8 * CAPACITY, 1.0, Some(400_000), seed);
        assert!(seen.refused.is_empty(), "{:?} of {}", seen.refused, seen.offered);
    }
}

#[test]
fn a_slower_engine_is_followed() {
    let mut seen = run(many(), 1.5 * CAPACITY, 1.35, None, 4);
    assert!(p95(&mut seen.ttft) <= 1.0);
    assert!(f64::from(seen.completed) / 40.0 >= 0.97 * CAPACITY / 1.35);
}

#[test]
fn a_small_cache_is_not_overrun() {
    // Room for 50 requests at their full mean length, for 45 below the point of thrashing.
    let seen = run(many(), 2.0 * CAPACITY, 1.0, Some(60_000), 5);
    assert!(seen.peak > 90, "before anything was learned the gate passes");
    assert!((38..=46).contains(&seen.warm_peak), "{}", seen.warm_peak);
    let seen_rate = f64::from(seen.completed) / 40.0;
    assert!(seen_rate > 20.0, "{seen_rate}");
}
