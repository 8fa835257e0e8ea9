//! The scanner against what a real vLLM sent, and against what it might send, at any chunking.

use crate::domain::{Dialect, Usage};
use crate::openai::{Scanner, StreamError};
use bytes::Bytes;

/// What a whole stream came to.
#[derive(Clone, PartialEq, Debug)]
struct Facts {
    forwarded: Vec<u8>,
    content_frames: u32,
    engine_caused: bool,
    usage: Option<Usage>,
    ended_well: bool,
    ended: bool,
    error: Option<StreamError>,
    sequence_number: Option<u64>,
}

fn scan<'a>(dialect: Dialect, strip: bool, chunks: impl IntoIterator<Item = &'a [u8]>) -> Facts {
    let mut scanner = Scanner::new(dialect, strip);
    let (mut forwarded, mut content_frames) = (Vec::new(), 0);
    let (mut engine_caused, mut error) = (false, None);
    for chunk in chunks {
        let scan = scanner.push(Bytes::copy_from_slice(chunk));
        forwarded.extend_from_slice(&scan.forward);
        content_frames += scan.content_frames;
        engine_caused |= scan.engine_caused;
        error = error.or(scan.error);
    }
    forwarded.extend_from_slice(&scanner.finish());
    Facts {
        forwarded,
        content_frames,
        engine_caused,
        usage: scanner.usage(),
        ended_well: scanner.ended_well(),
        ended: scanner.ended(),
        error,
        sequence_number: scanner.sequence_number(),
    }
}

fn whole(dialect: Dialect, strip: bool, stream: &[u8]) -> Facts {
    scan(dialect, strip, [stream])
}

struct Recorded {
    name: &'static str,
    dialect: Dialect,
    stream: &'static [u8],
    /// Content frames, and which frame is the first of them.
    content: (u32, usize),
    usage: Option<(u64, u64)>,
    /// Whether a frame with usage alone stands before `[DONE]`.
    usage_frame: bool,
}

macro_rules! recorded {
    ($($file:literal $dialect:ident $content:expr, $usage:expr, $frame:expr;)*) => {
        [$(Recorded {
            name: $file,
            dialect: Dialect::$dialect,
            stream: include_bytes!(concat!("../../../tests/recorded/", $file)),
            content: $content,
            usage: $usage,
            usage_frame: $frame,
        }),*]
    };
}

fn recordings() -> Vec<Recorded> {
    recorded! {
        "chat-stream.sse" Chat (7, 1), None, false;
        "chat-stream-usage.sse" Chat (8, 1), Some((15, 8)), true;
        "chat-stream-n2.sse" Chat (15, 2), Some((15, 16)), true;
        "chat-stream-interval4.sse" Chat (3, 1), Some((15, 8)), true;
        "chat-stream-one-token.sse" Chat (1, 1), Some((15, 1)), true;
        "chat-stream-continuous-usage.sse" Chat (8, 1), Some((15, 8)), true;
        "completions-stream-usage.sse" Completions (7, 0), Some((4, 8)), true;
        "messages-stream.sse" Messages (7, 2), Some((13, 8)), false;
        "responses-stream.sse" Responses (8, 4), Some((13, 8)), false;
    }
    .into()
}

#[test]
fn recorded_streams_are_read_as_they_were_sent() {
    for r in recordings() {
        assert!(r.usage_frame || r.usage.is_none() || r.content.1 > 0);
        let facts = whole(r.dialect, false, r.stream);
        let usage = r.usage.map(|(input, output)| (input, output));
        assert_eq!(facts.content_frames, r.content.0, "{}", r.name);
        assert_eq!(facts.usage.map(|u| (u.input, u.output)), usage, "{}", r.name);
        assert_eq!(facts.forwarded, r.stream, "{}", r.name);
        assert!(facts.ended_well && facts.engine_caused && facts.error.is_none(), "{}", r.name);
    }
}
