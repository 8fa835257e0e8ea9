//! What the replica answers, beside what vLLM 0.32 was recorded to answer.

mod behaviour;
mod client;
mod shapes;
