//! One request from its due time to its end, with the client's retries, and what was seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use http_body_util::Full;

use super::client::{Client, ClientError, Exchange};
use super::live::Live;
use super::sse::{Frame, Reader};
use super::{LoadOptions, Planned, prompt, retry};
use crate::lifecycle::Clock;

/// How a planned request ended. They add up to what was offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// A whole stream, ended by `[DONE]`.
    Ok,
    /// The last answer was a 503 or 429.
    Shed,
    /// Anything else, with a word for it.
    Error(&'static str),
    /// Still open when the run ended, or waiting to retry.
    Cancelled,
    /// Not sent: too many were open.
    Dropped,
}

/// What is known of one planned request; durations count from when it was due.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Seen {
    /// When it was due, from the start of the run.
    pub(super) due: Duration,
    /// How late it was sent.
    pub(super) late: Duration,
    /// How it ended.
    pub(super) end: End,
    /// Due to the first frame with content.
    pub(super) ttft: Option<Duration>,
    /// (last content - first) / (tokens - 1), for two tokens or more.
    pub(super) tpot: Option<Duration>,
    /// Due to the end.
    pub(super) e2e: Duration,
    /// Gaps between frames with content, seconds.
    pub(super) gaps: Vec<f32>,
    /// Output tokens by usage, else content frames.
    pub(super) tokens: u64,
    /// Every refusal on the way, retried or not.
    pub(super) refusals: Vec<Refusal>,
    /// Statuses of all attempts; 0 where none came.
    pub(super) statuses: BTreeMap<u16, u32>,
}

/// A 503 or 429.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Refusal {
    /// Sent to the whole answer.
    pub(super) took: Duration,
    /// The wait asked for, where one was.
    pub(super) retry_after: Option<Duration>,
    /// `x-weir-reason`.
    pub(super) reason: Option<String>,
}

impl Seen {
    /// A request that has not begun, to be filled in.
    pub(super) fn new(due: Duration, end: End) -> Self {
        Self {
            due,
            late: Duration::ZERO,
            end,
            ttft: None,
            tpot: None,
            e2e: Duration::ZERO,
            gaps: Vec::new(),
            tokens: 0,
            refusals: Vec::new(),
            statuses: BTreeMap::new(),
        }
    }
}

/// What every request of a run shares.
pub(super) struct Run {
    pub(super) options: LoadOptions,
    pub(super) client: Client,
    pub(super) clock: Clock,
    /// The clock's reading at the start of the run.
    pub(super) origin: Duration,
    pub(super) live: Arc<Live>,
}

/// What an attempt came to.
enum Tried {
    Ended(End),
    /// Refused or failed in a way that a client retries.
    Again {
        end: End,
        asked: Option<Duration>,
    },
}

