//! Kinds of workload, and the requests drawn from a mix of them.
//!
//! What makes a class is its lengths and how much of a prompt others share: chat shares a system
//! prompt, retrieval a document, an agent nearly its whole past.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::Lengths;
use crate::domain::ClassId;

/// One kind of workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// Its name in the dispatcher.
    pub id: ClassId,
    /// How often it is drawn, beside the others' weights.
    pub weight: f64,
    /// Prompt tokens in all, those that it shares among them.
    pub prompt: Lengths,
    /// Tokens of the answer.
    pub output: Lengths,
    /// Prefixes that its requests share; 0: every prompt is new from its first token.
    pub prefixes: u32,
    /// Tokens of such a prefix.
    pub prefix_tokens: u32,
}

impl Class {
    /// Prompts and answers of one length, with nothing shared.
    pub const fn fixed(prompt: u32, output: u32) -> Self {
        Self {
            id: ClassId(0),
            weight: 1.0,
            prompt: Lengths::Fixed(prompt),
            output: Lengths::Fixed(output),
            prefixes: 0,
            prefix_tokens: 0,
        }
    }
}

/// One request of a mix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw {
    /// Its class.
    pub class: ClassId,
    /// Prompt tokens in all.
    pub prompt_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// The seed of its first `prefix_tokens` tokens, which others may bear too.
    pub prefix_seed: u64,
    /// Tokens drawn from `prefix_seed`; the rest is drawn from `seed`.
    pub prefix_tokens: u32,
    /// The seed of what is its own.
    pub seed: u64,
}

/// A mix of classes; an endless iterator of requests.
#[derive(Debug)]
pub struct Workload {
    classes: Vec<Class>,
    total: f64,
    rng: StdRng,
}

impl Workload {
    /// A mix; classes without a positive weight are never drawn.
    pub fn new(classes: Vec<Class>, seed: u64) -> Self {
        let total = classes.iter().map(|class| class.weight.max(0.0)).sum();
        Self { classes, total, rng: StdRng::seed_from_u64(seed) }
    }

    fn pick(&mut self) -> Option<&Class> {
        let mut left = self.rng.random::<f64>() * self.total;
        self.classes.iter().filter(|class| class.weight > 0.0).find(|class| {
            left -= class.weight;
            left < 0.0
        })
    }
}

impl Iterator for Workload {
    type Item = Draw;

    fn next(&mut self) -> Option<Draw> {
        let class = self.pick()?.clone();
        let prompt_tokens = class.prompt.draw(&mut self.rng);
        let output_tokens = class.output.draw(&mut self.rng);
        let seed = self.rng.random();
        let which = self.rng.random_range(0..class.prefixes.max(1));
        let prefix_tokens =
            if class.prefixes == 0 { 0 } else { class.prefix_tokens.min(prompt_tokens) };
        Some(Draw {
            class: class.id,
            prompt_tokens,
            output_tokens,
            prefix_seed: u64::from(class.id.0) << 32 | u64::from(which),
            prefix_tokens,
            seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_hold_and_prefixes_are_few() {
        let chat = Class { weight: 3.0, prefixes: 4, prefix_tokens: 64, ..Class::fixed(100, 10) };
        let agent = Class { id: ClassId(1), prefixes: 0, ..Class::fixed(50, 5) };
        let drawn: Vec<Draw> = Workload::new(vec![chat, agent], 3).take(4_000).collect();
        let chats: Vec<&Draw> = drawn.iter().filter(|one| one.class == ClassId(0)).collect();
        assert!((2_900..3_100).contains(&chats.len()), "{}", chats.len());
        let mut seeds: Vec<u64> = chats.iter().map(|one| one.prefix_seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 4);
        assert!(chats.iter().all(|one| one.prefix_tokens == 64 && one.prompt_tokens == 100));
    }

    #[test]
    fn a_seed_is_a_workload() {
        let make = |seed| Workload::new(vec![Class::fixed(9, 9)], seed).take(5).collect::<Vec<_>>();
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        assert!(Workload::new(vec![], 0).next().is_none());
    }
}
