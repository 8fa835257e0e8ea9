//! Who is in the next step, and with how many tokens.

use super::{Engine, Sequence};
use crate::domain::Timestamp;

/// The step that was decided on.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) sequences: u32,
    pub(super) prefill_tokens: u32,
    /// Tokens of KV that the step attends to.
    pub(super) context: u64,
    pub(super) preempted: u32,
}

impl Plan {
    fn add(&mut self, sequence: &Sequence, chunk: u32, budget: &mut u32) {
        *budget -= chunk;
        self.sequences += 1;
        self.context += u64::from(sequence.computed) + u64::from(chunk);
        if !sequence.decodes() {
            self.prefill_tokens += chunk;
        }
    }
}

impl Engine {
    pub(super) fn schedule(&mut self, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let mut budget = self.params.max_num_batched_tokens;
        self.continue_running(true, &mut budget, &mut plan);
        self.continue_running(false, &mut budget, &mut plan);
        // As vLLM: who had to make room for others does not come back in the same step.
        if plan.preempted == 0 {
            self.admit_waiting(now, &mut budget, &mut plan);
        }
        plan
    }

    /// Gives running sequences their tokens: decodes in one pass, prefill chunks in another.
    fn continue_running(&mut self, decodes: bool, budget: &mut u32, plan: &mut Plan) {
        let mut at = 0;
        while at < self.running.len() && *budget > 0 {
            let Some(sequence) = self.running.get(at) else { break };
            let chunk = sequence.left().min(*budget);
            if sequence.decodes() != decodes || sequence.chunk > 0 || chunk == 0 {
                at += 1;
                continue;
            }
            if !self.make_room(at, chunk, budget, plan) {
                break;
            }
            if let Some(sequence) = self.running.get_mut(at) {
                plan.add(sequence, chunk, budget);
                sequence.chunk = chunk;
            }
            at += 1;
        }
    }

    /// Blocks for `chunk` more tokens of the running sequence `at`, preempting from the end of
    /// the list while there are none. False when it was preempted itself.
    fn make_room(&mut self, at: usize, chunk: u32, budget: &mut u32, plan: &mut Plan) -> bool {
        loop {
            let Some(sequence) = self.running.get_mut(at) else { return false };
            let tokens = sequence.computed.saturating_add(chunk);
            let wanted = tokens.div_ceil(self.params.block_size.max(1)) as usize;
            let missing = wanted.saturating_sub(sequence.blocks.len());
            if missing <= self.blocks.free_count() as usize {
                for _ in 0..missing {
                    sequence.blocks.extend(self.blocks.take());
                }
                return true;
            }
            let Some(mut last) = self.running.pop() else { return false };
            self.blocks.free(&mut last.blocks);
            if last.chunk > 0 {
                // It was in this step already: take its share back.
                *budget += last.chunk;
                plan.sequences -= 1;
                plan.context -= u64::from(last.computed) + u64::from(last.chunk);
                if !last.decodes() {
                    plan.prefill_tokens -= last.chunk;
                }
            }
            last.chunk = 0;
            last.computed = 0;
            last.entered = 0;
            last.preemptions += 1;
            plan.preempted += 1;
            self.counters.preemptions += 1;
            self.waiting.push_front(last);
        }
    }

    /// Admits waiting sequences in order, until one does not fit.
    fn admit_waiting(&mut self, now: Timestamp, budget: &mut u32, plan: &mut Plan) {
        let block_size = self.params.block_size.max(1);
        while *budget > 0 && self.running.len() < self.params.max_num_seqs as usize {
            let Some(sequence) = self.waiting.front() else { break };
            // The last token is always computed, since its output is what is wanted.
            let most = sequence.total().saturating_sub(1) / block_size;
            let found = self.blocks.find(&sequence.job.prefix, most as usize);
            let hit = u32::try_from(found.len()).unwrap_or(u32::MAX).saturating_mul(block_size);
            let chunk = sequence.total().saturating_sub(hit).min(*budget);
            let wanted = (hit.saturating_add(chunk)).div_ceil(block_size) as usize;
            let missing = wanted.saturating_sub(found.len());
            let free = self.blocks.free_count().saturating_sub(self.blocks.free_among(&found));
            if missing > free as usize {
                break;
            }
            let Some(mut sequence) = self.waiting.pop_front() else { break };
            for block in &found {
                self.blocks.hold(*block);
            }
            sequence.entered = found.len();
            sequence.blocks = found;
            for _ in 0..missing {
                sequence.blocks.extend(self.blocks.take());
            }
            sequence.computed = hit;
            if sequence.preemptions == 0 {
                self.counters.looked_up(sequence.job.prompt_tokens, hit);
            }
            if sequence.scheduled.is_none() {
                sequence.scheduled = Some(now);
            }
            plan.add(&sequence, chunk, budget);
            sequence.chunk = chunk;
            self.running.push(sequence);
        }
    }
}
