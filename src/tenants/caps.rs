//! How large one request of a tenant may be, and how urgent.
//!
//! A prompt's length is known exactly only where token ids were sent; else it is an estimate by
//! the tenant's own habits, so a text near the limit may be judged one way or the other. The
//! bound on output is exact, since it is written into the request: over all of its sequences, so
//! that `n` or a list of prompts buys no more than one.

use crate::domain::{Reason, Rejection, Unit};

use super::num::real;

/// What becomes of a request that asks for more output than its tenant may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OverOutput {
    /// Its bound is lowered.
    #[default]
    Lower,
    /// It is refused.
    Refuse,
}

impl OverOutput {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Lower, Self::Refuse];

    /// The word of the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Refuse => "refuse",
        }
    }
}

/// The bounds on one request. What is `None` is not bounded, but for the priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caps {
    /// Prompt tokens, of all prompts together.
    pub input: Option<u64>,
    /// Output tokens, of all sequences together.
    pub output: Option<u32>,
    /// What becomes of a request that asks for more.
    pub over_output: OverOutput,
    /// The most urgent priority that it may ask the engine for (lower is more urgent); `None`
    /// takes away whatever it asks for.
    pub priority: Option<i64>,
}

impl Caps {
    /// Whether a prompt of about so many tokens may come.
    pub fn admits_input(&self, tokens: u64) -> Result<(), Rejection> {
        match self.input {
            Some(most) if tokens > most => {
                Err(refusal(Reason::InputTokens, real(most), real(tokens)))
            }
            _ => Ok(()),
        }
    }

    /// The bound on output a sequence that is to be written into the request, for one that
    /// names `asked`; `None` where nothing needs to be written.
    pub fn output_each(
        &self,
        sequences: u32,
        asked: Option<u32>,
    ) -> Result<Option<u32>, Rejection> {
        let Some(most) = self.output else { return Ok(None) };
        let sequences = sequences.max(1);
        let each = most / sequences;
        let over = asked.is_some_and(|asked| asked > each);
        // A token for each is the least that can be written.
        if each == 0 || (over && self.over_output == OverOutput::Refuse) {
            let wanted = u64::from(asked.unwrap_or(1)).saturating_mul(u64::from(sequences));
            return Err(refusal(Reason::OutputTokens, f64::from(most), real(wanted)));
        }
        Ok((over || asked.is_none()).then_some(each))
    }

    /// The priority to write into a request that asks for this one.
    pub fn priority(&self, asked: Option<i64>) -> Option<i64> {
        Some(asked?.max(self.priority?))
    }
}

fn refusal(reason: Reason, limit: f64, reading: f64) -> Rejection {
    Rejection { unit: Some(Unit::Tokens), limit, reading, ..Rejection::plain(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_taken_up_to_its_limit() {
        let caps = Caps { input: Some(100), ..Caps::default() };
        assert_eq!(caps.admits_input(100), Ok(()));
        let refused = caps.admits_input(101).unwrap_err();
        assert_eq!((refused.reason, refused.retry_after), (Reason::InputTokens, None));
        assert_eq!(Caps::default().admits_input(u64::MAX), Ok(()));
    }

    #[test]
    fn output_is_bounded_over_all_sequences() {
        let lower = Caps { output: Some(100), ..Caps::default() };
        let refuse = Caps { over_output: OverOutput::Refuse, ..lower };
        for (sequences, asked, lowered, refused) in [
            (1, Some(100), Some(None), Some(None)),
            (1, Some(101), Some(Some(100)), None),
            (1, None, Some(Some(100)), Some(Some(100))),
            (4, Some(25), Some(None), Some(None)),
            (4, Some(100), Some(Some(25)), None),
            (4, None, Some(Some(25)), Some(Some(25))),
            (100, Some(1), Some(None), Some(None)),
            (101, Some(1), None, None),
            (101, None, None, None),
            (0, Some(100), Some(None), Some(None)),
            (u32::MAX, Some(u32::MAX), None, None),
        ] {
            assert_eq!(lower.output_each(sequences, asked).ok(), lowered, "{sequences} {asked:?}");
            assert_eq!(refuse.output_each(sequences, asked).ok(), refused, "{sequences} {asked:?}");
        }
        assert_eq!(Caps::default().output_each(1_000, None), Ok(None));
        let error = refuse.output_each(4, Some(50)).unwrap_err();
        assert_eq!((error.reason, error.reading), (Reason::OutputTokens, 200.0));
    }

    #[test]
    fn nobody_is_more_urgent_than_they_may_be() {
        let some = Caps { priority: Some(2), ..Caps::default() };
        assert_eq!([-5, 2, 7].map(|asked| some.priority(Some(asked))), [2, 2, 7].map(Some));
        assert_eq!(some.priority(None), None);
        assert_eq!(Caps::default().priority(Some(7)), None);
    }
}
