//! The client's end of a connection, as `server` hands it over.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Notify;

/// Who is at the other end, and the way to hang up on them.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where the connection comes from.
    pub address: SocketAddr,
    /// Whether it is encrypted.
    pub tls: bool,
    /// Ends the connection from inside an answer; never asked for where several answers share it
    /// (h2).
    pub hangup: Hangup,
}

impl Peer {
    /// A plain peer with a line of its own.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, tls: false, hangup: Hangup::default() }
    }
}

/// A line to whoever drives the connection: a client that does not read can be told nothing any
/// more, and hyper polls an answer's body only when the client reads, so the socket itself has to
/// go. The driver drops the connection when [`Hangup::wanted`] is ready.
#[derive(Clone, Debug, Default)]
pub struct Hangup(Arc<Notify>);

impl Hangup {
    /// Asks for the end of the connection.
    pub fn ask(&self) {
        self.0.notify_one();
    }

    /// Ready once somebody has asked.
    pub async fn wanted(&self) {
        self.0.notified().await;
    }
}
