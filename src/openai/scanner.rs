//! Watches a stream go by and says what passed; forwards every read at once.
//!
//! What it notes depends on the bytes alone and not on how they were cut into reads: a frame is
//! looked at when it is whole. Of a frame that spans reads a copy is kept for that, at most
//! [`MAX_FRAME`] of it; the bytes themselves have long been forwarded. Only where the frame with
//! usage is to be taken out again is the beginning of a frame held back, and only until it shows
//! choices or is too long to be that frame.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::domain::{Dialect, Usage};

use super::frame::{Frame, classify, may_be_usage_only};
use super::sse::Framer;
use super::usage::UsagePart;

/// Longest frame that is looked into. What is longer passes unseen, and is counted.
const MAX_FRAME: usize = 1 << 20;

/// Longest frame that may be the one with usage alone; real ones have a few hundred bytes.
const MAX_USAGE_FRAME: usize = 8 << 10;

/// An error that a replica reported in its stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamError {
    /// The status it would have had; 500 where it does not say.
    pub status: u16,
    /// Its own words.
    pub message: String,
}

/// What one read brought.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scan {
    /// To be relayed now. The same bytes as were read, but for what is held back or cut out.
    pub forward: Bytes,
    /// Frames with content that became whole.
    pub content_frames: u32,
    /// Whether any of the frames shows that the engine has begun.
    pub engine_caused: bool,
    /// Whether the stream's last frame has been seen, now or before.
    pub done: bool,
    /// The first error among the frames.
    pub error: Option<StreamError>,
}

/// The state of one stream.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one stream")]
#[derive(Debug)]
pub struct Scanner {
    dialect: Dialect,
    strip_usage: bool,
    framer: Framer,
    /// The running frame as far as it came in earlier reads.
    carry: Vec<u8>,
    /// Whether all of `carry` is still to be forwarded (else none of it).
    held: bool,
    /// The running frame is longer than [`MAX_FRAME`] and was not kept.
    oversized: bool,
    /// The frame before was cut out.
    cut_last: bool,
    unscanned: u32,
    usage: UsagePart,
    done: bool,
    failed: bool,
    sequence_number: Option<u64>,
    response_id: Option<String>,
}

impl Scanner {
    /// For one stream of a dialect. `strip_usage`: the frame that carries usage alone was asked
    /// for by us and is cut out.
    pub fn new(dialect: Dialect, strip_usage: bool) -> Self {
        Self {
            dialect,
            strip_usage,
            framer: Framer::new(),
            carry: Vec::new(),
            held: false,
            oversized: false,
            cut_last: false,
            unscanned: 0,
            usage: UsagePart::default(),
            done: false,
            failed: false,
            sequence_number: None,
            response_id: None,
        }
    }

    /// Takes one read.
    pub fn push(&mut self, data: Bytes) -> Scan {
        let mut scan = Scan::default();
        let mut out = Out::default();
        let mut at = 0;
        if !data.is_empty() && self.framer.belated_lf(&data) {
            at = 1;
            if self.cut_last {
                out.cut(0, 1);
            }
        }
        while let Some(end) = self.framer.frame_end(&data, at) {
            let part = data.get(at..end).unwrap_or_default();
            if self.whole_frame(part, &mut scan) {
                out.cut(at, end);
                self.held = false;
            }
            self.release(&mut out);
            self.carry.clear();
            self.oversized = false;
            at = end;
        }
        let tail = data.get(at..).unwrap_or_default();
        if !tail.is_empty() && self.hold_tail(tail, &mut out) {
            out.cut(at, data.len());
        }
        scan.done = self.done;
        scan.forward = out.build(data);
        scan
    }

    /// At the end of the stream: what was held back.
    pub fn finish(&mut self) -> Bytes {
        let rest = std::mem::take(&mut self.carry);
        let mut cut = false;
        if !rest.is_empty() {
            let frame = classify(self.dialect, &rest);
            cut = self.strips(&frame, rest.len());
            self.note(frame, &mut Scan::default());
        }
        let held = std::mem::take(&mut self.held);
        if held && !cut { Bytes::from(rest) } else { Bytes::new() }
    }

    /// Token counts, as far as the stream has told.
    pub fn usage(&self) -> Option<Usage> {
        self.usage.total()
    }

    /// Whether the stream came to its dialect's end and reported no error.
    pub fn ended_well(&self) -> bool {
        self.done && !self.failed
    }

