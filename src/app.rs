//! The composition root of the gateway: the only file that sees everything.
//!
//! It makes each part once, hands each what it needs, and decides who hears what: records and
//! notes go to telemetry, readings of replicas to the gates, configurations to all who follow
//! one. What any of them does with it is their own. `weir serve` and `weir demo` run the same
//! gateway; only where the configuration comes from differs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::config::{Config, PoolConfig};
use crate::dispatch::{Event, Note};
use crate::domain::{Failure, ReplicaId, RequestRecord};
use crate::lifecycle::{Clock, Drain, Phase, Tasks};
use crate::proxy::{Observer, Parts, Peer, Proxy, RelayBody};
use crate::reload::{Asker, Handle, Running};
use crate::server::{
    Admin, AdminOptions, ConnectionLimits, Listener, Serve, Tls, bind, start_admin,
};
use crate::telemetry::{PoolLabels, PoolTargets, Telemetry};
use crate::upstream::{Observation, Observed, Replicas, Watchers};

mod control;

/// Readings of replicas on their way to the gates. When this many wait, a newer one is dropped
/// and the next period brings another.
const OBSERVATIONS: usize = 1024;

/// After the drain, connections get this long to see their last bytes out.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// What `weir serve` and `weir demo` bring along.
pub struct Launch {
    /// The process's clock.
    pub clock: Clock,
    /// Where the running configuration is.
    pub handle: Arc<Handle>,
    /// Asks for a reload; `None` where the configuration came from no file.
    pub asker: Option<Asker>,
    /// Counts everything.
    pub telemetry: Arc<Telemetry>,
    /// Owns the tasks.
    pub tasks: Tasks,
    /// The process's one source of randomness.
    pub seed: u64,
}

/// A running gateway.
pub struct App {
    proxy: Arc<Proxy>,
    admin: Admin,
    drain: Drain,
    tasks: Tasks,
    listen: SocketAddr,
}

impl App {
    /// Binds both listeners and starts everything. What cannot start is an error, and nothing
    /// has been served then.
    pub fn start(launch: Launch) -> anyhow::Result<Self> {
        let Launch { clock, handle, asker, telemetry, tasks, seed } = launch;
        let running = handle.running();
        let config = Arc::clone(&running.config);
        let tls = load_tls(&config)?;
        let socket = bind(config.server.listen)
            .with_context(|| format!("cannot listen on {}", config.server.listen))?;
        let listen = socket.local_addr()?;

        let replicas = Arc::new(Replicas::new(clock));
        replicas.spawn_reaper(&tasks);
        take(&telemetry, &running);
        let proxy = Proxy::new(
            Parts {
                clock,
                tasks: tasks.clone(),
                replicas: Arc::clone(&replicas),
                observer: Arc::new(Counted(Arc::clone(&telemetry))),
                seed,
            },
            Arc::clone(&config),
        );
        let (sink, readings) = mpsc::channel(OBSERVATIONS);
        let watchers = Watchers::new(clock, tasks.clone(), sink);
        watchers.follow(&config, &replicas);
        let counted = Arc::clone(&telemetry);
        let telling = tell_gates(Arc::clone(&proxy), Arc::clone(&replicas), counted, readings);
        drop(tasks.background("readings", telling));

        let gates = Arc::clone(&proxy);
        telemetry.watch_gates(move || gates.snapshots());
        let drain = Drain::new();
        let admin = start_admin(AdminOptions {
            listen: config.server.admin,
            token: config.server.admin_token.as_ref().map(|token| token.reveal().into()),
            telemetry: Arc::clone(&telemetry),
            phase: drain.watch(),
            configured: Arc::new(|| true),
            extra: control::status(Arc::clone(&handle)),
            config: control::config(Arc::clone(&handle)),
            reload: control::reload(asker, Arc::clone(&handle)),
            clock,
        })?;

        let limits = &config.server.limits;
        let listener = Listener {
            socket,
            tls: tls.clone(),
            max_connections: usize::try_from(limits.max_connections).unwrap_or(usize::MAX),
            limits: connection_limits(&config),
            connections: telemetry.connections(),
            clock,
            tasks: tasks.clone(),
            drain: drain.watch(),
        };
        drop(tasks.spawn("listener", listener.serve(Front(Arc::clone(&proxy)))));
        let followers = Followers { proxy: Arc::clone(&proxy), replicas, watchers, telemetry, tls };
        drop(tasks.background("follow-config", followers.follow(handle)));
        for warning in &config.warnings {
            tracing::warn!("{}: {}", warning.path, warning.message);
        }
        tracing::info!(%listen, admin = %admin.address(), pools = config.pools.len(), "serving");
        Ok(Self { proxy, admin, drain, tasks, listen })
    }

    /// What applications call.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Metrics, health, status and control.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Walks the whole way down: unready, draining, closed. `at_once` cuts it short.
    pub async fn stop(self, config: &Config, at_once: impl Future<Output = ()>) {
        let Self { proxy, admin, drain, tasks, .. } = self;
        let watch = drain.watch();
        let refuse = async {
            watch.reached(Phase::Draining).await;
            proxy.drain();
            std::future::pending::<()>().await;
        };
        let down = drain.run(config.drain.delay, config.drain.deadline, proxy.drained(), at_once);
        tokio::select! {
            () = down => {}
            () = refuse => {}
        }
        proxy.cut_all();
        let cut = tasks.stop(LAST_BYTES).await;
        if !cut.is_empty() {
            tracing::warn!(tasks = ?cut, "cut off at the end");
        }
        admin.stop();
    }
}

