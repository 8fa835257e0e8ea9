//! Flows drawn from a workload: each from a seed of its own, so that the n-th is the same
//! whatever the rate, and whether or not those before it were sent.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::flow::mix;
use super::{Call, Class, Flow, FollowUp, Pacing, Piece, Replay, Role, Stage, Workload};
use crate::domain::TenantId;

/// Most calls of a flow, so that a slip in a file does not fill the memory.
const MOST_CALLS: usize = 10_000;

/// What a run's randomness comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seeds {
    /// Which requests come, and when: alike in two runs that are to be compared.
    pub requests: u64,
    /// Which text they bear: unlike in two runs, so that one does not find the other's prompts in
    /// a prefix cache. The same number again asks for a warm cache.
    pub texts: u64,
}

/// An endless source of flows.
#[derive(Clone, Debug)]
pub struct Flows {
    workload: Arc<Workload>,
    seeds: Seeds,
    /// Flows begun, by class: weights are of calls, and a class whose flows have many is begun
    /// less often.
    begun: Vec<f64>,
    next: u64,
}

impl Flows {
    /// From the first flow on.
    pub fn new(workload: Arc<Workload>, seeds: Seeds) -> Self {
        let begun = workload.classes.iter().map(|one| one.weight.max(0.0) / one.mean_calls());
        Self { begun: begun.collect(), workload, seeds, next: 0 }
    }

    /// Flows that make one call a second on average.
    pub fn per_call(&self) -> f64 {
        if matches!(self.workload.pacing, Pacing::Trace(_)) {
            return 1.0;
        }
        let calls: f64 = self.workload.classes.iter().map(|one| one.weight.max(0.0)).sum();
        if calls > 0.0 { self.begun.iter().sum::<f64>() / calls } else { 1.0 }
    }

    /// Flow `number` of this source; `None` where no class has a weight, or a trace has ended.
    pub fn flow(&self, number: u64) -> Option<Flow> {
        if let Pacing::Trace(replay) = &self.workload.pacing {
            return self.recorded(replay, number);
        }
        let mut rng = StdRng::seed_from_u64(mix(self.seeds.requests, number));
        let class = pick(&mut rng, &self.begun)?;
        let class = self.workload.classes.get(class)?;
        let tenant = class.tenant.or_else(|| self.tenant(&mut rng))?;
        let mut drawn = Drawn { class, seeds: self.seeds, rng };
        let stages = drawn.stages();
        Some(Flow { number, class: class.id, tenant, stages })
    }

    fn recorded(&self, replay: &Replay, number: u64) -> Option<Flow> {
        let classes = &self.workload.classes;
        let row = replay.trace.rows().get(usize::try_from(number).ok()?)?;
        let named = row.class.as_deref().and_then(|name| classes.iter().find(|c| *c.name == *name));
        let class = named.or(classes.first())?;
        let mut rng = StdRng::seed_from_u64(mix(self.seeds.requests, number));
        let tenant = class.tenant.or_else(|| self.tenant(&mut rng))?;
        let flow = Flow { number, class: class.id, tenant, stages: Vec::new() };
        Some(replay.trace.fill(flow, self.seeds, replay.block_tokens))
    }

    fn tenant(&self, rng: &mut StdRng) -> Option<TenantId> {
        let tenants = &self.workload.tenants;
        if let [only] = tenants.as_slice() {
            return Some(only.id);
        }
        let weights: Vec<f64> = tenants.iter().map(|one| one.weight.max(0.0)).collect();
        tenants.get(pick(rng, &weights)?).map(|one| one.id)
    }
}

impl Iterator for Flows {
    type Item = Flow;

    fn next(&mut self) -> Option<Flow> {
        let flow = self.flow(self.next)?;
        self.next += 1;
        Some(flow)
    }
}

/// An index, in proportion to its weight.
fn pick(rng: &mut StdRng, weights: &[f64]) -> Option<usize> {
    let mut left = rng.random::<f64>() * weights.iter().sum::<f64>();
    let found = weights.iter().position(|weight| {
        left -= weight;
        *weight > 0.0 && left < 0.0
    });
    // Rounding may leave a little over.
    found.or_else(|| weights.iter().rposition(|weight| *weight > 0.0))
}

/// A flow that is being drawn.
struct Drawn<'a> {
    class: &'a Class,
    seeds: Seeds,
    rng: StdRng,
}

