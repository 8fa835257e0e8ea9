use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::workload::{Arrivals, Class, Flows, Seeds, Workload};

fn job(id: u64, prompt_tokens: u32, output: u32) -> Job {
    Job { id, prompt_tokens, prefix: Arc::from([]), output, stops: false }
}

fn hashed(id: u64, content: &[u64], output: u32) -> Job {
    let prefix: Arc<[u64]> = content
        .iter()
        .scan(0, |before, block| {
            *before = chain_hash(*before, *block);
            Some(*before)
        })
        .collect();
    Job { prefix, ..job(id, u32::try_from(content.len()).unwrap() * 16, output) }
}

/// An engine on virtual time.
struct Bench {
    engine: Engine,
    now: Timestamp,
    out: Vec<Emission>,
}

impl Bench {
    fn new(params: EngineParams) -> Self {
        Self { engine: Engine::new(params), now: Timestamp::ZERO, out: Vec::new() }
    }

    fn submit(&mut self, job: Job) {
        self.engine.submit(self.now, job);
    }

    fn step(&mut self) -> Option<Step> {
        let step = self.engine.step(self.now, &mut self.out)?;
        self.now = self.now + step.duration;
        Some(step)
    }

    /// Steps until nothing is left.
    fn drain(&mut self) {
        while self.step().is_some() {}
    }
}

fn small(num_gpu_blocks: u32) -> EngineParams {
    EngineParams { num_gpu_blocks, max_num_seqs: 8, ..EngineParams::default() }
}

#[test]
fn a_step_costs_what_the_law_says() {
    let mut bench = Bench::new(EngineParams { context_nanos: 0, ..EngineParams::default() });
    bench.submit(job(0, 1000, 2));
    assert_eq!(bench.step().unwrap().duration, Duration::from_micros(7_000 + 100 + 18_000));
    assert_eq!(bench.step().unwrap().duration, Duration::from_micros(7_000 + 100));
    assert_eq!(bench.out.iter().map(|one| one.tokens).sum::<u32>(), 2);
    assert_eq!(bench.out[1].finish, Some(Finish::Length));
    assert!(bench.step().is_none());
    bench.engine.set_pace(0.5);
    bench.submit(job(1, 1000, 1));
    assert_eq!(bench.step().unwrap().duration, Duration::from_micros(25_100 / 2));
}

#[test]
fn a_long_prompt_is_computed_in_chunks_and_decodes_go_on_beside_it() {
    let mut bench = Bench::new(EngineParams::default());
    bench.submit(job(0, 10, 50));
    bench.step();
    bench.submit(job(1, 10_000, 1));
    let chunks: Vec<u32> = (0..3).map(|_| bench.step().unwrap().prefill_tokens).collect();
    assert_eq!(chunks, [4095, 4095, 1810]);
    assert_eq!(bench.out.iter().filter(|one| one.id == 0).count(), 4);
    assert_eq!(bench.out.iter().filter(|one| one.id == 1).count(), 1);
}

#[test]
fn the_sequence_cap_holds_and_who_came_first_runs_first() {
    let mut bench = Bench::new(small(16_384));
    (0..20).for_each(|id| bench.submit(job(id, 16, 3)));
    bench.step();
    assert_eq!((bench.engine.running(), bench.engine.waiting()), (8, 12));
    bench.drain();
    let ends: Vec<u64> =
        bench.out.iter().filter(|one| one.finish.is_some()).map(|one| one.id).collect();
    assert_eq!(ends, (0..20).collect::<Vec<_>>());
}

#[test]
fn what_was_computed_is_found_as_far_as_it_agrees() {
    let mut bench = Bench::new(small(1024));
    bench.submit(hashed(0, &[1, 2, 3, 4], 1));
    bench.drain();
    bench.submit(hashed(1, &[1, 2, 9, 4], 1));
    assert_eq!(bench.step().unwrap().prefill_tokens, 32);
    bench.submit(hashed(2, &[1, 2, 3, 4], 1));
    // All of it is known, but its last token must be computed: so must the block it is in.
    assert_eq!(bench.step().unwrap().prefill_tokens, 16);
    let counters = bench.engine.counters();
    assert_eq!((counters.prefix_queries, counters.prefix_hits), (192, 80));
    let mut cold = Bench::new(EngineParams { prefix_caching: false, ..small(1024) });
    for id in 0..2 {
        cold.submit(hashed(id, &[1, 2, 3, 4], 1));
        assert_eq!(cold.step().unwrap().prefill_tokens, 64);
    }
}

