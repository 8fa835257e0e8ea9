//! Tasks with a name and an owner.
//!
//! A detached task that panics is silent, and one that nobody awaits is cut off at exit in the
//! middle of what it did. So every task is spawned here: a panic is logged with the task's name
//! and handed to a hook that counts it, and the end of the process waits for all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};

/// Called with the name of a task that panicked.
type PanicHook = dyn Fn(&'static str) + Send + Sync;

/// A handle to spawn with; clones share one set of tasks.
#[derive(Clone)]
pub struct Tasks {
    inner: Arc<Inner>,
}

struct Inner {
    /// The living, by serial number. Held for an insert or a removal only.
    live: Mutex<BTreeMap<u64, Entry>>,
    /// Woken whenever a task ends.
    ended: Notify,
    serial: AtomicU64,
    hook: Box<PanicHook>,
}

struct Entry {
    name: &'static str,
    background: bool,
    /// `None` for the moment between the task's start and its handle's arrival.
    abort: Option<AbortHandle>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("live", &self.live()).finish_non_exhaustive()
    }
}

impl Default for Tasks {
    /// Tasks whose panics are logged and not counted.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl Tasks {
    /// Tasks whose panics are logged and told to `on_panic`, with the name of the task.
    pub fn new(on_panic: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self {
            inner: Arc::new(Inner {
                live: Mutex::new(BTreeMap::new()),
                ended: Notify::new(),
                serial: AtomicU64::new(0),
                hook: Box::new(on_panic),
            }),
        }
    }

    /// Runs `future` on the current runtime. [`Tasks::stop`] waits for it.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.start(name, false, future)
    }

    /// Like [`Tasks::spawn`], for a loop that has no end of its own and nothing to finish:
    /// [`Tasks::stop`] ends it at once.
    pub fn background<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.start(name, true, future)
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
    fn start<F>(&self, name: &'static str, background: bool, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let serial = self.inner.serial.fetch_add(1, Ordering::Relaxed);
        self.inner.live.lock().insert(serial, Entry { name, background, abort: None });
        let alive = Alive { inner: Arc::clone(&self.inner), name, serial };
        let handle = tokio::spawn(async move {
            let _alive = alive;
            future.await
        });
        if let Some(entry) = self.inner.live.lock().get_mut(&serial) {
            entry.abort = Some(handle.abort_handle());
        }
        handle
    }

    /// How many tasks are alive.
    pub fn live(&self) -> usize {
        self.inner.live.lock().len()
    }

    /// Ends the background loops, waits up to `grace` for the rest to end by themselves, then
    /// cuts what is left and returns its names.
    pub async fn stop(&self, grace: Duration) -> Vec<&'static str> {
        self.abort(|entry| entry.background);
        if tokio::time::timeout(grace, self.idle()).await.is_ok() {
            return Vec::new();
        }
        let cut = self.abort(|_| true);
        for name in &cut {
            tracing::warn!(task = name, "did not end in time and was cut");
        }
        cut
    }

    /// Resolves when no task is alive.
    pub async fn idle(&self) {
        loop {
            let ended = self.inner.ended.notified();
            tokio::pin!(ended);
            // Registered before the look, so that an end between the two is not missed.
            ended.as_mut().enable();
            if self.live() == 0 {
                return;
            }
            ended.await;
        }
    }

    fn abort(&self, which: impl Fn(&Entry) -> bool) -> Vec<&'static str> {
        let chosen: Vec<_> = {
            let live = self.inner.live.lock();
            let chosen = live.values().filter(|entry| which(entry));
            chosen.map(|entry| (entry.name, entry.abort.clone())).collect()
        };
        // Outside the lock: an abort may drop the task here and now, and its guard locks too.
        for abort in chosen.iter().filter_map(|(_, abort)| abort.as_ref()) {
            abort.abort();
        }
        chosen.into_iter().map(|(name, _)| name).collect()
    }
}

/// Lives inside the task; its drop is the task's end, however that came about.
struct Alive {
    inner: Arc<Inner>,
    name: &'static str,
    serial: u64,
}

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.name, "task panicked");
            (self.inner.hook)(self.name);
        }
        self.inner.live.lock().remove(&self.serial);
        self.inner.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_counted_by_name_and_leaves_the_rest_alone() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let tasks = Tasks::new(move |name| sink.lock().push(name));
        let bad = tasks.spawn("bad", async { panic!("on purpose") });
        let good = tasks.spawn("good", async { 7 });
        assert!(bad.await.is_err());
        assert_eq!(good.await.unwrap(), 7);
        tasks.idle().await;
        assert_eq!(*seen.lock(), ["bad"]);
    }

    #[tokio::test(start_paused = true)]
    async fn stop_waits_for_work_and_not_for_loops() {
        let tasks = Tasks::default();
        tasks.background("loop", std::future::pending::<()>());
        let work = tasks.spawn("work", tokio::time::sleep(Duration::from_secs(2)));
        assert!(tasks.stop(Duration::from_secs(5)).await.is_empty());
        assert!(work.is_finished());
        assert_eq!(tasks.live(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn stop_cuts_and_names_what_does_not_end() {
        let tasks = Tasks::default();
        tasks.spawn("stuck", std::future::pending::<()>());
        assert_eq!(tasks.stop(Duration::from_secs(5)).await, ["stuck"]);
        tasks.idle().await;
    }
}
