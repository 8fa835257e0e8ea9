//! How a request ended. Exactly one of these for each, and they add up:
//! offered = completed + rejected + evicted + cancelled + failed.

use super::Reason;

/// The one end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The whole answer was relayed.
    Completed,
    /// Refused before it was queued or dispatched.
    Rejected(Reason),
    /// Taken out of the queue again by us.
    Evicted(Reason),
    /// The client went away.
    Cancelled,
    /// It reached a replica and did not end well.
    Failed(Reason),
}

impl Outcome {
    /// The words of [`Outcome::as_str`], for labels.
    pub const WORDS: [&'static str; 5] =
        ["completed", "rejected", "evicted", "cancelled", "failed"];

    /// The word for metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Rejected(_) => "rejected",
            Self::Evicted(_) => "evicted",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }

    /// The reason, where there is one.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Rejected(reason) | Self::Evicted(reason) | Self::Failed(reason) => Some(reason),
            Self::Completed | Self::Cancelled => None,
        }
    }
}
