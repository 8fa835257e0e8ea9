//! Where log lines go: standard error, as text for people or JSON for machines.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

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
    /// Logging was set up before.
    #[error("logging is set up already")]
    Twice,
}

/// Sets up logging for the whole process, once. `filter` is a level (`info`) or `tracing`'s
/// directives (`info,access=off,weir::upstream=debug`).
///
/// # Errors
/// A filter that cannot be read, or a second call.
pub fn init_logging(style: LogStyle, filter: &str) -> Result<(), LoggingError> {
    let filter = EnvFilter::try_new(filter).map_err(|error| LoggingError::Filter {
        filter: filter.to_owned(),
        message: error.to_string(),
    })?;
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = match style {
        LogStyle::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogStyle::Json => lines.json().flatten_event(true).with_current_span(false).try_init(),
    };
    set.map_err(|_already_set| LoggingError::Twice)
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
