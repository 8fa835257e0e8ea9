//! When a client that was refused comes back: the SDKs' rules as state machines.
//!
//! Pure, so that the simulator and the load generator run the same clients. Read in the sources:
//! openai-python `_base_client.py` (`_should_retry`, `_calculate_retry_timeout`), openai-node
//! `client.ts` (`shouldRetry`, `retryRequest`). Both try again on no answer at all, on 408, 409,
//! 429 and from 500 on, unless `x-should-retry` says otherwise; both wait as long as the server
//! asked, without jitter, when that is a minute at most (node: less than one), and otherwise
//! 0.5 s, doubled each time up to 8 s, shortened by up to a quarter. Versions of openai-python
//! from 2026 obey two minutes and give up beyond; the older and more common rule stands here.

use std::time::Duration;

use serde::Deserialize;

use super::Faults;
use crate::domain::Span;

/// The longest wait from a server that the SDKs obey.
const LONGEST_OBEYED: Duration = Duration::from_mins(1);

/// Kind of client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ClientModel {
    /// Never comes back.
    #[default]
    None,
    /// openai-python.
    #[serde(rename = "openai-python")]
    OpenAiPython {
        /// `max_retries`.
        #[serde(default = "two")]
        retries: u32,
    },
    /// openai-node.
    #[serde(rename = "openai-node")]
    OpenAiNode {
        /// `maxRetries`.
        #[serde(default = "two")]
        retries: u32,
    },
    /// Comes back after the same time whatever it was told: a naive loop.
    Fixed {
        /// Attempts after the first.
        retries: u32,
        /// Time between them.
        wait: Span,
    },
}

const fn two() -> u32 {
    2
}

impl ClientModel {
    /// The word of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OpenAiPython { .. } => "openai-python",
            Self::OpenAiNode { .. } => "openai-node",
            Self::Fixed { .. } => "fixed",
        }
    }

    /// Attempts after the first.
    pub const fn retries(self) -> u32 {
        match self {
            Self::None => 0,
            Self::OpenAiPython { retries }
            | Self::OpenAiNode { retries }
            | Self::Fixed { retries, .. } => retries,
        }
    }

    /// Whether it says in `x-stainless-retry-count` how often it has come back.
    pub const fn counts_retries(self) -> bool {
        matches!(self, Self::OpenAiPython { .. } | Self::OpenAiNode { .. })
    }

    pub(super) fn check(self, path: &str, faults: &mut Faults) {
        if self.retries() > 1000 {
            faults.add(path, format!("has {} retries, not at most 1000", self.retries()));
        }
    }
}

/// What a client was told instead of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// `None`: no answer came (refused, reset, timed out).
    pub status: Option<u16>,
    /// `retry-after-ms`, else `Retry-After`.
    pub retry_after: Option<Duration>,
    /// `x-should-retry`, where it is `true` or `false`.
    pub should_retry: Option<bool>,
}

/// One request of a client, and how often it has come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retrier {
    model: ClientModel,
    done: u32,
}

impl Retrier {
    /// A request's first attempt is under way.
    pub const fn new(model: ClientModel) -> Self {
        Self { model, done: 0 }
    }

    /// Attempts after the first, so far.
    pub const fn done(&self) -> u32 {
        self.done
    }

    /// An attempt was refused or failed: how long until the next one, `None` when it gives up.
    /// `uniform` lies in 0..1.
    pub fn after(&mut self, told: Told, uniform: f64) -> Option<Duration> {
        let retryable =
            told.status.is_none_or(|status| matches!(status, 408 | 409 | 429) || status >= 500);
        if self.done >= self.model.retries() || !told.should_retry.unwrap_or(retryable) {
            return None;
        }
        let asked = told.retry_after.filter(|asked| !asked.is_zero());
        let wait = match self.model {
            ClientModel::None => return None,
            ClientModel::Fixed { wait, .. } => wait.0,
            ClientModel::OpenAiPython { .. } => asked
                .filter(|asked| *asked <= LONGEST_OBEYED)
                .unwrap_or_else(|| self.backoff(uniform)),
            ClientModel::OpenAiNode { .. } => asked
                .filter(|asked| *asked < LONGEST_OBEYED)
                .unwrap_or_else(|| self.backoff(uniform)),
        };
        self.done += 1;
        Some(wait)
    }

    fn backoff(&self, uniform: f64) -> Duration {
        let doubled = 0.5 * 2_f64.powi(i32::try_from(self.done.min(16)).unwrap_or(16));
        Duration::from_secs_f64(doubled.min(8.0) * (1.0 - 0.25 * uniform.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PYTHON: ClientModel = ClientModel::OpenAiPython { retries: 2 };
    const NODE: ClientModel = ClientModel::OpenAiNode { retries: 2 };

    fn refused(retry_after: Option<u64>) -> Told {
        let retry_after = retry_after.map(Duration::from_secs);
        Told { status: Some(503), retry_after, should_retry: None }
    }

    #[test]
    fn it_gives_up_after_its_retries() {
        for model in [PYTHON, NODE] {
            let mut client = Retrier::new(model);
            assert_eq!(client.after(refused(None), 0.0), Some(Duration::from_millis(500)));
            assert_eq!(client.after(refused(None), 1.0), Some(Duration::from_millis(750)));
            assert_eq!((client.after(refused(None), 0.0), client.done()), (None, 2));
        }
        assert_eq!(Retrier::new(ClientModel::None).after(refused(Some(1)), 0.0), None);
    }

    #[test]
    fn the_backoff_ends_at_eight_seconds() {
        let mut client = Retrier::new(ClientModel::OpenAiPython { retries: 40 });
        let waits: Vec<_> = (0..40).filter_map(|_| client.after(refused(None), 0.0)).collect();
        assert_eq!(waits[3..6], [4, 8, 8].map(Duration::from_secs));
        assert_eq!((waits.len(), waits[39]), (40, Duration::from_secs(8)));
    }

    #[test]
    fn a_minute_is_obeyed_by_one_and_more_by_none() {
        let wait = |model, asked| Retrier::new(model).after(refused(Some(asked)), 0.0);
        let (minute, half) = (Some(Duration::from_mins(1)), Some(Duration::from_millis(500)));
        assert_eq!((wait(PYTHON, 60), wait(NODE, 60)), (minute, half));
        assert_eq!((wait(PYTHON, 61), wait(NODE, 59)), (half, Some(Duration::from_secs(59))));
        assert_eq!(wait(PYTHON, 0), half);
    }

    #[test]
    fn the_header_overrules_the_status_and_no_answer_is_worth_another_try() {
        let again = |told| Retrier::new(NODE).after(told, 0.0).is_some();
        assert!(again(Told::default()) && again(refused(None)));
        let status = |status| Told { status: Some(status), ..Told::default() };
        assert!(again(status(429)) && again(status(408)) && !again(status(400)));
        assert!(!again(Told { should_retry: Some(false), ..refused(Some(1)) }));
        assert!(again(Told { should_retry: Some(true), ..status(400) }));
    }

    #[test]
    fn a_naive_loop_takes_no_advice_on_when() {
        let wait = Span(Duration::from_secs(3));
        let mut client = Retrier::new(ClientModel::Fixed { retries: 1, wait });
        assert_eq!(client.after(refused(Some(20)), 0.5), Some(wait.0));
    }
}
