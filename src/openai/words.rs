//! A refusal in words, for the person who reads the client's log at night: what happened, and
//! what to do. They name the request's own numbers, never those of others.

use crate::domain::{Reason, Rejection, ShouldRetry, Told, Unit};

/// One sentence or two a reason.
pub const fn sentence(reason: Reason) -> &'static str {
    match reason {
        Reason::QueueFull => "The queue of this model is full.",
        Reason::QueueWait => {
            "All replicas of this model are busy; the request would wait too long."
        }
        Reason::Deadline => "The request could not start within its deadline.",
        Reason::NoReplicas => {
            "No replica of this model can be used now. The request itself is not at fault."
        }
        Reason::Draining => "This gateway is shutting down; another instance will answer.",
        Reason::Overloaded => {
            "This gateway is protecting itself: it holds as much of requests as it may."
        }
        Reason::ReplicaBusy => "Every replica that was asked is full by its own count.",
        Reason::RateRequests => "The requests a minute of this key are used up. Send fewer.",
        Reason::RateTokens => "The tokens a minute of this key are used up. Send less.",
        Reason::Parallel => {
            "This key has as many requests running as it may. Wait for one of them to end."
        }
        Reason::Budget => "The token budget of this key is spent until its next window.",
        Reason::Malformed => "The request is not what this endpoint takes.",
        Reason::InputTokens => "The prompt is longer than allowed. Shorten it.",
        Reason::OutputTokens => {
            "The output asked for is no number of tokens, or too many. Ask for less."
        }
        Reason::Key => {
            "The key is missing or not known. Send it as `Authorization: Bearer` or `x-api-key`."
        }
        Reason::Model => "This key may not use this model.",
        Reason::Route => "This key may not use this route.",
        Reason::UnknownModel => "The model does not exist. `/v1/models` lists what does.",
        Reason::UnknownPath => "The path does not exist.",
        Reason::SlowRequest => "The request's body came too slowly.",
        Reason::Body => "The request's body is larger than allowed.",
        Reason::Headers => "The request's headers are larger or more than allowed.",
        Reason::Connect => "No connection to a replica could be made. Trying again is safe.",
        Reason::UpstreamReset => "The replica closed the connection before its answer was whole.",
        Reason::UpstreamProtocol => "The replica's answer was not what HTTP allows.",
        Reason::Poison => "The request made replicas fail and is not tried again.",
        Reason::FirstByte => "The replica sent nothing in time.",
        Reason::Total => "The request took longer than allowed. Ask for less output.",
        Reason::EngineError => "The engine failed.",
        Reason::BetweenFrames => "The stream stood still for too long.",
        Reason::ClientStall => "The client did not read its stream.",
        Reason::DrainDeadline => "This gateway shut down before the stream had ended.",
        Reason::ReplicaRefused => "The replica refused the request.",
        Reason::ReplicaError => "The replica failed.",
    }
}

/// A refusal with its numbers: which limit, what stood against it, when to come back.
pub fn describe(rejection: &Rejection) -> String {
    let why = rejection.told().and_then(|told| with_numbers(rejection.reason, told));
    let why = why.unwrap_or_else(|| sentence(rejection.reason).to_owned());
    match (rejection.retry_after, rejection.should_retry) {
        (_, ShouldRetry::No) => format!("{why} Do not retry."),
        (Some(wait), ShouldRetry::Unsaid) => {
            format!("{why} Retry after {:.1} s.", wait.as_secs_f64())
        }
        (None, ShouldRetry::Unsaid) => why,
    }
}

fn with_numbers(reason: Reason, told: Told) -> Option<String> {
    let Told { unit, limit, reading, .. } = told;
    let reading = reading.unwrap_or_default();
    Some(match reason {
        Reason::QueueFull if unit == Unit::Bytes => format!(
            "The queue of this model is full: no more than {limit} bytes of requests may wait."
        ),
        Reason::QueueFull => {
            format!("The queue of this model is full: no more than {limit} requests may wait.")
        }
        Reason::QueueWait => format!(
            "All replicas of this model are busy: this request would wait {reading} s, {limit} s \
             are allowed."
        ),
        Reason::Deadline => format!(
            "This request would start after {reading} s and has {limit} s: the shortest of its \
             class's target for the first token, its `x-slo-ttft-ms`, and its client's timeout."
        ),
        Reason::NoReplicas => format!(
            "None of the {limit} replicas of this model can be used now. The request itself is \
             not at fault."
        ),
        Reason::RateRequests => {
            format!("The rate limit of this key, {limit} requests a minute, is met. Send fewer.")
        }
        Reason::RateTokens => {
            format!("The rate limit of this key, {limit} tokens a minute, is met. Send less.")
        }
        Reason::Parallel => format!(
            "{reading} requests of this key run already, {limit} may. Wait for one of them to end."
        ),
        Reason::Budget => {
            format!("The budget of this key is spent: {reading} tokens of {limit} in this window.")
        }
        Reason::InputTokens => {
            format!("The prompt has about {reading} tokens, {limit} are allowed. Shorten it.")
        }
        Reason::OutputTokens => {
            format!("{reading} output tokens were asked for, {limit} are allowed. Ask for less.")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_refusal_says_what_was_full_and_when_to_come_back() {
        let rejection = Rejection {
            retry_after: Some(Duration::from_millis(2500)),
            unit: Some(Unit::Seconds),
            limit: 0.4,
            reading: 1.25,
            ..Rejection::plain(Reason::QueueWait)
        };
        let text = describe(&rejection);
        for part in ["1.25 s", "0.4 s", "Retry after 2.5 s."] {
            assert!(text.contains(part), "{text}");
        }
        let hopeless = Rejection { should_retry: ShouldRetry::No, ..rejection };
        assert!(describe(&hopeless).ends_with("Do not retry."));
        for &reason in Reason::ALL {
            assert_eq!(describe(&Rejection::plain(reason)), sentence(reason));
        }
    }

    #[test]
    fn no_sentence_counts_what_others_send() {
        for unit in [Unit::Requests, Unit::Bytes] {
            let full = Rejection {
                unit: Some(unit),
                limit: 64.0,
                reading: 7_777.0,
                ..Rejection::plain(Reason::QueueFull)
            };
            let text = describe(&full);
            assert!(text.contains("64") && !text.contains("7777"), "{text}");
        }
    }
}
