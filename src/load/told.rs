//! What a refused client was told, read off an answer's headers.

use std::time::Duration;

use http::HeaderMap;

use crate::workload::Told;

/// The advice of an answer with `status`.
pub(super) fn told(status: u16, headers: &HeaderMap) -> Told {
    let should_retry = match headers.get("x-should-retry").map(http::HeaderValue::as_bytes) {
        Some(b"true") => Some(true),
        Some(b"false") => Some(false),
        _ => None,
    };
    Told { status: Some(status), retry_after: asked_wait(headers), should_retry }
}

/// The wait that an answer asks for: `retry-after-ms`, else `Retry-After` in seconds.
fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = match number("retry-after-ms") {
        Some(millis) => millis / 1000.0,
        None => number("retry-after")?,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn milliseconds_go_before_seconds_and_nonsense_is_no_wait() {
        let both = headers(&[("retry-after", "2"), ("retry-after-ms", "1500")]);
        assert_eq!(told(503, &both).retry_after, Some(Duration::from_millis(1500)));
        let seconds = headers(&[("retry-after", "2")]);
        assert_eq!(told(503, &seconds).retry_after, Some(Duration::from_secs(2)));
        for nonsense in ["-1", "NaN", "soon", "inf"] {
            assert_eq!(asked_wait(&headers(&[("retry-after", nonsense)])), None);
        }
    }

    #[test]
    fn whether_to_come_back_is_told_by_two_words_alone() {
        let told = |word| told(429, &headers(&[("x-should-retry", word)])).should_retry;
        assert_eq!((told("true"), told("false"), told("perhaps")), (Some(true), Some(false), None));
    }
}
