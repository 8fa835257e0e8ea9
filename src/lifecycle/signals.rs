//! What the operating system tells the process: stop, and read the configuration again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both kinds, to be taken apart: whoever drains holds one, whoever reloads the other.
#[derive(Debug)]
pub struct Signals {
    /// SIGTERM and SIGINT.
    pub stop: Stop,
    /// SIGHUP.
    pub hangup: Hangup,
}

/// SIGTERM and SIGINT: the first drains, the second ends at once.
#[derive(Debug)]
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

/// SIGHUP: reload.
#[derive(Debug)]
pub struct Hangup(Signal);

impl Signals {
    /// Takes the signals over from their default action, which would end the process.
    ///
    /// # Errors
    /// Where the operating system does not let a handler be set.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            stop: Stop {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
            },
            hangup: Hangup(signal(SignalKind::hangup())?),
        })
    }
}

impl Stop {
    /// The next one.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

impl Hangup {
    /// The next one. Several that come together may be seen as one.
    pub async fn received(&mut self) {
        self.0.recv().await;
    }
}
