//! The running configuration: one handle, watched files and signals, applying a new one.
//!
//! Everything that runs reads the configuration through one [`Handle`]. Only the [`Reloader`],
//! one task, replaces it: when a file or its folder changes (Kubernetes swaps a symbolic link),
//! on SIGHUP, or when asked through an [`Asker`] (the admin endpoint). A faulty file leaves the
//! running configuration as it is. What needs a restart keeps its running value, and is said.
//!
//! It does not know what follows from a change: those who hold something that must follow
//! (gates, scrapers) subscribe to the handle.

mod handle;
mod loader;
mod reloader;
mod report;
mod watch;

pub use handle::{Handle, Past, Running};
pub use loader::Loader;
pub use reloader::{Asker, Reloader};
pub use report::{Cause, Outcome, Report};

#[cfg(test)]
mod tests;
