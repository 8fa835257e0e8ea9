//! The one record that a request leaves: metrics and the access log are written from it.

use std::sync::Arc;
use std::time::Duration;

use super::{Endpoint, ITL_BOUNDS, Outcome, Slo, Timestamp};

/// Token counts as the replica reported them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Prompt tokens.
    pub input: u64,
    /// Generated tokens, all sequences.
    pub output: u64,
    /// Prompt tokens found in the prefix cache, where the replica says.
    pub cached: Option<u64>,
}

/// The gaps between content frames of one stream, in the buckets of [`ITL_BOUNDS`].
///
/// Kept apart until the outcome is known, since a stream that fails must not enter the series
/// of successes, and merged into it in one step.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Gaps {
    /// Gaps at most as long as each bound and longer than the one before; last: longer than all.
    pub counts: [u64; ITL_BOUNDS.len() + 1],
    /// All gaps together, seconds.
    pub sum_seconds: f64,
    /// The longest, seconds.
    pub longest_seconds: f64,
}

impl Gaps {
    /// Adds one gap.
    pub fn observe(&mut self, gap: Duration) {
        let seconds = gap.as_secs_f64();
        let at = ITL_BOUNDS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum_seconds += seconds;
        self.longest_seconds = self.longest_seconds.max(seconds);
    }

    /// How many gaps there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Everything that is known of a request when it has ended. Never a word of its text.
#[derive(Clone, PartialEq, Debug)]
pub struct RequestRecord {
    /// `x-request-id`, ours or the client's.
    pub request_id: Arc<str>,
    /// `None` where the path was not on the allow-list.
    pub endpoint: Option<Endpoint>,
    /// The pool's model name; `None` where no pool was found.
    pub pool: Option<Arc<str>>,
    /// Tenant's name.
    pub tenant: Arc<str>,
    /// Class's name.
    pub class: Arc<str>,
    /// The replica of the last attempt.
    pub replica: Option<Arc<str>>,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// The status that the client saw; 0 where it went away before one.
    pub status: u16,
    /// Attempts made at replicas.
    pub attempts: u32,
    /// When the request was fully received.
    pub received: Timestamp,
    /// Time in our queue, all attempts together; `None` where it never came to the gate.
    pub queue_wait: Option<Duration>,
    /// From the last dispatch to the first frame that the engine caused.
    pub first_frame: Option<Duration>,
    /// Received to the first frame with content.
    pub ttft: Option<Duration>,
    /// (last - first content) / (output tokens - 1); `None` below two tokens or without usage.
    pub tpot: Option<Duration>,
    /// Received to the end.
    pub e2e: Duration,
    /// Gaps between content frames.
    pub gaps: Gaps,
    /// Content frames relayed.
    pub frames: u64,
    /// Bytes relayed to the client.
    pub bytes: u64,
    /// Tokens, where the replica reported them.
    pub usage: Option<Usage>,
    /// The targets that it was held to.
    pub slo: Slo,
    /// What the client was told when it was refused.
    pub rejection: Option<super::Rejection>,
}

impl RequestRecord {
    /// Whether it met every target of its class (see design: goodput is over *offered*).
    ///
    /// A target without a measurement counts as met only where the measurement cannot exist:
    /// a unary answer has no TTFT, a single token no TPOT.
    pub fn good(&self) -> bool {
        let within = |target: Option<Duration>, seen: Option<Duration>| match (target, seen) {
            (Some(target), Some(seen)) => seen <= target,
            _ => true,
        };
        let longest = Duration::try_from_secs_f64(self.gaps.longest_seconds).ok();
        self.outcome == Outcome::Completed
            && within(self.slo.ttft, self.ttft)
            && within(self.slo.tpot, self.tpot)
            && within(self.slo.itl, longest)
            && within(self.slo.e2e, Some(self.e2e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_on_a_bound_belongs_to_its_bucket_as_in_prometheus() {
        let mut gaps = Gaps::default();
        gaps.observe(Duration::from_millis(10));
        gaps.observe(Duration::from_millis(11));
        gaps.observe(Duration::from_secs(100));
        assert_eq!((gaps.counts[0], gaps.counts[1], gaps.counts[19]), (1, 1, 1));
        assert_eq!(gaps.count(), 3);
        assert!((gaps.sum_seconds - 100.021).abs() < 1e-9);
    }
}
