//! KV blocks: who holds which, which free ones are still worth finding, which goes next.
//!
//! As vLLM's `KVCacheManager`: a free block keeps its content until it is handed out again, and
//! the one freed longest ago goes first. The free list is linked through the blocks themselves,
//! so that taking a cached block out of its middle costs nothing.

use std::collections::HashMap;

use super::Sequence;

/// Index of a block.
pub(super) type Block = u32;

/// No block: the end of the list.
const NONE: Block = Block::MAX;

/// The hash of a block given the hash of all before it (0 for the first) and its own content.
/// Two prompts share a hash only where they agree from their start to the end of that block.
pub const fn chain_hash(before: u64, content: u64) -> u64 {
    // The finaliser of splitmix64 over a rotation: cheap, and good enough for a cache model.
    let mut x = before.rotate_left(23) ^ content ^ 0x9e37_79b9_7f4a_7c15;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[derive(Clone, Debug)]
struct Slot {
    holders: u32,
    /// What it caches, once its content is complete.
    hash: Option<u64>,
    older: Block,
    newer: Block,
}

#[derive(Debug)]
pub(super) struct BlockPool {
    slots: Vec<Slot>,
    cached: HashMap<u64, Block>,
    caching: bool,
    /// Ends of the free list.
    oldest: Block,
    newest: Block,
    free: u32,
}

impl BlockPool {
    pub(super) fn new(count: u32, caching: bool) -> Self {
        let slot = Slot { holders: 0, hash: None, older: NONE, newer: NONE };
        let mut pool = Self {
            slots: vec![slot; count as usize],
            cached: HashMap::new(),
            caching,
            oldest: NONE,
            newest: NONE,
            free: 0,
        };
        for block in 0..count {
            pool.push_free(block);
        }
        pool
    }

    pub(super) fn usage(&self) -> f64 {
        let count = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        if count == 0 { 0.0 } else { f64::from(count - self.free) / f64::from(count) }
    }

    pub(super) const fn free_count(&self) -> u32 {
        self.free
    }

    /// The cached blocks of the longest known prefix of these hashes, at most `most` of them.
    pub(super) fn find(&self, hashes: &[u64], most: usize) -> Vec<Block> {
        if !self.caching {
            return Vec::new();
        }
        hashes.iter().take(most).map_while(|hash| self.cached.get(hash).copied()).collect()
    }

    /// Of these cached blocks, how many are free now, so that holding them uses up free ones.
    pub(super) fn free_among(&self, blocks: &[Block]) -> u32 {
        let free = |block: &&Block| self.slot(**block).is_some_and(|slot| slot.holders == 0);
        u32::try_from(blocks.iter().filter(free).count()).unwrap_or(u32::MAX)
    }

    /// One more holder for a cached block.
    pub(super) fn hold(&mut self, block: Block) {
        if self.slot(block).is_some_and(|slot| slot.holders == 0) {
            self.unlink(block);
        }
        if let Some(slot) = self.slots.get_mut(block as usize) {
            slot.holders += 1;
        }
    }

    /// The block freed longest ago, its content forgotten.
    pub(super) fn take(&mut self) -> Option<Block> {
        let block = self.oldest;
        if block == NONE {
            return None;
        }
        self.unlink(block);
        let slot = self.slots.get_mut(block as usize)?;
        slot.holders = 1;
        if let Some(hash) = slot.hash.take()
            && self.cached.get(&hash) == Some(&block)
        {
            self.cached.remove(&hash);
        }
        Some(block)
    }

    /// Lets go of a sequence's blocks. Its last ones are freed first, and so reused first:
    /// the head of a prompt is what others share.
    pub(super) fn free(&mut self, blocks: &mut Vec<Block>) {
        for block in blocks.drain(..).rev() {
            let Some(slot) = self.slots.get_mut(block as usize) else { continue };
            slot.holders = slot.holders.saturating_sub(1);
            if slot.holders == 0 {
                self.push_free(block);
            }
        }
    }

    /// Makes the sequence's complete prompt blocks findable.
    pub(super) fn enter(&mut self, sequence: &mut Sequence, block_size: u32) {
        if !self.caching {
            return;
        }
        let known = sequence.computed.min(sequence.job.prompt_tokens) / block_size.max(1);
        let known = (known as usize).min(sequence.job.prefix.len());
        while sequence.entered < known {
            let at = sequence.entered;
            sequence.entered += 1;
            let (Some(&hash), Some(&block)) =
                (sequence.job.prefix.get(at), sequence.blocks.get(at))
            else {
                break;
            };
            if let Some(slot) = self.slots.get_mut(block as usize)
                && slot.hash.is_none()
                && !self.cached.contains_key(&hash)
            {
                slot.hash = Some(hash);
                self.cached.insert(hash, block);
            }
        }
    }

    fn slot(&self, block: Block) -> Option<&Slot> {
        self.slots.get(block as usize)
    }

    fn push_free(&mut self, block: Block) {
        let newest = self.newest;
        if let Some(slot) = self.slots.get_mut(block as usize) {
            slot.older = newest;
            slot.newer = NONE;
        }
        match self.slots.get_mut(newest as usize) {
            Some(slot) => slot.newer = block,
            None => self.oldest = block,
        }
        self.newest = block;
        self.free += 1;
    }

    fn unlink(&mut self, block: Block) {
        let Some(slot) = self.slot(block) else { return };
        let (older, newer) = (slot.older, slot.newer);
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        self.free = self.free.saturating_sub(1);
    }
}
