//! The process: its clock, its named tasks, its signals, its drain.
//!
//! Time and spawning enter the program here and nowhere else, so that a test can take them
//! over. Nothing here knows what the process does for a living.

mod clock;
mod drain;
mod signals;
mod tasks;

pub use clock::Clock;
pub use drain::{Drain, DrainWatch, Phase};
pub use signals::{Hangup, Signals, Stop};
pub use tasks::Tasks;
