//! The body of one call: a chat of about as many tokens as planned.
//!
//! Words of three letters and a space are about one token each for common tokenizers, and four
//! bytes each for those that only count bytes. How many of a server's tokens a word really makes
//! is [`Ratio`]'s, measured before the run. Equal pieces are equal text, so that what a workload
//! shares is shared in the server's prefix cache too.

use std::fmt::Write as _;

use bytes::Bytes;

use crate::workload::{Call, Piece, Role};

const WORDS: [&str; 32] = [
    "the ", "and ", "you ", "was ", "for ", "are ", "his ", "her ", "one ", "all ", "out ", "day ",
    "had ", "has ", "him ", "how ", "man ", "new ", "now ", "old ", "see ", "two ", "way ", "who ",
    "boy ", "did ", "its ", "let ", "put ", "say ", "she ", "too ",
];

/// How a server counts tokens: so many for every chat, and so many a word.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Ratio {
    /// Tokens of a chat without words: its template.
    pub base: f64,
    /// Tokens a word.
    pub per_word: f64,
}

impl Default for Ratio {
    /// A word is a token.
    fn default() -> Self {
        Self { base: 0.0, per_word: 1.0 }
    }
}

impl Ratio {
    /// From two chats: words sent and tokens counted. `None` where that is no ratio that a
    /// tokenizer can have.
    pub(super) fn of(short: (u32, u64), long: (u32, u64)) -> Option<Self> {
        let (words, tokens) =
            (f64::from(long.0) - f64::from(short.0), as_f64(long.1)? - as_f64(short.1)?);
        let per_word = tokens / words;
        let base = as_f64(short.1)? - per_word * f64::from(short.0);
        ((0.2..=5.0).contains(&per_word)).then(|| Self { base: base.max(0.0), per_word })
    }

    /// Words that make `tokens`; at least one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a u32 over a ratio of 0.2 at least; casts saturate"
    )]
    fn words(self, tokens: f64) -> u32 {
        (tokens / self.per_word).round().max(1.0) as u32
    }
}

fn as_f64(count: u64) -> Option<f64> {
    u32::try_from(count).ok().map(f64::from)
}

/// Renders the JSON body of `call`. `answers` are the answers of its flow's calls so far, in
/// their order, where they are known.
pub(super) fn body(model: &str, call: &Call, answers: &[Option<String>], ratio: Ratio) -> Bytes {
    let mut text = String::with_capacity(call.prompt_tokens() as usize * 4 + 256);
    let model = serde_json::to_string(model).unwrap_or_default();
    let wrote = write!(
        text,
        r#"{{"model":{model},"stream":true,"stream_options":{{"include_usage":true}},"max_tokens":{},"ignore_eos":true,"messages":["#,
        call.output_tokens
    );
    debug_assert!(wrote.is_ok(), "a String takes any text");
    let mut before = None;
    let mut answers = answers.iter();
    // The template's tokens are taken off the last piece, which is never shared.
    let last = call.prompt.len().saturating_sub(1);
    for (at, piece) in call.prompt.iter().enumerate() {
        let answer = if piece.role == Role::Assistant { answers.next() } else { None };
        if before != Some(piece.role) {
            text.push_str(if before.is_some() { "\"},{\"role\":\"" } else { "{\"role\":\"" });
            text.push_str(role(piece.role));
            text.push_str("\",\"content\":\"");
        }
        before = Some(piece.role);
        if let Some(Some(answer)) = answer {
            let quoted = serde_json::to_string(answer).unwrap_or_default();
            text.push_str(quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or(""));
        } else {
            let off = if at == last { ratio.base } else { 0.0 };
            words(&mut text, piece, ratio.words((f64::from(piece.tokens) - off).max(1.0)));
        }
    }
    text.push_str(if before.is_some() { "\"}]}" } else { "]}" });
    Bytes::from(text)
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

/// Appends `count` words, drawn by a xorshift from the piece's seed.
fn words(text: &mut String, piece: &Piece, count: u32) {
    let mut state = piece.seed | 1;
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = usize::try_from(state >> 59).unwrap_or(0);
        text.push_str(WORDS.get(at).copied().unwrap_or("the "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(role: Role, seed: u64, tokens: u32) -> Piece {
        Piece { role, seed, tokens }
    }

    fn messages(
        prompt: Vec<Piece>,
        answers: &[Option<String>],
        ratio: Ratio,
    ) -> Vec<(String, String)> {
        let call = Call { prompt, output_tokens: 7, salt: 1 };
        let json: serde_json::Value =
            serde_json::from_slice(&body("a \"quoted\" model", &call, answers, ratio)).unwrap();
        assert_eq!(json["model"], "a \"quoted\" model");
        assert_eq!(json["max_tokens"], 7);
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let messages = json["messages"].as_array().unwrap();
        messages.iter().map(|one| (text(&one["role"]), text(&one["content"]))).collect()
    }

    #[test]
    fn a_body_is_of_the_planned_size_and_only_what_is_shared_is_alike() {
        let of = |seed| {
            let prompt = vec![piece(Role::System, 5, 10), piece(Role::User, seed, 40)];
            messages(prompt, &[], Ratio::default())
        };
        let (one, other) = (of(0x1234_5678_9abc), of(0xdef0_1234_5678));
        let words: usize = one.iter().map(|(_, text)| text.split_whitespace().count()).sum();
        assert_eq!((one[0].0.as_str(), one[1].0.as_str(), words), ("system", "user", 50));
        assert_eq!(one[0], other[0]);
        assert_ne!(one[1], other[1]);
    }

    #[test]
    fn a_later_turn_quotes_the_real_answer_or_stands_in_for_it() {
        let prompt = vec![
            piece(Role::User, 1, 5),
            piece(Role::Assistant, 2, 6),
            piece(Role::User, 3, 5),
            piece(Role::Assistant, 4, 6),
            piece(Role::User, 5, 5),
        ];
        let answers = [Some("it is \"so\"".to_owned()), None];
        let messages = messages(prompt, &answers, Ratio::default());
        assert_eq!(messages[1], ("assistant".to_owned(), "it is \"so\"".to_owned()));
        assert_eq!(messages[3].1.split_whitespace().count(), 6);
        assert_eq!(messages.len(), 5);
    }

    #[test]
    fn a_ratio_is_learned_from_two_chats_and_brings_the_asked_length() {
        // A template of 20 tokens, 1.25 tokens a word.
        let ratio = Ratio::of((64, 100), (512, 660)).unwrap();
        assert_eq!(ratio, Ratio { base: 20.0, per_word: 1.25 });
        let messages = messages(vec![piece(Role::User, 1, 1020)], &[], ratio);
        assert_eq!(messages[0].1.split_whitespace().count(), 800);
        assert_eq!(Ratio::of((64, 100), (512, 100)), None, "a server that counts nothing");
    }
}
