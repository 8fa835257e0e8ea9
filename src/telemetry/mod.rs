//! Metrics, logs and the access log: names, labels and handles, resolved once.
//!
//! Every name stands in one file, every label takes its values from a closed set, and a request
//! touches the registry once, at its end. What clients send never becomes a label: a model or
//! path that nobody configured is counted under one word.

mod access;
mod build;
mod gauges;
mod histogram;
mod labels;
mod logging;
mod metrics;
mod names;
mod process;
mod recent;
mod scaling;
mod series;
mod sheds;
mod targets;
mod writer;

pub use labels::PoolLabels;
pub use logging::{LogGuard, LogStyle, LoggingError, init_logging};
pub use metrics::{Connections, Telemetry};
pub use targets::PoolTargets;

#[cfg(test)]
mod tests;
