//! Every recorded shape: the same events, the same keys in the same order, the same nulls.

use super::client::{Answer, chat, get, post, quick, start};
use crate::replica::Options;

fn recorded(name: &str) -> String {
    let path = format!("{}/tests/recorded/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// JSON with every string that is no key emptied and every number zero.
fn skeleton(json: &str) -> String {
    let (mut out, mut chars) = (String::new(), json.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                let mut text = String::new();
                while let Some(c) = chars.next() {
                    match c {
                        '"' => break,
                        '\\' => text.extend(['\\', chars.next().unwrap()]),
                        c => text.push(c),
                    }
                }
                let key = chars.peek() == Some(&':');
                if !key {
                    text.clear();
                }
                out.extend(["\"", &text, "\""]);
            }
            '0'..='9' | '-' => {
                while chars.peek().is_some_and(|c| c.is_ascii_digit() || ".eE+-".contains(*c)) {
                    chars.next();
                }
                out.push('0');
            }
            c => out.push(c),
        }
    }
    out
}

/// The skeletons of a stream's events, those that repeat only once.
fn events(stream: &str) -> Vec<String> {
    let mut all: Vec<String> = stream
        .split_terminator("\n\n")
        .map(|event| event.lines().map(line).collect::<Vec<_>>().join("\n"))
        .collect();
    all.dedup();
    all
}

fn line(line: &str) -> String {
    line.strip_prefix("data: ")
        .map_or_else(|| line.to_owned(), |data| format!("data: {}", skeleton(data)))
}

async fn stream(path: &str, body: &str) -> Answer {
    let replica = start(quick()).await;
    let answer = post(&replica, path, body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("content-type: text/event-stream; charset=utf-8"));
    answer
}

const CHAT: &str = "/v1/chat/completions";
const USAGE: &str = ",\"stream\":true,\"stream_options\":{\"include_usage\":true}";

#[tokio::test]
async fn chat_streams() {
    let cases = [
        ("chat-stream.sse", 8, ",\"stream\":true"),
        ("chat-stream-usage.sse", 8, USAGE),
        ("chat-stream-interval4.sse", 8, USAGE),
        ("chat-stream-one-token.sse", 1, USAGE),
        (
            "chat-stream-continuous-usage.sse",
            8,
            ",\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}",
        ),
    ];
    for (name, tokens, more) in cases {
        let ours = stream(CHAT, &chat(tokens, more)).await.body;
        assert_eq!(events(&ours), events(&recorded(name)), "{name}");
    }
}

#[tokio::test]
async fn two_answers_at_once() {
    let ours = stream(CHAT, &chat(8, &format!(",\"n\":2{USAGE}"))).await.body;
    let sorted = |text: &str| {
        let mut all = events(text);
        all.sort();
        all.dedup();
        all
    };
    assert_eq!(sorted(&ours), sorted(&recorded("chat-stream-n2.sse")));
    assert_eq!(ours.matches("\"finish_reason\":\"length\"").count(), 2);
    assert!(ours.contains("\"completion_tokens\":16"), "{ours}");
}

#[tokio::test]
async fn completions_messages_and_responses_streams() {
    let cases = [
        (
            "/v1/completions",
            format!("{{\"model\":\"tiny\",\"prompt\":\"hi\",\"max_tokens\":8{USAGE}}}"),
            "completions-stream-usage.sse",
        ),
        ("/v1/messages", chat(8, ",\"stream\":true"), "messages-stream.sse"),
        (
            "/v1/responses",
            "{\"model\":\"tiny\",\"input\":\"hi\",\"max_output_tokens\":8,\"stream\":true}"
                .to_owned(),
            "responses-stream.sse",
        ),
    ];
    for (path, body, name) in cases {
        let ours = stream(path, &body).await.body;
        assert_eq!(events(&ours), events(&recorded(name)), "{name}");
    }
}

