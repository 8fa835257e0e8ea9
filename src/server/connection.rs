//! One connection, from its first byte to its end.
//!
//! A connection ends when its client ends it, when a head is too slow or silence too long, when
//! the answerer hangs up on a client that does not read, or in an orderly way when the process
//! drains: idle ones at once, busy ones behind the answer that they carry.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::activity::{Activity, Busy, Overdue};
use super::io::{Returned, Watched};
use super::refusal::{self, Refusals};
use super::serve::Serve;
use crate::domain::Reason;
use crate::lifecycle::{Clock, DrainWatch, Phase, Tasks};

/// Bounds on one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// A head has this long from its first byte; a TLS handshake too.
    pub header_timeout: Duration,
    /// A connection without a request is closed after this.
    pub idle_timeout: Duration,
    /// Bytes of one head.
    pub max_header_bytes: usize,
    /// Headers in one head.
    pub max_headers: usize,
    /// Requests that one h2 connection may have open.
    pub max_streams: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            max_header_bytes: 32 * 1024,
            max_headers: 100,
            max_streams: 256,
        }
    }
}

/// hyper's smallest read buffer.
const MIN_BUFFER: usize = 8192;

/// What h2 buffers of one answer before it stops asking for more: a slow reader must be felt.
const H2_SEND_BUFFER: usize = 64 * 1024;

/// Streams that a client may open and reset before the connection is given up (CVE-2023-44487).
const H2_RESETS: usize = 64;

/// A dead h2 peer is noticed after this and as long again.
const H2_PING: Duration = Duration::from_secs(30);

/// Runs h2's tasks under their owner.
#[derive(Clone)]
pub(super) struct OwnedExecutor(Tasks);

impl<F> Executor<F> for OwnedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(self.0.spawn("h2 stream", future));
    }
}

/// hyper's settings, made once a listener.
pub(super) fn builder(limits: &ConnectionLimits, tasks: Tasks) -> auto::Builder<OwnedExecutor> {
    let mut builder = auto::Builder::new(OwnedExecutor(tasks));
    let header_bytes = u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX);
    builder
        .http1()
        .timer(TokioTimer::new())
        // Ours tells a slow head from an idle connection; see `activity`.
        .header_read_timeout(None)
        .max_headers(limits.max_headers)
        .max_buf_size(limits.max_header_bytes.saturating_add(1024).max(MIN_BUFFER));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_streams)
        .max_header_list_size(header_bytes)
        .max_send_buf_size(H2_SEND_BUFFER)
        .max_pending_accept_reset_streams(H2_RESETS)
        .max_local_error_reset_streams(H2_RESETS)
        .keep_alive_interval(H2_PING)
        .keep_alive_timeout(H2_PING);
    builder
}

/// All that a connection needs of its listener.
pub(super) struct Scene<S> {
    pub(super) serve: S,
    pub(super) limits: ConnectionLimits,
    pub(super) builder: auto::Builder<OwnedExecutor>,
    pub(super) clock: Clock,
    pub(super) drain: DrainWatch,
    pub(super) refusals: Refusals,
}

/// Serves one connection to its end.
pub(super) async fn run<S: Serve, T>(scene: Arc<Scene<S>>, io: T, peer: S::Peer)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Activity::new(scene.clock);
    let (io, back) = Watched::new(io, Arc::clone(&activity));
    let end = drive(&scene, io, &activity, peer).await;
    let reason = match end {
        End::SlowHead => Some(Reason::SlowRequest),
        End::Done => back.bare(),
        End::Silent => None,
    };
    if let Some(reason) = reason {
        let id = scene.refusals.count(reason);
        answer(&back, reason, &id).await;
    }
}

/// How hyper's part of a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// hyper was done with it.
    Done,
    /// A head did not end in time.
    SlowHead,
    /// Nothing more is to be said: idle for too long, or hung up on.
    Silent,
}

