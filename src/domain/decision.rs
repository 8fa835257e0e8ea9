//! What a refused client is told, and why.

use std::time::Duration;

use super::Reason;

/// Whether the client is told to try again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ShouldRetry {
    /// Nothing is said beyond `Retry-After`.
    Unsaid,
    /// `x-should-retry: false`: a retry is hopeless, late, or over the client's budget.
    No,
}

/// What a refusal's limit and reading are counted in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// Time.
    Seconds,
    /// Requests that wait or run.
    Requests,
    /// Bytes of request bodies.
    Bytes,
    /// Tokens of one request.
    Tokens,
    /// Replicas of the pool.
    Replicas,
    /// Attempts of one request at replicas.
    Attempts,
    /// A tenant's requests over time.
    RequestsPerMinute,
    /// A tenant's tokens over time.
    TokensPerMinute,
    /// A tenant's tokens in its budget's window.
    BudgetTokens,
}

impl Unit {
    /// Every unit, in the order of the declaration.
    pub const ALL: [Self; 9] = [
        Self::Seconds,
        Self::Requests,
        Self::Bytes,
        Self::Tokens,
        Self::Replicas,
        Self::Attempts,
        Self::RequestsPerMinute,
        Self::TokensPerMinute,
        Self::BudgetTokens,
    ];

    /// The word for headers, bodies, logs and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::Tokens => "tokens",
            Self::Replicas => "replicas",
            Self::Attempts => "attempts",
            Self::RequestsPerMinute => "requests_per_minute",
            Self::TokensPerMinute => "tokens_per_minute",
            Self::BudgetTokens => "budget_tokens",
        }
    }

    /// What a reason's limit is counted in, as a rule; `None` where no limit stands behind it.
    /// (A queue may be full by requests or by bytes.)
    pub const fn of(reason: Reason) -> Option<Self> {
        Some(match reason {
            Reason::QueueWait | Reason::Deadline => Self::Seconds,
            Reason::QueueFull | Reason::Parallel => Self::Requests,
            Reason::NoReplicas => Self::Replicas,
            Reason::RateRequests => Self::RequestsPerMinute,
            Reason::RateTokens => Self::TokensPerMinute,
            Reason::Budget => Self::BudgetTokens,
            Reason::InputTokens | Reason::OutputTokens => Self::Tokens,
            Reason::Connect
            | Reason::UpstreamReset
            | Reason::UpstreamProtocol
            | Reason::Poison
            | Reason::FirstByte
            | Reason::EngineError
            | Reason::ReplicaBusy
            | Reason::ReplicaError => Self::Attempts,
            _ => return None,
        })
    }
}

/// A refusal with everything that explains it: which limit, what it stood at, how old the
/// reading was. Goes to the client's headers and body, the log and the metrics alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
    /// When to come back; `None` where coming back is of no use.
    pub retry_after: Option<Duration>,
    /// Whether to come back at all.
    pub should_retry: ShouldRetry,
    /// What `limit` and `reading` are counted in; `None` where no limit explains it, and both
    /// are 0 and mean nothing.
    pub unit: Option<Unit>,
    /// The limit that was met.
    pub limit: f64,
    /// What stood against it, in the same unit.
    pub reading: f64,
    /// Age of the oldest outside reading that took part; zero when only exact local counts did.
    pub age: Duration,
}

/// What a client is told of a refusal's numbers, rounded to thousandths.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Told {
    /// What they are counted in.
    pub unit: Unit,
    /// The limit that was met.
    pub limit: f64,
    /// What stood against it; `None` where that counts the requests of others.
    pub reading: Option<f64>,
    /// Age of the oldest outside reading that took part, seconds.
    pub age_seconds: f64,
}

impl Rejection {
    /// A refusal that no limit explains further: nothing to come back for, no reading.
    pub const fn plain(reason: Reason) -> Self {
        Self {
            reason,
            retry_after: None,
            should_retry: ShouldRetry::Unsaid,
            unit: None,
            limit: 0.0,
            reading: 0.0,
            age: Duration::ZERO,
        }
    }

    /// What its client may know of it: everything about the request and its own tenant, and
    /// nothing of what others send. How full a queue is that all tenants share stays with the
    /// operator (log, metric, `/status`). `None` where no limit explains it.
    pub fn told(&self) -> Option<Told> {
        let shared = self.reason == Reason::QueueFull;
        Some(Told {
            unit: self.unit?,
            limit: thousandths(self.limit),
            reading: (!shared).then(|| thousandths(self.reading)),
            age_seconds: thousandths(self.age.as_secs_f64()),
        })
    }
}

fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn units_are_words_of_their_own() {
        let words: HashSet<_> = Unit::ALL.iter().map(|unit| unit.as_str()).collect();
        assert_eq!(words.len(), Unit::ALL.len());
    }

    #[test]
    fn a_client_is_told_its_own_numbers_and_nobody_elses() {
        let of = |reason| Rejection {
            unit: Unit::of(reason),
            limit: 0.4,
            reading: 1.234_56,
            age: Duration::from_micros(250_400),
            ..Rejection::plain(reason)
        };
        let wait = of(Reason::QueueWait).told();
        let (unit, reading) = (Unit::Seconds, Some(1.235));
        assert_eq!(wait, Some(Told { unit, limit: 0.4, reading, age_seconds: 0.25 }));
        let full = of(Reason::QueueFull).told().unwrap();
        assert_eq!((full.limit, full.reading), (0.4, None), "what waits is other tenants'");
        assert_eq!(of(Reason::Draining).told(), None);
    }
}
