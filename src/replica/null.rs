//! Streams without an engine: the same frame again and again, to measure what stands between.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::call::{Call, Shape};
use super::options::NullStream;
use crate::lifecycle::Clock;

/// The bytes of a null stream, made once a replica and shared by all streams.
pub(super) struct NullParts {
    first: [Bytes; 4],
    again: [Bytes; 4],
    done: Bytes,
    usage: Bytes,
    pub(super) whole: Bytes,
}

impl NullParts {
    pub(super) fn new(model: &str, options: NullStream) -> Self {
        let model = serde_json::Value::from(model).to_string();
        let chat = |delta: &str| {
            format!(
                "data: {{\"id\":\"chatcmpl-null\",\"object\":\"chat.completion.chunk\",\"created\":0,\
                 \"model\":{model},\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\
                 \"finish_reason\":null}}]}}\n\n"
            )
        };
        let padded = |make: &dyn Fn(&str) -> String| {
            let bare = make("").len();
            Bytes::from(make(&"x".repeat(options.frame_bytes.saturating_sub(bare).max(1))))
        };
        let again = [
            padded(&|text| chat(&format!("{{\"content\":\"{text}\"}}"))),
            padded(&|text| {
                format!(
                    "data: {{\"id\":\"cmpl-null\",\"object\":\"text_completion\",\"created\":0,\
                     \"model\":{model},\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"logprobs\":null,\
                     \"finish_reason\":null}}]}}\n\n"
                )
            }),
            padded(&|text| {
                format!(
                    "event: response.output_text.delta\ndata: {{\"content_index\":0,\
                     \"delta\":\"{text}\",\"type\":\"response.output_text.delta\"}}\n\n"
                )
            }),
            padded(&|text| {
                format!(
                    "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\
                     \"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}},\"index\":0}}\n\n"
                )
            }),
        ];
        let first = [
            Bytes::from(chat("{\"role\":\"assistant\",\"content\":\"\"}")),
            Bytes::new(),
            Bytes::from_static(b"event: response.created\ndata: {\"response\":{\"id\":\"resp_null\",\"status\":\"in_progress\"},\"sequence_number\":0,\"type\":\"response.created\"}\n\n"),
            Bytes::from_static(b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"null\",\"role\":\"assistant\"}}\n\n"),
        ];
        let frames = options.frames;
        let usage = format!(
            "data: {{\"id\":\"chatcmpl-null\",\"object\":\"chat.completion.chunk\",\"created\":0,\
             \"model\":{model},\"choices\":[],\"usage\":{{\"prompt_tokens\":1,\
             \"total_tokens\":{},\"completion_tokens\":{frames}}}}}\n\n",
            frames.saturating_add(1)
        );
        let whole = Bytes::from_static(
            b"{\"object\":\"chat.completion\",\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"total_tokens\":1,\"completion_tokens\":0}}",
        );
        Self {
            first,
            again,
            done: Bytes::from_static(b"data: [DONE]\n\n"),
            usage: usage.into(),
            whole,
        }
    }
}

/// One null stream.
pub(super) struct NullFrames {
    parts: Arc<NullParts>,
    shape: Shape,
    include_usage: bool,
    options: NullStream,
    clock: Clock,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    due: std::time::Duration,
    sent: u32,
    stage: Stage,
    /// Streams open, for the gauge.
    open: Arc<AtomicU32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Content,
    Usage,
    Done,
    Ended,
}

impl Drop for NullFrames {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl NullFrames {
    pub(super) fn new(
        parts: Arc<NullParts>,
        call: &Call,
        options: NullStream,
        clock: Clock,
        open: Arc<AtomicU32>,
    ) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self {
            parts,
            shape: call.shape,
            include_usage: call.include_usage,
            options,
            clock,
            sleep: None,
            due: clock.elapsed(),
            sent: 0,
            stage: Stage::First,
            open,
        }
    }

    fn part(&self, of: &[Bytes; 4]) -> Bytes {
        let [chat, completions, responses, messages] = of;
        match self.shape {
            Shape::Chat | Shape::Embeddings => chat.clone(),
            Shape::Completions => completions.clone(),
            Shape::Responses => responses.clone(),
            Shape::Messages => messages.clone(),
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let bytes = match self.stage {
                Stage::First => {
                    self.stage = Stage::Content;
                    self.part(&self.parts.first)
                }
                Stage::Content if self.sent < self.options.frames => {
                    ready!(self.poll_pace(cx));
                    self.sent += 1;
                    self.part(&self.parts.again)
                }
                Stage::Content => {
                    self.stage = Stage::Usage;
                    continue;
                }
                Stage::Usage => {
                    self.stage = Stage::Done;
                    if !self.include_usage {
                        continue;
                    }
                    self.parts.usage.clone()
                }
                Stage::Done => {
                    self.stage = Stage::Ended;
                    match self.shape {
                        Shape::Responses => Bytes::from_static(
                            b"event: response.completed\ndata: {\"response\":{\"id\":\"resp_null\",\"status\":\"completed\"},\"type\":\"response.completed\"}\n\n",
                        ),
                        Shape::Messages => Bytes::from_static(
                            b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
                        ),
                        _ => self.parts.done.clone(),
                    }
                }
                Stage::Ended => return Poll::Ready(None),
            };
            if !bytes.is_empty() {
                return Poll::Ready(Some(bytes));
            }
        }
    }

    /// Waits until the next frame is due, counted from the first one's time, so that being late
    /// once does not move all that follows.
    fn poll_pace(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.options.interval.is_zero() {
            return Poll::Ready(());
        }
        let at = self.clock.at(self.due);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        ready!(sleep.as_mut().poll(cx));
        self.due += self.options.interval;
        sleep.as_mut().reset(self.clock.at(self.due));
        Poll::Ready(())
    }
}
