//! Refused clients that come back when they were told to: a burst on a small pool must not
//! fail more than a few of them, though each tries three times only.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::dispatch::{Effect, Event};
use crate::domain::{Outcome, RequestId, Timestamp};

use super::kit::{Kit, facts, policy};

/// Tries in all, as the SDKs of OpenAI make.
const TRIES: u32 = 3;

#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Next {
    Try { client: u64, tries: u32 },
    End(RequestId),
    Tick,
}

/// How many of `clients`, all coming at once, are served by two replicas of four slots that
/// each hold a request for `hold` or so.
fn served(clients: u64, hold: f64, wait: u64, seed: u64) -> usize {
    let mut rules = policy(4);
    rules.queue.wait = Duration::from_millis(wait);
    rules.classes[0].slo.ttft = None;
    let mut kit = Kit::new(rules, 2);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = BinaryHeap::new();
    for client in 0..clients {
        world.push(Reverse((kit.now, Next::Try { client, tries: 1 })));
    }
    let mut owner = BTreeMap::new();
    let (mut done, mut next_id) = (0, 0);
    while let Some(Reverse((now, next))) = world.pop() {
        kit.now = now;
        let effects = match next {
            Next::Try { client, tries } => {
                let mut facts = facts(next_id, now);
                next_id += 1;
                facts.client_retries = tries - 1;
                owner.insert(facts.id, (client, tries));
                kit.does(Event::Arrive(facts))
            }
            Next::End(id) => {
                done += 1;
                kit.does(Event::Finish(id, Outcome::Completed, None))
            }
            Next::Tick => kit.does(Event::Tick),
        };
        for effect in effects {
            match effect {
                Effect::Dispatch(id, _) => {
                    let takes = hold * (0.5 + rng.random::<f64>());
                    world.push(Reverse((now + Duration::from_secs_f64(takes), Next::End(id))));
                }
                Effect::Reject(id, rejection) | Effect::Evict(id, rejection) => {
                    let (client, tries) = owner[&id];
                    if tries < TRIES {
                        let told = rejection.retry_after.unwrap().as_secs_f64().ceil();
                        let back = now + Duration::from_secs_f64(told);
                        world.push(Reverse((back, Next::Try { client, tries: tries + 1 })));
                    }
                }
                _ => {}
            }
        }
        if let Some(at) = kit.gate.next_deadline()
            && world.iter().all(|Reverse((other, next))| *next != Next::Tick || *other > at)
        {
            world.push(Reverse((at.max(now + Duration::from_nanos(1)), Next::Tick)));
        }
        if world.len() == 1 && matches!(world.peek(), Some(Reverse((_, Next::Tick)))) {
            break;
        }
        assert!(now < Timestamp::ZERO + Duration::from_mins(10));
    }
    done
}

#[test]
fn of_a_burst_on_a_small_pool_nearly_all_are_served_in_the_end() {
    for (hold, wait) in [(1.0, 1_000), (2.0, 1_000), (4.0, 2_000)] {
        let all: usize = (0..20).map(|seed| served(60, hold, wait, seed)).sum();
        assert!(all >= 20 * 60 * 97 / 100, "{hold} {wait}: {all} of {}", 20 * 60);
    }
}
