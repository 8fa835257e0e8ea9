//! The request's path: from a request's head to the last byte of its answer.
//!
//! In the order in which a request meets them: [`handler`](self) takes it in (`auth`, `quota`,
//! `intake`, `headers`), `pools` finds its model's [`Gate`], a [`Ticket`] waits there, a [`Permit`] goes
//! with it through `forward` and `attempt` to a replica, and rides in its [`RelayBody`] until the
//! last byte (`relay`, `stream`, `timing`). `respond` is the one file that answers for what goes
//! wrong, `recorder` leaves the one record, `tender` looks after the streams.
//!
//! What decides is elsewhere: `dispatch` whether, when and where; `openai` what bytes mean.

mod attempt;
mod auth;
mod direct;
mod forward;
mod gate;
mod handler;
mod headers;
mod intake;
mod job;
mod models;
mod observer;
mod peer;
mod permit;
mod poison;
mod pools;
mod quota;
mod recorder;
mod relay;
mod respond;
mod slot;
mod stream;
mod tender;
mod timing;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::config::Config;
use crate::dispatch::Event;
use crate::domain::{Endpoint, PoolSnapshot, Reason, RequestId, Timestamp, UnixTime};
use crate::lifecycle::{Clock, Tasks};
use crate::upstream::Replicas;

pub use gate::{Gate, NoteSink};
pub use observer::Observer;
pub use peer::{Hangup, Peer};
pub use permit::{Permit, Ticket, Turn};
pub use pools::Pool;
pub use relay::{CutOff, RelayBody};

use intake::BodyBudget;
use models::ModelList;
use poison::Poisoned;
use pools::View;
use recorder::Recorder;
use tender::Tender;

/// What the proxy is given by whoever builds it.
pub struct Parts {
    /// The process's clock.
    pub clock: Clock,
    /// Where its two kinds of tasks go: a gate's deadlines, and the tending of streams.
    pub tasks: Tasks,
    /// Every replica that the process knows.
    pub replicas: Arc<Replicas>,
    /// Who is told what happens; live, the process's telemetry.
    pub observer: Arc<dyn Observer>,
    /// The process's one source of randomness.
    pub seed: u64,
}

impl Parts {
    fn now(&self) -> Timestamp {
        Timestamp::since_origin(self.clock.elapsed())
    }
}

/// The state that all requests share.
pub struct Proxy {
    parts: Parts,
    view: ArcSwap<View>,
    tender: Arc<Tender>,
    budget: Arc<BodyBudget>,
    models: ModelList,
    poisoned: Arc<Poisoned>,
    requests: AtomicU64,
    draining: AtomicBool,
    /// The drain's deadline has come, or an end at once.
    cut: watch::Sender<bool>,
    /// Cloned into every request's recorder: its count is the count of requests alive.
    alive: Arc<()>,
}

impl Proxy {
    /// Builds the gates of a configuration and starts their tasks.
    pub fn new(parts: Parts, config: Arc<Config>) -> Arc<Self> {
        let tender = Tender::new(parts.clock);
        let _task = parts.tasks.background("tender", Arc::clone(&tender).run());
        let budget = BodyBudget::new(config.server.limits.max_buffered_bytes);
        let view = View::build(None, config, &parts);
        Arc::new(Self {
            view: ArcSwap::from_pointee(view),
            tender,
            budget,
            models: ModelList::default(),
            poisoned: Arc::default(),
            requests: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            cut: watch::Sender::new(false),
            alive: Arc::new(()),
            parts,
        })
    }

    /// Goes by a new configuration. Requests that run keep the one they came under.
    pub fn apply(&self, config: Arc<Config>) {
        self.budget.set_limit(config.server.limits.max_buffered_bytes);
        let view = View::build(Some(&self.view()), config, &self.parts);
        self.view.store(Arc::new(view));
        self.models.forget();
        if self.is_draining() {
            self.drain_gates();
        }
    }

    /// The pools of the running configuration.
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.view().pools.clone()
    }

    /// What each pool shows, in the order of the configuration.
    pub fn snapshots(&self) -> Vec<PoolSnapshot> {
        self.view().pools.iter().map(|pool| pool.snapshot()).collect()
    }

    /// Requests that have come and not ended.
    pub fn alive(&self) -> usize {
        Arc::strong_count(&self.alive).saturating_sub(1)
    }

    /// Bytes of request bodies held.
    pub fn held_bytes(&self) -> u64 {
        self.budget.held()
    }

    /// Streams on their way to clients.
    pub fn streams(&self) -> usize {
        self.tender.len()
    }

    /// Bytes of answers read ahead of slow clients.
    pub fn ahead_bytes(&self) -> usize {
        self.tender.ahead()
    }

    /// From now on new requests are refused; what is queued and running goes on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.drain_gates();
    }

    /// The drain's deadline: every stream gets its error frame, everything else its answer.
    pub fn cut_all(&self) {
        self.cut.send_replace(true);
        self.tender.cut_all(Reason::DrainDeadline);
    }

    /// Ready when no request is alive.
    pub async fn drained(&self) {
        while self.alive() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn drain_gates(&self) {
        for pool in &self.view().pools {
            pool.gate.event(Event::Drain);
        }
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    fn now(&self) -> Timestamp {
        self.parts.now()
    }

    /// The time of day; before 1970 is 1970.
    fn wall(&self) -> UnixTime {
        let since = self.parts.clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixTime::from_secs(since.as_secs())
    }

    fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    fn new_id(&self) -> RequestId {
        RequestId(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// A name for a request that brought none: this process's own word and a number.
    fn new_request_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        format!("weir-{:016x}-{number:x}", self.parts.seed)
    }

    fn recorder(&self, id: Arc<str>, endpoint: Option<Endpoint>) -> Recorder {
        let alive = Arc::clone(&self.alive);
        Recorder::new(Arc::clone(&self.parts.observer), self.parts.clock, id, endpoint, alive)
    }

    /// Ready when a request may not go on: it has taken `total`, or the drain is over.
    fn cutoff(&self, total: Duration) -> impl Future<Output = Reason> + use<> {
        let mut cut = self.cut.subscribe();
        async move {
            tokio::select! {
                () = tokio::time::sleep(total) => Reason::Total,
                // The sender lives as long as the proxy; without it there is nothing to cut.
                Ok(_) = cut.wait_for(|cut| *cut) => Reason::DrainDeadline,
            }
        }
    }
}
