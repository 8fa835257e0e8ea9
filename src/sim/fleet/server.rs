//! One replica of the fleet: an engine, what is wrong with it, and what its metrics say.

use std::time::Duration;

use crate::domain::{Failure, Sample, Timestamp};
use crate::sim::{Emission, Engine, EngineParams, Job};

/// What goes wrong with a replica. The words are those of `weir replica`'s faults.
#[derive(Clone, Copy, PartialEq, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Trouble {
    /// Every step takes so many times as long.
    Slow(f64),
    /// The process dies: what it holds is lost, and nothing is accepted until it is back, fresh.
    Crash,
    /// New connections are refused; what runs goes on.
    Refuse,
    /// The whole process stands still: connections are accepted, nothing is answered.
    Hang,
    /// The engine alone stands still; health and metrics are answered.
    Stall,
    /// Inference is answered 503, as by an engine whose queue is full.
    Busy,
    /// Inference is answered 500.
    Error,
}

/// A replica.
#[derive(Debug)]
pub(super) struct Server {
    engine: Engine,
    /// How often it was begun anew.
    life: u32,
    started: Timestamp,
    /// Faults that hold now.
    troubles: Vec<Trouble>,
    stepping: bool,
    /// A step ended while the engine stood still.
    overdue: bool,
    /// Most sequences present at once, since counting began.
    pub(super) most: usize,
    /// Preemptions, prefix queries and hits of former lives.
    lost: [u64; 3],
}

impl Server {
    pub(super) fn new(params: EngineParams) -> Self {
        Self {
            engine: Engine::new(params),
            life: 0,
            started: Timestamp::ZERO,
            troubles: Vec::new(),
            stepping: false,
            overdue: false,
            most: 0,
            lost: [0; 3],
        }
    }

    fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }

    fn stands_still(&self) -> bool {
        self.has(Trouble::Hang) || self.has(Trouble::Stall)
    }

    /// Whether it answers probes and scrapes.
    pub(super) fn answers(&self) -> bool {
        ![Trouble::Crash, Trouble::Refuse, Trouble::Hang].iter().any(|one| self.has(*one))
    }

    /// How it turns a new request away, if it does.
    pub(super) fn refuses(&self) -> Option<Failure> {
        if self.has(Trouble::Crash) || self.has(Trouble::Refuse) {
            Some(Failure::Connect)
        } else if self.has(Trouble::Busy) {
            Some(Failure::Busy)
        } else if self.has(Trouble::Error) {
            Some(Failure::Status(500))
        } else {
            None
        }
    }

    pub(super) fn submit(&mut self, now: Timestamp, job: Job) {
        self.engine.submit(now, job);
        self.most = self.most.max(self.standing());
    }

    pub(super) fn abort(&mut self, id: u64) {
        self.engine.abort(id);
    }

    /// Sequences that it holds, running and waiting.
    pub(super) fn standing(&self) -> usize {
        self.engine.running() + self.engine.waiting()
    }

    /// Begins a step where there is one to begin: how long it takes, and in which life.
    pub(super) fn begin(&mut self, now: Timestamp) -> Option<(Duration, u32)> {
        if self.stepping || self.stands_still() || self.has(Trouble::Crash) {
            return None;
        }
        let step = self.engine.begin(now)?;
        self.stepping = true;
        Some((step.duration, self.life))
    }

    /// Ends the step of this life, if that is still on.
    pub(super) fn end(&mut self, now: Timestamp, life: u32, out: &mut Vec<Emission>) {
        if life != self.life || !self.stepping {
            return;
        }
        if self.stands_still() {
            self.overdue = true;
            return;
        }
        self.stepping = false;
        self.overdue = false;
        self.engine.finish(now, out);
    }

    /// The life whose step ended while it stood still, now that it does not any more.
    pub(super) fn resumes(&self) -> Option<u32> {
        (self.overdue && !self.stands_still()).then_some(self.life)
    }

    /// A fault begins or ends.
    pub(super) fn trouble(&mut self, now: Timestamp, trouble: Trouble, on: bool) {
        if on {
            self.troubles.push(trouble);
        } else if let Some(at) = self.troubles.iter().position(|one| *one == trouble) {
            self.troubles.remove(at);
        }
        let paces = self.troubles.iter().filter_map(|one| match one {
            Trouble::Slow(factor) => Some(*factor),
            _ => None,
        });
        let pace = paces.product();
        if trouble == Trouble::Crash {
            let counters = self.engine.counters();
            let counted = [counters.preemptions, counters.prefix_queries, counters.prefix_hits];
            for (lost, counted) in self.lost.iter_mut().zip(counted) {
                *lost += counted;
            }
            self.engine = Engine::new(self.engine.params().clone());
            self.life += 1;
            self.started = now;
            (self.stepping, self.overdue) = (false, false);
        }
        self.engine.set_pace(pace);
    }

    /// What `/metrics` says.
    pub(super) fn sample(&self, now: Timestamp) -> Sample {
        let (params, counters) = (self.engine.params(), self.engine.counters());
        let count = |count: usize| u32::try_from(count).ok();
        Sample {
            asked: now,
            taken: now,
            engines: 1,
            running: count(self.engine.running()),
            waiting: count(self.engine.waiting()),
            kv_usage: Some(self.engine.kv_usage()),
            kv_capacity_tokens: Some(params.capacity_tokens()),
            block_size: Some(params.block_size),
            preemptions: Some(counters.preemptions),
            prefix_queries: Some(counters.prefix_queries),
            prefix_hits: Some(counters.prefix_hits),
            prompt_tokens: Some(counters.prompt_tokens),
            generation_tokens: Some(counters.generation_tokens),
            finished: Some(counters.stopped + counters.at_length),
            start_time_seconds: Some(1e9 + self.started.as_secs_f64()),
            asleep: None,
        }
    }

    /// Preemptions, prompt tokens looked up in the prefix cache, and found there, in all lives.
    pub(super) fn counted(&self) -> [u64; 3] {
        let [preemptions, queries, hits] = self.lost;
        let counters = self.engine.counters();
        [
            preemptions + counters.preemptions,
            queries + counters.prefix_queries,
            hits + counters.prefix_hits,
        ]
    }
}
