//! What one decision costs, at two sizes of fleet and two of queue.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};

use weir::dispatch::{
    ClassPolicy, Dispatcher, Event, LimitPolicy, Policy, QueuePolicy, ReplicaSpec,
};
use weir::domain::{
    ClassId, Outcome, ReplicaId, RequestFacts, RequestId, Slo, TenantId, Timestamp, Usage,
};

const LIMIT: u32 = 8;

fn facts(id: u64, now: Timestamp) -> RequestFacts {
    RequestFacts {
        id: RequestId(id),
        tenant: TenantId(0),
        class: ClassId(0),
        received: now,
        stream: true,
        sequences: 1,
        prompt_bytes: 4_000,
        prompt_tokens: None,
        max_output: Some(200),
        body_bytes: 5_000,
        deadline: None,
        prefix: Arc::from([]),
        client_retries: 0,
    }
}

/// A full fleet with so many waiting.
struct Full {
    gate: Dispatcher,
    now: Timestamp,
    next: u64,
}

impl Full {
    fn new(replicas: u32, queued: u32) -> Self {
        let policy = Policy {
            limit: LimitPolicy { in_flight: Some(LIMIT), max_num_seqs: None, adapt: false },
            queue: QueuePolicy {
                wait: Duration::from_hours(1_000),
                count: queued + 10,
                bytes: u64::MAX,
            },
            classes: vec![ClassPolicy::plain(ClassId(0), Slo::default())],
            tenants: Vec::new(),
            shadow: false,
            stale_after: Duration::from_hours(1_000),
            attempts: 2,
            retry_budget: 0.2,
            stall_after: Duration::from_secs(5),
            gateways: 1,
        };
        let mut full =
            Self { gate: Dispatcher::new(Arc::new(policy), 1), now: Timestamp::ZERO, next: 0 };
        let specs = (0..replicas).map(|id| ReplicaSpec { id: ReplicaId(id), in_flight: None });
        full.handle(Event::Replicas(specs.collect()));
        for _ in 0..replicas * LIMIT + queued {
            full.arrive();
        }
        full
    }

    fn handle(&mut self, event: Event) -> usize {
        let mut out = Vec::with_capacity(4);
        self.now = self.now + Duration::from_micros(10);
        self.gate.handle(self.now, event, &mut out);
        out.len()
    }

    fn arrive(&mut self) -> RequestId {
        let id = self.next;
        self.next += 1;
        self.handle(Event::Arrive(facts(id, self.now)));
        RequestId(id)
    }
}

fn decisions(criterion: &mut Criterion) {
    for replicas in [16, 1_000] {
        for queued in [0, 100_000] {
            let name = format!("{replicas} replicas, {queued} queued");
            let mut full = Full::new(replicas, queued);
            criterion.bench_function(&format!("{name}: arrive and cancel"), |bench| {
                bench.iter(|| {
                    let id = full.arrive();
                    black_box(full.handle(Event::Cancel(id)))
                });
            });
            let usage = Usage { input: 1_000, output: 200, cached: None };
            let mut full = Full::new(replicas, queued);
            criterion.bench_function(&format!("{name}: finish, next, arrive"), |bench| {
                bench.iter(|| {
                    // First come, first served: what ends was sent so many before the last.
                    let oldest = full.next - u64::from(replicas * LIMIT + queued);
                    let done = Outcome::Completed;
                    black_box(full.handle(Event::Finish(RequestId(oldest), done, Some(usage))));
                    black_box(full.arrive())
                });
            });
        }
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
