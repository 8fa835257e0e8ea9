//! Peek and splice against `serde_json`, and against what strangers send.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::domain::{Endpoint, Reason};
use crate::openai::{Edits, Peek, PeekError, peek};

const JSON: Option<&str> = Some("application/json");

fn chat(body: &str) -> Result<Peek, PeekError> {
    peek(Endpoint::ChatCompletions, JSON, body.as_bytes())
}

#[track_caller]
fn refused(endpoint: Endpoint, body: &[u8], reason: Reason, param: Option<&str>) {
    let error = peek(endpoint, JSON, body).unwrap_err();
    assert_eq!((error.reason, error.param), (reason, param), "{error}");
}

#[test]
fn a_chat_request_is_read_and_spliced() {
    let body = Bytes::from_static(
        br#"{ "mod\u0065l": "tiny", "messages": [{"role":"user","content":"hi \"there\""}],
            "stream": true, "max_tokens": 900, "priority": 3, "temperature": 0.5 }"#,
    );
    let peek = peek(Endpoint::ChatCompletions, JSON, &body).unwrap();
    assert_eq!((peek.model.as_str(), peek.stream, peek.usage_asked), ("tiny", true, false));
    assert_eq!((peek.max_output, peek.sequences, peek.prompt_bytes), (Some(900), 1, 14));
    let edits = Edits {
        model: Some("real"),
        include_usage: true,
        max_output: Some(100),
        cache_salt: Some("s"),
        priority: None,
        strip: &["priority"],
    };
    let text = String::from_utf8(peek.splice(&body, &edits).to_vec()).unwrap();
    assert_eq!(
        text,
        r#"{"cache_salt":"s","stream_options":{"include_usage":true}, "mod\u0065l": "real", "messages": [{"role":"user","content":"hi \"there\""}],
            "stream": true, "max_tokens": 100, "temperature": 0.5 }"#
    );
    assert_eq!(peek.splice(&body, &Edits::default()), body);
}