impl Drawn<'_> {
    fn stages(&mut self) -> Vec<Stage> {
        let first = self.class.prompt.draw(&mut self.rng);
        let head = self.prefix().map(|head| Piece { tokens: head.tokens.min(first - 1), ..head });
        let said = Vec::from_iter(head.filter(|head| head.tokens > 0));
        let own = first - said.iter().map(|head| head.tokens).sum::<u32>();
        if let Some(more) = &self.class.follow_up {
            return self.follow(more, said, own);
        }
        let calls = vec![self.call(&said, own)];
        vec![Stage { pause: Duration::ZERO, calls }]
    }

    fn follow(&mut self, more: &FollowUp, mut said: Vec<Piece>, first: u32) -> Vec<Stage> {
        let count = more.stages.draw(&mut self.rng);
        let mut stages: Vec<Stage> = Vec::new();
        let mut calls_left = MOST_CALLS;
        for number in 0..count {
            let pause = more.pause.draw(&mut self.rng);
            let width = (more.width.draw(&mut self.rng) as usize).min(calls_left);
            let calls: Vec<Call> = (0..width)
                .map(|_| {
                    let new = more.new_tokens.draw(&mut self.rng);
                    self.call(&said, if number == 0 { first } else { new })
                })
                .collect();
            let longest = calls.iter().map(Call::prompt_tokens).max();
            let fits = longest.is_some_and(|tokens| tokens <= more.max_prompt_tokens);
            if number > 0 && !fits {
                break;
            }
            calls_left -= calls.len();
            for call in &calls {
                said.extend(call.prompt.last().copied());
                said.push(self.answer(call));
            }
            let pause = if number == 0 { Duration::ZERO } else { pause };
            stages.push(Stage { pause, calls });
        }
        stages
    }

    /// A call that says `new` tokens after what was said.
    fn call(&mut self, said: &[Piece], new: u32) -> Call {
        let mut prompt = Vec::with_capacity(said.len() + 1);
        prompt.extend_from_slice(said);
        prompt.push(Piece { role: Role::User, seed: self.text(), tokens: new });
        Call {
            prompt,
            output_tokens: self.class.output.draw(&mut self.rng),
            salt: self.rng.random(),
        }
    }

    /// What stands in for the answer of `call` in later prompts.
    const fn answer(&self, call: &Call) -> Piece {
        let seed = mix(self.seeds.texts, mix(call.salt, 1));
        Piece { role: Role::Assistant, seed, tokens: call.output_tokens }
    }

    fn text(&mut self) -> u64 {
        mix(self.seeds.texts, self.rng.random())
    }

    fn prefix(&mut self) -> Option<Piece> {
        let prefix = self.class.prefix?;
        let drawn = Zipf::new(f64::from(prefix.count), prefix.zipf).ok()?.sample(&mut self.rng);
        let which = u64::from(self.class.id.0) << 40 | rank(drawn);
        let seed = mix(self.seeds.texts, mix(self.seeds.requests, which));
        Some(Piece { role: Role::System, seed, tokens: prefix.tokens })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank from 1 to a u32"
)]
const fn rank(drawn: f64) -> u64 {
    drawn as u64
}

#[cfg(test)]
mod tests {
    use super::super::{Lengths, Pause, Prefix, Tenant};
    use super::*;
    use crate::domain::ClassId;

    fn flows(classes: Vec<Class>, seeds: Seeds) -> Flows {
        Flows::new(Arc::new(Workload { classes, ..Workload::default() }), seeds)
    }

    fn seeds(requests: u64, texts: u64) -> Seeds {
        Seeds { requests, texts }
    }

    fn session() -> Class {
        Class {
            follow_up: Some(FollowUp {
                stages: Lengths::Uniform { from: 2, to: 4 },
                width: Lengths::Fixed(1),
                new_tokens: Lengths::Fixed(30),
                pause: Pause::default(),
                max_prompt_tokens: u32::MAX,
                e2e: None,
            }),
            prefix: Some(Prefix { count: 3, tokens: 64, zipf: 0.0 }),
            ..Class::fixed(100, 10)
        }
    }

    #[test]
    fn weights_are_of_calls() {
        let agent = Class { id: ClassId(1), ..session() };
        let drawn: Vec<Flow> =
            flows(vec![Class::fixed(50, 5), agent], seeds(3, 0)).take(8_000).collect();
        let (chats, agents): (Vec<&Flow>, Vec<&Flow>) =
            drawn.iter().partition(|flow| flow.class == ClassId(0));
        let calls: usize = agents.iter().map(|flow| flow.calls().count()).sum();
        let share = f64::from(u32::try_from(chats.len()).unwrap())
            / f64::from(u32::try_from(chats.len() + calls).unwrap());
        assert!((0.48..0.52).contains(&share), "{share}");
        let both = flows(vec![Class::fixed(50, 5), session()], seeds(3, 0));
        // Two calls a second: one flow of one call, a third of a flow of three.
        assert!((both.per_call() - f64::midpoint(1.0, 1.0 / 3.0)).abs() < 1e-9);
    }

