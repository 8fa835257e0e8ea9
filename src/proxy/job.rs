//! What one admitted request needs on its way to a replica and back.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request};

use crate::config::TimeoutConfig;
use crate::domain::{Dialect, Endpoint, Timestamp};

use super::headers;
use super::intake::Share;
use super::peer::Hangup;
use super::pools::Pool;

/// The request, ready to be sent as often as it takes. Its body counts against the memory of
/// the process for as long as this lives: until its answer is released.
pub(super) struct Job {
    pub(super) pool: Arc<Pool>,
    pub(super) endpoint: Endpoint,
    pub(super) dialect: Dialect,
    /// Whether the client asked for a stream.
    pub(super) stream: bool,
    /// Whether we asked for the usage frame, so that it must not reach the client.
    pub(super) strip_usage: bool,
    pub(super) path: &'static str,
    pub(super) headers: HeaderMap,
    pub(super) request_id: HeaderValue,
    pub(super) body: Bytes,
    /// Its body's part of the memory that all bodies may take.
    pub(super) _share: Share,
    pub(super) received: Timestamp,
    /// The phases' times, of the configuration that was in force when the request came.
    pub(super) timeouts: TimeoutConfig,
    /// The operators' choice for shed load.
    pub(super) overload_status: u16,
    /// `None` where other answers share the connection.
    pub(super) hangup: Option<Hangup>,
}

impl Job {
    /// The request as a replica gets it: our headers, our framing, the spliced body.
    pub(super) fn upstream_request(&self) -> Request<Bytes> {
        let headers =
            headers::to_replica(&self.headers, &self.request_id, self.pool.authorization.as_ref());
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = http::Uri::from_static(self.path);
        *request.headers_mut() = headers;
        request
    }
}
