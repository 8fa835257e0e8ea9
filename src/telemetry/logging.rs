//! Where log lines go: standard error, as text for people or JSON for machines.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use super::writer::Lines;

/// Lines dropped since the process started. Logging is the process's, and so is this.
static DROPPED: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);

/// Lines dropped since the process started, because whoever reads them was too slow.
pub(super) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogStyle {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter is not one of `tracing`'s.
    #[error("log filter {filter:?}: {message}")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        message: String,
    },
    /// The thread that writes could not be made.
    #[error("log thread: {0}")]
    Thread(#[source] std::io::Error),
    /// Logging was set up before.
    #[error("logging is set up already")]
    Twice,
}

/// Writes what is left when it is dropped; hold it to the end of the process.
pub struct LogGuard(Lines);

impl std::fmt::Debug for LogGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogGuard")
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Sets up logging for the whole process, once. `filter` is a level (`info`) or `tracing`'s
/// directives (`info,access=off,weir::upstream=debug`).
///
/// # Errors
/// A filter that cannot be read, no thread to write from, or a second call.
pub fn init_logging(style: LogStyle, filter: &str) -> Result<LogGuard, LoggingError> {
    let filter = EnvFilter::try_new(filter).map_err(|error| LoggingError::Filter {
        filter: filter.to_owned(),
        message: error.to_string(),
    })?;
    let lines =
        Lines::start(std::io::stderr(), Arc::clone(&DROPPED)).map_err(LoggingError::Thread)?;
    let guard = LogGuard(lines.clone());
    let lines = fmt().with_env_filter(filter).with_writer(lines);
    let set = match style {
        LogStyle::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogStyle::Json => lines.json().flatten_event(true).with_current_span(false).try_init(),
    };
    set.map_err(|_already_set| LoggingError::Twice)?;
    Ok(guard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_filter_is_said() {
        let error = init_logging(LogStyle::Text, "weir=loud").unwrap_err();
        assert!(error.to_string().contains("weir=loud"), "{error}");
    }
}