#[test]
fn sequences_that_run_share_the_blocks_of_their_prefix() {
    let mut bench = Bench::new(small(100));
    bench.submit(hashed(0, &[1; 40], 50));
    bench.step();
    let alone = bench.engine.kv_usage();
    bench.submit(hashed(1, &[1; 40], 50));
    bench.step();
    // One more for its last prompt block, and one each for what they generate.
    assert!(bench.engine.kv_usage() <= alone + 0.03 + 1e-9, "{}", bench.engine.kv_usage());
}

#[test]
fn the_blocks_freed_longest_ago_are_forgotten_first() {
    let mut bench = Bench::new(small(10));
    for id in 0..3 {
        bench.submit(hashed(id, &[id + 1; 4], 1));
        bench.drain();
    }
    bench.submit(hashed(9, &[3; 4], 1));
    assert_eq!(bench.step().unwrap().prefill_tokens, 16, "the last one is still there");
    bench.submit(hashed(10, &[1; 4], 1));
    // Of the first one only its head is left: a prompt's tail is given up before its head.
    assert_eq!(bench.step().unwrap().prefill_tokens, 48);
}

#[test]
fn the_last_to_come_is_preempted_and_still_gets_all_its_tokens() {
    let mut bench = Bench::new(small(10));
    (0..3).for_each(|id| bench.submit(job(id, 40, 60)));
    let mut preempted = 0;
    while let Some(step) = bench.step() {
        preempted += step.preempted;
    }
    assert!(preempted > 0);
    assert_eq!(bench.engine.counters().preemptions, u64::from(preempted));
    for id in 0..3 {
        let tokens: u32 = bench.out.iter().filter(|one| one.id == id).map(|one| one.tokens).sum();
        assert_eq!(tokens, 60, "{id}");
    }
    let first = bench.out.iter().find(|one| one.finish.is_some()).unwrap();
    assert_eq!(first.id, 0);
    assert!(bench.engine.kv_usage().abs() < 1e-9);
}

#[test]
fn an_abort_frees_its_blocks_wherever_it_stands() {
    let mut bench = Bench::new(small(64));
    (0..9).for_each(|id| bench.submit(job(id, 64, 10)));
    bench.step();
    assert!(bench.engine.abort(0) && bench.engine.abort(8));
    assert!(!bench.engine.abort(8) && !bench.engine.abort(77));
    assert_eq!((bench.engine.running(), bench.engine.waiting()), (7, 0));
    (1..8).for_each(|id| assert!(bench.engine.abort(id)));
    assert!(bench.engine.kv_usage().abs() < 1e-9);
    assert_eq!(bench.engine.counters().aborted, 9);
    assert!(bench.step().is_none());
}

#[test]
fn what_can_never_fit_blocks_nobody() {
    let mut bench = Bench::new(small(4));
    bench.submit(job(0, 1_000_000, 1_000_000));
    bench.submit(job(1, 10, 2));
    bench.drain();
    assert!(bench.out.iter().any(|one| one.id == 1 && one.finish.is_some()));
}

#[test]
fn an_embedding_ends_with_its_prefill() {
    let mut bench = Bench::new(small(64));
    bench.submit(Job { stops: true, ..job(0, 100, 0) });
    bench.step();
    let end = Emission { id: 0, tokens: 0, finish: Some(Finish::Stop) };
    assert_eq!(bench.out, [end]);
}

