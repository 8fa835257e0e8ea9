//! PURE: what is sent: how long prompts and answers are, when they arrive, what they share.
//!
//! Everything is drawn from a seed that the caller gives, so that two runs (or two rates) offer
//! the same requests. It makes numbers and texts; who sends them, and on which clock, is
//! `load`'s and `sim`'s.

mod arrivals;
mod class;
mod lengths;

pub use arrivals::Arrivals;
pub use class::{Class, Draw, Workload};
pub use lengths::Lengths;
