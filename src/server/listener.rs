//! The accept loop: bounded, and not to be killed by anything that `accept` returns.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntGauge;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::connection::{self, ConnectionLimits, Scene};
use super::refusal::{self, Refusals};
use super::serve::Serve;
use super::tls::Tls;
use crate::domain::Reason;
use crate::lifecycle::{Clock, DrainWatch, Phase, Tasks};
use crate::telemetry::Connections;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 4096;

/// First pause after a failed `accept`, doubled up to [`LONGEST_PAUSE`]: when descriptors are
/// used up, asking again at once only burns the CPU that would free some.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Bytes that the kernel may hold unsent for one connection. A reader that has stopped is felt
/// after this much, not after the megabytes that the kernel would else take.
const UNSENT: u32 = 16 * 1024;

/// A peer that vanished without a word is noticed after this much silence.
const KEEPALIVE: Duration = Duration::from_mins(1);

/// Binds `address`. The port is free for the next process at once when this one ends.
///
/// # Errors
/// Where the address cannot be had.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Everything that a listener goes by.
#[derive(Debug)]
pub struct Listener {
    /// Where connections come from.
    pub socket: TcpListener,
    /// Encrypts them; plain without.
    pub tls: Option<Arc<Tls>>,
    /// Most connections open at once; one more is turned away.
    pub max_connections: usize,
    /// Bounds on each.
    pub limits: ConnectionLimits,
    /// Counts.
    pub connections: Connections,
    /// For timeouts.
    pub clock: Clock,
    /// Owns the connections.
    pub tasks: Tasks,
    /// When to stop.
    pub drain: DrainWatch,
}

impl Listener {
    /// Accepts until the process is closed, then drops the socket. Connections live on in their
    /// tasks until they have ended.
    pub async fn serve<S: Serve>(self, serve: S) {
        let scene = Arc::new(Scene {
            serve,
            limits: self.limits,
            builder: connection::builder(&self.limits, self.tasks.clone()),
            clock: self.clock,
            drain: self.drain.clone(),
            refusals: Refusals::new(self.connections.clone(), self.clock),
        });
        let mut pause = FIRST_PAUSE;
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.drain.reached(Phase::Closed) => return,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    pause = FIRST_PAUSE;
                    self.take(&scene, stream, address);
                }
                Err(error) if is_the_peers(&error) => self.connections.accept_errors.inc(),
                Err(error) => {
                    self.connections.accept_errors.inc();
                    tracing::warn!(%error, ?pause, "accept failed");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn take<S: Serve>(&self, scene: &Arc<Scene<S>>, stream: TcpStream, address: SocketAddr) {
        let open = usize::try_from(self.connections.open.get()).unwrap_or(0);
        if open >= self.max_connections {
            self.connections.over_cap.inc();
            let id = scene.refusals.count(Reason::Overloaded);
            if self.tls.is_none() {
                // What does not fit into an empty socket buffer is not worth waiting for.
                let _sent = stream.try_write(&refusal::raw(Reason::Overloaded, &id)).is_ok();
            }
            return;
        }
        if let Err(error) = tune(&stream) {
            // The peer is gone already, or the kernel is older than the option.
            tracing::debug!(%error, "socket options");
        }
        self.connections.accepted.inc();
        let open = Open::new(self.connections.open.clone());
        let scene = Arc::clone(scene);
        let peer = scene.serve.peer(address, self.tls.is_some());
        let Some(tls) = &self.tls else {
            drop(self.tasks.spawn("connection", async move {
                let _open = open;
                connection::run(scene, stream, peer).await;
            }));
            return;
        };
        let (config, failed) = (tls.config(), self.connections.tls_failed.clone());
        drop(self.tasks.spawn("connection", async move {
            let _open = open;
            let handshake = TlsAcceptor::from(config).accept(stream);
            match tokio::time::timeout(scene.limits.header_timeout, handshake).await {
                Ok(Ok(stream)) => Box::pin(connection::run(scene, stream, peer)).await,
                Ok(Err(error)) => {
                    failed.inc();
                    tracing::debug!(%error, "TLS handshake");
                }
                Err(_late) => failed.inc(),
            }
        }));
    }
}

/// Errors of one connection that was lost before it was accepted, not of the listener.
fn is_the_peers(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Frames go out at once (Nagle's algorithm costs 35 ms of TTFT at 5 ms pacing), and little is
/// held for who does not read.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT)?;
    Ok(())
}

/// Counts a connection as open for as long as it lives.
struct Open(IntGauge);

impl Open {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
