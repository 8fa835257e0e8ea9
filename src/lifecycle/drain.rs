//! The way down, as one watch channel.
//!
//! Whoever must behave differently at the end of the process watches the phase: readiness, the
//! gates, the listeners, the streams. One value, not a flag each, so that they cannot disagree.
//! A phase is never left backwards.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Where the process stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Phase {
    /// In full service.
    #[default]
    Serving,
    /// Readiness fails, so that load balancers look elsewhere; everything is still served.
    Unready,
    /// New requests are refused with `draining`; queued and running ones go on.
    Draining,
    /// The deadline has come or nothing is left: what still streams is cut with its reason, and
    /// the listeners close.
    Closed,
}

impl Phase {
    /// The word for logs and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Unready => "unready",
            Self::Draining => "draining",
            Self::Closed => "closed",
        }
    }
}

/// Moves the process from phase to phase. Clones move the same process.
#[derive(Clone, Debug)]
pub struct Drain {
    phase: Arc<watch::Sender<Phase>>,
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drain {
    /// A process in full service.
    pub fn new() -> Self {
        Self { phase: Arc::new(watch::Sender::new(Phase::Serving)) }
    }

    /// A view for somebody who must follow.
    pub fn watch(&self) -> DrainWatch {
        DrainWatch { phase: self.phase.subscribe() }
    }

    /// Where the process stands.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Moves on to `phase`; nothing happens where the process is that far already.
    pub fn advance(&self, phase: Phase) {
        let moved = self.phase.send_if_modified(|now| {
            let later = phase > *now;
            if later {
                *now = phase;
            }
            later
        });
        if moved {
            tracing::info!(phase = phase.as_str(), "lifecycle");
        }
    }

    /// Walks the whole way down: unready for `delay`, draining until `quiet` (nothing queued or
    /// running) or for `deadline`, then closed. Ends early in [`Phase::Closed`] when `at_once`
    /// does (a second signal).
    pub async fn run(
        &self,
        delay: Duration,
        deadline: Duration,
        quiet: impl Future<Output = ()>,
        at_once: impl Future<Output = ()>,
    ) {
        let orderly = async {
            self.advance(Phase::Unready);
            tokio::time::sleep(delay).await;
            self.advance(Phase::Draining);
            if tokio::time::timeout(deadline, quiet).await.is_err() {
                tracing::warn!(?deadline, "drain deadline: cutting what is left");
            }
        };
        tokio::select! {
            biased;
            () = at_once => tracing::warn!("told twice to stop: ending at once"),
            () = orderly => {}
        }
        self.advance(Phase::Closed);
    }
}

/// Sees the phase change.
#[derive(Clone, Debug)]
pub struct DrainWatch {
    phase: watch::Receiver<Phase>,
}

impl DrainWatch {
    /// Where the process stands.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Resolves when the process has come to `phase` or further. A process whose [`Drain`] is
    /// gone is over: then this resolves too.
    pub async fn reached(&self, phase: Phase) {
        let mut watch = self.phase.clone();
        // An error means that nobody can move the phase any more.
        let _ended = watch.wait_for(|now| *now >= phase).await.is_err();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::lifecycle::Clock;

    const DELAY: Duration = Duration::from_secs(5);
    const DEADLINE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn walks_down_in_order_and_is_held_to_its_deadline() {
        let (clock, drain) = (Clock::start(), Drain::new());
        let watch = drain.watch();
        let seen = async {
            let mut seen = Vec::new();
            for phase in [Phase::Unready, Phase::Draining, Phase::Closed] {
                watch.reached(phase).await;
                seen.push((watch.phase(), clock.elapsed()));
            }
            seen
        };
        let ((), seen) = tokio::join!(drain.run(DELAY, DEADLINE, pending(), pending()), seen);
        let expected = [
            (Phase::Unready, Duration::ZERO),
            (Phase::Draining, DELAY),
            (Phase::Closed, DELAY + DEADLINE),
        ];
        assert_eq!(seen, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_ends_the_drain_early_but_not_the_delay() {
        let (clock, drain) = (Clock::start(), Drain::new());
        drain.run(DELAY, DEADLINE, ready(()), pending()).await;
        assert_eq!((drain.phase(), clock.elapsed()), (Phase::Closed, DELAY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_at_once() {
        let (clock, drain) = (Clock::start(), Drain::new());
        let second = tokio::time::sleep(Duration::from_secs(1));
        drain.run(DELAY, DEADLINE, pending(), second).await;
        assert_eq!((drain.phase(), clock.elapsed()), (Phase::Closed, Duration::from_secs(1)));
    }

    #[test]
    fn never_goes_back() {
        let drain = Drain::new();
        drain.advance(Phase::Closed);
        drain.advance(Phase::Serving);
        assert_eq!(drain.phase(), Phase::Closed);
    }

    #[tokio::test]
    async fn the_end_of_the_owner_is_the_end() {
        let drain = Drain::new();
        let watch = drain.watch();
        drop(drain);
        watch.reached(Phase::Closed).await;
    }
}