proptest! {
    /// Whatever comes and goes: every sequence ends once, with exactly its tokens unless it was
    /// aborted, in every step the bounds hold, and in the end all blocks are free.
    #[test]
    fn every_sequence_ends_once_and_nothing_is_left(
        jobs in prop::collection::vec((1_u32..200, 0_u32..40, 0_u64..4), 1..40),
        aborts in prop::collection::vec((0_u64..40, 0_usize..30), 0..10),
        blocks in 16_u32..64,
    ) {
        let params = EngineParams { max_num_batched_tokens: 64, ..small(blocks) };
        let mut bench = Bench::new(params);
        let mut wanted = BTreeMap::new();
        for (id, (prompt, output, family)) in (0_u64..).zip(&jobs) {
            let content = vec![*family; (*prompt / 16) as usize];
            bench.submit(Job { prompt_tokens: *prompt, ..hashed(id, &content, *output) });
            wanted.insert(id, *output);
        }
        for at in 0.. {
            for (id, _) in aborts.iter().filter(|(_, when)| *when == at) {
                if bench.engine.abort(*id) {
                    wanted.remove(id);
                }
            }
            let Some(step) = bench.step() else { break };
            prop_assert!(step.sequences <= 8 && step.prefill_tokens <= 64);
            prop_assert!(bench.engine.kv_usage() <= 1.0);
            prop_assert!(at < 200_000, "no end");
        }
        for (id, output) in wanted {
            let got: Vec<&Emission> = bench.out.iter().filter(|one| one.id == id).collect();
            prop_assert_eq!(got.iter().filter(|one| one.finish.is_some()).count(), 1);
            prop_assert_eq!(got.iter().map(|one| one.tokens).sum::<u32>(), output);
        }
        prop_assert_eq!(bench.engine.running() + bench.engine.waiting(), 0);
        prop_assert!(bench.engine.kv_usage().abs() < 1e-9);
    }
}

/// What a run of the design's workload shows: 1,000-token prompts, 200 outputs, 128 sequences.
struct Figures {
    /// Requests ended a second, after the warm-up.
    served: f64,
    ttft_mean: f64,
    ttft_p95: f64,
}

const WARM_UP: f64 = 30.0;

/// Arrivals at `rate` for so many seconds; without one, 128 clients that each ask again at once.
fn run(rate: Option<f64>, seconds: f64) -> Figures {
    let mut bench = Bench::new(EngineParams::default());
    let workload = Workload::of(Class::fixed(1000, 200));
    let mut flows = Flows::new(Arc::new(workload), Seeds { requests: 1, texts: 1 });
    let mut arrivals = rate.map(|rate| Arrivals::poisson(rate, Timestamp::ZERO, 5).peekable());
    let mut asked: BTreeMap<u64, Timestamp> = BTreeMap::new();
    let (mut ttft, mut ended) = (Vec::new(), 0_u32);
    let mut free = 128;
    while bench.now.as_secs_f64() < seconds {
        let mut submit = |bench: &mut Bench, at: Timestamp| {
            let flow = flows.next().unwrap();
            let call = flow.calls().next().unwrap();
            bench.engine.submit(at, job(flow.number, call.prompt_tokens(), call.output_tokens));
            asked.insert(flow.number, at);
        };
        if let Some(arrivals) = &mut arrivals {
            while let Some(at) = arrivals.next_if(|at| *at <= bench.now) {
                submit(&mut bench, at);
            }
        } else {
            let now = bench.now;
            (0..std::mem::take(&mut free)).for_each(|_| submit(&mut bench, now));
        }
        if bench.step().is_none() {
            bench.now = arrivals.as_mut().and_then(|all| all.peek().copied()).unwrap();
        }
        let warm = bench.now.as_secs_f64() > WARM_UP;
        for emission in std::mem::take(&mut bench.out) {
            if let Some(at) = asked.remove(&emission.id).filter(|_| warm) {
                ttft.push(bench.now.saturating_since(at).as_secs_f64());
            }
            if emission.finish.is_some() {
                free += 1;
                ended += u32::from(warm);
            }
        }
    }
    ttft.sort_by(f64::total_cmp);
    Figures {
        served: f64::from(ended) / (seconds - WARM_UP),
        ttft_mean: ttft.iter().sum::<f64>() / f64::from(u32::try_from(ttft.len()).unwrap()),
        ttft_p95: ttft[ttft.len() * 95 / 100],
    }
}

#[test]
fn the_knee_for_a_second_of_ttft_lies_near_19_a_second() {
    let (below, above) = (run(Some(18.5), 230.0), run(Some(20.0), 230.0));
    assert!(below.ttft_p95 < 0.5, "{}", below.ttft_p95);
    assert!(above.ttft_p95 > 1.5, "{}", above.ttft_p95);
}

#[test]
fn a_closed_loop_hides_at_the_same_throughput_what_an_open_one_shows() {
    let (closed, open) = (run(None, 90.0), run(Some(30.0), 90.0));
    for served in [closed.served, open.served] {
        assert!((18.9..20.1).contains(&served), "{served}");
    }
    assert!((0.15..0.22).contains(&closed.ttft_p95), "{}", closed.ttft_p95);
    assert!(closed.ttft_mean < closed.ttft_p95);
    assert!(open.ttft_mean > 10.0, "{}", open.ttft_mean);
}
