//! Which headers pass, in which direction, and what we read from a client's.
//!
//! Hop-by-hop headers end here and framing is rebuilt on both sides, so that nothing a client
//! writes about its own connection can mean something on ours. What would steer the engine or
//! carries a key of ours goes no further. Everything else passes untouched.

use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// `x-request-id`: ours or the client's, on every answer and towards the replica.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The word of the refusal.
pub(super) const X_WEIR_REASON: HeaderName = HeaderName::from_static("x-weir-reason");
/// Milliseconds to wait, which openai-python and -node prefer to whole seconds.
pub(super) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// `false` tells those clients not to retry at all.
pub(super) const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// Switches off the buffering of an nginx between us and the client.
pub(super) const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

const X_SLO_TTFT_MS: &str = "x-slo-ttft-ms";
const CLIENT_READ_TIMEOUT: &str = "x-stainless-read-timeout";
const CLIENT_RETRIES: &str = "x-stainless-retry-count";

/// RFC 9110 §7.6.1, with the obsolete ones that servers still send.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What ends here although it is no hop-by-hop header: rebuilt, answered or refused by us.
const NOT_UPSTREAM: [&str; 9] = [
    "host",
    "content-length",
    "expect",
    "authorization",
    "x-api-key",
    "accept-encoding",
    "x-data-parallel-rank",
    "x-request-id",
    X_SLO_TTFT_MS,
];

/// The longest deadline that a client can name; more is the same as this.
const LONGEST_DEADLINE: Duration = Duration::from_hours(1);
/// Retries beyond this are counted as this many.
const MOST_RETRIES: u32 = 100;
/// The longest `x-request-id` that is kept, bytes.
const LONGEST_REQUEST_ID: usize = 128;

/// What a client's headers say about how it will wait.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Hints {
    /// From the request's receipt, after which a first token is of no use.
    pub(super) deadline: Option<Duration>,
    /// Retries that the client says it has made already.
    pub(super) retries: u32,
}

/// A header that is no number, or is there twice with different meanings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the header {0} must be one whole number")]
pub(super) struct BadHeader(pub(super) &'static str);

/// Reads the hints. What an application says of itself (`x-slo-ttft-ms`) is refused when it is
/// nonsense; what its library adds unasked (`x-stainless-*`) is clamped or ignored instead, since
/// the application could not mend it.
pub(super) fn hints(headers: &HeaderMap) -> Result<Hints, BadHeader> {
    let own = only_number(headers, X_SLO_TTFT_MS)?.map(Duration::from_millis);
    let library = lenient(headers, CLIENT_READ_TIMEOUT)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|timeout| !timeout.is_zero());
    let deadline = match (own, library) {
        (Some(own), Some(library)) => Some(own.min(library)),
        (own, library) => own.or(library),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0..=MOST_RETRIES in the same expression"
    )]
    let retries = lenient(headers, CLIENT_RETRIES)
        .map_or(0, |count| count.clamp(0.0, f64::from(MOST_RETRIES)) as u32);
    Ok(Hints { deadline: deadline.map(|deadline| deadline.min(LONGEST_DEADLINE)), retries })
}

fn only_number(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, BadHeader> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(BadHeader(name));
    }
    let digits = first.to_str().ok().map(str::trim).filter(|text| {
        !text.is_empty() && text.len() <= 20 && text.bytes().all(|b| b.is_ascii_digit())
    });
    // Twenty digits may still not fit; then it is longer than any deadline that counts.
    digits.map(|digits| Some(digits.parse().unwrap_or(u64::MAX))).ok_or(BadHeader(name))
}

fn lenient(headers: &HeaderMap, name: &'static str) -> Option<f64> {
    let text = headers.get(name)?.to_str().ok()?;
    text.trim().parse::<f64>().ok().filter(|number| number.is_finite())
}

/// The client's `x-request-id` where it is one short printable word, else one of ours.
pub(super) fn request_id(headers: &HeaderMap, ours: impl FnOnce() -> String) -> Arc<str> {
    let sane = |text: &&str| {
        (1..=LONGEST_REQUEST_ID).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&b))
    };
    headers
        .get(X_REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(sane)
        .map_or_else(|| Arc::from(ours()), Arc::from)
}

/// The headers that go to a replica: the client's without what ends here, and our own.
pub(super) fn to_replica(
    client: &HeaderMap,
    request_id: &HeaderValue,
    authorization: Option<&HeaderValue>,
) -> HeaderMap {
    let named = connection_named(client);
    let mut out = HeaderMap::with_capacity(client.len() + 2);
    for (name, value) in client {
        let word = name.as_str();
        let stays = HOP_BY_HOP.contains(&word)
            || NOT_UPSTREAM.contains(&word)
            || word.starts_with("x-vllm-")
            || word.starts_with("x-weir-")
            || named.iter().any(|listed| listed == word);
        if !stays {
            out.append(name.clone(), value.clone());
        }
    }
    out.insert(X_REQUEST_ID, request_id.clone());
    if let Some(key) = authorization {
        out.insert(header::AUTHORIZATION, key.clone());
    }
    out
}

