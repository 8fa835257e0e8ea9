//! Quotas over simulated time, with everything that can become of a request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::super::num::whole;
use super::*;

fn at(seconds: f64) -> Timestamp {
    Timestamp::since_origin(Duration::from_secs_f64(seconds))
}

fn rates(requests: u32, tokens: u64, parallel: u32) -> Quota {
    Quota {
        requests_per_minute: NonZeroU32::new(requests),
        tokens_per_minute: Some(tokens).filter(|tokens| *tokens > 0),
        parallel: Some(parallel).filter(|most| *most > 0),
        ..Quota::default()
    }
}

fn ask(prompt: u32, output: u32) -> Ask {
    Ask {
        prompt_tokens: Some(prompt),
        max_output: Some(output),
        sequences: 1,
        generates: true,
        ..Ask::default()
    }
}

#[test]
fn each_quota_has_its_reason_its_numbers_and_a_time_to_come_back() {
    for (quota, reason, limit) in [
        (rates(60, 0, 0), Reason::RateRequests, 60.0),
        (rates(0, 1_200, 0), Reason::RateTokens, 1_200.0),
        (rates(0, 0, 2), Reason::Parallel, 2.0),
    ] {
        let mut meter = Meter::new(quota, at(0.0));
        let mut held = Vec::new();
        let refused = loop {
            assert_eq!(meter.refuses(at(0.0)).is_some(), meter.levels(at(0.0)).is_used_up());
            match meter.admit(at(0.0), ask(10, 90)) {
                Ok(charge) => held.push(charge),
                Err(refused) => break refused,
            }
        };
        assert_eq!((refused.reason, refused.limit), (reason, limit));
        assert_eq!(refused.unit, Unit::of(reason));
        assert!(refused.retry_after.unwrap() >= SHORTEST_WAIT);
        for charge in held {
            meter.settle(at(0.0), charge, Spent::Nothing);
        }
        assert_eq!(meter.levels(at(0.0)), Meter::new(quota, at(0.0)).levels(at(0.0)));
    }
}

impl Levels {
    fn is_used_up(&self) -> bool {
        [self.requests, self.tokens, self.parallel].into_iter().flatten().any(|l| l.left == 0)
    }
}

#[test]
fn coming_back_when_told_is_of_use() {
    let mut meter = Meter::new(rates(0, 6_000, 0), at(0.0));
    let first = meter.admit(at(0.0), ask(1_400, 100)).unwrap();
    let told = meter.admit(at(0.0), ask(500, 100)).unwrap_err().retry_after.unwrap();
    assert_eq!(told, Duration::from_secs(6));
    assert!(meter.admit(at(5.9), ask(500, 100)).is_err());
    let second = meter.admit(at(6.0), ask(500, 100)).unwrap();
    meter.settle(at(7.0), first, Spent::Expected);
    meter.settle(at(7.0), second, Spent::Expected);
}

#[test]
fn what_was_used_is_paid_and_what_was_not_comes_back() {
    let left = |spent| {
        let mut meter = Meter::new(rates(60, 60_000, 4), at(0.0));
        let charge = meter.admit(at(0.0), ask(1_000, 500)).unwrap();
        let now = meter.levels(at(0.0));
        assert_eq!((now.tokens.unwrap().left, now.parallel.unwrap().left), (13_744, 3));
        meter.settle(at(0.0), charge, spent);
        let now = meter.levels(at(0.0));
        assert_eq!(now.parallel.unwrap().left, 4);
        (now.requests.unwrap().left, now.tokens.unwrap().left)
    };
    assert_eq!(left(Spent::Nothing), (15, 15_000), "a refused request costs nothing");
    assert_eq!(left(Spent::Request), (14, 15_000));
    assert_eq!(left(Spent::Counted { input: 900, output: 50 }), (14, 14_050));
    assert_eq!(left(Spent::Counted { input: 1_000, output: 20_000 }), (14, 0));
    assert_eq!(left(Spent::Seen(7)), (14, 13_993));
    assert_eq!(left(Spent::Expected), (14, 13_744));
}

#[test]
fn an_estimate_follows_what_was_used() {
    let mut meter = Meter::new(rates(0, 1_000_000, 0), at(0.0));
    let text = Ask { prompt_bytes: 3_000, sequences: 2, generates: true, ..Ask::default() };
    for _ in 0..50 {
        let charge = meter.admit(at(0.0), text).unwrap();
        meter.settle(at(0.0), charge, Spent::Counted { input: 1_000, output: 80 });
    }
    let charge = meter.admit(at(0.0), text).unwrap();
    assert_eq!((charge.input, charge.tokens), (1_000, 1_080));
    let embedding = Ask { generates: false, ..text };
    assert_eq!(meter.admit(at(0.0), embedding).unwrap().tokens, 1_000);
    let bound = Ask { max_output: Some(5), ..text };
    assert_eq!(meter.admit(at(0.0), bound).unwrap().tokens, 1_010);
}

