//! How much of one core the generator used, and how long it waited for one.
//!
//! Read from `/proc/thread-self/schedstat`, so only on Linux and only where the runtime has one
//! thread; elsewhere it is unknown, and lateness alone judges the run.

use std::time::Duration;

/// A reading: time on a core and time runnable but waiting for one, since the thread began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Used {
    pub(super) running: Duration,
    pub(super) waiting: Duration,
}

impl Used {
    /// Of this thread, where it is the only one of its runtime.
    pub(super) fn read() -> Option<Self> {
        let flavor = tokio::runtime::Handle::try_current().ok()?.runtime_flavor();
        if flavor != tokio::runtime::RuntimeFlavor::CurrentThread {
            return None;
        }
        Self::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut nanos = text.split_whitespace().map(|word| word.parse().map(Duration::from_nanos));
        Some(Self { running: nanos.next()?.ok()?, waiting: nanos.next()?.ok()? })
    }

    /// Share of `wall` on a core between `before` and this.
    pub(super) fn share_since(self, before: Self, wall: Duration) -> Option<f64> {
        let used = self.running.checked_sub(before.running)?;
        (!wall.is_zero()).then(|| used.as_secs_f64() / wall.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_between_two_readings() {
        let before = Used::parse("1000000000 5 7\n").unwrap();
        let after = Used::parse("1500000000 9 9").unwrap();
        assert_eq!(after.share_since(before, Duration::from_secs(2)), Some(0.25));
        assert_eq!(before.share_since(after, Duration::from_secs(2)), None, "another thread");
        assert_eq!(Used::parse("x"), None);
    }
}
