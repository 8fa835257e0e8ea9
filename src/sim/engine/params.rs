//! What an engine is made of, and what a step of it costs.

/// The engine's size and speed. The defaults are a stand-in for one mid-size GPU; calibrate
/// them against a real replica before reading anything about one off the model.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineParams {
    /// Cost of any step, nanoseconds.
    pub base_nanos: u64,
    /// Cost a sequence in the step, nanoseconds.
    pub sequence_nanos: u64,
    /// Cost a prompt token computed in the step, nanoseconds.
    pub prefill_nanos: u64,
    /// Cost a token of context that the step attends to, nanoseconds.
    pub context_nanos: u64,
    /// `--max-num-seqs`: sequences that run at once.
    pub max_num_seqs: u32,
    /// `--max-num-batched-tokens`: tokens computed a step.
    pub max_num_batched_tokens: u32,
    /// Tokens a KV block.
    pub block_size: u32,
    /// KV blocks in all.
    pub num_gpu_blocks: u32,
    /// Whether freed prompt blocks are kept to be found again.
    pub prefix_caching: bool,
}

impl Default for EngineParams {
    fn default() -> Self {
        Self {
            base_nanos: 7_000_000,
            sequence_nanos: 100_000,
            prefill_nanos: 18_000,
            context_nanos: 10,
            max_num_seqs: 128,
            max_num_batched_tokens: 4096,
            block_size: 16,
            num_gpu_blocks: 16_384,
            prefix_caching: true,
        }
    }
}

impl EngineParams {
    /// KV cache in tokens.
    pub const fn capacity_tokens(&self) -> u64 {
        self.num_gpu_blocks as u64 * self.block_size as u64
    }

    /// Nanoseconds of a step with so many sequences, prefill tokens and context tokens.
    pub(super) const fn step_nanos(&self, sequences: u32, prefill: u32, context: u64) -> u64 {
        self.base_nanos
            .saturating_add(self.sequence_nanos.saturating_mul(sequences as u64))
            .saturating_add(self.prefill_nanos.saturating_mul(prefill as u64))
            .saturating_add(self.context_nanos.saturating_mul(context))
    }
}