#[test]
fn a_reload_changes_quotas_and_resets_no_counter() {
    let mut meter = Meter::new(rates(60, 60_000, 2), at(0.0));
    let first = meter.admit(at(0.0), ask(14_500, 500)).unwrap();
    assert_eq!(meter.levels(at(0.0)).tokens.unwrap().left, 244);
    meter.set(rates(60, 120_000, 1), at(0.0));
    let left = meter.levels(at(0.0)).tokens.unwrap().left;
    assert!((487..=488).contains(&left), "the same part: {left}");
    assert_eq!(meter.running(), 1, "what runs still runs");
    assert_eq!(meter.admit(at(9.0), ask(1, 1)).unwrap_err().reason, Reason::Parallel);
    meter.settle(at(9.0), first, Spent::Counted { input: 14_500, output: 500 });
    assert_eq!(meter.running(), 0);
    meter.set(Quota::default(), at(9.0));
    assert_eq!(
        meter.levels(at(9.0)),
        Levels { burst: Quota::default().burst, ..Levels::default() }
    );
    assert!(meter.refuses(at(9.0)).is_none());
}

/// What becomes of one request.
struct Fate {
    input: u32,
    /// What it says that it may generate, and what it really would.
    bound: u32,
    output: u32,
    /// The share of its output after which its client leaves.
    leaves_after: f64,
    shed: bool,
}

fn fate(random: &mut StdRng) -> Fate {
    let bound = random.random_range(64..2_048);
    Fate {
        input: random.random_range(50..4_000),
        bound,
        // Early, late, and up to the bound.
        output: random.random_range(1..=bound),
        leaves_after: if random.random_bool(0.2) { random.random() } else { 1.0 },
        shed: random.random_bool(0.1),
    }
}

/// Offers far more than the quota for ten minutes. Tokens that were used in them, by the engine's
/// own count, and the meter at the end.
fn flood(quota: Quota, seed: u64, seconds: f64) -> (f64, Meter) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut meter = Meter::new(quota, at(0.0));
    let mut running: BinaryHeap<Reverse<(Timestamp, usize)>> = BinaryHeap::new();
    let mut held: Vec<Option<(Charge, Spent)>> = Vec::new();
    let (mut now, mut used) = (0.0, 0.0);
    while now < seconds {
        now += random.random_range(0.0..0.04);
        while let Some(Reverse((end, index))) = running.pop() {
            if end > at(now) {
                running.push(Reverse((end, index)));
                break;
            }
            let (charge, spent) = held[index].take().unwrap();
            meter.settle(end, charge, spent);
        }
        let fate = fate(&mut random);
        let Ok(charge) = meter.admit(at(now), ask(fate.input, fate.bound)) else { continue };
        if fate.shed {
            meter.settle(at(now), charge, Spent::Nothing);
            continue;
        }
        let made = f64::from(fate.output) * fate.leaves_after;
        let (input, output) = (u64::from(fate.input), whole(made));
        used += real(input + output);
        let spent = if fate.leaves_after < 1.0 {
            Spent::Seen(output)
        } else {
            Spent::Counted { input, output }
        };
        let end = now + 0.1 + made * 0.02;
        running.push(Reverse((at(end), held.len())));
        held.push(Some((charge, spent)));
    }
    for (charge, spent) in held.into_iter().flatten() {
        meter.settle(at(now), charge, spent);
    }
    (used, meter)
}

#[test]
fn tokens_a_minute_hold_within_five_percent_over_ten_minutes() {
    for seed in 0..8 {
        let (used, meter) = flood(rates(0, 400_000, 0), seed, 600.0);
        let allowed = 10.0 * 400_000.0;
        assert!((used / allowed - 1.0).abs() < 0.05, "seed {seed}: {used} of {allowed}");
        assert_eq!(meter.running(), 0);
    }
}

#[test]
fn a_wrong_guess_is_paid_back() {
    // Every request says one token and makes two thousand.
    let mut meter = Meter::new(rates(0, 60_000, 0), at(0.0));
    let (mut used, mut now) = (0_u64, 0.0);
    while now < 600.0 {
        if let Ok(charge) = meter.admit(at(now), ask(10, 1)) {
            used += 2_010;
            meter.settle(at(now), charge, Spent::Counted { input: 10, output: 2_000 });
        }
        now += 0.05;
    }
    assert!((570_000..=630_000).contains(&used), "{used}");
}

proptest! {
    #[test]
    fn whatever_happens_everything_comes_back(
        steps in prop::collection::vec((0_u64..3_000, 0_u8..6, 0_u32..9_000), 1..200)
    ) {
        let quota = rates(600, 100_000, 8);
        let mut meter = Meter::new(quota, at(0.0));
        let mut held = Vec::new();
        let mut millis = 0;
        for (pause, what, size) in steps {
            millis += pause;
            let now = Timestamp::since_origin(Duration::from_millis(millis));
            let spent = match what {
                0 | 1 => {
                    held.extend(meter.admit(now, ask(size, size / 2)).ok());
                    None
                }
                2 => Some(Spent::Nothing),
                3 => Some(Spent::Seen(size.into())),
                4 => Some(Spent::Counted { input: size.into(), output: size.into() }),
                _ => Some(Spent::Request),
            };
            if let Some((charge, spent)) = spent.and_then(|spent| Some((held.pop()?, spent))) {
                meter.settle(now, charge, spent);
            }
            prop_assert_eq!(meter.running() as usize, held.len());
            prop_assert!(held.len() <= 8);
            let levels = meter.levels(now);
            for level in [levels.requests, levels.tokens, levels.parallel].into_iter().flatten() {
                prop_assert!(level.left <= level.burst);
            }
        }
        let end = Timestamp::since_origin(Duration::from_millis(millis));
        for charge in held {
            meter.settle(end, charge, Spent::Request);
        }
        let rested = end + Duration::from_hours(1);
        prop_assert_eq!(meter.levels(rested), Meter::new(quota, rested).levels(rested));
    }
}
