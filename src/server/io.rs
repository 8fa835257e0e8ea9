//! A connection's byte stream, watched, and given back when hyper is done with it.
//!
//! hyper drops the stream together with the connection, and answers a head it cannot read with
//! a status and nothing else. Our clients are told a reason every time, so the stream returns
//! to its driver on drop, and hyper's bare answer is held back for the driver to give a whole
//! one. Reads tell the connection's [`Activity`] when a head begins.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;
use super::refusal;
use crate::domain::Reason;

/// Where the stream lies once hyper has dropped it.
pub(super) struct Returned<T> {
    /// Written once, by the drop of [`Watched`]; read by the driver after it.
    io: Mutex<Option<T>>,
    /// The reason behind hyper's bare answer, where it tried to give one.
    bare: Mutex<Option<Reason>>,
}

impl<T> Returned<T> {
    /// The stream, once hyper has let go of it.
    pub(super) fn take(&self) -> Option<T> {
        self.io.lock().take()
    }

    /// The reason that hyper refused the head for, if it did.
    pub(super) fn bare(&self) -> Option<Reason> {
        *self.bare.lock()
    }
}

/// The stream as hyper sees it.
pub(super) struct Watched<T> {
    /// `None` only while being dropped.
    io: Option<T>,
    back: Arc<Returned<T>>,
    activity: Arc<Activity>,
    /// Set when a bare answer was held back: nothing may be written after it.
    mute: bool,
}

impl<T> Watched<T> {
    pub(super) fn new(io: T, activity: Arc<Activity>) -> (Self, Arc<Returned<T>>) {
        let back = Arc::new(Returned { io: Mutex::new(None), bare: Mutex::new(None) });
        (Self { io: Some(io), back: Arc::clone(&back), activity, mute: false }, back)
    }

    /// Whether `written` must not go out.
    fn holds_back(&mut self, written: &[u8]) -> bool {
        if !self.mute
            && self.activity.in_head()
            && let Some(reason) = refusal::of_bare_answer(written)
        {
            *self.back.bare.lock() = Some(reason);
            self.mute = true;
        }
        self.mute
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        *self.back.io.lock() = self.io.take();
    }
}

fn gone() -> io::Error {
    io::Error::from(io::ErrorKind::NotConnected)
}

impl<T: Unpin> Watched<T> {
    fn inner(&mut self) -> io::Result<Pin<&mut T>> {
        self.io.as_mut().map(Pin::new).ok_or_else(gone)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.inner()?.poll_read(cx, buf))?;
        self.activity.read(buf.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.holds_back(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        self.inner()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| buf);
        if self.holds_back(first) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        self.inner()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.mute {
            return Poll::Ready(Ok(()));
        }
        self.inner()?.poll_shutdown(cx)
    }
}
