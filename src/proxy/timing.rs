//! What one stream showed its client, and when.
//!
//! TTFT is to the first frame with content: a role frame is no token. ITL is the gap between
//! content frames; a read that carries several shows the later ones at once, so their gaps are
//! zero, as they are for the client. TPOT divides by the tokens that `usage` counts, never by
//! frames, since vLLM merges tokens into frames and sends empty ones. No clock is read here.

use std::time::Duration;

use crate::domain::{Gaps, Timestamp, Usage};

/// The times and counts of one answer so far.
#[derive(Debug, Default)]
pub(super) struct Timing {
    first_frame: Option<Timestamp>,
    first_content: Option<Timestamp>,
    last_content: Option<Timestamp>,
    /// Content frames.
    frames: u64,
    gaps: Gaps,
}

impl Timing {
    /// One read came at `now`: whether the engine caused it, and the content frames in it.
    /// Returns whether it held the first engine-caused frame.
    pub(super) fn read(&mut self, now: Timestamp, engine_caused: bool, frames: u32) -> bool {
        let first = engine_caused && self.first_frame.is_none();
        if first {
            self.first_frame = Some(now);
        }
        if frames == 0 {
            return first;
        }
        match self.last_content {
            Some(last) => self.gaps.observe(now.saturating_since(last)),
            None => self.first_content = Some(now),
        }
        for _shown_at_once in 1..frames {
            self.gaps.observe(Duration::ZERO);
        }
        self.last_content = Some(now);
        self.frames += u64::from(frames);
        first
    }

    /// When the first engine-caused frame came.
    pub(super) fn first_frame(&self) -> Option<Timestamp> {
        self.first_frame
    }

    /// Content frames so far.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Time to first token, from the receipt of the request.
    pub(super) fn ttft(&self, received: Timestamp) -> Option<Duration> {
        self.first_content.map(|first| first.saturating_since(received))
    }

    /// Time per output token after the first; `None` below two tokens, or unknown ones.
    pub(super) fn tpot(&self, usage: Option<Usage>) -> Option<Duration> {
        let after_first = usage?.output.checked_sub(1).filter(|tokens| *tokens > 0)?;
        let span = self.last_content?.saturating_since(self.first_content?);
        let nanos = u64::try_from(span.as_nanos()).ok()?;
        Some(Duration::from_nanos(nanos / after_first))
    }

    /// The gaps; they are asked for once, at the end.
    pub(super) fn take_gaps(&mut self) -> Gaps {
        std::mem::take(&mut self.gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::since_origin(Duration::from_millis(millis))
    }

    #[test]
    fn a_role_frame_is_no_first_token_and_frames_are_no_tokens() {
        let mut timing = Timing::default();
        assert!(!timing.read(at(5), false, 0), "a comment is nothing");
        assert!(timing.read(at(10), true, 0), "the role frame is the engine's first");
        assert!(!timing.read(at(30), true, 1));
        assert!(!timing.read(at(50), true, 3), "three frames in one read");
        assert!(!timing.read(at(80), true, 1));
        assert_eq!(timing.first_frame(), Some(at(10)));
        assert_eq!(timing.ttft(at(4)), Some(Duration::from_millis(26)));
        let usage = |output| Some(Usage { output, ..Usage::default() });
        assert_eq!(timing.tpot(usage(11)), Some(Duration::from_millis(5)));
        assert_eq!(timing.tpot(usage(1)), None);
        assert_eq!(timing.tpot(usage(0)), None);
        assert_eq!(timing.tpot(None), None);
        let gaps = timing.take_gaps();
        assert_eq!((timing.frames(), gaps.count()), (5, 4));
        assert!((gaps.sum_seconds - 0.05).abs() < 1e-9);
        assert!((gaps.longest_seconds - 0.03).abs() < 1e-9);
    }

    #[test]
    fn an_answer_with_no_content_has_no_ttft() {
        let mut timing = Timing::default();
        timing.read(at(10), true, 0);
        assert_eq!(timing.ttft(at(0)), None);
        assert_eq!(timing.tpot(Some(Usage { output: 5, ..Usage::default() })), None);
    }
}