    /// Whether the client has been told how the stream ended, well or not: nothing is missing.
    pub fn ended(&self) -> bool {
        self.done || self.failed
    }

    /// Whether a part of a frame has been forwarded that an error frame must not run into.
    pub fn mid_frame(&self) -> bool {
        self.oversized || (!self.carry.is_empty() && !self.held)
    }

    /// The highest `sequence_number` seen (responses).
    pub fn sequence_number(&self) -> Option<u64> {
        self.sequence_number
    }

    /// The id of the response or message, once a frame has shown it.
    pub fn response_id(&self) -> Option<&str> {
        self.response_id.as_deref()
    }

    /// Frames that were too long to be looked into.
    pub fn unscanned(&self) -> u32 {
        self.unscanned
    }

    /// Bytes that are kept of the running frame.
    pub fn kept_bytes(&self) -> usize {
        self.carry.len()
    }

    /// Takes the last part of a frame; says whether the frame is to be cut out.
    fn whole_frame(&mut self, part: &[u8], scan: &mut Scan) -> bool {
        self.cut_last = false;
        let length = self.carry.len() + part.len();
        if self.oversized || length > MAX_FRAME {
            self.unscanned += 1;
            return false;
        }
        let frame = if self.carry.is_empty() {
            classify(self.dialect, part)
        } else {
            let before = self.carry.len();
            self.carry.extend_from_slice(part);
            let frame = classify(self.dialect, &self.carry);
            self.carry.truncate(before);
            frame
        };
        self.cut_last = self.strips(&frame, length);
        self.note(frame, scan);
        self.cut_last
    }

    fn strips(&self, frame: &Frame, length: usize) -> bool {
        self.strip_usage && frame.usage_only && length <= MAX_USAGE_FRAME
    }

    fn note(&mut self, frame: Frame, scan: &mut Scan) {
        scan.content_frames += u32::from(frame.content);
        scan.engine_caused |= frame.engine_caused;
        self.done |= frame.done;
        if let Some(part) = frame.usage {
            self.usage.merge(part);
        }
        if let Some(error) = frame.error {
            self.failed = true;
            scan.error.get_or_insert(error);
        }
        self.sequence_number = frame.sequence_number.max(self.sequence_number);
        if self.response_id.is_none() {
            self.response_id = frame.response_id;
        }
    }

    /// Keeps the beginning of a frame that is not whole. Says whether it is held back.
    fn hold_tail(&mut self, tail: &[u8], out: &mut Out) -> bool {
        let fresh = self.carry.is_empty() && !self.oversized;
        if self.oversized || self.carry.len() + tail.len() > MAX_FRAME {
            self.release(out);
            self.oversized = true;
            self.carry = Vec::new();
            return false;
        }
        let length = self.carry.len() + tail.len();
        let before = self.carry.len();
        self.carry.extend_from_slice(tail);
        let undecided = self.strip_usage && (fresh || self.held);
        if undecided && length <= MAX_USAGE_FRAME && may_be_usage_only(&self.carry) {
            self.held = true;
            return true;
        }
        if std::mem::take(&mut self.held) {
            out.first(self.carry.get(..before).unwrap_or_default());
        }
        false
    }

    /// Lets go of what was held back in earlier reads.
    fn release(&mut self, out: &mut Out) {
        if std::mem::take(&mut self.held) {
            out.first(&self.carry);
        }
    }
}

/// What a read forwards: perhaps something held back before, and the read but for its cuts.
#[derive(Default)]
struct Out {
    first: Vec<u8>,
    cuts: Vec<(usize, usize)>,
}

impl Out {
    fn first(&mut self, held: &[u8]) {
        self.first.extend_from_slice(held);
    }

    fn cut(&mut self, start: usize, end: usize) {
        self.cuts.push((start, end));
    }

    fn build(self, data: Bytes) -> Bytes {
        match (self.first.is_empty(), self.cuts.as_slice()) {
            (true, []) => data,
            (true, [(0, end)]) => data.slice(*end..),
            (true, [(start, end)]) if *end == data.len() => data.slice(..*start),
            _ => {
                let mut joined = BytesMut::with_capacity(self.first.len() + data.len());
                joined.put_slice(&self.first);
                let mut at = 0;
                for (start, end) in self.cuts {
                    joined.put_slice(data.get(at..start).unwrap_or_default());
                    at = end;
                }
                joined.put_slice(data.get(at..).unwrap_or_default());
                joined.freeze()
            }
        }
    }
}
