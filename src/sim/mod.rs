//! PURE: the engine model, later a fleet of them in virtual time.
//!
//! One vLLM engine as arithmetic: what a step costs, who is in it, which KV blocks it needs.
//! The same [`Engine`] runs in virtual time here and in real time behind HTTP in `replica`.

mod engine;
mod sweep;

pub use engine::{
    Counters, Emission, Engine, EngineParams, Finish, Histogram, Job, Step, chain_hash,
};
pub use sweep::{observe, search};
