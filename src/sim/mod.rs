//! PURE: the engine model, and a fleet of them behind gateways in virtual time.
//!
//! One vLLM engine as arithmetic: what a step costs, who is in it, which KV blocks it needs.
//! The same [`Engine`] runs in virtual time here and in real time behind HTTP in `replica`; the
//! same `Dispatcher` that decides live is a [`Gate`] of the [`fleet`].

mod engine;
mod figures;
pub mod fleet;
mod gate;
pub mod rivals;
pub mod scenario;
mod sweep;

pub use engine::{
    Counters, Emission, Engine, EngineParams, Finish, Histogram, Job, Step, chain_hash,
};
pub use figures::{Figures, Spread, figures, spread};
pub use gate::Gate;
pub use sweep::{observe, search};
