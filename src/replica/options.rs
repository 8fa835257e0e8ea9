//! What a simulated replica is told at its start.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::sim::EngineParams;

/// One simulated replica.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Where it listens; port 0 takes any free one.
    pub listen: SocketAddr,
    /// `--served-model-name`.
    pub model: String,
    /// The engine behind it.
    pub engine: EngineParams,
    /// Factor on time: at 10, a step of 20 ms takes 2 ms. Positive and finite, or 1 is taken.
    pub speed: f64,
    /// `--api-key`: asked for on `/v1` paths.
    pub api_key: Option<String>,
    /// `--max-model-len`, tokens.
    pub max_model_len: u32,
    /// `--max-num-queued-reqs`: sequences present, running ones too, beyond which it says 503.
    pub max_num_queued_reqs: Option<u32>,
    /// Tokens of an answer whose request names no limit.
    pub default_output: u32,
    /// Answer without an engine: frames of one size, as fast as the socket takes them or paced.
    pub null: Option<NullStream>,
    /// How long an idle connection is kept; uvicorn's default.
    pub keep_alive: Duration,
    /// Names and texts are drawn from it.
    pub seed: u64,
    /// Keep the last 64 inference requests to be looked at ([`super::RunningReplica::seen`]).
    pub record: bool,
}

/// The frames of [`Options::null`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NullStream {
    /// Content frames a stream.
    pub frames: u32,
    /// Least bytes a frame; a frame is never smaller than its envelope.
    pub frame_bytes: usize,
    /// Time between frames; zero is as fast as the socket takes them.
    pub interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            model: "tiny".to_owned(),
            engine: EngineParams::default(),
            speed: 1.0,
            api_key: None,
            max_model_len: 32_768,
            max_num_queued_reqs: None,
            default_output: 200,
            null: None,
            keep_alive: Duration::from_secs(5),
            seed: 0,
            record: false,
        }
    }
}
