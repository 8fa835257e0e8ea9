//! How one attempt at a replica went wrong, before any byte of its answer was relayed.

use super::Reason;

/// Why an attempt failed. What follows from it (another replica, ejection, an answer) is
/// `dispatch`'s to decide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// No connection: refused, unreachable, or not within the connect timeout.
    Connect,
    /// A reused idle connection was closed before a byte came: the keep-alive race.
    IdleClosed,
    /// The replica closed or reset a fresh connection before the first engine-caused frame.
    Reset,
    /// What it sent was not HTTP or not a stream that may be relayed.
    Protocol,
    /// The replica's own 503: its queue is full. Busy, not broken.
    Busy,
    /// Any other 5xx before the first byte, with its status.
    Status(u16),
    /// The stream's first frame was an error.
    EngineError,
    /// Nothing came within `first_byte`.
    FirstByteTimeout,
    /// The dispatcher abandoned the attempt: the head hold ended on an engine without progress.
    Stalled,
}

impl Failure {
    /// Every failure, one status standing for all, for labels and tables.
    pub const ALL: [Self; 9] = [
        Self::Connect,
        Self::IdleClosed,
        Self::Reset,
        Self::Protocol,
        Self::Busy,
        Self::Status(500),
        Self::EngineError,
        Self::FirstByteTimeout,
        Self::Stalled,
    ];

    /// The word for metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::IdleClosed => "idle_closed",
            Self::Reset => "reset",
            Self::Protocol => "protocol",
            Self::Busy => "busy",
            Self::Status(_) => "status",
            Self::EngineError => "engine_error",
            Self::FirstByteTimeout => "first_byte",
            Self::Stalled => "stalled",
        }
    }

    /// The reason that the client is given when no further attempt is made.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Connect => Reason::Connect,
            Self::IdleClosed | Self::Reset => Reason::UpstreamReset,
            Self::Protocol => Reason::UpstreamProtocol,
            Self::Busy => Reason::ReplicaBusy,
            Self::Status(_) => Reason::ReplicaError,
            Self::EngineError => Reason::EngineError,
            Self::FirstByteTimeout | Self::Stalled => Reason::FirstByte,
        }
    }
}
