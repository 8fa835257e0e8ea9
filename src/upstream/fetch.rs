//! One small answer, whole: what probes, scrapes and lists need.

use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::BodyExt;

use crate::domain::Failure;
use crate::vllm::MetricsError;

use super::error::{SendError, UpstreamError};
use super::replica::Replica;

/// Bytes of such an answer, at most. A scrape of vLLM is about 100 KiB an engine.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Why a replica could not be asked, or its answer not be used.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Not whole in time.
    #[error("no whole answer within {0:?}")]
    Timeout(Duration),
    /// No answer at all.
    #[error(transparent)]
    Send(#[from] SendError),
    /// It broke off.
    #[error(transparent)]
    Broken(#[from] UpstreamError),
    /// Another status than 200.
    #[error("status {0}")]
    Status(StatusCode),
    /// Larger than any honest one.
    #[error("more than {MAX_BYTES} bytes")]
    TooLarge,
    /// No reading: not an engine's metrics.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Not the JSON that was asked for.
    #[error("unexpected JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl FetchError {
    /// Every word of [`FetchError::as_str`].
    pub const WORDS: [&'static str; 7] =
        ["timeout", "connect", "reset", "protocol", "status", "too_large", "malformed"];

    /// The word for metric labels and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Timeout(_) => "timeout",
            Self::Send(error) => match error.failure {
                Failure::Connect => "connect",
                Failure::Protocol => "protocol",
                _ => "reset",
            },
            Self::Broken(UpstreamError::Protocol) => "protocol",
            Self::Broken(_) => "reset",
            Self::Status(_) => "status",
            Self::TooLarge => "too_large",
            Self::Metrics(_) | Self::Json(_) => "malformed",
        }
    }
}

/// Gets `path` from a replica, all of it within `timeout`, over its control connections: a probe
/// neither waits for a request's connection nor takes one away.
pub(super) async fn fetch(
    replica: &Replica,
    path: &'static str,
    authorization: Option<&HeaderValue>,
    timeout: Duration,
) -> Result<Bytes, FetchError> {
    let whole = async {
        match once(replica, path, authorization, timeout).await {
            // The keep-alive race: nothing has happened at the replica, so ask again.
            Err(FetchError::Send(SendError { failure: Failure::IdleClosed, .. })) => {
                once(replica, path, authorization, timeout).await
            }
            outcome => outcome,
        }
    };
    bounded(timeout, whole).await
}

async fn bounded<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, FetchError>>,
) -> Result<T, FetchError> {
    match tokio::time::timeout(timeout, work).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Err(FetchError::Timeout(timeout)),
    }
}

async fn once(
    replica: &Replica,
    path: &'static str,
    authorization: Option<&HeaderValue>,
    timeout: Duration,
) -> Result<Bytes, FetchError> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = http::Uri::from_static(path);
    if let Some(value) = authorization {
        request.headers_mut().insert(header::AUTHORIZATION, value.clone());
    }
    let exchange = replica.control().send(request, timeout).await?;
    let mut body = exchange.body;
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        whole.extend_from_slice(&data);
        if whole.len() > MAX_BYTES {
            return Err(FetchError::TooLarge);
        }
    }
    // Read to its end first, so that the connection can be used again.
    match exchange.head.status {
        StatusCode::OK => Ok(whole.freeze()),
        other => Err(FetchError::Status(other)),
    }
}
