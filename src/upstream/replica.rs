//! One replica: its name, its id, and how to reach it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::Request;

use crate::config::ReplicaAddress;
use crate::domain::ReplicaId;

use super::connections::{ConnectionCounts, Connections, Exchange, Rules};
use super::error::SendError;
use super::facts::Facts;

/// A vLLM server. Lives as long as the process, so that counts and ids survive its leaving and
/// coming back.
pub struct Replica {
    id: ReplicaId,
    address: ReplicaAddress,
    /// For requests.
    requests: Arc<Connections>,
    /// For probes and scrapes: they must neither wait for a request's connection nor keep one.
    control: Arc<Connections>,
    /// Written by its probe loop alone.
    facts: ArcSwapOption<Facts>,
}

impl Replica {
    pub(super) fn new(id: ReplicaId, address: ReplicaAddress, rules: &Arc<Rules>) -> Self {
        let connections = || Arc::new(Connections::new(address.clone(), Arc::clone(rules)));
        let (requests, control) = (connections(), connections());
        Self { id, address, requests, control, facts: ArcSwapOption::empty() }
    }

    /// Its id in this process.
    pub const fn id(&self) -> ReplicaId {
        self.id
    }

    /// Its address.
    pub const fn address(&self) -> &ReplicaAddress {
        &self.address
    }

    /// `host:port`: its name in metrics and logs.
    pub fn name(&self) -> &Arc<str> {
        self.address.authority()
    }

    /// Sends a request on an idle connection or a new one, which may take `connect_timeout` to
    /// open, and waits for the head of the answer.
    ///
    /// The URI is taken as origin-form, `Host` is set to the replica's authority and the framing
    /// rebuilt; other fields, hop-by-hop ones included, go out as they are. The body is cheap to
    /// clone for another attempt. Nothing but the connecting has a timeout here: whoever drops
    /// the future, or later the body, closes the connection and so has the engine abort.
    pub async fn send(
        &self,
        request: Request<Bytes>,
        connect_timeout: Duration,
    ) -> Result<Exchange, SendError> {
        self.requests.send(request, connect_timeout).await
    }

    /// How its request connections came about.
    pub fn connections(&self) -> ConnectionCounts {
        self.requests.counts()
    }

    /// What it said of itself when it was last asked; `None` before it ever answered.
    pub fn facts(&self) -> Option<Arc<Facts>> {
        self.facts.load_full()
    }

    pub(super) fn learn(&self, facts: Facts) {
        self.facts.store(Some(Arc::new(facts)));
    }

    pub(super) const fn control(&self) -> &Arc<Connections> {
        &self.control
    }

    /// Closes connections that were idle for too long.
    pub(super) fn reap(&self) {
        self.requests.reap();
        self.control.reap();
    }

    /// Closes all idle connections; those in use end with their answers.
    pub(super) fn retire(&self) {
        self.requests.clear();
        self.control.clear();
    }
}
