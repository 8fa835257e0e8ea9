//! A client that offers load to a server and measures what it gets back.
//!
//! Open loop: requests leave when they are due, not when the server has caught up, since a
//! public does not wait for each other's answers. A closed loop is offered beside it and hides
//! overload by slowing down with the server. Plan, pacing, one request, and the report are
//! apart, so that the figures can be tested without a socket.
//!
//! It speaks plain HTTP/1.1 and chat streams alone, to one address.

mod attempt;
mod client;
mod live;
mod options;
mod plan;
mod prompt;
mod report;
mod retry;
mod run;
mod sse;
mod table;

pub use client::TargetError;
pub use live::{Live, Reading};
pub use options::{LoadOptions, Mode};
pub use plan::{Lengths, Plan, Planned};
pub use report::LoadReport;
pub use run::run;
pub use table::{HEADING, Row};

#[cfg(test)]
mod tests;
