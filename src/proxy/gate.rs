//! One pool's gate, live: the pure dispatcher behind one short lock.
//!
//! An event takes the lock, reads the clock, is handled, and leaves; what the dispatcher wants
//! done is done after the lock is gone: waiters are woken through their [`Slot`]. Nothing waits,
//! allocates much or does IO inside. Time passes for the dispatcher by one task a gate, which
//! sleeps until the dispatcher's own next deadline, and is only called earlier when that moved.
//!
//! The clock is read inside the lock, so that the dispatcher never sees time run backwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::dispatch::{Dispatcher, Effect, Event, Note, Policy};
use crate::domain::{GateSnapshot, RequestFacts, RequestId, Timestamp};
use crate::lifecycle::Clock;

use super::permit::Ticket;
use super::slot::{Decision, Slot};

/// The finest step in which time passes for a dispatcher; also tokio's own timer step.
const SHORTEST_TICK: Duration = Duration::from_millis(1);

/// Where a gate's notes go; `app` decides.
pub type NoteSink = Box<dyn Fn(Note) + Send + Sync>;

/// The gate of one pool. Shared by every request of the pool.
pub struct Gate {
    /// The decisions. Held for the length of one `handle`, by whoever brings an event.
    core: Mutex<Dispatcher>,
    /// Who waits for or holds what; an entry lives as long as its ticket or permit.
    waiters: DashMap<RequestId, Arc<Slot>>,
    /// The deadline (nanoseconds) that the deadline task sleeps towards.
    armed: AtomicU64,
    /// Tells that task that an earlier one has come.
    earlier: Arc<Notify>,
    clock: Clock,
    notes: NoteSink,
}

impl Gate {
    /// A gate with no replicas yet. `seed` feeds the dispatcher's only randomness.
    pub fn new(policy: Arc<Policy>, seed: u64, clock: Clock, notes: NoteSink) -> Arc<Self> {
        Arc::new(Self {
            core: Mutex::new(Dispatcher::new(policy, seed)),
            waiters: DashMap::new(),
            armed: AtomicU64::new(u64::MAX),
            earlier: Arc::default(),
            clock,
            notes,
        })
    }

    /// Brings a request to the gate. The answer comes through the ticket; dropping it cancels.
    pub fn arrive(self: &Arc<Self>, facts: RequestFacts) -> Ticket {
        let id = facts.id;
        // The slot stands before the event: another thread may be told to dispatch this request
        // the moment that the lock is free.
        let slot = Arc::new(Slot::default());
        self.waiters.insert(id, Arc::clone(&slot));
        let ticket = Ticket::new(Arc::clone(self), id, slot);
        self.event(Event::Arrive(facts));
        ticket
    }

    /// Brings one event: telemetry, health, replicas, policy, drain, or a request's progress.
    pub fn event(&self, event: Event) {
        let mut effects = Vec::new();
        let next = {
            let mut core = self.core.lock();
            let now = Timestamp::since_origin(self.clock.elapsed());
            core.handle(now, event, &mut effects);
            core.next_deadline()
        };
        self.arm(next);
        for effect in effects {
            self.perform(&effect);
        }
    }

    /// The task that sleeps from deadline to deadline, for as long as the gate lives.
    pub fn deadlines(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let gate = Arc::downgrade(self);
        let earlier = Arc::clone(&self.earlier);
        async move {
            // The gate is held only for a moment at a time, so that this task never is what
            // keeps a pool alive that the configuration has dropped.
            while let Some(wait) = gate.upgrade().map(|gate| gate.until_due()) {
                match wait {
                    Some(Duration::ZERO) => {
                        if let Some(gate) = gate.upgrade() {
                            gate.tick();
                        }
                        // A deadline that stays due must not turn this task into a spin.
                        tokio::time::sleep(SHORTEST_TICK).await;
                    }
                    Some(wait) => {
                        tokio::select! {
                            () = tokio::time::sleep(wait) => {}
                            () = earlier.notified() => {}
                        }
                    }
                    None => earlier.notified().await,
                }
            }
        }
    }

    /// How long until the armed deadline; `None` where there is none.
    fn until_due(&self) -> Option<Duration> {
        let armed = self.armed.load(Ordering::Acquire);
        let now = Timestamp::since_origin(self.clock.elapsed());
        (armed != u64::MAX).then(|| Timestamp::from_nanos(armed).saturating_since(now))
    }

    fn tick(&self) {
        // Whatever is next after this tick arms itself again.
        self.armed.store(u64::MAX, Ordering::Release);
        self.event(Event::Tick);
    }

    /// What `/status` shows.
    pub fn snapshot(&self) -> GateSnapshot {
        let core = self.core.lock();
        core.snapshot(Timestamp::since_origin(self.clock.elapsed()))
    }

    /// Tickets and permits alive.
    pub fn standing(&self) -> usize {
        self.waiters.len()
    }

    /// Forgets a request's slot; its ticket or permit is gone.
    pub(super) fn forget(&self, id: RequestId) {
        self.waiters.remove(&id);
    }

    fn arm(&self, next: Option<Timestamp>) {
        let next = next.map_or(u64::MAX, Timestamp::as_nanos);
        if self.armed.fetch_min(next, Ordering::AcqRel) > next {
            self.earlier.notify_one();
        }
    }

    fn perform(&self, effect: &Effect) {
        let (id, decision) = match *effect {
            Effect::Dispatch(id, replica) => (id, Decision::Run(replica)),
            Effect::Reject(id, rejection) => (id, Decision::Refuse { rejection, queued: false }),
            Effect::Evict(id, rejection) => (id, Decision::Refuse { rejection, queued: true }),
            Effect::Abandon(id) => return self.tell(id, Slot::abandon),
            Effect::Cut(id, reason) => return self.tell(id, |slot| slot.cut(reason)),
            Effect::Note(note) => return (self.notes)(note),
        };
        self.tell(id, |slot| slot.decide(decision));
    }

    /// A request that has gone meanwhile needs telling no more: its drop has said `Cancel`.
    fn tell(&self, id: RequestId, say: impl FnOnce(&Slot)) {
        let slot = self.waiters.get(&id).map(|slot| Arc::clone(&slot));
        if let Some(slot) = slot {
            say(&slot);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.earlier.notify_one();
    }
}
