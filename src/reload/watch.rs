//! Tells when something happened in the folders of the configuration, once it is quiet again.
//!
//! Folders are watched, not files: editors and Kubernetes put a new file in the old one's place,
//! and a watch on the file would stay with the one that is gone. Whether anything changed is
//! for the reader of the files to find out.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// A change is over when nothing has happened for this long.
const QUIET: Duration = Duration::from_millis(200);
/// A folder that is never quiet is looked at anyway after this.
const LONGEST: Duration = Duration::from_secs(2);
/// Network file systems tell of nothing, so we look now and then without being told.
const UNTOLD: Duration = Duration::from_secs(30);

/// Watches folders.
#[derive(Debug)]
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
    changed: Arc<Notify>,
}

impl Watch {
    /// Watches nothing yet. Where the system cannot watch, [`Watch::settled`] still comes now
    /// and then.
    pub(super) fn new() -> Self {
        let changed = Arc::new(Notify::new());
        let told = Arc::clone(&changed);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| writes(event.kind)) {
                told.notify_one();
            }
        });
        let watcher = watcher.inspect_err(|error| {
            tracing::warn!(%error, "files cannot be watched: they are read every 30 s instead");
        });
        Self { watcher: watcher.ok(), folders: BTreeSet::new(), changed }
    }

    /// Watches exactly these folders. Those that are watched already are told to the system
    /// again, since it forgets a folder that is removed and comes back.
    pub(super) fn follow(&mut self, folders: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        for gone in self.folders.difference(&folders) {
            if let Err(error) = watcher.unwatch(gone) {
                tracing::debug!(folder = %gone.display(), %error, "was not watched any more");
            }
        }
        for folder in &folders {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::warn!(folder = %folder.display(), %error, "folder cannot be watched");
            }
        }
        self.folders = folders;
    }

    /// Something may have changed, and is quiet again. Safe to drop and call again.
    pub(super) async fn settled(&self) {
        if timeout(UNTOLD, self.changed.notified()).await.is_err() {
            return;
        }
        let quiet = async { while timeout(QUIET, self.changed.notified()).await.is_ok() {} };
        tokio::select! {
            () = quiet => {}
            () = sleep(LONGEST) => {}
        }
    }
}

/// Whether an event can have changed what a file says: our own reading must not wake us.
fn writes(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
