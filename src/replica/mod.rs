//! The engine model behind vLLM's HTTP, in real time, with faults.
//!
//! For tests and demonstrations in one process ([`Replica::start`]) and for `weir replica`. One
//! task steps the engine, one accepts; each connection's task collects its own tokens. It
//! answers as vLLM 0.32 was recorded to, with words that mean nothing.

mod body;
mod call;
mod errors;
mod faults;
mod frames;
mod metrics;
mod null;
mod options;
mod room;
mod server;
mod service;
#[cfg(test)]
mod tests;
mod text;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

pub use faults::{Fault, FaultKind, Faults};
pub use options::{NullStream, Options};
pub use service::{Seen, Stats};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::lifecycle::{Clock, Tasks};
use service::Service;

/// Starts simulated replicas.
#[derive(Clone, Copy, Debug)]
pub struct Replica;

impl Replica {
    /// Listens where `options` say and serves until the answer is dropped, with a clock and
    /// tasks of its own: for tests.
    pub async fn start(options: Options) -> io::Result<RunningReplica> {
        let listener = TcpListener::bind(options.listen).await?;
        Self::serve(options, listener, Clock::start(), &Tasks::default())
    }

    /// Serves on `listener` until the answer is dropped; `options.listen` is not looked at.
    pub fn serve(
        options: Options,
        listener: TcpListener,
        clock: Clock,
        tasks: &Tasks,
    ) -> io::Result<RunningReplica> {
        let address = listener.local_addr()?;
        let service = Arc::new(Service::new(options, clock));
        let stepping = Arc::clone(&service.room).run(service.faults.clone());
        let engine = tasks.background("replica-engine", stepping).abort_handle();
        let serving = server::run(Arc::clone(&service), listener, address);
        let server = tasks.background("replica-server", serving).abort_handle();
        Ok(RunningReplica { address, service, tasks: [engine, server] })
    }
}

/// A replica that serves until this is dropped.
pub struct RunningReplica {
    address: SocketAddr,
    service: Arc<Service>,
    tasks: [AbortHandle; 2],
}

impl Drop for RunningReplica {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl std::fmt::Debug for RunningReplica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningReplica").field("address", &self.address).finish_non_exhaustive()
    }
}

impl RunningReplica {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://` and the address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its switches.
    pub fn faults(&self) -> &Faults {
        &self.service.faults
    }

    /// What it has been asked and what it holds.
    pub fn stats(&self) -> Stats {
        self.service.stats()
    }

    /// The last inference requests, oldest first; empty unless [`Options::record`] is set.
    pub fn seen(&self) -> Vec<Seen> {
        self.service.seen.lock().iter().cloned().collect()
    }
}
