//! What one frame of a stream is: content, a preamble, usage, an error, the end.
//!
//! One pass over the frame's JSON notes the few members that tell the dialects' frames apart;
//! only their place in the structure counts, so that an answer which talks about `"error"` or
//! `[DONE]` is content like any other. A tree is built of errors only, once a stream at most.

use std::ops::Range;

use crate::domain::Dialect;

use super::json::{Cursor, Fault, Kind, Text, Value};
use super::scanner::StreamError;
use super::sse::Event;
use super::usage::{self, UsagePart};

/// What a frame says.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one frame")]
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Frame {
    /// Whether it carries output: text, reasoning, a refusal, a tool call.
    pub(super) content: bool,
    /// Whether the engine had begun when it was sent.
    pub(super) engine_caused: bool,
    /// Whether it is the dialect's last frame.
    pub(super) done: bool,
    /// Whether it carries usage and nothing else (`"choices":[]`).
    pub(super) usage_only: bool,
    /// The usage it carries.
    pub(super) usage: Option<UsagePart>,
    /// The error it reports.
    pub(super) error: Option<StreamError>,
    /// Its place in a responses stream.
    pub(super) sequence_number: Option<u64>,
    /// The id of the response, from a frame that shows it whole.
    pub(super) response_id: Option<String>,
}

/// Reads one frame.
pub(super) fn classify(dialect: Dialect, bytes: &[u8]) -> Frame {
    let event = Event::parse(bytes);
    let Some(data) = event.data.as_deref() else { return Frame::default() };
    if data.trim_ascii() == b"[DONE]" {
        return Frame { done: dialect != Dialect::Responses, ..Frame::default() };
    }
    let mut seen = Seen::default();
    if seen.read(data).is_err() {
        // Not JSON: the engine caused it for all that is known, but it is no content.
        let engine_caused = event.name != Some(b"ping");
        return Frame { engine_caused, ..Frame::default() };
    }
    let kind = seen.kind.as_deref().map(str::as_bytes).or(event.name).unwrap_or_default();
    let mut frame = match dialect {
        Dialect::Messages => seen.messages(kind),
        Dialect::Responses => seen.responses(kind),
        Dialect::Chat | Dialect::Completions | Dialect::Unary => seen.choices(bytes),
    };
    frame.usage = seen.usage.and_then(|span| usage::parse(data.get(span)?));
    frame.usage_only &= frame.usage.is_some();
    frame.sequence_number = seen.sequence_number;
    frame.response_id = seen.response_id;
    if seen.failed || kind == b"error" || kind == b"response.failed" || event.name == Some(b"error")
    {
        frame.error = Some(StreamError::parse(data));
        frame.content = false;
        frame.engine_caused = false;
        frame.usage_only = false;
    }
    frame
}

/// The members that tell frames apart.
#[derive(Debug, Default)]
struct Seen {
    kind: Option<String>,
    content: bool,
    /// Elements of `choices`, where it stands there.
    choices: Option<usize>,
    usage: Option<Range<usize>>,
    failed: bool,
    sequence_number: Option<u64>,
    response_id: Option<String>,
    tool_block: bool,
}

impl Seen {
    fn read(&mut self, data: &[u8]) -> Result<(), Fault> {
        let mut cursor = Cursor::new(data);
        cursor.members(|cursor, key| match raw(data, key) {
            b"choices" if cursor.next() == Some(b'[') => self.read_choices(cursor, data),
            b"delta" if cursor.next() == Some(b'{') => self.read_delta(cursor, data),
            b"message" | b"response" | b"content_block" if cursor.next() == Some(b'{') => {
                self.read_nested(cursor, data)
            }
            key => {
                let value = cursor.value()?;
                self.note(key, &value, data);
                Ok(())
            }
        })?;
        cursor.end()
    }

    fn note(&mut self, key: &[u8], value: &Value, data: &[u8]) {
        match (key, value.kind) {
            (b"delta", Kind::Text(text)) => self.content |= !text.is_empty(),
            (b"usage", Kind::Object(_)) => self.usage = Some(value.span.clone()),
            (b"error", kind) => self.failed |= kind != Kind::Null,
            (b"object", Kind::Text(text)) => self.failed |= raw(data, text) == b"error",
            (b"type", Kind::Text(text)) => {
                self.kind = std::str::from_utf8(raw(data, text)).ok().map(str::to_owned);
            }
            (b"sequence_number", Kind::Number) => {
                let digits = data.get(value.span.clone()).unwrap_or_default();
                self.sequence_number =
                    std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
            }
            _ => {}
        }
    }

