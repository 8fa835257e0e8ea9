//! What the tests of the request's path stand on: a replica that does exactly as its script
//! says, a gateway on a real socket, and clients of every protocol.

#![expect(
    clippy::disallowed_methods,
    reason = "a test's own runtime ends its tasks, and its own clock its waiting"
)]

mod client;
mod gateway;
mod replica;

pub(crate) use client::{Client, Kind, Stream, post};
pub(crate) use gateway::{Gateway, config};
pub(crate) use replica::{Replica, Wire, script};

use std::time::Duration;

/// Longer than anything here takes, on any machine: a test that runs into it has failed.
pub(crate) const FOREVER: Duration = Duration::from_secs(20);

/// Waits for something that must come true without anybody telling.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + FOREVER;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The frames of a recorded stream, each with the empty line that ends it.
pub(crate) fn frames(recorded: &str) -> Vec<String> {
    recorded.split_inclusive("\n\n").map(str::to_owned).collect()
}

/// Runs a client beside the others.
pub(crate) fn spawn<F>(client: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(client)
}
