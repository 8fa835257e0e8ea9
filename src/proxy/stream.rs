//! One answer on its way: what was read from the replica, what the client has, how it ends.
//!
//! Plain state behind the body's lock: it polls the replica when told to, and decides by the
//! times it is given. It knows neither hyper's server side nor the tender.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;

use crate::domain::{Dialect, Outcome, Reason, Timestamp, Usage};
use crate::openai::{Scanner, stream_error};
use crate::upstream::UpstreamBody;

use super::attempt::Start;
use super::peer::Hangup;
use super::permit::Permit;
use super::recorder::Recorder;
use super::relay::CutOff;

/// Bytes read ahead for a client that does not take them.
const AHEAD: usize = 64 * 1024;
/// A client that takes less than this within `client_stall` has stalled, bytes.
const STALL_BYTES: u64 = 1024;
/// Tokens between two words to the gate on progress: a KV block.
const PROGRESS_TOKENS: u64 = 16;
/// Time between two such words, at most, while tokens come.
const PROGRESS_TIME: Duration = Duration::from_secs(1);

/// How long each phase of a stream may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Patience {
    /// Dispatch to the first engine-caused frame.
    pub(super) first_byte: Duration,
    /// Between two reads after that.
    pub(super) between_frames: Duration,
    /// From the request's receipt to its end.
    pub(super) total: Duration,
    /// How long a client with a full buffer may take next to nothing.
    pub(super) client_stall: Duration,
}

/// What a stream starts with.
pub(super) struct Parts {
    /// The rest of the replica's answer; `None` when it was read to its end already.
    pub(super) source: Option<UpstreamBody>,
    /// `None` for an answer that is no stream of frames: it passes unread.
    pub(super) scanner: Option<Scanner>,
    /// What was read while the head was held.
    pub(super) start: Start,
    pub(super) permit: Option<Permit>,
    pub(super) recorder: Recorder,
    pub(super) dialect: Dialect,
    pub(super) patience: Patience,
    pub(super) received: Timestamp,
    pub(super) hangup: Option<Hangup>,
}

/// One answer, from the release of its head to its end.
pub(super) struct Stream {
    parts: Parts,
    ahead: BytesMut,
    /// How it ends, once that is known; bytes may still have to be handed over.
    end: Option<Outcome>,
    /// Nothing can be told to the client any more.
    cut_off: Option<Reason>,
    /// The engine has said its last word, though its connection has not ended yet.
    done: bool,
    /// The engine said that it failed, within the stream.
    engine_failed: bool,
    /// Bytes that hyper took.
    handed: u64,
    last_read: Timestamp,
    /// Since when the client is behind, and what it had then.
    behind: Option<(Timestamp, u64)>,
    /// Tokens and time of the last word on progress.
    told: (u64, Timestamp),
}

impl Stream {
    pub(super) fn new(mut parts: Parts) -> Self {
        let now = parts.recorder.now();
        let start = std::mem::take(&mut parts.start);
        let mut stream = Self {
            parts,
            ahead: start.bytes,
            end: None,
            cut_off: None,
            done: start.done,
            engine_failed: start.engine_failed,
            handed: 0,
            last_read: now,
            behind: None,
            told: (0, now),
        };
        if stream.done {
            stream.release(stream.verdict());
        }
        if stream.parts.source.is_none() {
            stream.at_end();
        }
        stream
    }

    pub(super) fn now(&self) -> Timestamp {
        self.parts.recorder.now()
    }

    /// Whether hyper has everything there will be.
    pub(super) fn is_over(&self) -> bool {
        self.cut_off.is_some() || (self.end.is_some() && self.ahead.is_empty())
    }

    /// The end, once hyper has everything: clean, or cut off.
    pub(super) fn over(&mut self) -> Option<Result<(), CutOff>> {
        if let Some(reason) = self.cut_off {
            return Some(Err(CutOff(reason)));
        }
        let outcome = self.end.filter(|_| self.ahead.is_empty())?;
        self.record(outcome);
        let broken_opaque = self.parts.scanner.is_none();
        match outcome {
            Outcome::Failed(reason) if broken_opaque => Some(Err(CutOff(reason))),
            _ => Some(Ok(())),
        }
    }

