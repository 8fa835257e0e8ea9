//! One call from its due time to its end, with the client's retries, and what was seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use http_body_util::Full;
use parking_lot::Mutex;

use super::client::{Client, ClientError, Exchange};
use super::live::Live;
use super::record::Record;
use super::sse::{Frame, Reader};
use super::told::told;
use super::{LoadOptions, Ratio, prompt};
use crate::domain::{ClassId, TenantId};
use crate::lifecycle::Clock;
use crate::workload::{Call, Retrier, Told};

/// How a call ended. They add up to what was offered.
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

/// Whose call it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Who {
    pub(super) class: ClassId,
    pub(super) tenant: TenantId,
}

/// What is known of one call; durations count from when it was due.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Seen {
    /// When it was due, from the start of the run.
    pub(super) due: Duration,
    /// Whose it is.
    pub(super) who: Who,
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
    /// Prompt tokens by usage, where it said so.
    pub(super) prompt: u64,
    /// Output tokens by usage, else content frames.
    pub(super) tokens: u64,
    /// Attempts made.
    pub(super) attempts: u32,
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
    /// A call that has not begun, to be filled in.
    pub(super) fn new(due: Duration, who: Who, end: End) -> Self {
        Self {
            due,
            who,
            late: Duration::ZERO,
            end,
            ttft: None,
            tpot: None,
            e2e: Duration::ZERO,
            gaps: Vec::new(),
            prompt: 0,
            tokens: 0,
            attempts: 0,
            refusals: Vec::new(),
            statuses: BTreeMap::new(),
        }
    }
}

/// What every call of a run shares.
pub(super) struct Run {
    pub(super) options: LoadOptions,
    pub(super) client: Client,
    pub(super) clock: Clock,
    /// The clock's reading at the start of the run.
    pub(super) origin: Duration,
    pub(super) live: Arc<Live>,
    /// How the server counts tokens.
    pub(super) ratio: Ratio,
    /// Nanoseconds since the start of the run after which nothing more is sent.
    pub(super) until: AtomicU64,
    /// Held only to note a beginning or an end.
    pub(super) record: Mutex<Record>,
}

/// What an attempt came to.
enum Tried {
    Ended(End),
    /// Refused or failed in a way that a client may retry.
    Again {
        end: End,
        told: Told,
    },
}

/// A call and what it hangs on.
pub(super) struct Sending<'a> {
    pub(super) who: Who,
    pub(super) call: &'a Call,
    /// Answers of its flow so far.
    pub(super) answers: &'a [Option<String>],
    /// Whether a later call quotes its answer.
    pub(super) quoted: bool,
}

impl Run {
    /// Time since the start of the run.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.elapsed().saturating_sub(self.origin)
    }

    /// Sends a call now, whatever its due time, and follows it to its end. The answer's text
    /// where it was asked for; `None` when it was not answered well.
    pub(super) async fn call(&self, due: Duration, sending: Sending<'_>) -> Option<String> {
        let who = sending.who;
        let late = self.elapsed().saturating_sub(due);
        let mut seen = Seen { late, ..Seen::new(due, who, End::Dropped) };
        let begun = self.record.lock().begin(due, who, self.options.max_in_flight);
        let Some(number) = begun else {
            self.record.lock().seen.push(seen);
            return None;
        };
        self.live.sent();
        let body = prompt::body(&self.options.model, sending.call, sending.answers, self.ratio);
        let mut retrier = Retrier::new(self.options.workload.client);
        let mut text = sending.quoted.then(String::new);
        seen.end = loop {
            seen.attempts += 1;
            match self.attempt(&body, who, retrier.done(), &mut seen, &mut text).await {
                Tried::Ended(end) => break end,
                Tried::Again { end, told } => {
                    let uniform = unit(sending.call.salt.rotate_left(retrier.done() * 8 + 8));
                    match retrier.after(told, uniform) {
                        Some(wait) => tokio::time::sleep(wait).await,
                        None => break end,
                    }
                }
            }
        };
        seen.e2e = self.elapsed().saturating_sub(due);
        self.live.ended(&seen);
        let ok = seen.end == End::Ok;
        self.record.lock().end(number, seen);
        ok.then(|| text.unwrap_or_default())
    }

    /// The head of a request of `who`, with everybody's headers.
    fn head(&self, who: Who, retry: u32) -> http::request::Builder {
        let workload = &self.options.workload;
        let mut request = self.client.request().header(CONTENT_TYPE, "application/json");
        let tenant = workload.tenants.get(who.tenant.0 as usize);
        let key = tenant.and_then(|tenant| tenant.key.as_deref()).or(self.options.key.as_deref());
        if let Some(key) = key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        let class = workload.classes.get(usize::from(who.class.0)).map(|class| &class.headers);
        let headers = tenant.map(|tenant| &tenant.headers).into_iter().chain(class).flatten();
        for header in headers {
            request = request.header(&*header.name, &*header.value);
        }
        if workload.client.counts_retries() {
            request = request.header("x-stainless-retry-count", retry);
        }
        request
    }

    async fn attempt(
        &self,
        body: &Bytes,
        who: Who,
        retry: u32,
        seen: &mut Seen,
        text: &mut Option<String>,
    ) -> Tried {
        let Ok(request) = self.head(who, retry).body(Full::new(body.clone())) else {
            return Tried::Ended(End::Error("request"));
        };
        let sent = self.elapsed();
        let exchange = match self.client.send(request).await {
            Ok(exchange) => exchange,
            Err(error) => {
                *seen.statuses.entry(0).or_default() += 1;
                return Tried::Again { end: End::Error(word(&error)), told: Told::default() };
            }
        };
        let status = exchange.head.status.as_u16();
        *seen.statuses.entry(status).or_default() += 1;
        if exchange.head.status.is_success() {
            return Tried::Ended(self.stream(exchange, seen, text).await);
        }
        self.refused(exchange, sent, seen).await
    }

    /// Reads an answer that is no success.
    async fn refused(&self, mut exchange: Exchange, sent: Duration, seen: &mut Seen) -> Tried {
        let headers = std::mem::take(&mut exchange.head.headers);
        while let Some(data) = exchange.data().await {
            if data.is_err() {
                return Tried::Again { end: End::Error("cut_refusal"), told: Told::default() };
            }
        }
        let status = exchange.head.status.as_u16();
        let told = told(status, &headers);
        let end = if matches!(status, 503 | 429) {
            let took = self.elapsed().saturating_sub(sent);
            let reason = reason(&headers);
            seen.refusals.push(Refusal { took, retry_after: told.retry_after, reason });
            self.live.refused();
            End::Shed
        } else {
            End::Error(if status >= 500 { "status_5xx" } else { "status_4xx" })
        };
        exchange.keep();
        Tried::Again { end, told }
    }

    /// Reads a stream to its end.
    async fn stream(
        &self,
        mut exchange: Exchange,
        seen: &mut Seen,
        text: &mut Option<String>,
    ) -> End {
        let mut reader = Reader { text: text.take(), ..Reader::default() };
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
                    Frame::Usage { prompt, output } => {
                        seen.prompt = prompt.unwrap_or(0);
                        usage = Some(output);
                    }
                    Frame::Error(_) => failed = Some("stream_error"),
                    Frame::Malformed => failed = Some("malformed_frame"),
                    Frame::Done => done = true,
                }
            }
        }
        *text = reader.text.take();
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
