//! One arrival and all that follows from it, as numbers: nothing of text, nothing of time of day.
//!
//! A prompt is a list of pieces, each so many tokens drawn from a seed. Equal seeds are equal
//! text, so shared prefixes and growing histories need no text to be told: the simulator hashes
//! the pieces' blocks, the load generator writes words from the seeds.

use std::time::Duration;

use crate::domain::{ClassId, TenantId};

/// Who said a piece of a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// The prefix that several calls share.
    System,
    /// What a call adds.
    User,
    /// An earlier answer. Its seed stands in for a text that only the server knows.
    Assistant,
}

/// A part of a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Who said it.
    pub role: Role,
    /// What it says.
    pub seed: u64,
    /// How long it is; at least 1.
    pub tokens: u32,
}

/// One request to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its prompt.
    pub prompt: Vec<Piece>,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// Unlike for every call of a run: seeds what else is drawn for it, such as its retries'
    /// jitter.
    pub salt: u64,
}

/// Calls that are sent at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// From the end of the stage before (of a first stage: from its arrival, so none).
    pub pause: Duration,
    /// At least one.
    pub calls: Vec<Call>,
}

/// One arrival: a single call, a session of turns, or an agent's workflow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Its place in the order of arrivals, from 0.
    pub number: u64,
    /// Its kind.
    pub class: ClassId,
    /// Who sends it.
    pub tenant: TenantId,
    /// At least one. A stage is sent only when all calls before it were answered well.
    pub stages: Vec<Stage>,
}

impl Flow {
    /// All calls, first stage first.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.stages.iter().flat_map(|stage| &stage.calls)
    }
}

impl Call {
    /// Prompt tokens in all.
    pub fn prompt_tokens(&self) -> u32 {
        self.prompt.iter().fold(0, |sum, piece| sum.saturating_add(piece.tokens))
    }

    /// Chained hashes of the prompt's full blocks, first block first: two prompts have a hash in
    /// common exactly when they are alike up to that block's end.
    pub fn block_hashes(&self, block_size: u32) -> Vec<u64> {
        let block_size = block_size.max(1);
        let mut hashes = Vec::with_capacity((self.prompt_tokens() / block_size) as usize);
        let (mut chain, mut room) = (0, block_size);
        for piece in &self.prompt {
            let mut from = 0;
            while from < piece.tokens {
                let taken = room.min(piece.tokens - from);
                let span = u64::from(from) << 32 | u64::from(taken);
                chain = mix(mix(chain, piece.seed), span);
                from += taken;
                room -= taken;
                if room == 0 {
                    hashes.push(chain);
                    room = block_size;
                }
            }
        }
        hashes
    }
}

/// Two numbers to one, well mixed (Steele, Lea and Flood's `SplitMix64` finaliser).
pub(super) const fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_add(b.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(1);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(pieces: &[(u64, u32)]) -> Call {
        let piece =
            |(seed, tokens): &(u64, u32)| Piece { role: Role::User, seed: *seed, tokens: *tokens };
        Call { prompt: pieces.iter().map(piece).collect(), output_tokens: 1, salt: 0 }
    }

    #[test]
    fn prompts_share_the_blocks_that_they_share() {
        let (a, b) = (call(&[(1, 40), (2, 30)]), call(&[(1, 40), (3, 30)]));
        let (a, b) = (a.block_hashes(16), b.block_hashes(16));
        assert_eq!((a.len(), b.len()), (4, 4));
        // Two blocks lie within the first piece, the third holds the first of what differs.
        let alike = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        assert_eq!(alike, 2);
        assert!(a.iter().skip(2).all(|hash| !b.contains(hash)));
        assert_eq!(call(&[(1, 40), (2, 30), (9, 5)]).block_hashes(16)[..4], a);
    }

    #[test]
    fn a_last_block_that_is_not_full_has_no_hash() {
        assert!(call(&[(1, 15)]).block_hashes(16).is_empty());
        assert_eq!(call(&[(1, 16)]).block_hashes(16).len(), 1);
        assert_eq!(call(&[(1, 3)]).block_hashes(0).len(), 3);
    }
}
