//! What one tenant's requests have used so far, to guess the next.
//!
//! A guess only decides whether a request goes now; what is paid is settled at its end. So it may
//! be wrong, as long as it is not wrong in one direction for long.

use super::num::{real, whole};

/// Bytes a token until it was learned; close to English text in common vocabularies.
const BYTES_PER_TOKEN: f64 = 4.0;
/// Output a sequence before anything was learned, tokens.
const ASSUMED_OUTPUT: f64 = 256.0;
/// How much the newest request counts once there were many.
const SMOOTHING: f64 = 0.05;

/// What a request says of its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ask {
    /// Bytes of the text that will be tokenized.
    pub prompt_bytes: u64,
    /// Prompt tokens, where they were sent as such.
    pub prompt_tokens: Option<u32>,
    /// Sequences that the engine will run; 0 counts as 1.
    pub sequences: u32,
    /// The bound on output tokens a sequence.
    pub max_output: Option<u32>,
    /// Whether it generates at all.
    pub generates: bool,
}

/// A mean that is plain at first and smoothed later.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    value: f64,
    count: u32,
}

impl Mean {
    pub(super) fn observe(&mut self, value: f64) {
        self.count = self.count.saturating_add(1);
        self.value += (value - self.value) * SMOOTHING.max(1.0 / f64::from(self.count));
    }

    pub(super) fn known(&self) -> Option<f64> {
        (self.count > 0).then_some(self.value)
    }
}

/// One tenant's means.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habits {
    bytes_per_token: Mean,
    /// A sequence.
    output: Mean,
}

impl Habits {
    /// A request turned out to use so many tokens.
    pub(super) fn observe(&mut self, ask: &Ask, input: u64, output: u64) {
        if ask.prompt_tokens.is_none() && input > 0 && ask.prompt_bytes > 0 {
            let ratio = real(ask.prompt_bytes) / real(input);
            self.bytes_per_token.observe(ratio.clamp(0.1, 64.0));
        }
        if ask.generates {
            self.output.observe(real(output) / f64::from(ask.sequences.max(1)));
        }
    }

    /// Input tokens to expect.
    pub(super) fn input(&self, ask: &Ask) -> u64 {
        let ratio = self.bytes_per_token.known().unwrap_or(BYTES_PER_TOKEN);
        ask.prompt_tokens.map_or_else(|| whole(real(ask.prompt_bytes) / ratio), u64::from)
    }

    /// Output tokens to expect, all sequences.
    pub(super) fn output(&self, ask: &Ask) -> u64 {
        if !ask.generates {
            return 0;
        }
        let bound = ask.max_output.map_or(f64::INFINITY, f64::from);
        let each = self.output.known().unwrap_or(ASSUMED_OUTPUT).min(bound).max(1.0);
        whole(each * f64::from(ask.sequences.max(1)))
    }
}
