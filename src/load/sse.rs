//! Reads the frames of a chat or completions stream as a client does.
//!
//! On purpose not the gateway's own scanner: what measures must not share the faults of what is
//! measured. It parses each frame as JSON, which a gateway must not afford and a client may.

use bytes::{Bytes, BytesMut};
use memchr::memchr;
use serde::Deserialize;

/// A line longer than this is no frame of ours; the rest of the stream is not read.
const MAX_LINE_BYTES: usize = 1 << 20;

/// What one frame told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// Text, reasoning or a tool call: the user saw something.
    Content,
    /// Tokens, as the server counted them.
    Usage {
        /// Of the prompt, where it said so.
        prompt: Option<u64>,
        /// Of the answer.
        output: u64,
    },
    /// An error in the stream, with its message.
    Error(String),
    /// `[DONE]`.
    Done,
    /// Not a frame that a client understands.
    Malformed,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Delta>,
    text: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    reasoning: Option<String>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<serde::de::IgnoredAny>>,
    function_call: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: u64,
}

impl Choice {
    /// Adds its text, as a client that keeps the conversation does.
    fn append_to(&self, text: &mut String) {
        let delta = self.delta.as_ref().and_then(|delta| delta.content.as_deref());
        text.push_str(self.text.as_deref().or(delta).unwrap_or_default());
    }

    fn has_content(&self) -> bool {
        let full = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        full(&self.text)
            || self.delta.as_ref().is_some_and(|delta| {
                full(&delta.content)
                    || full(&delta.reasoning)
                    || full(&delta.reasoning_content)
                    || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
                    || delta.function_call.is_some()
            })
    }
}

/// Cuts a stream's bytes into lines and reads their frames.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) rest: BytesMut,
    /// The answer's text so far, where it is wanted.
    pub(super) text: Option<String>,
}

impl Reader {
    /// Takes the next bytes and appends what they told to `frames`.
    pub(super) fn push(&mut self, bytes: &Bytes, frames: &mut Vec<Frame>) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = memchr(b'\n', &self.rest) {
            let line = self.rest.split_to(end + 1);
            read(line.trim_ascii_end(), frames, self.text.as_mut());
        }
        if self.rest.len() > MAX_LINE_BYTES {
            self.rest.clear();
            frames.push(Frame::Malformed);
        }
    }
}

fn read(line: &[u8], frames: &mut Vec<Frame>, text: Option<&mut String>) {
    let Some(data) = line.strip_prefix(b"data:") else { return };
    let data = data.trim_ascii_start();
    if data == b"[DONE]" {
        frames.push(Frame::Done);
        return;
    }
    let Ok(chunk) = serde_json::from_slice::<Chunk>(data) else {
        frames.push(Frame::Malformed);
        return;
    };
    if let Some(error) = chunk.error {
        let message = error.get("message").and_then(|message| message.as_str());
        frames.push(Frame::Error(message.unwrap_or("no message").to_owned()));
    }
    if chunk.choices.iter().any(Choice::has_content) {
        frames.push(Frame::Content);
    }
    if let Some(text) = text {
        chunk.choices.iter().for_each(|choice| choice.append_to(text));
    }
    if let Some(usage) = chunk.usage {
        frames.push(Frame::Usage { prompt: usage.prompt_tokens, output: usage.completion_tokens });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &[u8] = include_bytes!("../../tests/recorded/chat-stream-usage.sse");

    fn frames(chunks: &[&[u8]]) -> Vec<Frame> {
        let mut reader = Reader::default();
        let mut frames = Vec::new();
        for chunk in chunks {
            reader.push(&Bytes::copy_from_slice(chunk), &mut frames);
        }
        frames
    }

    #[test]
    fn a_recorded_stream_is_read_as_its_usage_says() {
        let frames = frames(&[STREAM]);
        let content = frames.iter().filter(|frame| **frame == Frame::Content).map(|_| 1_u64).sum();
        let usage = frames.iter().find_map(|frame| match frame {
            Frame::Usage { output, .. } => Some(*output),
            _ => None,
        });
        assert!(content > 0 && usage.is_some_and(|tokens| tokens >= content));
        assert_eq!(frames.last(), Some(&Frame::Done));
        assert!(!frames.contains(&Frame::Malformed));
    }

    #[test]
    fn a_role_or_an_empty_text_is_no_content() {
        let stream = b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n: ping\n\ndata: {\"choices\":[],\"usage\":null}\n\n";
        assert!(frames(&[stream]).is_empty());
        let tool = b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n";
        assert_eq!(frames(&[tool]), [Frame::Content]);
    }

    #[test]
    fn an_engine_that_dies_is_an_error_then_done() {
        let stream = b"data: {\"error\":{\"message\":\"EngineCore\"}}\n\ndata: [DONE]\n\n";
        assert_eq!(frames(&[stream]), [Frame::Error("EngineCore".to_owned()), Frame::Done]);
        assert_eq!(frames(&[b"data: {oops\n\n"]), [Frame::Malformed]);
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing(cuts in prop::collection::vec(0..STREAM.len(), 0..20)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&STREAM[from..cut]);
                from = cut;
            }
            chunks.push(&STREAM[from..]);
            prop_assert_eq!(frames(&chunks), frames(&[STREAM]));
        }
    }
}