#[tokio::test]
async fn whole_answers() {
    let replica = start(quick()).await;
    let ours = post(&replica, CHAT, &chat(8, "")).await.body;
    assert_eq!(skeleton(&ours), skeleton(&recorded("chat.json")));
    let asked = "{\"model\":\"tiny\",\"prompt\":\"hi\",\"max_tokens\":3}";
    let ours = post(&replica, "/v1/completions", asked).await.body;
    let http = recorded("completions-orca-json.http");
    assert_eq!(
        skeleton(&ours),
        skeleton(http.split("\n\n").nth(1).or(http.split("\r\n\r\n").nth(1)).unwrap())
    );
    let ours = get(&replica, "/v1/models").await.body;
    assert_eq!(skeleton(&ours), skeleton(&recorded("models.json")));
    for (path, body) in [
        ("/v1/messages", chat(8, "")),
        ("/v1/responses", "{\"input\":\"hi\",\"max_output_tokens\":8}".to_owned()),
        ("/v1/embeddings", "{\"input\":[\"a\",\"b\"]}".to_owned()),
        ("/v1/messages/count_tokens", chat(8, "")),
        ("/tokenize", "{\"prompt\":\"hi\"}".to_owned()),
    ] {
        let answer = post(&replica, path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str::<serde_json::Value>(&answer.body).unwrap();
    }
}

fn body_of(name: &str) -> String {
    let text = recorded(name).replace("\r\n", "\n");
    text.split_once("\n\n").unwrap().1.trim_end().to_owned()
}

#[tokio::test]
async fn errors_are_the_recorded_ones() {
    let replica = start(Options { max_model_len: 4096, ..quick() }).await;
    let nope = "{\"model\":\"nope\",\"messages\":[]}";
    let answer = post(&replica, CHAT, nope).await;
    assert_eq!((answer.status, answer.body), (404, body_of("error-404-model.http")));
    let ids = vec!["1"; 4097].join(",");
    let long = format!("{{\"model\":\"tiny\",\"prompt\":[{ids}],\"max_tokens\":1}}");
    let answer = post(&replica, "/v1/completions", &long).await;
    assert_eq!((answer.status, answer.body), (400, body_of("error-400-context.http")));
    let locked = start(Options { api_key: Some("key".to_owned()), ..quick() }).await;
    let answer = post(&locked, CHAT, &chat(1, "")).await;
    assert_eq!((answer.status, answer.body), (401, body_of("error-401.http")));
    assert_eq!(get(&locked, "/health").await.status, 200);
    let full = start(Options { max_num_queued_reqs: Some(0), ..quick() }).await;
    let answer = post(&full, CHAT, &chat(1, ",\"stream\":true")).await;
    assert_eq!((answer.status, answer.body), (503, body_of("error-503-engine-queue-full.http")));
    assert_eq!(post(&replica, "/v1/nothing", "").await.status, 404);
    assert_eq!(get(&replica, CHAT).await.status, 405);
    assert_eq!(post(&replica, CHAT, "{").await.status, 400);
}

/// Name and label names of every series.
fn series(text: &str) -> std::collections::BTreeSet<String> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let Some((name, labels)) = series.split_once('{') else { return series.to_owned() };
            let keys = labels.split("\",").filter_map(|label| label.split('=').next());
            format!("{name}{{{}}}", keys.collect::<Vec<_>>().join(","))
        })
        .collect()
}

#[tokio::test]
async fn every_metric_has_a_recorded_name_and_its_labels() {
    let replica = start(quick()).await;
    post(&replica, CHAT, &chat(4, "")).await;
    let page = get(&replica, "/metrics").await.body;
    let theirs = series(&recorded("metrics-0.32-loaded.txt"));
    for ours in series(&page).iter().filter(|ours| !ours.contains("cache_config_info")) {
        assert!(theirs.contains(ours), "{ours} is not of vLLM");
    }
    for line in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0.0",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} 4.0",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"tiny\"} 1.0",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"tiny\"} 1.0",
        "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"tiny\"} 3.0",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}
