//! A client that offers load to a server and measures what it gets back.
//!
//! Open loop: requests leave when they are due, not when the server has caught up, since a
//! public does not wait for each other's answers. A closed loop is offered beside it and hides
//! overload by slowing down with the server. What is sent is [`crate::workload`]'s; pacing, one
//! flow, one call, and the report are apart, so that the figures can be tested without a socket.
//!
//! It speaks plain HTTP/1.1 and chat streams alone, to one address.

mod attempt;
mod character;
mod client;
mod cpu;
mod figures;
mod flow;
mod live;
mod observed;
mod options;
mod prompt;
mod record;
mod report;
mod run;
mod sse;
mod sweep;
mod table;
mod told;
mod vllm_keys;
mod watch;

pub use character::Character;
pub use client::TargetError;
pub use figures::{Figures, Workflows};
pub use live::{Live, Reading};
pub use options::{LoadOptions, Mode};
pub use prompt::Ratio;
pub use report::LoadReport;
pub use run::run;
pub use sweep::{Knee, Sweep, SweepError, SweepLevel, SweepOptions, SweepResult, SweepRun};
pub use table::{HEADING, PARTS_HEADING, Part, Row};

#[cfg(test)]
mod tests;
