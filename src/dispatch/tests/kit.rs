//! A dispatcher with a hand-set clock, and short words for what happens to it.

use std::sync::Arc;
use std::time::Duration;

use crate::dispatch::request::State;
use crate::dispatch::{
    ClassPolicy, Dispatcher, Effect, Event, LimitPolicy, Policy, QueuePolicy, ReplicaSpec,
};
use crate::domain::{
    ClassId, Failure, Outcome, Rejection, ReplicaId, RequestFacts, RequestId, Sample, Slo,
    TenantId, Timestamp, Usage,
};

pub(super) fn ms(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

pub(super) fn policy(in_flight: u32) -> Policy {
    Policy {
        limit: LimitPolicy { in_flight: Some(in_flight), max_num_seqs: None, adapt: false },
        queue: QueuePolicy { wait: Duration::from_millis(400), count: 100, bytes: 1 << 20 },
        classes: vec![ClassPolicy::plain(
            ClassId(0),
            Slo { ttft: Some(Duration::from_secs(1)), ..Slo::default() },
        )],
        tenants: Vec::new(),
        shadow: false,
        stale_after: Duration::from_secs(3),
        attempts: 2,
        retry_budget: 0.2,
        stall_after: Duration::from_secs(5),
        gateways: 1,
    }
}

pub(super) fn facts(id: u64, now: Timestamp) -> RequestFacts {
    RequestFacts {
        id: RequestId(id),
        tenant: TenantId(0),
        class: ClassId(0),
        received: now,
        stream: true,
        sequences: 1,
        prompt_bytes: 400,
        prompt_tokens: None,
        max_output: Some(64),
        body_bytes: 500,
        deadline: None,
        prefix: Arc::from([]),
        client_retries: 0,
    }
}

pub(super) fn sample(now: Timestamp, running: u32, waiting: u32) -> Sample {
    Sample {
        asked: now,
        taken: now,
        engines: 1,
        running: Some(running),
        waiting: Some(waiting),
        kv_usage: Some(0.1),
        ..Sample::default()
    }
}

pub(super) struct Kit {
    pub(super) gate: Dispatcher,
    pub(super) now: Timestamp,
    pub(super) effects: Vec<Effect>,
}

impl Kit {
    pub(super) fn new(policy: Policy, replicas: u32) -> Self {
        let mut kit = Self {
            gate: Dispatcher::new(Arc::new(policy), 7),
            now: ms(1_000),
            effects: Vec::new(),
        };
        kit.list(0..replicas);
        kit
    }

    /// What this event led to.
    pub(super) fn does(&mut self, event: Event) -> Vec<Effect> {
        self.gate.handle(self.now, event, &mut self.effects);
        std::mem::take(&mut self.effects)
    }

    pub(super) fn list(&mut self, ids: impl IntoIterator<Item = u32>) -> Vec<Effect> {
        let specs = ids.into_iter().map(|id| ReplicaSpec { id: ReplicaId(id), in_flight: None });
        self.does(Event::Replicas(specs.collect()))
    }

    pub(super) fn later(&mut self, millis: u64) -> Vec<Effect> {
        self.now = self.now + Duration::from_millis(millis);
        self.does(Event::Tick)
    }

    pub(super) fn arrive(&mut self, id: u64) -> Vec<Effect> {
        let facts = facts(id, self.now);
        self.does(Event::Arrive(facts))
    }

    /// Arrives and must be sent at once.
    pub(super) fn sent(&mut self, id: u64) -> u32 {
        match self.arrive(id)[..] {
            [Effect::Dispatch(_, ReplicaId(replica))] => replica,
            ref other => panic!("{id} was not sent: {other:?}"),
        }
    }

    pub(super) fn first(&mut self, id: u64) -> Vec<Effect> {
        self.does(Event::FirstToken(RequestId(id)))
    }

    pub(super) fn fails(&mut self, id: u64, failure: Failure) -> Vec<Effect> {
        self.does(Event::AttemptFailed(RequestId(id), failure))
    }

    pub(super) fn cancel(&mut self, id: u64) -> Vec<Effect> {
        self.does(Event::Cancel(RequestId(id)))
    }

    pub(super) fn finish(&mut self, id: u64) -> Vec<Effect> {
        let usage = Usage { input: 100, output: 50, cached: None };
        self.does(Event::Finish(RequestId(id), Outcome::Completed, Some(usage)))
    }

    pub(super) fn in_flight(&self) -> Vec<u32> {
        self.gate.snapshot(self.now).replicas.iter().map(|replica| replica.in_flight).collect()
    }

    /// Whether a replica holds it.
    pub(super) fn runs(&self, id: u64) -> bool {
        let request = self.gate.requests.get(&RequestId(id));
        request.is_some_and(|request| matches!(request.state, State::Held(_)))
    }

    pub(super) fn waiting(&self) -> u32 {
        self.gate.snapshot(self.now).queue.waiting
    }
}

/// Where one request was sent.
pub(super) fn to(effects: &[Effect]) -> Option<u32> {
    effects.iter().find_map(|effect| match effect {
        Effect::Dispatch(_, replica) => Some(replica.0),
        _ => None,
    })
}

/// What one request was refused with.
pub(super) fn refused(effects: &[Effect]) -> Option<Rejection> {
    effects.iter().find_map(|effect| match effect {
        Effect::Reject(_, rejection) | Effect::Evict(_, rejection) => Some(*rejection),
        _ => None,
    })
}