/// The proxy, as the public listener sees it.
#[derive(Clone)]
struct Front(Arc<Proxy>);

impl Serve for Front {
    type Body = RelayBody;
    type Peer = Peer;

    fn peer(&self, address: SocketAddr, tls: bool) -> Peer {
        Peer { tls, ..Peer::new(address) }
    }

    async fn hangup(peer: Peer) {
        peer.hangup.wanted().await;
    }

    async fn handle(&self, request: Request<Incoming>, peer: Peer) -> Response<RelayBody> {
        self.0.handle(request, peer).await
    }
}

/// Telemetry, as the proxy sees it.
struct Counted(Arc<Telemetry>);

impl Observer for Counted {
    fn record(&self, record: &RequestRecord) {
        self.0.record(record);
    }

    fn attempt_failed(&self, pool: &str, replica: &str, failure: Failure) {
        tracing::info!(pool, replica, failure = failure.as_str(), "attempt failed");
        self.0.attempt_failed(pool, replica, failure);
    }

    fn answered(&self, pool: &str, replica: &str, status: u16) {
        self.0.upstream_response(pool, replica, status);
    }

    fn note(&self, pool: &str, replica: &str, note: Note) {
        let kind = note.as_str();
        match note {
            Note::Fresh(_) | Note::Reinstated(_) => tracing::info!(pool, replica, kind, "replica"),
            Note::Unknown(_, metric) => tracing::warn!(pool, replica, kind, metric, "replica"),
            _ => tracing::warn!(pool, replica, kind, "replica"),
        }
        self.0.note(pool, replica, kind);
    }
}

/// The certificate of the public listener, where it is encrypted.
fn load_tls(config: &Config) -> anyhow::Result<Option<Arc<Tls>>> {
    let Some(paths) = &config.server.tls else { return Ok(None) };
    let tls = Tls::load(Path::new(&*paths.cert), Path::new(&*paths.key))?;
    Ok(Some(Arc::new(tls)))
}

fn connection_limits(config: &Config) -> ConnectionLimits {
    let limits = &config.server.limits;
    let whole = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
    ConnectionLimits {
        header_timeout: limits.header_timeout,
        idle_timeout: limits.idle_timeout,
        max_header_bytes: whole(limits.max_header_bytes),
        max_headers: whole(limits.max_headers),
        ..ConnectionLimits::default()
    }
}

/// Tells telemetry what may be a label now, and which configuration that is.
fn take(telemetry: &Telemetry, running: &Running) {
    let classes = running.config.classes.names();
    let labels: Vec<_> = running.config.pools.iter().map(|pool| labels(pool, classes)).collect();
    telemetry.configure(&labels);
    telemetry.hold_to(running.config.pools.iter().map(|pool| targets(pool)).collect());
    telemetry.config_taken(running.generation, &running.hash, running.since);
}

fn labels(pool: &PoolConfig, classes: &[Arc<str>]) -> PoolLabels {
    PoolLabels {
        model: Arc::clone(&pool.model),
        classes: classes.to_vec(),
        replicas: pool.replicas.iter().map(|address| Arc::clone(address.authority())).collect(),
    }
}

fn targets(pool: &PoolConfig) -> PoolTargets {
    PoolTargets {
        model: Arc::clone(&pool.model),
        classes: vec![("default".into(), pool.slo)],
        queue_wait: pool.policy.queue.wait,
    }
}

/// Carries each reading of a replica to the gates, and counts those that failed.
async fn tell_gates(
    proxy: Arc<Proxy>,
    replicas: Arc<Replicas>,
    telemetry: Arc<Telemetry>,
    mut readings: mpsc::Receiver<Observed>,
) {
    while let Some((id, observation)) = readings.recv().await {
        let Some(pool) = proxy.pools().into_iter().find(|pool| pool.replica(id).is_some()) else {
            continue;
        };
        match observation {
            Observation::Sample(sample) => pool.gate.event(Event::Telemetry(id, sample)),
            Observation::Health(health) => pool.gate.event(Event::Health(id, health)),
            Observation::ScrapeFailed(why) => {
                let name = replica_name(&replicas, id);
                tracing::debug!(pool = &*pool.name, replica = &*name, why, "scrape failed");
                telemetry.scrape_failed(&pool.name, &name);
            }
        }
    }
}

fn replica_name(replicas: &Replicas, id: ReplicaId) -> Arc<str> {
    replicas.replica(id).map_or_else(|| id.to_string().into(), |one| Arc::clone(one.name()))
}

/// All that goes by the running configuration.
struct Followers {
    proxy: Arc<Proxy>,
    replicas: Arc<Replicas>,
    watchers: Watchers,
    telemetry: Arc<Telemetry>,
    tls: Option<Arc<Tls>>,
}

impl Followers {
    /// Goes by each configuration that takes another's place.
    async fn follow(self, handle: Arc<Handle>) {
        let mut changes = handle.subscribe();
        while changes.changed().await.is_ok() {
            let running = Arc::clone(&changes.borrow_and_update());
            take(&self.telemetry, &running);
            self.proxy.apply(Arc::clone(&running.config));
            self.watchers.follow(&running.config, &self.replicas);
            if let Some(Err(error)) = self.tls.as_ref().map(|tls| tls.reload()) {
                tracing::error!(%error, "certificate not reloaded: the one before stays");
            }
        }
    }
}
