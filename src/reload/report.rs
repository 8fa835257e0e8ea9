//! What a reload did.

use crate::config::{Applies, Change, ConfigErrors};

/// Why the configuration was read again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// A file or its folder changed.
    File,
    /// SIGHUP.
    Signal,
    /// The admin endpoint.
    Admin,
}

impl Cause {
    /// Every cause, for metric labels.
    pub const ALL: [Self; 3] = [Self::File, Self::Signal, Self::Admin];

    /// The word for metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Signal => "signal",
            Self::Admin => "admin",
        }
    }
}

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The files say what they said before.
    Unchanged,
    /// A new configuration runs (or would, but for keys that need a restart).
    Applied {
        /// Its generation.
        generation: u64,
        /// What is different; what needs a restart has *not* been done.
        changes: Vec<Change>,
    },
    /// The files are faulty; the running configuration stays.
    Refused(ConfigErrors),
}

impl Outcome {
    /// Every word of [`Outcome::as_str`], for metric labels.
    pub const WORDS: [&'static str; 3] = ["unchanged", "applied", "refused"];

    /// The word for metric labels and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Applied { .. } => "applied",
            Self::Refused(_) => "refused",
        }
    }
}

/// One reload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Why.
    pub cause: Cause,
    /// How it ended.
    pub outcome: Outcome,
}

impl Report {
    /// Says it in the log, every fault and every change a line. What changed nothing is quiet,
    /// unless somebody asked.
    pub(super) fn log(&self) {
        let cause = self.cause.as_str();
        match &self.outcome {
            Outcome::Unchanged if self.cause == Cause::File => {
                tracing::debug!(cause, "configuration unchanged");
            }
            Outcome::Unchanged => tracing::info!(cause, "configuration unchanged"),
            Outcome::Applied { generation, changes } => {
                tracing::info!(cause, generation, changes = changes.len(), "configuration applied");
                for change in changes {
                    match change.applies {
                        Applies::Live => tracing::info!(generation, "{change}"),
                        Applies::Restart => tracing::warn!(generation, "not applied: {change}"),
                    }
                }
            }
            Outcome::Refused(errors) => {
                let faults = errors.0.len();
                tracing::error!(cause, faults, "configuration refused: the running one stays");
                for error in &errors.0 {
                    tracing::error!("{error}");
                }
            }
        }
    }
}
