//! Text that nobody means: words drawn from a seed, and prompts measured without a tokenizer.
//!
//! A token is taken to be four bytes of text, so a KV block of 16 tokens is 64 bytes. Equal
//! beginnings of prompts have equal block hashes, which is all that the prefix cache needs.

use std::sync::Arc;

use crate::sim::chain_hash;

/// Bytes a token.
const TOKEN_BYTES: usize = 4;

/// Tokens that a chat template adds to each message.
pub(super) const MESSAGE_TOKENS: u32 = 4;

/// Already escaped for JSON. Two bear what a relay must not break: an escape, and bytes that
/// are not ASCII.
const WORDS: [&str; 32] = [
    " water",
    " over",
    " the",
    " weir",
    " runs",
    " and",
    " stones",
    " hold",
    " a",
    " still",
    " pool",
    " above",
    " while",
    " below",
    " it",
    " breaks",
    " white",
    ",",
    " then",
    " slows",
    " again",
    " \\u2014",
    " caf\u{e9}",
    "\\n",
    " until",
    " evening",
    " comes",
    " to",
    " rest",
    " in",
    " reeds",
    ".",
];

/// The `at`-th token of a text, escaped for JSON.
pub(super) fn word(seed: u64, at: u32) -> &'static str {
    let drawn = chain_hash(seed, u64::from(at)) % 32;
    usize::try_from(drawn).ok().and_then(|at| WORDS.get(at)).copied().unwrap_or(" water")
}

/// Appends tokens `from..to` of a text.
pub(super) fn words(seed: u64, from: u32, to: u32, out: &mut String) {
    for at in from..to {
        out.push_str(word(seed, at));
    }
}

/// A prompt as the engine sees it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Prompt {
    pub(super) tokens: u32,
    pub(super) prefix: Arc<[u64]>,
}

/// Measures a prompt while it is being read.
pub(super) struct Measure {
    block_bytes: usize,
    tokens: u32,
    text: Vec<u8>,
    salt: u64,
}

impl Measure {
    pub(super) fn new(block_size: u32, salt: &str) -> Self {
        let salt = hash(salt.as_bytes());
        Self {
            block_bytes: block_size.max(1) as usize * TOKEN_BYTES,
            tokens: 0,
            text: vec![],
            salt,
        }
    }

    /// A message or prompt of text.
    pub(super) fn text(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    /// A token id, four bytes as everything else.
    pub(super) fn token(&mut self, id: u64) {
        let [a, b, c, d, ..] = id.to_le_bytes();
        self.text.extend_from_slice(&[a, b, c, d]);
    }

    /// Tokens that stand for no text.
    pub(super) const fn overhead(&mut self, tokens: u32) {
        self.tokens = self.tokens.saturating_add(tokens);
    }

    pub(super) fn done(self) -> Prompt {
        let text = u32::try_from(self.text.len().div_ceil(TOKEN_BYTES)).unwrap_or(u32::MAX);
        let prefix = self
            .text
            .chunks_exact(self.block_bytes)
            .scan(self.salt, |before, block| {
                *before = chain_hash(*before, hash(block));
                Some(*before)
            })
            .collect();
        Prompt { tokens: self.tokens.saturating_add(text).max(1), prefix }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |hash, chunk| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        chain_hash(hash, u64::from_le_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(text: &str, salt: &str) -> Prompt {
        let mut measure = Measure::new(16, salt);
        measure.text(text);
        measure.done()
    }

    #[test]
    fn shared_beginnings_share_hashes_and_salts_part_them() {
        let (a, b) = ("x".repeat(128), "x".repeat(64) + &"y".repeat(64));
        let (a, b, salted) = (prompt(&a, ""), prompt(&b, ""), prompt(&a, "s"));
        assert_eq!((a.tokens, a.prefix.len()), (32, 2));
        assert_eq!(a.prefix[0], b.prefix[0]);
        assert_ne!(a.prefix[1], b.prefix[1]);
        assert_ne!(a.prefix[0], salted.prefix[0]);
    }
}
