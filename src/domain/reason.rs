//! One vocabulary of reasons: the same word in the `x-weir-reason` header, the error body, the
//! log line and the metric label. What each means for an application stands in
//! `docs/OPERATIONS.md`.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:literal;)*) => {
        /// Why a request did not end as its client wished.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// Every reason, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word, everywhere the same.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The status of an answer with this reason. What happens in mid-stream has sent
            /// its status already; then this is the one it would have had.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }
        }
    };
}

reasons! {
    /// The queue is at its count or byte limit and this request gave way.
    QueueFull = "queue_full", 503;
    /// It could not start within the queue's bound in seconds.
    QueueWait = "queue_wait", 503;
    /// It could not start within its own deadline.
    Deadline = "deadline", 503;
    /// No replica of the pool may be used now.
    NoReplicas = "no_replicas", 503;
    /// This gateway is shutting down.
    Draining = "draining", 503;
    /// This gateway protects itself: memory, descriptors, lag.
    Overloaded = "overloaded", 503;
    /// The replica answered 503 of its own (its queue limit), and no other could take it.
    ReplicaBusy = "replica_busy", 503;
    /// The tenant's requests a minute are used up.
    RateRequests = "rate_requests", 429;
    /// The tenant's tokens a minute are used up.
    RateTokens = "rate_tokens", 429;
    /// The tenant has as many requests running as it may.
    Parallel = "parallel", 429;
    /// The tenant's token budget for the window is spent.
    Budget = "budget", 429;
    /// The body is not what the endpoint takes.
    Malformed = "malformed", 400;
    /// The prompt is longer than the model, the KV cache or the tenant allows.
    InputTokens = "input_tokens", 400;
    /// The output asked for is no number of tokens, or more than allowed.
    OutputTokens = "output_tokens", 400;
    /// No key, or one that is not known.
    Key = "key", 401;
    /// The tenant may not use this model.
    Model = "model", 403;
    /// The tenant may not use this route.
    Route = "route", 403;
    /// No pool serves this model.
    UnknownModel = "unknown_model", 404;
    /// The path or method is not on the allow-list.
    UnknownPath = "unknown_path", 404;
    /// The request's body came too slowly.
    SlowRequest = "slow_request", 408;
    /// The body is larger than allowed.
    Body = "body", 413;
    /// The headers are larger or more than allowed.
    Headers = "headers", 431;
    /// No connection to a replica could be made.
    Connect = "connect", 502;
    /// The replica closed the connection before its answer was whole.
    UpstreamReset = "upstream_reset", 502;
    /// The replica's answer was not what HTTP or the endpoint allows.
    UpstreamProtocol = "upstream_protocol", 502;
    /// The request killed replicas and is not tried again.
    Poison = "poison", 502;
    /// The replica sent nothing in time.
    FirstByte = "first_byte", 504;
    /// The request took longer than allowed in all.
    Total = "total", 504;
    /// The engine reported an error in its stream.
    EngineError = "engine_error", 502;
    /// The stream stood still for too long.
    BetweenFrames = "between_frames", 504;
    /// The client did not read its stream.
    ClientStall = "client_stall", 499;
    /// The stream was still running when the drain's deadline came.
    DrainDeadline = "drain_deadline", 503;
    /// The replica refused the request (its own 4xx, passed through as it was).
    ReplicaRefused = "replica_refused", 400;
    /// The replica failed (its own 5xx, passed through as it was).
    ReplicaError = "replica_error", 502;
}

impl Reason {
    /// Whether the answer carries a computed Retry-After: it is worth coming back.
    pub const fn retry_after(self) -> bool {
        matches!(
            self,
            Self::QueueFull
                | Self::QueueWait
                | Self::Deadline
                | Self::NoReplicas
                | Self::Draining
                | Self::Overloaded
                | Self::ReplicaBusy
                | Self::RateRequests
                | Self::RateTokens
                | Self::Parallel
        )
    }

    /// Whether a request with this reason was offered to the engine and failed there, rather
    /// than having been refused by us.
    pub const fn is_upstream(self) -> bool {
        matches!(
            self,
            Self::Connect
                | Self::UpstreamReset
                | Self::UpstreamProtocol
                | Self::Poison
                | Self::FirstByte
                | Self::Total
                | Self::EngineError
                | Self::BetweenFrames
                | Self::ClientStall
                | Self::DrainDeadline
                | Self::ReplicaBusy
                | Self::ReplicaRefused
                | Self::ReplicaError
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words_are_unique_snake_case_and_have_error_statuses() {
        let words: HashSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert!(reason.as_str().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!((400..600).contains(&reason.status()), "{reason:?}");
        }
    }
}
