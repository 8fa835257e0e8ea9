//! The listening socket and its connections.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::body::Connection;
use super::faults::FaultKind;
use super::service::Service;
use crate::lifecycle::Clock;

/// Between attempts to listen again.
const REBIND: Duration = Duration::from_millis(20);

/// Accepts for as long as it is polled; owns every connection, so that dropping it drops them.
pub(super) async fn run(service: Arc<Service>, listener: TcpListener, address: SocketAddr) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    let mut changed = service.faults.watch();
    let closing = watch::Sender::new(());
    let mut ending = None;
    loop {
        if service.faults.is_on(FaultKind::Crash) {
            listener = None;
            connections.shutdown().await;
            service.room.restart();
        } else if service.faults.is_on(FaultKind::Refuse) && listener.take().is_some() {
            closing.send_modify(|()| {});
        }
        let down = [FaultKind::Crash, FaultKind::Refuse];
        if listener.is_none() && !down.iter().any(|kind| service.faults.is_on(*kind)) {
            listener = TcpListener::bind(address).await.ok();
            if listener.is_none() {
                tokio::time::sleep(REBIND).await;
                continue;
            }
        }
        tokio::select! {
            accepted = accept(listener.as_ref()) => {
                if let Ok((stream, _)) = accepted {
                    service.connections.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(serve(Arc::clone(&service), stream, closing.subscribe()));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = changed.changed() => {
                let next = service.faults.next_to_end();
                // A change of another fault must not set this one's time anew.
                if next.map(|(_, kind)| kind) != ending.map(|(_, kind)| kind) {
                    let now = service.clock.elapsed();
                    ending = next.map(|(after, kind)| (now.saturating_add(after), kind));
                }
            }
            kind = end(service.clock, ending) => service.faults.clear(kind),
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Resolves when a fault's time is over, with the fault.
async fn end(clock: Clock, ending: Option<(Duration, FaultKind)>) -> FaultKind {
    let Some((at, kind)) = ending else { return std::future::pending().await };
    clock.sleep_until(at).await;
    kind
}

async fn serve(service: Arc<Service>, stream: TcpStream, mut closing: watch::Receiver<()>) {
    // Without it, small frames wait for the client's acknowledgement of the one before.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let keep_alive = service.options.keep_alive;
    let connection = Arc::new(Connection::default());
    let io = TokioIo::new(Wire { stream, connection: Arc::clone(&connection) });
    let answer = service_fn(move |request| {
        let (service, connection) = (Arc::clone(&service), Arc::clone(&connection));
        async move { service.answer(request, connection).await }
    });
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(keep_alive)
            .serve_connection(io, answer)
    );
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        _ = closing.changed() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "replica connection");
    }
}

/// The socket, closed with RST where an answer asked for it.
struct Wire {
    stream: TcpStream,
    connection: Arc<Connection>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.connection.reset.load(Ordering::Acquire)
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::debug!(%error, "no reset");
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.reset.load(Ordering::Acquire) {
            // A FIN first would be the clean end that this is not.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
