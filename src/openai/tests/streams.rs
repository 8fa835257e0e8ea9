//! The scanner against what a real vLLM sent, and against what it might send, at any chunking.

use proptest::prelude::*;

use crate::domain::{Dialect, Reason, Usage};
use crate::openai::{Scanner, StreamError, sentence, stream_error};
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
        let facts = whole(r.dialect, false, r.stream);
        assert_eq!(facts.content_frames, r.content.0, "{}", r.name);
        assert_eq!(facts.usage.map(|u| (u.input, u.output)), r.usage, "{}", r.name);
        assert_eq!(facts.forwarded, r.stream, "{}", r.name);
        assert!(facts.ended_well && facts.engine_caused && facts.error.is_none(), "{}", r.name);
    }
}

/// The stream without its one frame that has usage alone.
fn without_usage_frame(stream: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(stream).unwrap();
    let frames = text.split_inclusive("\n\n");
    frames.filter(|frame| !frame.contains(r#""choices":[],"usage":{"#)).collect::<String>().into()
}

#[test]
fn the_asked_for_frame_is_cut_out_and_no_other() {
    for r in recordings() {
        let facts = whole(r.dialect, true, r.stream);
        let rest = without_usage_frame(r.stream);
        assert_eq!(r.stream.len() != rest.len(), r.usage_frame, "{}", r.name);
        assert_eq!(facts.forwarded, rest, "{}", r.name);
        assert_eq!(facts.usage, whole(r.dialect, false, r.stream).usage, "{}", r.name);
        assert!(facts.ended_well, "{}", r.name);
    }
}

#[test]
fn the_first_content_frame_is_the_right_one() {
    for r in recordings() {
        let mut scanner = Scanner::new(r.dialect, false);
        let text = std::str::from_utf8(r.stream).unwrap();
        let first = text.split_inclusive("\n\n").position(|frame| {
            scanner.push(Bytes::copy_from_slice(frame.as_bytes())).content_frames > 0
        });
        assert_eq!(first, Some(r.content.1), "{}", r.name);
    }
}

#[test]
fn responses_preambles_are_not_the_engines() {
    let stream = recordings().into_iter().find(|r| r.dialect == Dialect::Responses).unwrap().stream;
    let mut scanner = Scanner::new(Dialect::Responses, false);
    let text = std::str::from_utf8(stream).unwrap();
    let caused: Vec<bool> = text
        .split_inclusive("\n\n")
        .map(|frame| scanner.push(Bytes::copy_from_slice(frame.as_bytes())).engine_caused)
        .collect();
    assert_eq!(caused.iter().position(|caused| *caused), Some(2));
    assert!(caused.iter().skip(2).all(|caused| *caused));
    for frame in [": ping\n\n", "event: ping\ndata: {\"type\":\"ping\"}\n\n", "\n", "id: 3\n\n"] {
        for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
            let scan = Scanner::new(dialect, false).push(Bytes::from_static(frame.as_bytes()));
            assert!(!scan.engine_caused || dialect == Dialect::Chat, "{frame:?} {dialect:?}");
        }
    }
}

#[test]
fn an_engine_that_dies_has_not_ended_well() {
    let file = include_bytes!("../../../tests/recorded/engine-death-mid-stream.http");
    let head = memchr::memmem::find(file, b"\r\n\r\n").unwrap();
    let facts = whole(Dialect::Completions, true, &file[head + 4..]);
    assert_eq!(facts.content_frames, 6);
    assert!(facts.ended && !facts.ended_well);
    let error = facts.error.unwrap();
    assert_eq!(error.status, 500);
    assert!(error.message.starts_with("EngineCore encountered an issue"));
}

#[test]
fn errors_are_seen_in_every_dialect() {
    for (dialect, frame, status, message) in [
        (Dialect::Chat, "data: {\"error\":\"dead\"}\n\n", 500, "dead"),
        (
            Dialect::Chat,
            "data: {\"object\":\"error\",\"message\":\"m\",\"code\":400}\n\n",
            400,
            "m",
        ),
        (
            Dialect::Messages,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n",
            503,
            "m",
        ),
        (
            Dialect::Responses,
            "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\",\"message\":\"m\"}}}\n\n",
            500,
            "m",
        ),
    ] {
        let facts = whole(dialect, false, frame.as_bytes());
        let error = facts.error.unwrap();
        assert_eq!((error.status, error.message.as_str()), (status, message), "{frame}");
        assert!(facts.ended && !facts.ended_well && !facts.engine_caused, "{frame}");
    }
    // `null` is no error, and neither is one that stands deeper.
    let fine = b"data: {\"error\":null,\"choices\":[{\"error\":{},\"delta\":{\"error\":1}}]}\n\n";
    assert_eq!(whole(Dialect::Chat, false, fine).error, None);
}

#[test]
fn every_kind_of_output_is_content_and_nothing_else_is() {
    let chat =
        |delta: &str| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
    let yes = [
        chat(r#"{"content":"a"}"#),
        chat(r#"{"reasoning":"a"}"#),
        chat(r#"{"reasoning_content":"\n"}"#),
        chat(r#"{"content":"","tool_calls":[{"index":0,"function":{"name":"f"}}]}"#),
        chat(r#"{"function_call":{"name":"f"}}"#),
        chat(r#"{"refusal":"no"}"#),
        chat(r#"{"content":"\"error\" [DONE] data: \n\n \"usage\":{\"prompt_tokens\":9}"}"#),
    ];
    let no = [
        chat(r#"{"role":"assistant","content":""}"#),
        chat(r#"{"content":null,"tool_calls":[],"reasoning":null}"#),
        chat("{}"),
        "data: {\"choices\":[]}\n\n".to_owned(),
        "data: not json {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".to_owned(),
        ": {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".to_owned(),
    ];
    for (frames, content) in [(&yes[..], 1), (&no[..], 0)] {
        for frame in frames {
            let facts = whole(Dialect::Chat, true, frame.as_bytes());
            assert_eq!(facts.content_frames, content, "{frame}");
            assert!(!facts.ended && facts.usage.is_none(), "{frame}");
        }
    }
    for (kind, member, content) in [
        ("response.reasoning_text.delta", r#""delta":"a""#, 1),
        ("response.function_call_arguments.delta", r#""delta":"{""#, 1),
        ("response.output_text.delta", r#""delta":"""#, 0),
        ("response.output_text.done", r#""text":"a""#, 0),
        ("response.output_item.added", r#""item":{"content":[1]}"#, 0),
    ] {
        let frame = format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{member}}}\n\n");
        let facts = whole(Dialect::Responses, false, frame.as_bytes());
        assert_eq!(facts.content_frames, content, "{kind}");
    }
    for (kind, member, content) in [
        ("content_block_delta", r#""delta":{"type":"thinking_delta","thinking":"a"}"#, 1),
        ("content_block_delta", r#""delta":{"type":"input_json_delta","partial_json":"{"}"#, 1),
        ("content_block_delta", r#""delta":{"type":"input_json_delta","partial_json":""}"#, 0),
        ("content_block_start", r#""content_block":{"type":"tool_use","name":"f"}"#, 1),
        ("content_block_start", r#""content_block":{"type":"text","text":""}"#, 0),
        ("message_delta", r#""delta":{"stop_reason":"end_turn","text":"a"}"#, 0),
    ] {
        let frame = format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{member}}}\n\n");
        let facts = whole(Dialect::Messages, false, frame.as_bytes());
        assert_eq!(facts.content_frames, content, "{kind} {member}");
    }
}

#[test]
fn content_is_forwarded_at_the_read_that_brings_it() {
    let mut scanner = Scanner::new(Dialect::Chat, true);
    let mut push = |piece: &'static str| scanner.push(Bytes::from_static(piece.as_bytes())).forward;
    assert_eq!(push("data: {\"id\":\"x\",\"cho"), "");
    let (rest, all) = ("ices\":[{\"del", "data: {\"id\":\"x\",\"choices\":[{\"del");
    assert_eq!(push(rest), all);
    assert_eq!(push("ta\":{\"content\":\"a"), "ta\":{\"content\":\"a");
    assert_eq!(push("\"}}]}\n\n: pi"), "\"}}]}\n\n: pi");
    assert_eq!(push("ng\n\ndata: {\"choices\":[]"), "ng\n\n");
    assert_eq!(push(",\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\r"), "");
    assert_eq!(push("\n\r"), "");
    assert_eq!(push("\ndata: [DO"), "data: [DO");
    assert_eq!(push("NE]\n\n"), "NE]\n\n");
    assert!(scanner.ended_well());
    assert_eq!(scanner.usage(), Some(Usage { input: 1, output: 2, cached: None }));
}

#[test]
fn a_read_of_whole_frames_is_not_copied() {
    let stream = Bytes::from_static(recordings()[0].stream);
    let forward = Scanner::new(Dialect::Chat, true).push(stream.clone()).forward;
    assert_eq!((forward.as_ptr(), forward.len()), (stream.as_ptr(), stream.len()));
}

#[test]
fn an_endless_frame_does_not_grow_memory() {
    let mut scanner = Scanner::new(Dialect::Chat, true);
    let piece = Bytes::from(vec![b'a'; 64 << 10]);
    assert_eq!(scanner.push(Bytes::from_static(b"data: {")).forward, "");
    let mut forwarded = 0;
    for _ in 0..64 {
        forwarded += scanner.push(piece.clone()).forward.len();
        assert!(scanner.kept_bytes() <= 1 << 20);
    }
    assert_eq!(forwarded, 7 + 64 * piece.len());
    assert!(scanner.mid_frame());
    let scan = scanner.push(Bytes::from_static(
        b"\n\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n",
    ));
    assert_eq!((scan.content_frames, scan.done, scanner.unscanned()), (1, true, 1));
}

/// The same frames with other line ends.
fn with_line_ends(stream: &[u8], end: &str) -> Vec<u8> {
    std::str::from_utf8(stream).unwrap().replace('\n', end).into_bytes()
}

proptest! {
    #[test]
    fn chunking_changes_nothing(
        which in 0..9_usize,
        strip in any::<bool>(),
        end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        splits in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        truncate in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let r = &recordings()[which];
        let mut stream = with_line_ends(r.stream, end);
        if let Some(cut) = truncate {
            stream.truncate(cut.index(stream.len()));
        }
        let mut at: Vec<usize> =
            splits.iter().map(|split| split.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let chunks = at.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
        prop_assert_eq!(scan(r.dialect, strip, chunks), whole(r.dialect, strip, &stream));
        let expected = if strip && truncate.is_none() {
            with_line_ends(&without_usage_frame(r.stream), end)
        } else {
            stream.clone()
        };
        if truncate.is_none() || !strip {
            prop_assert_eq!(whole(r.dialect, strip, &stream).forwarded, expected);
        }
        prop_assert_eq!(
            scan(r.dialect, strip, stream.chunks(1)),
            whole(r.dialect, strip, &stream)
        );
    }

    /// Nothing that a replica sends can make the scanner panic, lose or invent a byte.
    #[test]
    fn noise_passes_unchanged(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                "(data: |event: |\\{|\"choices\":|\\[|\\]|\r|\n|\\}|,){0,12}"
                    .prop_map(String::into_bytes),
            ],
            0..20,
        ),
        dialect in prop::sample::select(vec![Dialect::Chat, Dialect::Messages, Dialect::Responses]),
    ) {
        let all: Vec<u8> = pieces.concat();
        let facts = scan(dialect, true, pieces.iter().map(Vec::as_slice));
        prop_assert_eq!(&facts.forwarded, &all);
        prop_assert_eq!(facts, whole(dialect, true, &all));
    }
}

#[test]
fn a_broken_stream_is_told_so_in_its_dialect() {
    let tell = |dialect, sent: &'static str| {
        let mut scanner = Scanner::new(dialect, false);
        scanner.push(Bytes::from_static(sent.as_bytes()));
        let frames = stream_error(dialect, Reason::UpstreamReset, &scanner);
        String::from_utf8(frames.to_vec()).unwrap()
    };
    let chat = tell(Dialect::Chat, "data: {\"choices\":[]}\n\n");
    assert!(chat.starts_with("data: {\"error\":{") && chat.ends_with("}\n\ndata: [DONE]\n\n"));
    assert!(tell(Dialect::Chat, "data: {\"cho").starts_with("\n\ndata: "));
    assert_eq!(tell(Dialect::Chat, "data: [DONE]\n\n"), "");
    let messages = tell(Dialect::Messages, "");
    assert!(messages.starts_with("event: error\ndata: {"));
    let created = "data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_7\"},\
                   \"sequence_number\":4}\n\n";
    let responses = tell(Dialect::Responses, created);
    let data = responses.strip_prefix("event: response.failed\ndata: ").unwrap();
    let tree: serde_json::Value = serde_json::from_str(data.trim_end()).unwrap();
    assert_eq!(
        (tree["sequence_number"].as_u64(), &tree["response"]["id"]),
        (Some(5), &"resp_7".into())
    );
    // Our own frames are read by our own scanner as what they are.
    for (dialect, frames) in
        [(Dialect::Chat, chat), (Dialect::Messages, messages), (Dialect::Responses, responses)]
    {
        let error = whole(dialect, true, frames.as_bytes()).error.unwrap();
        assert_eq!(error.message, sentence(Reason::UpstreamReset));
    }
}
