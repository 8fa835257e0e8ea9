//! What became of every call.

use std::time::Duration;

use crate::domain::{ClassId, Reason, Slo, TenantId, Timestamp};

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It was answered whole.
    Ok,
    /// Its client gave up after a refusal.
    Shed(Reason),
    /// It was sent to a replica and did not end well.
    Failed(Reason),
    /// Its client gave up waiting.
    Cancelled,
    /// The run ended before it did.
    Open,
}

/// One call, whatever its attempts.
#[derive(Clone, PartialEq, Debug)]
pub struct Seen {
    /// Its kind.
    pub class: ClassId,
    /// Whose it is.
    pub tenant: TenantId,
    /// When its client first wanted it.
    pub due: Timestamp,
    /// The gateway that its last attempt went to.
    pub gateway: usize,
    /// How it ended.
    pub end: End,
    /// Its last attempt's sending to its first token. A client that was told to come back later
    /// counts from then on: what it waited in between, it agreed to.
    pub ttft: Option<Duration>,
    /// The same from when it was due.
    pub ttft_from_due: Option<Duration>,
    /// Mean time a token after the first, for two tokens or more.
    pub tpot: Option<Duration>,
    /// Its last attempt's sending to its end.
    pub e2e: Duration,
    /// Attempts made.
    pub attempts: u32,
    /// Refusals on the way, by reason, retried or not.
    pub refusals: Vec<Reason>,
    /// Tokens of its prompt.
    pub prompt: u32,
    /// Tokens that its client got.
    pub tokens: u32,
}

impl Seen {
    /// Whether it met every target.
    pub fn is_good(&self, slo: &Slo) -> bool {
        let within = |value: Option<Duration>, target: Option<Duration>| {
            target.is_none_or(|target| value.is_none_or(|value| value <= target))
        };
        self.end == End::Ok
            && self.ttft.is_some()
            && within(self.ttft, slo.ttft)
            && within(self.tpot, slo.tpot)
            && within(Some(self.e2e), slo.e2e)
    }

    /// Whether its client was refused for good.
    pub const fn is_shed(&self) -> bool {
        matches!(self.end, End::Shed(_))
    }
}
