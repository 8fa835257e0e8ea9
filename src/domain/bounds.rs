//! Histogram bounds in seconds: vLLM's own (`vllm/v1/metrics/loggers.py`), so that what clients
//! saw minus what the server saw can be read off bucket by bucket.

/// Time to first token.
pub const TTFT_BOUNDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];

/// Gaps between content frames, and time per output token.
pub const ITL_BOUNDS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];

/// Whole requests.
pub const E2E_BOUNDS: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

/// Waits in our own queue: vLLM's request bounds, finer below 0.3 s, where the bound lies.
pub const QUEUE_BOUNDS: [f64; 18] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.8, 1.0, 1.5, 2.5, 5.0, 10.0,
    30.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise() {
        for bounds in [&TTFT_BOUNDS[..], &ITL_BOUNDS, &E2E_BOUNDS, &QUEUE_BOUNDS] {
            assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
