//! The body of an answer, polled by hyper in the connection's own task.
//!
//! A stream collects what the engine has made whenever it is polled, writes its frames and lets
//! go of its [`Ticket`] when dropped, so that a client which goes away aborts the work.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::faults::{FaultKind, Faults};
use super::frames::Writer;
use super::null::NullFrames;
use super::room::{Ready, Ticket};

/// What a connection is told by the answers on it.
#[derive(Default, Debug)]
pub(super) struct Connection {
    /// Close with RST, not FIN.
    pub(super) reset: AtomicBool,
}

pub(super) enum Body {
    /// All at once.
    Whole(Option<Bytes>),
    /// From the engine.
    Stream(Box<Stream>),
    /// From nothing.
    Null(Box<NullFrames>),
}

impl From<String> for Body {
    fn from(body: String) -> Self {
        Self::Whole(Some(body.into()))
    }
}

pub(super) struct Stream {
    pub(super) ticket: Ticket,
    pub(super) writer: Writer,
    pub(super) faults: Faults,
    pub(super) connection: Arc<Connection>,
    ready: Vec<Ready>,
    opened: bool,
    ended: bool,
}

/// How a fault ends a stream.
enum End {
    /// As if all were well.
    Clean,
    Death,
    Lost,
}

impl Stream {
    pub(super) const fn new(
        ticket: Ticket,
        writer: Writer,
        faults: Faults,
        connection: Arc<Connection>,
    ) -> Self {
        Self { ticket, writer, faults, connection, ready: vec![], opened: false, ended: false }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut out = String::new();
        if !std::mem::replace(&mut self.opened, true) {
            self.writer.open(&mut out);
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(out.into())));
            }
        }
        std::task::ready!(self.ticket.slot.poll_collect(cx, &mut self.ready));
        if let Some(end) = self.fault() {
            self.ended = true;
            return Poll::Ready(match end {
                End::Clean => None,
                End::Death => Some(Ok(self.writer.death().into())),
                End::Lost => Some(Err(io::Error::other("a fault that was asked for"))),
            });
        }
        self.writer.write(&self.ready, &mut out);
        if self.writer.done() {
            self.writer.close(&mut out);
            self.ended = true;
        }
        Poll::Ready(Some(Ok(out.into())))
    }

    /// Whether something goes wrong instead of the next frame.
    fn fault(&self) -> Option<End> {
        let frames = self.writer.frames;
        let happens = |kind| self.faults.take(kind, frames).is_some();
        if happens(FaultKind::Cut) {
            Some(End::Clean)
        } else if happens(FaultKind::EngineDeath) {
            Some(End::Death)
        } else if happens(FaultKind::Truncate) {
            Some(End::Lost)
        } else if happens(FaultKind::Reset) {
            self.connection.reset.store(true, Ordering::Release);
            Some(End::Lost)
        } else if frames == 0 && self.faults.take(FaultKind::PrefillDeath, u32::MAX).is_some() {
            Some(End::Lost)
        } else {
            None
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let data = match self.get_mut() {
            Self::Whole(bytes) => bytes.take().map(Ok),
            Self::Stream(stream) => std::task::ready!(stream.poll(cx)),
            Self::Null(frames) => std::task::ready!(frames.poll(cx)).map(Ok),
        };
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(
                bytes.as_ref().map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            ),
            Self::Stream(_) | Self::Null(_) => SizeHint::default(),
        }
    }
}
