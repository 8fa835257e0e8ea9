//! What is wrong with a file, and where.

use std::fmt;

/// One fault of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The file, as it was named to us.
    pub file: String,
    /// Line, from 1; `None` where the fault is an absence or in no file.
    pub line: Option<usize>,
    /// Key path, such as `pools[0].limits.in_flight`; empty for the whole file.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What would have been right, where that can be said.
    pub allowed: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(allowed) = &self.allowed {
            write!(f, " (allowed: {allowed})")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Every fault of a configuration, in the order of file and line; never empty.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.lines())]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl ConfigErrors {
    fn lines(&self) -> String {
        self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}
