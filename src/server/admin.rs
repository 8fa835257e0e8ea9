//! Metrics, health, status and control, on a thread and a runtime of their own.
//!
//! Under overload the public runtime may be late by seconds; who asks whether the gateway lives
//! must not wait behind the load that is the question. Nothing here runs on that runtime: data
//! come from closures that take a snapshot under a short lock.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use hyper::body::Incoming;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tower::ServiceExt as _;

use super::connection::ConnectionLimits;
use super::feed::{Events, Feed};
use super::listener::{Listener, bind};
use super::page;
use super::serve::Serve;
use super::status;
use crate::domain::Timestamp;
use crate::lifecycle::{Clock, Drain, DrainWatch, Phase, Tasks};
use crate::telemetry::Telemetry;

/// Whether a configuration is in force; readiness asks.
pub type Readiness = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a reload came to: what runs now and what that changed, or everything that is wrong.
pub type Reloaded = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;

/// Loads the configuration again.
pub type Reload = Arc<dyn Fn() -> Reloaded + Send + Sync>;

/// Connections that the admin listener holds at most.
const MAX_CONNECTIONS: usize = 256;

/// What is left after this at the end is cut.
const GRACE: Duration = Duration::from_secs(1);

/// Everything that the admin side shows and calls.
#[derive(Clone)]
pub struct AdminOptions {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Asked for where `listen` is not loopback, by all but metrics and probes.
    pub token: Option<Arc<str>>,
    /// Metrics and gates.
    pub telemetry: Arc<Telemetry>,
    /// The public side's phase; readiness fails from [`Phase::Unready`] on.
    pub phase: DrainWatch,
    /// Whether a configuration is in force.
    pub configured: Readiness,
    /// What the application adds to `/status`: an object.
    pub extra: Arc<dyn Fn() -> Value + Send + Sync>,
    /// `GET /config`.
    pub config: Arc<dyn Fn() -> Value + Send + Sync>,
    /// `POST /config/reload`.
    pub reload: Reload,
    /// For uptime and timeouts.
    pub clock: Clock,
}

/// Why the admin side did not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address cannot be had.
    #[error("admin listener {address}: {source}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// No thread or runtime could be made.
    #[error("admin thread: {0}")]
    Thread(#[source] io::Error),
}

/// The running admin side. Stays up until [`Admin::stop`], so that the way down can be watched.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    drain: Drain,
    thread: JoinHandle<()>,
}

impl Admin {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it and waits for its thread, a second at most for what is still being answered.
    pub fn stop(self) {
        self.drain.advance(Phase::Closed);
        if self.thread.join().is_err() {
            tracing::error!("the admin thread panicked");
        }
    }
}

/// Starts the thread and returns when it listens.
///
/// # Errors
/// Where the address cannot be had, or no thread.
pub fn start_admin(options: AdminOptions) -> Result<Admin, AdminError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(AdminError::Thread)?;
    let bound = |source| AdminError::Bind { address: options.listen, source };
    let socket = {
        let _inside = runtime.enter();
        bind(options.listen).map_err(bound)?
    };
    let address = socket.local_addr().map_err(bound)?;
    let drain = Drain::new();
    let watch = drain.watch();
    let run = move || runtime.block_on(serve(socket, options, watch));
    let thread = std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(run)
        .map_err(AdminError::Thread)?;
    Ok(Admin { address, drain, thread })
}

async fn serve(socket: tokio::net::TcpListener, options: AdminOptions, drain: DrainWatch) {
    let telemetry = Arc::clone(&options.telemetry);
    let tasks = Tasks::new(move |task| telemetry.task_panicked(task));
    let listener = Listener {
        socket,
        tls: None,
        max_connections: MAX_CONNECTIONS,
        limits: ConnectionLimits::default(),
        connections: options.telemetry.admin_connections(),
        clock: options.clock,
        tasks: tasks.clone(),
        drain,
    };
    listener.serve(Routes(router(options))).await;
    // Names of what was cut are logged.
    let _cut = tasks.stop(GRACE).await;
}

/// The router as a [`Serve`].
#[derive(Clone)]
struct Routes(Router);

impl Serve for Routes {
    type Body = Body;
    type Peer = ();

