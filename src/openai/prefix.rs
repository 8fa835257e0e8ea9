//! Chained hashes of a prompt's leading blocks, by which routing finds the replica that has seen
//! the same beginning before.
//!
//! Blocks are of bytes, not tokens: nothing here tokenizes. The chain makes a hash stand for all
//! that precedes it too, as in vLLM's own prefix cache. The hash is quick and not secret: whoever
//! crafts a collision wins a wrong guess about affinity, never another's answer.

use std::sync::Arc;

/// Bytes a block: some 64 tokens, that is four KV blocks of vLLM's default size.
pub const PREFIX_BLOCK_BYTES: usize = 256;

/// Blocks that are kept; the megabyte after which two prompts are told apart no more.
const MAX_BLOCKS: usize = 4096;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const ODD: u64 = 0xa076_1d64_78bd_642f;

/// Takes text in pieces, cut anywhere, and hands out the chain.
pub(super) struct PrefixHasher {
    chain: u64,
    block: [u8; PREFIX_BLOCK_BYTES],
    filled: usize,
    hashes: Vec<u64>,
}

impl PrefixHasher {
    pub(super) fn new(expected_bytes: usize) -> Self {
        let blocks = (expected_bytes / PREFIX_BLOCK_BYTES).min(MAX_BLOCKS);
        Self {
            chain: SEED,
            block: [0; PREFIX_BLOCK_BYTES],
            filled: 0,
            hashes: Vec::with_capacity(blocks),
        }
    }

    /// Adds a piece; where pieces are cut makes no difference.
    pub(super) fn add(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() && self.hashes.len() < MAX_BLOCKS {
            if self.filled == 0
                && let Some((block, rest)) = piece.split_first_chunk::<PREFIX_BLOCK_BYTES>()
            {
                self.seal(block);
                piece = rest;
                continue;
            }
            let room = self.block.get_mut(self.filled..).unwrap_or_default();
            let taken = room.len().min(piece.len());
            let (head, rest) = piece.split_at(taken);
            if let Some(slot) = room.get_mut(..taken) {
                slot.copy_from_slice(head);
            }
            self.filled += taken;
            piece = rest;
            if self.filled == PREFIX_BLOCK_BYTES {
                let block = self.block;
                self.seal(&block);
                self.filled = 0;
            }
        }
    }

    /// The hashes of all whole blocks, in order.
    pub(super) fn finish(self) -> Arc<[u64]> {
        self.hashes.into()
    }

    fn seal(&mut self, block: &[u8; PREFIX_BLOCK_BYTES]) {
        let (words, _) = block.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        self.chain = pairs.iter().fold(self.chain, |state, [left, right]| {
            fold(u64::from_le_bytes(*left) ^ ODD, u64::from_le_bytes(*right) ^ state)
        });
        self.chain = fold(self.chain ^ SEED, ODD);
        self.hashes.push(self.chain);
    }
}

/// A 128-bit product folded into 64 bits (wyhash's mixing step).
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the product")]
    let halves = (product as u64, (product >> 64) as u64);
    halves.0 ^ halves.1
}
