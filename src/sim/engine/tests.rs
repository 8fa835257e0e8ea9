use super::*;

fn job(id: u64, prompt_tokens: u32, output: u32) -> Job {
    Job { id, prompt_tokens, prefix: Arc::from([]), output, stops: false }
}

#[test]
fn a_step_costs_what_the_law_says() {
    let mut engine = Engine::new(EngineParams { context_nanos: 0, ..EngineParams::default() });
    engine.submit(Timestamp::ZERO, job(0, 1000, 2));
    let mut out = Vec::new();
    let first = engine.step(Timestamp::ZERO, &mut out).unwrap();
    assert_eq!(first.duration, Duration::from_micros(7_000 + 100 + 18_000));
    let second = engine.step(Timestamp::ZERO, &mut out).unwrap();
    assert_eq!(second.duration, Duration::from_micros(7_000 + 100));
    assert_eq!(out.iter().map(|one| one.tokens).sum::<u32>(), 2);
    assert_eq!(out[1].finish, Some(Finish::Length));
    assert!(engine.step(Timestamp::ZERO, &mut out).is_none());
}
