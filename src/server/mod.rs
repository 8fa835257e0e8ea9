//! Listeners, TLS, routes, and the admin side.
//!
//! The public side is hyper itself, not a router: one handler takes every path, and what counts
//! is how a connection is bounded (how many, how slow, how large a head) and how it ends. The
//! admin side is a small axum router on a thread of its own, behind the same listener code; its
//! status page is drawn from the same `/status` that scripts read.

mod activity;
mod admin;
mod connection;
mod feed;
mod framing;
mod io;
mod listener;
mod page;
mod refusal;
mod serve;
mod status;
mod tls;

pub use admin::{Admin, AdminError, AdminOptions, Readiness, Reload, Reloaded, start_admin};
pub use connection::ConnectionLimits;
pub use listener::{Listener, bind};
pub use serve::Serve;
pub use tls::{Tls, TlsError};

#[cfg(test)]
mod tests;