async fn drive<S: Serve, T>(
    scene: &Arc<Scene<S>>,
    io: Watched<T>,
    activity: &Arc<Activity>,
    peer: S::Peer,
) -> End
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (clock, limits) = (scene.clock, scene.limits);
    let service = {
        let (scene, peer, activity) = (Arc::clone(scene), peer.clone(), Arc::clone(activity));
        hyper::service::service_fn(move |request| {
            let (scene, peer, activity) = (Arc::clone(&scene), peer.clone(), Arc::clone(&activity));
            async move {
                Ok::<_, std::convert::Infallible>(call(&scene, request, peer, &activity).await)
            }
        })
    };
    let mut connection = pin!(scene.builder.serve_connection(TokioIo::new(io), service));
    let mut hangup = pin!(S::hangup(peer));
    let mut draining = pin!(scene.drain.reached(Phase::Draining));
    let born_draining = scene.drain.phase() >= Phase::Draining;
    let (mut drains, mut told) = (born_draining, false);
    let mut armed = clock.elapsed().saturating_add(limits.idle_timeout);
    let mut alarm = pin!(tokio::time::sleep_until(clock.at(armed)));
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                if let Err(error) = result {
                    tracing::debug!(%error, "connection");
                }
                return Poll::Ready(End::Done);
            }
            if hangup.as_mut().poll(cx).is_ready() {
                return Poll::Ready(End::Silent);
            }
            drains = drains || draining.as_mut().poll(cx).is_ready();
            // A connection made while draining gets the one answer that tells its client so.
            if drains && !told && (!born_draining || activity.has_answered()) {
                told = true;
                connection.as_mut().graceful_shutdown();
                continue;
            }
            let due = activity.deadline(limits.header_timeout, limits.idle_timeout);
            // Only ever pulled nearer here; one that fires too early is armed again below.
            if let Some((due, _)) = due
                && due < armed
            {
                armed = due;
                alarm.as_mut().reset(clock.at(due));
            }
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match due {
                Some((due, overdue)) if due <= clock.elapsed() => {
                    return Poll::Ready(match overdue {
                        Overdue::SlowHead => End::SlowHead,
                        Overdue::Idle => End::Silent,
                    });
                }
                _ => {
                    let later = clock.elapsed().saturating_add(limits.idle_timeout);
                    armed = due.map_or(later, |(due, _)| due);
                    alarm.as_mut().reset(clock.at(armed));
                }
            }
        }
    })
    .await
}

async fn call<S: Serve>(
    scene: &Scene<S>,
    request: Request<Incoming>,
    peer: S::Peer,
    activity: &Arc<Activity>,
) -> Response<Counted<Either<S::Body, Full<Bytes>>>> {
    let h2 = request.version() == Version::HTTP_2;
    let busy = activity.begin(h2);
    let (bytes, count) = (scene.limits.max_header_bytes, scene.limits.max_headers);
    let refused = if activity.framed_twice() {
        Some(Reason::Malformed)
    } else {
        refusal::of_head(request.headers(), bytes, count)
    };
    let response = match refused {
        Some(reason) => {
            let id = scene.refusals.count(reason);
            let mut response = refusal::response(reason, &id).map(Either::Right);
            if h2 {
                response.headers_mut().remove(http::header::CONNECTION);
            }
            response
        }
        None => scene.serve.handle(request, peer).await.map(Either::Left),
    };
    activity.answered();
    response.map(|body| Counted { body, _busy: busy })
}

/// Longest that a refused client is listened to, so that it reads the answer before a reset.
const LINGER: Duration = Duration::from_secs(1);

/// Most that is read of it meanwhile, bytes.
const LINGER_BYTES: u64 = 256 * 1024;

/// Tells a client that hyper has given up why, on the bare stream.
async fn answer<T: AsyncRead + AsyncWrite + Unpin>(back: &Returned<T>, reason: Reason, id: &str) {
    let Some(mut io) = back.take() else { return };
    let told = async {
        io.write_all(&refusal::raw(reason, id)).await?;
        io.shutdown().await?;
        tokio::io::copy(&mut (&mut io).take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    // Either way the stream is dropped now, and a client that is gone needs no answer.
    if let Ok(Err(error)) = tokio::time::timeout(LINGER, told).await {
        tracing::debug!(%error, reason = reason.as_str(), "refusal");
    }
}

pin_project! {
    /// A body that keeps its connection busy until it is dropped.
    struct Counted<B> {
        #[pin]
        body: B,
        _busy: Busy,
    }
}

impl<B: Body> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