    fn peer(&self, _address: SocketAddr, _tls: bool) -> Self::Peer {}

    async fn handle(&self, request: http::Request<Incoming>, (): Self::Peer) -> Response {
        let answer: Result<_, Infallible> = self.0.clone().oneshot(request.map(Body::new)).await;
        answer.unwrap_or_else(|never| match never {})
    }
}

/// What the routes share.
struct Shared {
    options: AdminOptions,
    feed: Arc<Feed>,
}

type Desk = State<Arc<Shared>>;

fn router(options: AdminOptions) -> Router {
    let status = {
        let options = options.clone();
        move || status_of(&options)
    };
    let feed = Feed::new(status, options.clock, options.phase.clone());
    let state = Arc::new(Shared { options, feed });
    let guarded = Router::new()
        .route("/status", get(show_status))
        .route("/status/stream", get(stream_status))
        .route("/config", get(show_config))
        .route("/config/reload", post(reload))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&state), authorize));
    Router::new()
        .route("/", get(page::show))
        .route("/metrics", get(metrics))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .merge(guarded)
        .with_state(state)
}

async fn metrics(State(shared): Desk) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, shared.options.telemetry.render()).into_response()
}

/// True while this process may be sent requests: not when it drains or has no configuration,
/// but when it is saturated or its replicas are down, since another gateway would be no better.
async fn readyz(State(shared): Desk) -> Response {
    let options = &shared.options;
    let phase = options.phase.phase();
    if phase >= Phase::Unready {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", phase.as_str())).into_response();
    }
    if !(options.configured)() {
        return (StatusCode::SERVICE_UNAVAILABLE, "unconfigured\n").into_response();
    }
    "ok\n".into_response()
}

fn status_of(options: &AdminOptions) -> Value {
    let now = Timestamp::since_origin(options.clock.elapsed());
    status::page(options.phase.phase(), now, &options.telemetry, (options.extra)())
}

async fn show_status(State(shared): Desk) -> Json<Value> {
    Json(status_of(&shared.options))
}

async fn stream_status(State(shared): Desk) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::new(Events::new(Arc::clone(&shared.feed)))).into_response()
}

/// Every key of the running configuration; secrets are masked.
async fn show_config(State(shared): Desk) -> Json<Value> {
    Json((shared.options.config)())
}

async fn reload(State(shared): Desk) -> Response {
    match (shared.options.reload)().await {
        Ok(done) => Json(done).into_response(),
        Err(message) => {
            (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "error": message }))).into_response()
        }
    }
}

async fn authorize(State(shared): Desk, request: Request, next: Next) -> Response {
    let options = &shared.options;
    if options.listen.ip().is_loopback() {
        return match foreign(request.headers()) {
            None => next.run(request).await,
            Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        };
    }
    let given = request.headers().get(header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
    let given = given.and_then(|value| value.strip_prefix(b"Bearer "));
    let right = match (&options.token, given) {
        (Some(token), Some(given)) => same(token.as_bytes(), given),
        _ => false,
    };
    if right {
        return next.run(request).await;
    }
    let ask = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, ask, "a token is needed off loopback\n").into_response()
}

/// On loopback there is no token, but there are browsers, and what strangers' pages make them
/// send. Such a request names the stranger: as the origin, or, where a stranger's name was made
/// to lead here, as the host. `None` where it comes from nobody's page but ours.
fn foreign(headers: &http::HeaderMap) -> Option<&'static str> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST)?;
    let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
    // No stranger owns an address, or a name without a dot.
    let ours = name.starts_with('[') || !name.contains('.') || name.parse::<IpAddr>().is_ok();
    if !ours {
        return Some("this listener answers to its address alone\n");
    }
    let origin = text(header::ORIGIN)?;
    let same = origin.split_once("://").is_some_and(|(_scheme, from)| from == host);
    (!same).then_some("another site's page may not ask this\n")
}

/// Compares by digest and without an early end, so that the time taken tells nothing of how
/// much of a guess was right.
fn same(a: &[u8], b: &[u8]) -> bool {
    let (a, b) = (Sha256::digest(a), Sha256::digest(b));
    a.iter().zip(&b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests;
