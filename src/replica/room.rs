//! The engine in real time: one task that steps it, and a slot for each request to collect from.
//!
//! As in vLLM, what a request has not yet collected is merged: a slot holds counts, never a
//! queue, so that a reader who is late costs no memory and gets several tokens in one frame.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::faults::{FaultKind, Faults};
use crate::domain::Timestamp;
use crate::lifecycle::Clock;
use crate::sim::{Emission, Engine, EngineParams, Finish, Job};

/// How far behind the engine may be (this machine is short of CPU) before it gives up catching
/// up and is simply slower.
const MOST_BEHIND: Duration = Duration::from_millis(100);

pub(super) struct Room {
    /// Held for a submission, an abort, one half of a step or a scrape; never across an await.
    state: Mutex<State>,
    /// Woken by a submission.
    work: Notify,
    clock: Clock,
    speed: f64,
}

pub(super) struct State {
    pub(super) engine: Engine,
    /// Where each sequence's tokens go: a request's slot and the sequence's place in it.
    slots: HashMap<u64, (Arc<Slot>, usize)>,
    next: u64,
    /// Submissions refused by `max_num_queued_reqs`.
    pub(super) refused: u64,
    /// When this "process" was started, by the wall clock, seconds since the epoch.
    pub(super) started: f64,
}

/// What one sequence has ready to be collected.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ready {
    pub(super) tokens: u32,
    pub(super) finish: Option<Finish>,
}

/// Where one request's tokens arrive.
#[derive(Default)]
pub(super) struct Slot {
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    ready: Vec<Ready>,
    any: bool,
    waker: Option<Waker>,
}

impl Slot {
    fn new(sequences: usize) -> Self {
        let ready = vec![Ready::default(); sequences];
        Self { state: Mutex::new(SlotState { ready, any: false, waker: None }) }
    }

    fn put(&self, place: usize, emission: Emission) -> Option<Waker> {
        let mut state = self.state.lock();
        if let Some(ready) = state.ready.get_mut(place) {
            ready.tokens += emission.tokens;
            ready.finish = ready.finish.or(emission.finish);
        }
        state.any = true;
        state.waker.take()
    }

    /// Copies what is ready into `into`, one entry a sequence, and empties it here.
    pub(super) fn poll_collect(&self, cx: &Context<'_>, into: &mut Vec<Ready>) -> Poll<()> {
        let mut state = self.state.lock();
        if !state.any {
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        state.any = false;
        into.clear();
        into.extend(state.ready.iter_mut().map(std::mem::take));
        Poll::Ready(())
    }
}

/// A request's hold on the engine: dropping it aborts what has not ended.
pub(super) struct Ticket {
    room: Arc<Room>,
    pub(super) slot: Arc<Slot>,
    ids: Range<u64>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.room.state.lock();
        for id in self.ids.clone() {
            if state.slots.remove(&id).is_some() {
                state.engine.abort(id);
            }
        }
    }
}

impl Room {
    pub(super) fn new(params: EngineParams, speed: f64, clock: Clock) -> Self {
        let state = State {
            engine: Engine::new(params),
            slots: HashMap::new(),
            next: 0,
            refused: 0,
            started: wall_seconds(clock),
        };
        let speed = if speed.is_finite() && speed > 0.0 { speed } else { 1.0 };
        Self { state: Mutex::new(state), work: Notify::new(), clock, speed }
    }

    /// Looks at the engine.
    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock())
    }

    /// Hands the engine a request's sequences, unless it holds `most` already.
    pub(super) fn submit(
        self: &Arc<Self>,
        jobs: impl ExactSizeIterator<Item = Job>,
        most: Option<u32>,
    ) -> Option<Ticket> {
        let now = self.now();
        let mut state = self.state.lock();
        let present = state.engine.running() + state.engine.waiting();
        if most.is_some_and(|most| present >= most as usize) {
            state.refused += 1;
            return None;
        }
        let slot = Arc::new(Slot::new(jobs.len()));
        let first = state.next;
        for (place, job) in jobs.enumerate() {
            let id = state.next;
            state.next += 1;
            state.slots.insert(id, (Arc::clone(&slot), place));
            state.engine.submit(now, Job { id, ..job });
        }
        let ids = first..state.next;
        drop(state);
        self.work.notify_one();
        Some(Ticket { room: Arc::clone(self), slot, ids })
    }

    /// A fresh process: nothing running, nothing cached, nothing counted.
    pub(super) fn restart(&self) {
        let mut state = self.state.lock();
        let params = state.engine.params().clone();
        state.engine = Engine::new(params);
        state.slots.clear();
        state.refused = 0;
        state.started = wall_seconds(self.clock);
    }

    /// Steps the engine for as long as it is polled.
    pub(super) async fn run(self: Arc<Self>, faults: Faults) {
        let mut due = self.clock.elapsed();
        let mut emissions = Vec::new();
        let mut wakers = Vec::new();
        loop {
            faults.released(&[FaultKind::Hang, FaultKind::Stall, FaultKind::Crash]).await;
            let slower = faults.look(FaultKind::Slow).map_or(1.0, |fault| fault.factor);
            let now = self.now();
            let step = {
                let mut state = self.state.lock();
                state.engine.set_pace(slower / self.speed);
                state.engine.begin(now)
            };
            let Some(step) = step else {
                self.work.notified().await;
                due = self.clock.elapsed();
                continue;
            };
            due = due.max(self.clock.elapsed().saturating_sub(MOST_BEHIND)) + step.duration;
            if due > self.clock.elapsed() {
                self.clock.sleep_until(due).await;
            } else {
                tokio::task::yield_now().await;
            }
            faults.released(&[FaultKind::Hang, FaultKind::Stall]).await;
            self.deliver(&mut emissions, &mut wakers);
        }
    }

    /// Ends the step and lets every request know, outside the lock.
    fn deliver(&self, emissions: &mut Vec<Emission>, wakers: &mut Vec<Waker>) {
        let now = self.now();
        let mut state = self.state.lock();
        state.engine.finish(now, emissions);
        for emission in emissions.drain(..) {
            let found = if emission.finish.is_some() {
                state.slots.remove(&emission.id)
            } else {
                state.slots.get(&emission.id).cloned()
            };
            if let Some((slot, place)) = found {
                wakers.extend(slot.put(place, emission));
            }
        }
        drop(state);
        wakers.drain(..).for_each(Waker::wake);
    }

    fn now(&self) -> Timestamp {
        Timestamp::since_origin(self.clock.elapsed())
    }
}

fn wall_seconds(clock: Clock) -> f64 {
    let since = clock.wall().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
