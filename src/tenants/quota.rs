//! How much a tenant may ask for over time, and at once.

use std::num::NonZeroU32;
use std::time::Duration;

/// The part of a minute's rate that may be used at once, where nobody says otherwise. Over ten
/// minutes a tenant so gets 2.5 % more than its rate at most; a whole minute's burst would be 10 %.
pub const DEFAULT_BURST: Duration = Duration::from_secs(15);

/// The quotas of one tenant. What is `None` is not limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Requests a minute.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Tokens a minute, input and output together.
    pub tokens_per_minute: Option<u64>,
    /// Requests under way at once.
    pub parallel: Option<u32>,
    /// For how long a rate may be saved up, to be used at once.
    pub burst: Duration,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            requests_per_minute: None,
            tokens_per_minute: None,
            parallel: None,
            burst: DEFAULT_BURST,
        }
    }
}

impl Quota {
    /// Whether anything is limited at all.
    pub fn is_limited(&self) -> bool {
        self.requests_per_minute.is_some()
            || self.tokens_per_minute.is_some()
            || self.parallel.is_some()
    }
}

/// Where one quota of a tenant stands, for the headers that tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// What is allowed: a minute for a rate, at once for a count.
    pub limit: u64,
    /// What may be used at once when nothing has been used for a while.
    pub burst: u64,
    /// What may be used now.
    pub left: u64,
    /// How long until `left` is `burst` again; zero for a count, which depends on others.
    pub full_in: Duration,
}

/// Where all of a tenant's quotas stand. What is `None` is not limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Levels {
    /// Requests a minute.
    pub requests: Option<Level>,
    /// Tokens a minute.
    pub tokens: Option<Level>,
    /// Requests at once.
    pub parallel: Option<Level>,
    /// For how long a rate may be saved up.
    pub burst: Duration,
}