    #[test]
    fn a_session_remembers_all_that_was_said() {
        for flow in flows(vec![session()], seeds(1, 9)).take(50) {
            let mut before: Option<&Call> = None;
            for call in flow.calls() {
                assert_eq!(call.prompt[0].role, Role::System);
                if let Some(before) = before {
                    let kept = before.prompt.len();
                    assert_eq!(call.prompt[..kept], before.prompt);
                    assert_eq!(call.prompt[kept].role, Role::Assistant);
                    assert_eq!(call.prompt_tokens(), before.prompt_tokens() + 10 + 30);
                } else {
                    assert_eq!((call.prompt_tokens(), call.prompt[0].tokens), (100, 64));
                }
                before = Some(call);
            }
        }
    }

    #[test]
    fn a_workflow_fans_out_and_ends_before_its_context_overflows() {
        let mut agent = session();
        if let Some(more) = &mut agent.follow_up {
            more.stages = Lengths::Fixed(9);
            more.width = Lengths::Fixed(3);
            more.max_prompt_tokens = 400;
        }
        let flow = flows(vec![agent], seeds(1, 0)).next().unwrap();
        assert!(flow.stages.iter().all(|stage| stage.calls.len() == 3));
        // 36 of its own first and 30 later, and 10 an answer, three times a stage, after 64.
        let longest = |stage: &Stage| stage.calls.iter().map(Call::prompt_tokens).max().unwrap();
        let longest: Vec<u32> = flow.stages.iter().map(longest).collect();
        assert_eq!(longest, [100, 64 + 138 + 30, 64 + 138 + 120 + 30]);
    }

    #[test]
    fn seeds_make_requests_and_texts_apart() {
        let draw = |seeds| flows(vec![session()], seeds).take(20).collect::<Vec<_>>();
        let sizes = |flows: &[Flow]| {
            let calls = flows.iter().flat_map(Flow::calls);
            calls.map(|call| (call.prompt_tokens(), call.output_tokens)).collect::<Vec<_>>()
        };
        let texts = |flows: &[Flow]| {
            let calls = flows.iter().flat_map(Flow::calls);
            calls.flat_map(|call| call.block_hashes(16)).collect::<std::collections::BTreeSet<_>>()
        };
        let (one, same, fresh) = (draw(seeds(1, 1)), draw(seeds(1, 1)), draw(seeds(1, 2)));
        assert_eq!(one, same);
        assert_eq!(sizes(&one), sizes(&fresh));
        assert!(texts(&one).is_disjoint(&texts(&fresh)), "a warm cache is not asked for");
        assert_ne!(sizes(&one), sizes(&draw(seeds(2, 1))));
    }

    #[test]
    fn few_prefixes_are_used_by_their_rank() {
        let class = Class {
            prefix: Some(Prefix { count: 4, tokens: 500, zipf: 1.0 }),
            ..Class::fixed(100, 1)
        };
        let mut used = std::collections::BTreeMap::<u64, u32>::new();
        for flow in flows(vec![class], seeds(1, 0)).take(5_000) {
            let call = flow.calls().next().unwrap();
            assert_eq!((call.prompt[0].tokens, call.prompt[1].tokens), (99, 1));
            *used.entry(call.prompt[0].seed).or_default() += 1;
        }
        let mut used: Vec<u32> = used.into_values().collect();
        used.sort_unstable();
        // 1, 1/2, 1/3, 1/4 of 25/12.
        assert_eq!(used.len(), 4);
        for (seen, share) in used.iter().zip([0.12, 0.16, 0.24, 0.48]) {
            assert!((f64::from(*seen) / 5_000.0 - share).abs() < 0.02, "{used:?}");
        }
    }

    #[test]
    fn tenants_share_what_no_class_keeps_for_one() {
        let tenant = |id, weight| Tenant { id: TenantId(id), weight, ..Tenant::anyone() };
        let pinned = Class { id: ClassId(1), tenant: Some(TenantId(0)), ..Class::fixed(1, 1) };
        let workload = Workload {
            classes: vec![Class::fixed(1, 1), pinned],
            tenants: vec![tenant(0, 0.3), tenant(1, 2.0)],
            ..Workload::default()
        };
        let drawn: Vec<Flow> = Flows::new(Arc::new(workload), seeds(1, 0)).take(10_000).collect();
        let of = |class, tenant| {
            let is = |flow: &&Flow| (flow.class, flow.tenant) == (ClassId(class), TenantId(tenant));
            drawn.iter().filter(is).count()
        };
        assert_eq!(of(1, 1), 0);
        assert!((550..750).contains(&of(0, 0)), "{}", of(0, 0));
    }

    #[test]
    fn nothing_comes_of_no_weights() {
        let idle = Class { weight: 0.0, ..Class::fixed(1, 1) };
        assert!(flows(vec![idle], seeds(1, 0)).next().is_none());
        assert!(flows(vec![], seeds(1, 0)).next().is_none());
    }
}