    fn read_choices(&mut self, cursor: &mut Cursor<'_>, data: &[u8]) -> Result<(), Fault> {
        self.choices = Some(0);
        cursor.elements(|cursor| {
            self.choices = self.choices.map(|count| count + 1);
            if cursor.next() != Some(b'{') {
                return cursor.value().map(drop);
            }
            cursor.members(|cursor, key| match raw(data, key) {
                b"delta" if cursor.next() == Some(b'{') => self.read_delta(cursor, data),
                key => {
                    let value = cursor.value()?;
                    self.content |= key == b"text" && holds_output(value.kind);
                    Ok(())
                }
            })
        })
    }

    fn read_delta(&mut self, cursor: &mut Cursor<'_>, data: &[u8]) -> Result<(), Fault> {
        cursor.members(|cursor, key| {
            let value = cursor.value()?;
            let output = matches!(
                raw(data, key),
                b"content"
                    | b"reasoning"
                    | b"reasoning_content"
                    | b"refusal"
                    | b"tool_calls"
                    | b"function_call"
                    | b"audio"
                    | b"text"
                    | b"thinking"
                    | b"partial_json"
            );
            self.content |= output && holds_output(value.kind);
            Ok(())
        })
    }

    /// `message` of a `message_start`, `response` of a responses frame, or a block that begins.
    fn read_nested(&mut self, cursor: &mut Cursor<'_>, data: &[u8]) -> Result<(), Fault> {
        cursor.members(|cursor, key| {
            let value = cursor.value()?;
            match (raw(data, key), value.kind) {
                (b"usage", Kind::Object(_)) => self.usage = Some(value.span),
                (b"id", Kind::Text(text)) => {
                    self.response_id = cursor.decode(text).map(std::borrow::Cow::into_owned);
                }
                (b"type", Kind::Text(text)) => self.tool_block |= raw(data, text) == b"tool_use",
                _ => {}
            }
            Ok(())
        })
    }

    fn choices(&self, bytes: &[u8]) -> Frame {
        Frame {
            content: self.content,
            engine_caused: true,
            usage_only: self.choices == Some(0) && bytes.starts_with(b"data:"),
            ..Frame::default()
        }
    }

    fn messages(&self, kind: &[u8]) -> Frame {
        Frame {
            content: (kind == b"content_block_delta" && self.content)
                || (kind == b"content_block_start" && self.tool_block),
            engine_caused: kind != b"ping",
            done: kind == b"message_stop",
            ..Frame::default()
        }
    }

    fn responses(&self, kind: &[u8]) -> Frame {
        Frame {
            content: kind.ends_with(b".delta") && self.content,
            engine_caused: !matches!(
                kind,
                b"response.created" | b"response.queued" | b"response.in_progress" | b"ping"
            ),
            done: matches!(
                kind,
                b"response.completed"
                    | b"response.incomplete"
                    | b"response.failed"
                    | b"response.cancelled"
            ),
            ..Frame::default()
        }
    }
}

/// Whether a value holds any output at all.
fn holds_output(kind: Kind) -> bool {
    match kind {
        Kind::Text(text) => !text.is_empty(),
        Kind::Array(any) | Kind::Object(any) => any,
        Kind::Null | Kind::Bool(_) | Kind::Number => false,
    }
}

fn raw(data: &[u8], text: Text) -> &[u8] {
    data.get(text.start..text.end).unwrap_or_default()
}

/// Whether the beginning of a frame can still become the frame that carries usage alone.
pub(super) fn may_be_usage_only(partial: &[u8]) -> bool {
    const FIELD: &[u8] = b"data:";
    if partial.len() < FIELD.len() {
        return FIELD.starts_with(partial);
    }
    let Some(data) = partial.strip_prefix(FIELD) else { return false };
    let data = data.trim_ascii_start();
    if data.first().is_some_and(|first| *first != b'{') {
        return false;
    }
    let mut possible = true;
    // It ends in a fault nearly always, since the text is not whole; what was seen counts.
    let walked = Cursor::new(data).members(|cursor, key| {
        if raw(data, key) == b"choices" && cursor.next() == Some(b'[') {
            return cursor.elements(|cursor| {
                possible &= cursor.next().is_none();
                cursor.value().map(drop)
            });
        }
        cursor.value().map(drop)
    });
    possible || walked.is_err_and(|_| possible)
}