#[test]
fn what_python_would_read_otherwise_is_refused() {
    for body in [
        "",
        "[]",
        "null",
        "{",
        r#"{"model":"a"} x"#,
        r#"{"model":"a",}"#,
        r#"{'model':"a"}"#,
        r#"{"model":"a","x":NaN}"#,
        r#"{"model":"a","x":-Infinity}"#,
        r#"{"model":"a","x":01}"#,
        r#"{"model":"a","x":.5}"#,
        r#"{"model":"a","x":1.}"#,
        r#"{"model":"a","x":"\x"}"#,
        r#"{"model":"a","x":"\u12g4"}"#,
        "{\"model\":\"a\",\"x\":\"\n\"}",
        r#"{"model":"a" "x":1}"#,
    ] {
        refused(Endpoint::ChatCompletions, body.as_bytes(), Reason::Malformed, None);
    }
    refused(Endpoint::ChatCompletions, b"{\"model\":\"\xff\"}", Reason::Malformed, None);
    let deep = format!(r#"{{"model":"a","x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    refused(Endpoint::ChatCompletions, deep.as_bytes(), Reason::Malformed, None);
    for (body, param) in [
        (r#"{"model":"a","model":"b"}"#, "model"),
        (r#"{"model":"a","mod\u0065l":"b"}"#, "model"),
        (r#"{"model":"a","max_tokens":1,"max_tokens":1e30}"#, "max_tokens"),
        (r#"{"messages":[]}"#, "model"),
        (r#"{"model":null}"#, "model"),
        (r#"{"model":["a"]}"#, "model"),
        (r#"{"model":"\ud800"}"#, "model"),
        (r#"{"model":"a","stream":"true"}"#, "stream"),
        (r#"{"model":"a","stream":1}"#, "stream"),
        (r#"{"model":"a","n":0}"#, "n"),
        (r#"{"model":"a","n":"2"}"#, "n"),
        (r#"{"model":"a","n":-1}"#, "n"),
        (r#"{"model":"a","stream_options":[]}"#, "stream_options"),
        (r#"{"model":"a","stream_options":{"include_usage":1}}"#, "stream_options"),
        (
            r#"{"model":"a","stream_options":{"include_usage":true,"include_usage":false}}"#,
            "stream_options",
        ),
    ] {
        refused(Endpoint::ChatCompletions, body.as_bytes(), Reason::Malformed, Some(param));
    }
}

#[test]
fn a_bound_on_output_must_be_a_number_of_tokens() {
    for wrong in ["-1", "1e30", "1.5", "\"16\"", "true", "0", "[]", "4294967296", "-1e400", "1e400"]
    {
        for (endpoint, field) in [
            (Endpoint::ChatCompletions, "max_tokens"),
            (Endpoint::ChatCompletions, "max_completion_tokens"),
            (Endpoint::Completions, "max_tokens"),
            (Endpoint::Responses, "max_output_tokens"),
            (Endpoint::Messages, "max_tokens"),
        ] {
            let body = format!(r#"{{"model":"a","{field}":{wrong}}}"#);
            refused(endpoint, body.as_bytes(), Reason::OutputTokens, Some(field));
        }
    }
    for (right, read) in [("1", 1), ("16.0", 16), ("1e2", 100), ("4294967295", u32::MAX)] {
        let peek = chat(&format!(r#"{{"model":"a","max_tokens":{right}}}"#)).unwrap();
        assert_eq!(peek.max_output, Some(read));
    }
    // The stronger field counts, null is absent, and only a completion has a default.
    let body = r#"{"model":"a","max_tokens":9,"max_completion_tokens":5}"#;
    assert_eq!(chat(body).unwrap().max_output, Some(5));
    assert_eq!(chat(r#"{"model":"a","max_tokens":null}"#).unwrap().max_output, None);
    let completion = |body: &str| peek(Endpoint::Completions, JSON, body.as_bytes());
    assert_eq!(completion(r#"{"model":"a"}"#).unwrap().max_output, Some(16));
    assert_eq!(completion(r#"{"model":"a","max_tokens":null}"#).unwrap().max_output, None);
    let echo = completion(r#"{"model":"a","max_tokens":0,"echo":true}"#);
    assert_eq!(echo.unwrap().max_output, Some(0));
}

#[test]
fn prompts_are_counted() {
    let cases = [
        (Endpoint::Completions, r#""prompt":"abc""#, 1, None, 3),
        (Endpoint::Completions, r#""prompt":["abc","de"],"n":3"#, 6, None, 5),
        (Endpoint::Completions, r#""prompt":[1,2,3]"#, 1, Some(3), 0),
        (Endpoint::Completions, r#""prompt":[[1,2],[3]],"best_of":2"#, 4, Some(6), 0),
        (Endpoint::Completions, r#""prompt":[]"#, 1, None, 0),
        (Endpoint::Embeddings, r#""input":["a","b","c"]"#, 3, None, 3),
        (Endpoint::Responses, r#""input":[{"role":"user","content":"abc"}]"#, 1, None, 7),
        (Endpoint::Rerank, r#""query":"q","documents":["a","b"]"#, 2, None, 3),
        (Endpoint::Messages, r#""system":"abc","messages":[]"#, 1, None, 3),
    ];
    for (endpoint, fields, sequences, tokens, bytes) in cases {
        let peek = peek(endpoint, JSON, format!(r#"{{"model":"a",{fields}}}"#).as_bytes()).unwrap();
        let seen = (peek.sequences, peek.prompt_tokens, peek.prompt_bytes);
        assert_eq!(seen, (sequences, tokens, bytes), "{fields}");
    }
    let image = "A".repeat(100_000);
    let peek = chat(&format!(
        r#"{{"model":"a","messages":[{{"content":[{{"image_url":{{"url":"data:image/png;base64,{image}"}}}}]}}]}}"#
    ));
    assert_eq!(peek.unwrap().prompt_bytes, 4096);
}

#[test]
fn a_conversation_matches_its_own_history() {
    let turn = |index: usize| {
        let role = if index.is_multiple_of(2) { "user" } else { "assistant" };
        json!({ "role": role, "content": format!("turn {index} {}", "words ".repeat(60)) })
    };
    let mut before: Vec<u64> = Vec::new();
    for turns in 1..12 {
        let messages: Vec<Value> = (0..turns).map(turn).collect();
        let body = json!({ "messages": messages, "model": "a", "tools": [{"type": "function"}] });
        // White space must make no difference, nor must it matter where the tools stand.
        let prefix = chat(&format!("{body:#}")).unwrap().prefix;
        assert!(prefix.starts_with(&before) && prefix.len() > before.len());
        before = prefix.to_vec();
    }
    let changed = json!({ "messages": [turn(1)], "model": "a", "tools": [{"type": "function"}] });
    assert_ne!(chat(&changed.to_string()).unwrap().prefix.first(), before.first());
}

#[test]
fn usage_is_asked_for_in_every_shape_that_options_come_in() {
    let asks = |options: &str| {
        let body = Bytes::from(format!(r#"{{"model":"a","stream":true{options}}}"#));
        let edits = Edits { include_usage: true, ..Edits::default() };
        let spliced = chat(std::str::from_utf8(&body).unwrap()).unwrap().splice(&body, &edits);
        let tree: Value = serde_json::from_slice(&spliced).unwrap();
        (tree["stream_options"].clone(), spliced == body)
    };
    let on = json!({ "include_usage": true });
    assert_eq!(asks(""), (on.clone(), false));
    assert_eq!(asks(r#","stream_options":null"#), (on.clone(), false));
    assert_eq!(asks(r#","stream_options":{ }"#), (on.clone(), false));
    assert_eq!(asks(r#","stream_options":{"include_usage":null}"#), (on.clone(), false));
    assert_eq!(asks(r#","stream_options":{"include_usage":false}"#), (on.clone(), false));
    assert_eq!(asks(r#","stream_options":{"include_usage":true}"#), (on, true));
    // Without `include_usage` vLLM ignores this one; with it, every frame would grow.
    let quiet = json!({ "include_usage": true, "continuous_usage_stats": false });
    assert_eq!(asks(r#","stream_options":{"continuous_usage_stats":true}"#), (quiet, false));
    let unary = Bytes::from_static(br#"{"model":"a"}"#);
    let edits = Edits { include_usage: true, ..Edits::default() };
    assert_eq!(chat(r#"{"model":"a"}"#).unwrap().splice(&unary, &edits), unary);
}

/// Any JSON, a few levels deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\"\\\\/\u{1}\u{e9}{}:,]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Bodies with known fields, of right types, among unknown ones in any order.
fn any_body() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "messages",
        "tools",
        "temperature",
        "priority",
        "kv_transfer_params",
        "stop",
        "é",
        "\"",
    ]);
    let known = (
        prop::option::of(any::<bool>()),
        prop::option::of(prop_oneof![Just(Value::Null), (1..5000_u32).prop_map(Value::from)]),
        prop::option::of(prop_oneof![Just(Value::Null), (1..5000_u32).prop_map(Value::from)]),
        prop::option::of(prop_oneof![
            Just(Value::Null),
            Just(json!({})),
            any::<bool>().prop_map(|on| json!({ "include_usage": on })),
            any::<bool>().prop_map(|on| json!({ "continuous_usage_stats": on, "other": [1] })),
        ]),
        prop::option::of("[a-z]{1,6}"),
    );
    (any::<String>(), prop::collection::vec((names, any_json()), 0..6), known).prop_map(
        |(model, unknown, (stream, tokens, strong, options, salt))| {
            let mut body: Map<String, Value> =
                unknown.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            body.insert("model".into(), model.into());
            let known = [
                ("stream", stream.map(Value::from)),
                ("max_tokens", tokens),
                ("max_completion_tokens", strong),
                ("stream_options", options),
                ("cache_salt", salt.map(Value::from)),
            ];
            for (name, value) in known {
                if let Some(value) = value {
                    body.insert(name.into(), value);
                }
            }
            Value::Object(body)
        },
    )
}

/// What a splice must come to, done on the tree.
fn edited(mut tree: Value, peek: &Peek, edits: &Edits<'_>) -> Value {
    let body = tree.as_object_mut().unwrap();
    for name in edits.strip {
        body.remove(*name);
    }
    if let Some(model) = edits.model {
        body.insert("model".into(), model.into());
    }
    if let Some(priority) = edits.priority {
        body.insert("priority".into(), priority.into());
    }
    if let Some(salt) = edits.cache_salt {
        body.insert("cache_salt".into(), salt.into());
    }
    if edits.include_usage && peek.stream && !peek.usage_asked {
        let options = body.entry("stream_options").or_insert(Value::Null);
        if options.is_null() {
            *options = json!({});
        }
        if options.get("continuous_usage_stats").is_some() {
            options["continuous_usage_stats"] = json!(false);
        }
        options["include_usage"] = json!(true);
    }
    if let Some(cap) = edits.max_output {
        let mut bound = false;
        for name in ["max_completion_tokens", "max_tokens"] {
            if let Some(count) = body.get(name).and_then(Value::as_u64) {
                bound = true;
                body.insert(name.into(), count.min(cap.into()).into());
            }
        }
        if !bound {
            let null = ["max_completion_tokens", "max_tokens"]
                .into_iter()
                .find(|name| body.contains_key(*name));
            body.insert(null.unwrap_or("max_completion_tokens").into(), cap.into());
        }
    }
    tree
}

proptest! {
    /// The same fields as serde_json finds, and a splice that changes those alone.
    #[test]
    fn peek_and_splice_agree_with_a_tree(
        tree in any_body(),
        pretty in any::<bool>(),
        model in prop::option::of(any::<String>()),
        max_output in prop::option::of(1..5000_u32),
        cache_salt in prop::option::of("[a-z]{1,4}"),
        priority in prop::option::of(-9..9_i64),
        include_usage in any::<bool>(),
        strip in prop::sample::subsequence(
            vec!["priority", "kv_transfer_params", "cache_salt", "temperature", "stop"], 0..5),
    ) {
        let text = if pretty { format!("{tree:#}") } else { tree.to_string() };
        // Floats lose a digit on their way through serde_json's text; compare what was read.
        let tree: Value = serde_json::from_str(&text).unwrap();
        let peek = chat(&text).unwrap();
        prop_assert_eq!(Some(peek.model.as_str()), tree["model"].as_str());
        prop_assert_eq!(Some(peek.stream), tree["stream"].as_bool().or(Some(false)));
        let bound = tree["max_completion_tokens"].as_u64().or(tree["max_tokens"].as_u64());
        prop_assert_eq!(peek.max_output.map(u64::from), bound);
        prop_assert_eq!(peek.priority, tree["priority"].as_i64());
        prop_assert_eq!(
            peek.usage_asked,
            tree["stream_options"]["include_usage"] == json!(true)
        );
        let edits = Edits {
            model: model.as_deref(),
            include_usage,
            max_output,
            cache_salt: cache_salt.as_deref(),
            priority,
            strip: &strip,
        };
        let body = Bytes::from(text);
        let spliced = peek.splice(&body, &edits);
        let seen: Value = serde_json::from_slice(&spliced).unwrap();
        prop_assert_eq!(&seen, &edited(tree, &peek, &edits));
        // What was written must be read again the same way, with no field twice.
        let again = chat(std::str::from_utf8(&spliced).unwrap()).unwrap();
        prop_assert!(max_output.is_none_or(|cap| again.max_output.is_some_and(|n| n <= cap)));
    }

    /// Whatever serde_json takes for an object we take too, and nothing else.
    #[test]
    fn the_walker_accepts_what_serde_json_accepts(
        tree in any_json(),
        cut in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        how in 0..4_u8,
    ) {
        let mut text = format!(r#"{{"x":{tree},"model":"m"}}"#).into_bytes();
        let at = cut.index(text.len());
        match how {
            0 => {}
            1 => text[at] = byte,
            2 => text.insert(at, byte),
            _ => drop(text.remove(at)),
        }
        prop_assume!(text.trim_ascii_start().starts_with(b"{"));
        // What is refused for what a field holds is JSON all the same.
        let ours = peek(Endpoint::Detokenize, JSON, &text)
            .map_or_else(|error| error.param.is_some(), |_| true);
        let theirs = std::str::from_utf8(&text)
            .is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
        prop_assert_eq!(ours, theirs, "{}", String::from_utf8_lossy(&text));
    }
}

fn form(parts: &[(&str, &str)]) -> Vec<u8> {
    let part = |(disposition, content): &(&str, &str)| {
        let header = "Content-Disposition: form-data";
        format!("--XX\r\n{header}; {disposition}\r\n\r\n{content}\r\n")
    };
    let parts: String = parts.iter().map(part).collect();
    (parts + "--XX--\r\n").into_bytes()
}

#[test]
fn a_form_names_its_model() {
    let kind = Some("multipart/form-data; charset=utf-8; boundary=\"XX\"");
    let audio = "\r\n--X\r\nname=\"model\"\r\n\r\nfalse".repeat(1000);
    let body = form(&[
        (r#"name="file"; filename="name=model""#, &audio),
        (r#"name="model""#, "whisper"),
        (r#"name="stream""#, "True"),
    ]);
    let peek = |kind, body: &[u8]| peek(Endpoint::Transcriptions, kind, body);
    let read = peek(kind, &body).unwrap();
    assert_eq!((read.model.as_str(), read.stream), ("whisper", true));
    let edits = Edits { model: Some("other"), ..Edits::default() };
    let body = Bytes::from(body);
    assert_eq!(read.splice(&body, &edits), body);

    assert!(peek(JSON, &body).is_err());
    assert!(peek(None, &body).is_err());
    assert!(peek(Some("multipart/form-data; boundary=YY"), &body).is_err());
    assert!(peek(kind, &body[..body.len() - 6]).is_err());
    let twice = form(&[(r#"name="model""#, "a"), ("name=model", "b")]);
    assert_eq!(peek(kind, &twice).unwrap_err().param, Some("model"));
    assert_eq!(peek(kind, &form(&[])).unwrap_err().param, Some("model"));
    for sly in [
        "name=\"x\"; name=\"model\"",
        "name*0=mod; name*1=el; name=x",
        "name=\"x\"\r\nContent-Disposition: form-data; name=\"model\"",
        "name=\"x\"\r\n folded: name=\"model\"",
        "filename=\"model\"",
    ] {
        let error = peek(kind, &form(&[(r#"name="model""#, "a"), (sly, "b")])).unwrap_err();
        assert_eq!((error.reason, error.param), (Reason::Malformed, None), "{sly}");
    }
    let many = vec![(r#"name="x""#, "y"); 100];
    assert!(peek(kind, &form(&many)).is_err());
}
