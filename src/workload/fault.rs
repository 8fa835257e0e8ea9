//! What is wrong with a workload file or a trace, and where.

use std::fmt;

/// More than anyone reads.
const MOST_FAULTS: usize = 50;

/// One fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Line, from 1; `None` where only the key is known.
    pub line: Option<usize>,
    /// Key path, such as `classes[0].prompt_tokens.fixed`; empty for a line of a trace.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// All faults of a text, never empty where it is an error.
#[derive(Clone, PartialEq, Eq, Debug, Default, thiserror::Error)]
#[error("{}", self.text())]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Notes a fault of a key.
    pub fn add(&mut self, path: &str, message: impl Into<String>) {
        self.push(Fault { line: None, path: path.to_owned(), message: message.into() });
    }

    /// Notes a fault of a line, counted from 1.
    pub fn add_line(&mut self, line: usize, message: impl Into<String>) {
        self.push(Fault { line: Some(line), path: String::new(), message: message.into() });
    }

    pub(super) fn push(&mut self, fault: Fault) {
        if self.0.len() < MOST_FAULTS {
            self.0.push(fault);
        }
    }

    /// The faults, in the order in which they were found; at most 50.
    pub fn all(&self) -> &[Fault] {
        &self.0
    }

    /// `value` where nothing is wrong.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    fn text(&self) -> String {
        self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}
