//! What a listener needs of whoever answers.

use std::future::Future;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;

/// Answers requests. Cloned for each connection, so a clone must be cheap.
pub trait Serve: Clone + Send + Sync + 'static {
    /// Body of an answer.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + 'static;
    /// What the answerer wants to know of a connection, handed back with each of its requests.
    type Peer: Clone + Send + Sync + 'static;

    /// A connection was made; `tls` where it is encrypted.
    fn peer(&self, address: SocketAddr, tls: bool) -> Self::Peer;

    /// Ready when the answerer wants the connection dropped as it stands, because its client
    /// does not read. By default never.
    fn hangup(_peer: Self::Peer) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Answers one request.
    fn handle(
        &self,
        request: Request<Incoming>,
        peer: Self::Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}