    /// What was read ahead, piece by piece.
    pub(super) fn take_ahead(&mut self, most: usize) -> Option<Bytes> {
        if self.ahead.is_empty() || self.cut_off.is_some() {
            return None;
        }
        let piece = self.ahead.split_to(most.min(self.ahead.len())).freeze();
        Some(self.hand_over(piece))
    }

    /// Bytes that stand ready and are not taken.
    pub(super) fn ahead(&self) -> usize {
        self.ahead.len()
    }

    /// Counts what hyper takes. The last piece also ends the record: the client may close as
    /// soon as it has seen `[DONE]`, and hyper need not ask again.
    pub(super) fn hand_over(&mut self, piece: Bytes) -> Bytes {
        self.handed += piece.len() as u64;
        if let Some(outcome) = self.end.filter(|_| self.ahead.is_empty()) {
            self.record(outcome);
        }
        piece
    }

    /// One read from the replica: the bytes to forward now, perhaps none.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, now: Timestamp) -> Poll<Bytes> {
        let Some(source) = &mut self.parts.source else { return Poll::Ready(Bytes::new()) };
        Poll::Ready(match std::task::ready!(Pin::new(source).poll_frame(cx)) {
            Some(Ok(frame)) => {
                frame.into_data().map_or_else(|_| Bytes::new(), |d| self.scan(d, now))
            }
            Some(Err(_)) => {
                self.break_off(now, Reason::UpstreamReset);
                Bytes::new()
            }
            None => {
                self.parts.source = None;
                self.at_end()
            }
        })
    }

    /// Reads what is there for a client that does not take it, up to the bound. Whether anything
    /// came of it.
    pub(super) fn read_ahead(&mut self, cx: &mut Context<'_>, now: Timestamp) -> bool {
        let mut news = false;
        while self.parts.source.is_some() && self.ahead.len() < AHEAD {
            let Poll::Ready(piece) = self.poll_read(cx, now) else { break };
            // What broke off has written its own last frames already; nothing follows them.
            self.ahead.extend_from_slice(&piece);
            news = true;
        }
        news
    }

    /// Holds every phase to its time. Whether the stream ended by it.
    pub(super) fn keep_time(&mut self, now: Timestamp) -> bool {
        if self.is_over() {
            return false;
        }
        if self.parts.source.is_some()
            && let Some(reason) = self.overdue(now)
        {
            self.break_off(now, reason);
            return true;
        }
        self.stalled(now)
    }

    /// Ends the stream with an error frame; what the client has not taken yet comes first.
    pub(super) fn break_off(&mut self, now: Timestamp, reason: Reason) {
        if self.end.is_some() {
            return;
        }
        let outcome = Outcome::Failed(reason);
        if let Some(scanner) = &self.parts.scanner {
            let frames = stream_error(self.parts.dialect, reason, scanner);
            self.ahead.extend_from_slice(&frames);
        }
        self.last_read = now;
        self.settle(outcome);
    }

    /// The client is gone, or hyper is done.
    pub(super) fn dropped(&mut self) {
        // Clients close as soon as they have read the last word; that is no cancel.
        let end = self.end.or_else(|| self.done.then(|| self.verdict()));
        let outcome = end.filter(|_| self.ahead.is_empty()).unwrap_or(Outcome::Cancelled);
        self.record(outcome);
        self.parts.source = None;
        self.parts.permit = None;
        self.ahead = BytesMut::new();
    }

    fn scan(&mut self, data: Bytes, now: Timestamp) -> Bytes {
        self.last_read = now;
        let Some(scanner) = &mut self.parts.scanner else { return data };
        let scan = scanner.push(data);
        self.engine_failed |= scan.error.is_some();
        let first = self.parts.recorder.timing.read(now, scan.engine_caused, scan.content_frames);
        if let Some(permit) = &self.parts.permit {
            if first {
                permit.first_token();
            }
            self.told = tell_progress(permit, self.told, self.parts.recorder.timing.frames(), now);
        }
        if scan.done {
            self.done = true;
            // The engine is done with it: the slot is free before the socket says so too.
            self.release(self.verdict());
        }
        scan.forward
    }

    /// The replica has closed its answer: well, or without its last word.
    fn at_end(&mut self) -> Bytes {
        let well =
            self.engine_failed || self.parts.scanner.as_ref().is_none_or(Scanner::ended_well);
        if !well {
            self.break_off(self.last_read, Reason::UpstreamReset);
            return Bytes::new();
        }
        let rest = self.parts.scanner.as_mut().map_or_else(Bytes::new, Scanner::finish);
        self.settle(self.verdict());
        rest
    }

    fn verdict(&self) -> Outcome {
        if self.engine_failed { Outcome::Failed(Reason::EngineError) } else { Outcome::Completed }
    }

    /// Nothing more comes from the replica, and this is how it ended.
    fn settle(&mut self, outcome: Outcome) {
        self.end = Some(outcome);
        self.parts.source = None;
        self.release(outcome);
    }

    fn release(&mut self, outcome: Outcome) {
        if let Some(permit) = self.parts.permit.take() {
            permit.finish(outcome, self.usage());
        }
    }

    fn usage(&self) -> Option<Usage> {
        self.parts.scanner.as_ref().and_then(Scanner::usage)
    }

    fn record(&mut self, outcome: Outcome) {
        let usage = self.usage();
        let handed = self.handed;
        self.parts.recorder.usage(usage);
        self.parts.recorder.note(|record| record.bytes = handed);
        self.parts.recorder.finish(outcome);
    }

    /// Which phase is over its time. A full buffer stops the reading, so then the silence is the
    /// client's and not the replica's.
    fn overdue(&self, now: Timestamp) -> Option<Reason> {
        let patience = &self.parts.patience;
        let recorder = &self.parts.recorder;
        let late = |since: Timestamp, most: Duration| now.saturating_since(since) > most;
        if let Some(reason) = self.parts.permit.as_ref().and_then(Permit::cut_reason) {
            return Some(reason);
        }
        if late(self.parts.received, patience.total) {
            return Some(Reason::Total);
        }
        if self.ahead.len() >= AHEAD || self.parts.scanner.is_none() {
            return None;
        }
        match (recorder.timing.first_frame(), recorder.dispatched_at()) {
            (None, Some(sent)) => late(sent, patience.first_byte).then_some(Reason::FirstByte),
            _ => late(self.last_read, patience.between_frames).then_some(Reason::BetweenFrames),
        }
    }

    /// Cuts a client off that takes next to nothing of what stands ready for it: of a full
    /// buffer, or of the last of an answer that has ended.
    fn stalled(&mut self, now: Timestamp) -> bool {
        let full = self.ahead.len() >= AHEAD || (self.end.is_some() && !self.ahead.is_empty());
        if !full {
            self.behind = None;
            return false;
        }
        let (since, had) = *self.behind.get_or_insert((now, self.handed));
        if now.saturating_since(since) < self.parts.patience.client_stall {
            return false;
        }
        if self.handed.saturating_sub(had) >= STALL_BYTES {
            self.behind = Some((now, self.handed));
            return false;
        }
        let outcome = Outcome::Failed(Reason::ClientStall);
        self.settle(outcome);
        self.record(outcome);
        self.cut_off = Some(Reason::ClientStall);
        self.ahead = BytesMut::new();
        if let Some(hangup) = &self.parts.hangup {
            hangup.ask();
        }
        true
    }
}

/// Tells the gate of new tokens, a block or a second at a time. Frames stand for tokens: the
/// exact count comes with `usage` at the end.
fn tell_progress(
    permit: &Permit,
    told: (u64, Timestamp),
    tokens: u64,
    now: Timestamp,
) -> (u64, Timestamp) {
    let (before, at) = told;
    let block = tokens.saturating_sub(before) >= PROGRESS_TOKENS;
    let second = tokens > before && now.saturating_since(at) >= PROGRESS_TIME;
    if !block && !second {
        return told;
    }
    permit.progress(u32::try_from(tokens).unwrap_or(u32::MAX));
    (tokens, now)
}
