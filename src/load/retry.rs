//! When a refused client comes back, as openai-python 1.x and 2.x do it
//! (`_base_client.py`: `_should_retry`, `_calculate_retry_timeout`).
//!
//! The server's wait is obeyed up to 60 s and not jittered; without one the wait is exponential
//! from 0.5 s to 8 s, shortened by up to a quarter.

use std::time::Duration;

use http::HeaderMap;

/// The longest wait from a server that the client obeys.
const LONGEST_OBEYED: Duration = Duration::from_mins(1);

/// The wait that an answer asks for: `retry-after-ms`, else `Retry-After` in seconds.
pub(super) fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = match number("retry-after-ms") {
        Some(millis) => millis / 1000.0,
        None => number("retry-after")?,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// Whether the client tries again after this status. `x-should-retry` overrules the status.
pub(super) fn retries(status: u16, headers: &HeaderMap) -> bool {
    match headers.get("x-should-retry").map(http::HeaderValue::as_bytes) {
        Some(b"true") => true,
        Some(b"false") => false,
        _ => matches!(status, 408 | 409 | 429) || status >= 500,
    }
}

/// How long the client waits before its retry number `retry` (from 0); `uniform` in 0..1.
pub(super) fn wait(asked: Option<Duration>, retry: u32, uniform: f64) -> Duration {
    match asked {
        Some(asked) if !asked.is_zero() && asked <= LONGEST_OBEYED => asked,
        _ => {
            let doubled = 0.5 * 2_f64.powi(i32::try_from(retry.min(16)).unwrap_or(16));
            Duration::from_secs_f64(doubled.min(8.0) * (1.0 - 0.25 * uniform.clamp(0.0, 1.0)))
        }
    }
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
        assert_eq!(asked_wait(&both), Some(Duration::from_millis(1500)));
        assert_eq!(asked_wait(&headers(&[("retry-after", "2")])), Some(Duration::from_secs(2)));
        for nonsense in ["-1", "NaN", "soon", "inf"] {
            assert_eq!(asked_wait(&headers(&[("retry-after", nonsense)])), None);
        }
    }

    #[test]
    fn more_than_a_minute_is_ignored_and_comes_back_sooner() {
        assert_eq!(wait(Some(Duration::from_mins(1)), 0, 0.5), Duration::from_mins(1));
        assert_eq!(wait(Some(Duration::from_secs(61)), 0, 0.0), Duration::from_millis(500));
        assert_eq!(wait(None, 1, 1.0), Duration::from_millis(750));
        assert_eq!(wait(None, 40, 0.0), Duration::from_secs(8));
    }

    #[test]
    fn the_header_overrules_the_status() {
        assert!(retries(503, &HeaderMap::new()) && retries(429, &HeaderMap::new()));
        assert!(!retries(400, &HeaderMap::new()));
        assert!(!retries(503, &headers(&[("x-should-retry", "false")])));
        assert!(retries(400, &headers(&[("x-should-retry", "true")])));
    }
}
