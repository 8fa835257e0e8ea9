//! Log lines leave on a thread of their own, through a bounded queue.
//!
//! Standard error is a pipe, and whoever reads it may stop. A request that waits for its log
//! line to be read would then stand still with its slot, so a line is handed over or dropped and
//! counted, never waited for. What has been handed over is written before the process ends.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait; some 4 MB of access log.
const LINES: usize = 8192;

/// Longest that the end of the process waits for lines to be written.
const FLUSH: Duration = Duration::from_secs(1);

/// Hands lines over; cheap to clone.
#[derive(Clone)]
pub(super) struct Lines {
    queue: SyncSender<Vec<u8>>,
    state: Arc<State>,
    dropped: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    handed_over: AtomicU64,
    /// Locked by the writing thread after each line, and by whoever waits for the last one.
    written: Mutex<u64>,
    wrote: Condvar,
}

impl Lines {
    /// Starts the thread that writes to `sink`. It ends when the last clone is gone.
    ///
    /// # Errors
    /// Where no thread can be made.
    pub(super) fn start(
        sink: impl Write + Send + 'static,
        dropped: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let (queue, lines) = sync_channel(LINES);
        let state = Arc::new(State::default());
        let writer = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("log".to_owned());
        drop(thread.spawn(move || write_all(&lines, sink, &writer))?);
        Ok(Self { queue, state, dropped })
    }

    /// Waits until everything handed over so far is written, a second at most.
    pub(super) fn flush(&self) {
        let goal = self.state.handed_over.load(Ordering::Acquire);
        let mut written = self.state.written.lock();
        // Where nobody reads, what is left stays unread; there is nobody to tell.
        let _in_time =
            self.state.wrote.wait_while_for(&mut written, |written| *written < goal, FLUSH);
    }
}

fn write_all(lines: &Receiver<Vec<u8>>, mut sink: impl Write, state: &State) {
    for line in lines {
        // A log that cannot be written has nowhere to say so.
        drop(sink.write_all(&line));
        *state.written.lock() += 1;
        state.wrote.notify_all();
    }
}

impl Write for Lines {
    /// One call is one line, as `tracing-subscriber` makes them.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(line.to_owned()).is_ok() {
            self.state.handed_over.fetch_add(1, Ordering::Release);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::MutexGuard;

    use super::*;

    /// Blocks while somebody holds the lock, as a pipe does that nobody reads.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stops_costs_lines_and_never_time() {
        let (pipe, dropped) = (Pipe::default(), Arc::new(AtomicU64::new(0)));
        let mut lines = Lines::start(pipe.clone(), Arc::clone(&dropped)).unwrap();
        let stopped: MutexGuard<'_, _> = pipe.0.lock();
        let offered = LINES + 100;
        for _ in 0..offered {
            lines.write_all(b"line\n").unwrap();
        }
        drop(stopped);
        lines.flush();
        let written = pipe.0.lock().len() / b"line\n".len();
        let dropped = usize::try_from(dropped.load(Ordering::Relaxed)).unwrap();
        // One line may be in the writer's hand while the queue is full.
        assert!((99..=100).contains(&dropped), "{dropped}");
        assert_eq!(written + dropped, offered);
    }
}
