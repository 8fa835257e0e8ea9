//! What finished requests taught: bytes a token, output a class, cached share a class.
//!
//! Nothing here is configured. Until something was learned the answer is `None`, and a gate that
//! would need it passes: an unknown must not shed.

use crate::domain::{ClassId, RequestFacts, Usage};

use super::num::{real, whole};

/// Bytes a token until it was learned; close to English text in common vocabularies.
const BYTES_PER_TOKEN: f64 = 4.0;
/// Output that is charged before anything was learned, tokens.
const ASSUMED_OUTPUT: f64 = 128.0;
/// Finished requests before a mean is trusted, and its smoothing from then on.
const TRUSTED: u32 = 16;
const SMOOTHING: f64 = 0.02;

/// A mean that is plain at first and smoothed later.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    value: f64,
    count: u32,
}

impl Mean {
    fn observe(&mut self, value: f64) {
        self.count = self.count.saturating_add(1);
        self.value += (value - self.value) * SMOOTHING.max(1.0 / f64::from(self.count));
    }

    fn trusted(&self) -> Option<f64> {
        (self.count >= TRUSTED).then_some(self.value)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    output: Mean,
    cached: Mean,
    prompt: Mean,
}

/// What a pool's requests taught.
#[derive(Clone, Debug, Default)]
pub(super) struct Learned {
    bytes_per_token: Mean,
    /// Indexed by the class's id.
    classes: Vec<Class>,
}

/// What a request is expected to cost, in tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cost {
    /// Prompt.
    pub(super) prompt: u64,
    /// The part of it that no cache is expected to hold.
    pub(super) uncached: u64,
    /// Output, all sequences.
    pub(super) output: u64,
    /// Whether prompt and output rest on what was learned or said, not on assumptions.
    pub(super) known: bool,
}

impl Learned {
    /// A request ended well with this usage.
    pub(super) fn observe(&mut self, facts: &RequestFacts, usage: Usage) {
        if facts.prompt_tokens.is_none() && usage.input > 0 && facts.prompt_bytes > 0 {
            let ratio = real(facts.prompt_bytes) / real(usage.input);
            self.bytes_per_token.observe(ratio.clamp(0.1, 64.0));
        }
        if let Some(class) = self.class_mut(facts.class) {
            class.output.observe(real(usage.output) / f64::from(facts.sequences.max(1)));
            class.prompt.observe(real(usage.input));
            if let (Some(cached), true) = (usage.cached, usage.input > 0) {
                class.cached.observe((real(cached) / real(usage.input)).clamp(0.0, 1.0));
            }
        }
    }

    /// What a request will cost.
    pub(super) fn cost(&self, facts: &RequestFacts) -> Cost {
        let class = self.classes.get(usize::from(facts.class.0)).copied().unwrap_or_default();
        let ratio = self.bytes_per_token.trusted();
        let prompt = facts.prompt_tokens.map_or_else(
            || whole(real(facts.prompt_bytes) / ratio.unwrap_or(BYTES_PER_TOKEN)),
            u64::from,
        );
        let bound = facts.max_output.map_or(f64::INFINITY, f64::from);
        let output = class.output.trusted();
        let cached = class.cached.trusted().unwrap_or(0.0);
        let each = output.unwrap_or(ASSUMED_OUTPUT).min(bound).max(1.0);
        Cost {
            prompt,
            uncached: whole(real(prompt) * (1.0 - cached)),
            output: whole(each * f64::from(facts.sequences.max(1))),
            known: output.is_some() && (facts.prompt_tokens.is_some() || ratio.is_some()),
        }
    }

    /// Tokens that a request of the pool holds in the KV cache at its end, the mean over
    /// classes that were seen.
    pub(super) fn tokens_per_request(&self) -> Option<f64> {
        let seen = || self.classes.iter().filter(|class| class.output.trusted().is_some());
        let count = f64::from(u32::try_from(seen().count()).unwrap_or(u32::MAX));
        let sum: f64 = seen().map(|class| class.output.value + class.prompt.value).sum();
        (count > 0.0).then(|| sum / count)
    }

    fn class_mut(&mut self, id: ClassId) -> Option<&mut Class> {
        let at = usize::from(id.0);
        if at >= self.classes.len() {
            self.classes.resize(at + 1, Class::default());
        }
        self.classes.get_mut(at)
    }
}