/// The headers that go to the client: the replica's without what belongs to its connection.
///
/// `content-length` never passes: the body type knows its own length, or has none.
pub(super) fn to_client(replica: &HeaderMap, stream: bool) -> HeaderMap {
    let named = connection_named(replica);
    let mut out = HeaderMap::with_capacity(replica.len() + 3);
    for (name, value) in replica {
        let word = name.as_str();
        let stays = HOP_BY_HOP.contains(&word)
            || matches!(word, "content-length" | "server" | "date" | "x-request-id")
            || named.iter().any(|listed| listed == word);
        if !stays {
            out.append(name.clone(), value.clone());
        }
    }
    if stream {
        out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        out.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
    out
}

/// Headers that a `Connection` header names as its own.
fn connection_named(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut out = HeaderMap::new();
        for (name, value) in pairs {
            out.append(*name, HeaderValue::from_static(value));
        }
        out
    }

    #[test]
    fn only_what_may_pass_reaches_a_replica() {
        let client = map(&[
            ("host", "weir"),
            ("connection", "keep-alive, x-secret"),
            ("x-secret", "hop"),
            ("transfer-encoding", "chunked"),
            ("content-length", "9"),
            ("te", "trailers"),
            ("expect", "100-continue"),
            ("authorization", "Bearer client"),
            ("x-api-key", "client"),
            ("accept-encoding", "gzip"),
            ("x-data-parallel-rank", "3"),
            ("x-vllm-anything", "1"),
            ("x-request-id", "theirs"),
            ("traceparent", "00-1-2-3"),
            ("content-type", "application/json"),
        ]);
        let id = HeaderValue::from_static("ours");
        let seen = to_replica(&client, &id, Some(&HeaderValue::from_static("Bearer pool")));
        let mut names: Vec<_> = seen.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        names.sort_unstable();
        let expected: [(&str, &[u8]); 4] = [
            ("authorization", b"Bearer pool"),
            ("content-type", b"application/json"),
            ("traceparent", b"00-1-2-3"),
            ("x-request-id", b"ours"),
        ];
        assert_eq!(names, expected);
        assert!(to_replica(&client, &id, None).get("authorization").is_none());
    }

    #[test]
    fn a_replicas_connection_is_not_the_clients() {
        let replica = map(&[
            ("content-type", "text/event-stream"),
            ("transfer-encoding", "chunked"),
            ("content-length", "4"),
            ("server", "uvicorn"),
            ("x-request-id", "theirs"),
            ("vary", "Origin"),
        ]);
        let seen = to_client(&replica, true);
        let mut names: Vec<_> = seen.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["cache-control", "content-type", "vary", "x-accel-buffering"]);
    }

    #[test]
    fn nonsense_hints_are_refused_or_clamped() {
        let deadline = |value: &'static str| hints(&map(&[("x-slo-ttft-ms", value)]));
        for bad in ["-1", "NaN", "1e30", "", "1.5", "999999999999999999999999"] {
            assert_eq!(deadline(bad), Err(BadHeader("x-slo-ttft-ms")), "{bad}");
        }
        let of = |value| deadline(value).unwrap().deadline;
        assert_eq!(of("250"), Some(Duration::from_millis(250)));
        assert_eq!(of("18446744073709551615"), Some(LONGEST_DEADLINE));
        let twice = map(&[("x-slo-ttft-ms", "1"), ("x-slo-ttft-ms", "2")]);
        assert!(hints(&twice).is_err());

        let library = |name: &'static str, value| hints(&map(&[(name, value)])).unwrap();
        for (value, expected) in [("-3", 0), ("nan", 0), ("1e30", 100), ("2", 2), ("x", 0)] {
            assert_eq!(library("x-stainless-retry-count", value).retries, expected, "{value}");
        }
        for value in ["-1", "inf", "NaN", "0", "None"] {
            assert_eq!(library("x-stainless-read-timeout", value).deadline, None, "{value}");
        }
        let both = map(&[("x-slo-ttft-ms", "900"), ("x-stainless-read-timeout", "0.5")]);
        assert_eq!(hints(&both).unwrap().deadline, Some(Duration::from_millis(500)));
    }

    #[test]
    fn an_insane_request_id_is_replaced() {
        let of = |value: &'static str| {
            request_id(&map(&[("x-request-id", value)]), || "ours".to_owned()).to_string()
        };
        assert_eq!(of("req-1_a.b:c"), "req-1_a.b:c");
        assert_eq!(of(""), "ours");
        assert_eq!(of("two words"), "ours");
        assert_eq!(of(&*Box::leak("x".repeat(129).into_boxed_str())), "ours");
    }
}
