//! How a connection to a replica fails, before an answer's head and after it.

use std::error::Error;
use std::io;

use crate::domain::{Failure, Reason};

/// No answer came: an attempt failed before any byte of it could be relayed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {detail}", failure.as_str())]
pub struct SendError {
    /// What happened, in the dispatcher's words.
    pub failure: Failure,
    /// What the socket or the parser said, for the log.
    pub detail: String,
}

impl SendError {
    pub(super) fn new(failure: Failure, detail: impl Into<String>) -> Self {
        Self { failure, detail: detail.into() }
    }

    /// Sorts what ended an exchange without an answer. `reused`: the connection had carried an
    /// answer before; `heard`: at least one byte of this answer came.
    pub(super) fn sort(error: &hyper::Error, reused: bool, heard: bool) -> Self {
        let failure = if broke_off(error) {
            if reused && !heard { Failure::IdleClosed } else { Failure::Reset }
        } else {
            Failure::Protocol
        };
        Self::new(failure, chain(error))
    }
}

/// An answer broke off after its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The replica reset the connection.
    #[error("the replica reset the connection")]
    Reset,
    /// It closed the connection before the length or the last chunk that it had announced.
    #[error("the replica closed the connection in mid-answer")]
    Truncated,
    /// What it sent is no chunk, or no HTTP.
    #[error("the replica broke HTTP's framing")]
    Protocol,
}

impl UpstreamError {
    /// The word for metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Truncated => "truncated",
            Self::Protocol => "protocol",
        }
    }

    /// The reason that the client is given.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Reset | Self::Truncated => Reason::UpstreamReset,
            Self::Protocol => Reason::UpstreamProtocol,
        }
    }

    pub(super) fn sort(error: &hyper::Error) -> Self {
        match io_kind(error) {
            Some(io::ErrorKind::UnexpectedEof) => Self::Truncated,
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => Self::Protocol,
            None if error.is_parse() => Self::Protocol,
            None if error.is_incomplete_message() => Self::Truncated,
            _ => Self::Reset,
        }
    }
}

/// Whether the connection went away, rather than that something unreadable came over it.
fn broke_off(error: &hyper::Error) -> bool {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return true;
    }
    !error.is_parse()
        && !error.is_user()
        && io_kind(error).is_some_and(|kind| {
            !matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
        })
}

fn io_kind(error: &hyper::Error) -> Option<io::ErrorKind> {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        source = inner.source();
    }
    None
}

/// An error with all of its sources, on one line.
fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}
