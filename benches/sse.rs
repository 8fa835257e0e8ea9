//! What the wire costs a request: peek, hash and splice of a 32 KB prompt, and the scan of a
//! stream frame by frame. `cargo bench --bench sse`.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

use weir::domain::{Dialect, Endpoint};
use weir::openai::{Edits, Scanner, peek};

/// A conversation of eight turns whose text comes to about `bytes`.
fn conversation(bytes: usize) -> Bytes {
    let text = "The quick brown fox said:\\n\\\"jump\\\" over the lazy dog. ";
    let turn = text.repeat(bytes / text.len() / 8);
    let messages: Vec<String> =
        (0..8).map(|_| format!(r#"{{"role":"user","content":"{turn}"}}"#)).collect();
    Bytes::from(format!(
        r#"{{"model":"alias","messages":[{}],"stream":true,"max_tokens":256,"priority":1}}"#,
        messages.join(",")
    ))
}

fn requests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("request");
    for kilobytes in [1, 32, 256] {
        let body = conversation(kilobytes << 10);
        group.throughput(Throughput::Bytes(body.len() as u64));
        let edits = Edits {
            model: Some("tiny"),
            include_usage: true,
            max_output: Some(128),
            cache_salt: Some("salt"),
            priority: None,
            strip: &["priority", "kv_transfer_params"],
        };
        group.bench_function(format!("peek_splice_{kilobytes}k"), |bencher| {
            bencher.iter(|| {
                let peek = peek(Endpoint::ChatCompletions, None, black_box(&body));
                peek.map(|peek| peek.splice(&body, &edits))
            });
        });
    }
    group.finish();
}

fn streams(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stream");
    for (name, dialect, stream) in [
        ("chat", Dialect::Chat, &include_bytes!("../tests/recorded/chat-stream-usage.sse")[..]),
        (
            "chat_continuous",
            Dialect::Chat,
            include_bytes!("../tests/recorded/chat-stream-continuous-usage.sse"),
        ),
        ("responses", Dialect::Responses, include_bytes!("../tests/recorded/responses-stream.sse")),
    ] {
        let text = String::from_utf8_lossy(stream);
        let frames: Vec<Bytes> = text
            .split_inclusive("\n\n")
            .map(|frame| Bytes::copy_from_slice(frame.as_bytes()))
            .collect();
        group.throughput(Throughput::Elements(frames.len() as u64));
        group.bench_function(format!("scan_{name}"), |bencher| {
            bencher.iter_batched(
                || Scanner::new(dialect, true),
                |mut scanner| {
                    for frame in &frames {
                        black_box(scanner.push(frame.clone()));
                    }
                    scanner
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, requests, streams);
criterion_main!(benches);
