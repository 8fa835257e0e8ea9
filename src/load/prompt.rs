//! The body of one request: a chat of about as many tokens as planned.
//!
//! Words of three letters and a space are about one token each for common tokenizers, and four
//! bytes each for those that only count bytes.

use std::fmt::Write as _;

use bytes::Bytes;

use super::{LoadOptions, Planned};

const WORDS: [&str; 32] = [
    "the ", "and ", "you ", "was ", "for ", "are ", "his ", "her ", "one ", "all ", "out ", "day ",
    "had ", "has ", "him ", "how ", "man ", "new ", "now ", "old ", "see ", "two ", "way ", "who ",
    "boy ", "did ", "its ", "let ", "put ", "say ", "she ", "too ",
];

/// Renders the JSON body of `planned`.
pub(super) fn body(options: &LoadOptions, planned: &Planned) -> Bytes {
    let mut text = String::with_capacity(planned.input as usize * 4 + 256);
    let model = serde_json::to_string(&options.model).unwrap_or_default();
    let wrote = write!(
        text,
        r#"{{"model":{model},"stream":true,"stream_options":{{"include_usage":true}},"max_tokens":{},"ignore_eos":true,"messages":[{{"role":"user","content":""#,
        planned.output
    );
    debug_assert!(wrote.is_ok(), "a String takes any text");
    let shared = options.shared_prefix.min(planned.input);
    words(&mut text, options.seed, shared);
    words(&mut text, planned.salt, planned.input - shared);
    text.push_str(r#""}]}"#);
    Bytes::from(text)
}

/// Appends `count` words, drawn by a xorshift from `seed`.
fn words(text: &mut String, seed: u64, count: u32) {
    let mut state = seed | 1;
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
    use super::super::Mode;
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_body_is_json_of_the_planned_size_and_only_the_prefix_is_shared() {
        let mut options = LoadOptions::new(
            "http://localhost:1".parse().unwrap(),
            "a \"quoted\" model",
            Mode::Open(1.0),
        );
        options.shared_prefix = 10;
        let content = |salt| {
            let planned = Planned { due: Duration::ZERO, input: 50, output: 7, salt };
            let json: serde_json::Value =
                serde_json::from_slice(&body(&options, &planned)).unwrap();
            assert_eq!(json["model"], "a \"quoted\" model");
            assert_eq!(json["max_tokens"], 7);
            json["messages"][0]["content"].as_str().unwrap().to_owned()
        };
        let (one, other) = (content(0x1234_5678_9abc), content(0xdef0_1234_5678));
        assert_eq!(one.split_whitespace().count(), 50);
        assert_eq!(one.as_bytes()[..40], other.as_bytes()[..40]);
        assert_ne!(one.as_bytes()[40..], other.as_bytes()[40..]);
    }
}
