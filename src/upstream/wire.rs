//! One socket to a replica, with a count of the bytes that came over it.
//!
//! The count tells a connection that died unheard (the keep-alive race: the request may be sent
//! again) from one that died in the middle of an answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::config::{ReplicaAddress, Scheme};
use crate::domain::Failure;

use super::error::SendError;

/// The socket.
pub(super) struct Wire {
    socket: TcpStream,
    read: Arc<AtomicU64>,
}

impl Wire {
    /// Connects, all of the address's resolutions within `timeout`.
    pub(super) async fn open(
        address: &ReplicaAddress,
        timeout: Duration,
    ) -> Result<Self, SendError> {
        let failed = |detail: String| SendError::new(Failure::Connect, detail);
        if address.scheme() == Scheme::Https {
            // Never plain HTTP where TLS was asked for.
            return Err(failed("TLS to replicas is not spoken".to_owned()));
        }
        let connecting = TcpStream::connect((address.host(), address.port()));
        let socket = match tokio::time::timeout(timeout, connecting).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_elapsed) => return Err(failed(format!("no connection within {timeout:?}"))),
        };
        // Without it Nagle's algorithm would hold small requests back for a round trip.
        socket.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
        Ok(Self { socket, read: Arc::default() })
    }

    /// The count of bytes read so far, to be looked at while the socket is in use.
    pub(super) fn read_count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(cx, buf);
        let came = buf.filled().len().saturating_sub(before);
        if came > 0 {
            self.read.fetch_add(came as u64, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
