//! A replica's idle connections: a short stack.
//!
//! Last in, first out, so that a quiet replica keeps few of them warm and the rest age out.
//! vLLM's server closes what was idle for 5 s; we let go earlier, so that a request seldom meets
//! a close that is on its way. Where it does, the failure says so and costs one retry.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use super::link::Link;

/// Idle connections kept, a replica.
pub(super) const MAX_IDLE: usize = 256;

struct Idle {
    link: Box<Link>,
    /// Process time when it became idle.
    since: Duration,
}

/// The stack. Its lock is held for a push or a pop, never across IO or an await.
#[derive(Default)]
pub(super) struct IdleStack {
    stack: Mutex<VecDeque<Idle>>,
}

impl IdleStack {
    /// Keeps a connection; the oldest gives way when there are too many.
    pub(super) fn push(&self, link: Box<Link>, now: Duration) {
        let mut stack = self.stack.lock();
        let dropped = if stack.len() >= MAX_IDLE { stack.pop_front() } else { None };
        stack.push_back(Idle { link, since: now });
        drop(stack);
        drop(dropped);
    }

    /// The connection that was used last, if it is still young and open.
    pub(super) fn pop(&self, now: Duration, idle_time: Duration) -> Option<Box<Link>> {
        loop {
            let Idle { mut link, since } = self.stack.lock().pop_back()?;
            if now.saturating_sub(since) < idle_time && link.is_usable() {
                return Some(link);
            }
        }
    }

    /// Closes what has been idle for too long.
    pub(super) fn reap(&self, now: Duration, idle_time: Duration) {
        let mut stack = self.stack.lock();
        let old = stack.partition_point(|idle| now.saturating_sub(idle.since) >= idle_time);
        let closed: Vec<_> = stack.drain(..old).collect();
        drop(stack);
        drop(closed);
    }

    /// Closes all of them.
    pub(super) fn clear(&self) {
        let closed = std::mem::take(&mut *self.stack.lock());
        drop(closed);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.stack.lock().len()
    }
}