impl Run {
    /// Time since the start of the run.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.elapsed().saturating_sub(self.origin)
    }

    /// Sends `planned` now, whatever its due time, and follows it to its end.
    pub(super) async fn follow(&self, planned: &Planned) -> Seen {
        let mut seen = Seen::new(planned.due, End::Cancelled);
        seen.late = self.elapsed().saturating_sub(planned.due);
        let body = prompt::body(&self.options, planned);
        let mut retry = 0;
        seen.end = loop {
            match self.attempt(&body, retry, &mut seen).await {
                Tried::Ended(end) => break end,
                Tried::Again { end, .. } if retry >= self.options.retries => break end,
                Tried::Again { asked, .. } => {
                    let uniform = unit(planned.salt.rotate_left(retry * 8 + 8));
                    tokio::time::sleep(retry::wait(asked, retry, uniform)).await;
                    retry += 1;
                }
            }
        };
        seen.e2e = self.elapsed().saturating_sub(planned.due);
        self.live.ended(&seen);
        seen
    }

    async fn attempt(&self, body: &Bytes, retry: u32, seen: &mut Seen) -> Tried {
        let mut request = self.client.request().header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.options.key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        if self.options.retries > 0 {
            request = request.header("x-stainless-retry-count", retry);
        }
        let Ok(request) = request.body(Full::new(body.clone())) else {
            return Tried::Ended(End::Error("request"));
        };
        let sent = self.elapsed();
        let exchange = match self.client.send(request).await {
            Ok(exchange) => exchange,
            Err(error) => {
                *seen.statuses.entry(0).or_default() += 1;
                return Tried::Again { end: End::Error(word(&error)), asked: None };
            }
        };
        let status = exchange.head.status.as_u16();
        *seen.statuses.entry(status).or_default() += 1;
        if exchange.head.status.is_success() {
            return Tried::Ended(self.stream(exchange, seen).await);
        }
        self.refused(exchange, sent, seen).await
    }

    /// Reads an answer that is no success.
    async fn refused(&self, mut exchange: Exchange, sent: Duration, seen: &mut Seen) -> Tried {
        let headers = std::mem::take(&mut exchange.head.headers);
        while let Some(data) = exchange.data().await {
            if data.is_err() {
                return Tried::Again { end: End::Error("cut_refusal"), asked: None };
            }
        }
        let status = exchange.head.status.as_u16();
        let asked = retry::asked_wait(&headers);
        let end = if matches!(status, 503 | 429) {
            let took = self.elapsed().saturating_sub(sent);
            seen.refusals.push(Refusal { took, retry_after: asked, reason: reason(&headers) });
            self.live.refused();
            End::Shed
        } else {
            End::Error(if status >= 500 { "status_5xx" } else { "status_4xx" })
        };
        exchange.keep();
        if retry::retries(status, &headers) {
            Tried::Again { end, asked }
        } else {
            Tried::Ended(end)
        }
    }

    /// Reads a stream to its end.
    async fn stream(&self, mut exchange: Exchange, seen: &mut Seen) -> End {
        let mut reader = Reader::default();
        let mut frames = Vec::new();
        let (mut first, mut last) = (None, Duration::ZERO);
        let (mut content, mut usage, mut done, mut failed) = (0_u64, None, false, None);
        while let Some(data) = exchange.data().await {
            let Ok(data) = data else { return End::Error("cut") };
            let now = self.elapsed();
            reader.push(&data, &mut frames);
            for frame in frames.drain(..) {
                match frame {
                    Frame::Content => {
                        content += 1;
                        if first.is_none() {
                            first = Some(now);
                            let ttft = now.saturating_sub(seen.due);
                            seen.ttft = Some(ttft);
                            self.live.first(ttft);
                        } else {
                            seen.gaps.push(now.saturating_sub(last).as_secs_f32());
                        }
                        last = now;
                        self.live.content();
                    }
                    Frame::Usage(tokens) => usage = Some(tokens),
                    Frame::Error(_) => failed = Some("stream_error"),
                    Frame::Malformed => failed = Some("malformed_frame"),
                    Frame::Done => done = true,
                }
            }
        }
        seen.tokens = usage.unwrap_or(content);
        let steps = u32::try_from(seen.tokens.saturating_sub(1)).unwrap_or(u32::MAX);
        if let (Some(first), Some(_)) = (first, seen.tokens.checked_sub(2)) {
            seen.tpot = last.saturating_sub(first).checked_div(steps);
        }
        exchange.keep();
        match failed {
            Some(word) => End::Error(word),
            None if !done => End::Error("no_done"),
            None if first.is_none() => End::Error("no_content"),
            None => End::Ok,
        }
    }
}

fn word(error: &ClientError) -> &'static str {
    match error {
        ClientError::Connect(_) => "connect",
        ClientError::Http(_) => "http",
    }
}

/// The gateway's own word for a refusal, cut to a sane length.
fn reason(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("x-weir-reason").map(HeaderValue::to_str)?.ok()?;
    Some(text.chars().take(32).collect())
}

/// The top 53 bits as a number in 0..1.
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact in an f64")]
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
