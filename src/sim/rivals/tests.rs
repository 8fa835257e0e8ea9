use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::dispatch::{Effect, Event, ReplicaSpec};
use crate::domain::{
    ClassId, Failure, Outcome, Reason, ReplicaId, RequestFacts, RequestId, TenantId,
};
use crate::sim::Gate;

fn ms(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

fn front(law: Box<dyn Law>, queueing: Queueing) -> Front {
    let mut front = Front::new(law, queueing, 1);
    let specs = (0..2).map(|id| ReplicaSpec { id: ReplicaId(id), in_flight: None });
    front.handle(ms(0), Event::Replicas(specs.collect()), &mut Vec::new());
    front
}

fn does(front: &mut Front, millis: u64, event: Event) -> Vec<Effect> {
    let mut out = Vec::new();
    front.handle(ms(millis), event, &mut out);
    out
}

fn arrive(front: &mut Front, millis: u64, id: u64) -> Vec<Effect> {
    let facts = RequestFacts {
        id: RequestId(id),
        tenant: TenantId(0),
        class: ClassId(0),
        received: ms(millis),
        stream: true,
        sequences: 1,
        prompt_bytes: 400,
        prompt_tokens: None,
        max_output: None,
        body_bytes: 400,
        deadline: None,
        prefix: Arc::from([]),
        client_retries: 0,
    };
    does(front, millis, Event::Arrive(facts))
}

fn finish(front: &mut Front, millis: u64, id: u64) -> Vec<Effect> {
    does(front, millis, Event::Finish(RequestId(id), Outcome::Completed, None))
}

#[test]
fn a_cap_is_each_replicas_and_refuses_at_once() {
    let mut front = front(Box::new(Cap(Some(2))), Queueing::Refuse);
    let mut at = [0; 2];
    for id in 0..4 {
        let effects = arrive(&mut front, 0, id);
        let [Effect::Dispatch(_, ReplicaId(replica))] = effects[..] else { panic!("{effects:?}") };
        at[usize::try_from(replica).unwrap()] += 1;
    }
    assert_eq!(at, [2, 2]);
    let refused = arrive(&mut front, 0, 4);
    assert!(matches!(&refused[..], [Effect::Reject(_, why)] if why.reason == Reason::QueueFull
        && why.retry_after.is_none()));
    assert!(finish(&mut front, 5, 0).is_empty());
    assert!(matches!(arrive(&mut front, 6, 5)[..], [Effect::Dispatch(..)]));
}

#[test]
fn a_queue_is_served_in_order_and_not_for_ever() {
    let wait = Duration::from_millis(500);
    let mut front = front(Box::new(Cap(Some(1))), Queueing::Queue { count: 3, wait });
    for id in 0..2 {
        assert_eq!(arrive(&mut front, 0, id).len(), 1);
    }
    for id in 2..5 {
        assert!(arrive(&mut front, 0, id).is_empty());
    }
    assert!(matches!(arrive(&mut front, 0, 5)[..], [Effect::Reject(..)]));
    assert!(matches!(finish(&mut front, 100, 1)[..], [Effect::Dispatch(RequestId(2), _)]));
    assert!(does(&mut front, 100, Event::Cancel(RequestId(3))).is_empty());
    assert_eq!(front.next_deadline(), Some(ms(500)));
    let late = does(&mut front, 500, Event::Tick);
    assert!(matches!(&late[..], [Effect::Evict(RequestId(4), _)]));
}

#[test]
fn a_failed_connection_is_tried_elsewhere_once() {
    let mut front = front(Box::new(Cap(None)), Queueing::Refuse);
    let [Effect::Dispatch(id, first)] = arrive(&mut front, 0, 1)[..] else { panic!() };
    let again = does(&mut front, 1, Event::AttemptFailed(id, Failure::Connect));
    let [Effect::Dispatch(_, second)] = again[..] else { panic!("{again:?}") };
    assert_ne!(first, second);
    let last = does(&mut front, 2, Event::AttemptFailed(id, Failure::Connect));
    assert!(matches!(&last[..], [Effect::Reject(_, why)] if why.reason == Reason::Connect));
}

/// Feeds a law answers at ten a second for `seconds`; `time` in the end and `first` to the token.
fn feed(law: &mut dyn Law, from: u64, seconds: u64, whole: u64, in_flight: u32) {
    for tick in 0..seconds * 20 {
        law.took(Took {
            now: ms(from * 1000 + tick * 50),
            first: Duration::from_millis(whole / 10),
            whole: Duration::from_millis(whole),
            in_flight,
        });
    }
}

/// The limit, as it can be seen from outside.
fn limit(law: &dyn Law) -> u32 {
    (0..2000).find(|n| !law.admits(*n)).unwrap()
}

#[test]
fn gradients_grow_while_times_stand_and_shrink_when_they_double() {
    let laws: [Box<dyn Law>; 3] = [
        Box::new(Gradient2::new(false)),
        Box::new(Gradient2::new(true)),
        Box::new(Vegas::default()),
    ];
    for mut law in laws {
        let start = limit(&*law);
        feed(&mut *law, 0, 40, 500, 200);
        let grown = limit(&*law);
        assert!(grown > start, "{law:?}");
        feed(&mut *law, 40, 40, 2_500, 1_000);
        assert!(limit(&*law) < grown, "{law:?}");
    }
}

#[test]
fn envoy_measures_with_three_and_then_follows_the_median() {
    let mut law = Envoy::default();
    assert_eq!(limit(&law), 3);
    feed(&mut law, 0, 10, 500, 200);
    let grown = limit(&law);
    assert!(grown > 20, "{grown}");
    feed(&mut law, 10, 10, 1_500, 200);
    assert!(limit(&law) < grown);
    feed(&mut law, 20, 43, 500, 200);
    assert_eq!(limit(&law), 3, "after a minute the least time is measured anew");
}

#[test]
fn a_reading_closes_a_replica_until_the_next() {
    let mut law = Reading::default();
    assert!(law.admits_at(1, 500));
    let sample =
        |waiting, kv| Sample { waiting: Some(waiting), kv_usage: Some(kv), ..Sample::default() };
    for (waiting, kv, open) in [(5, 0.1, false), (4, 0.79, true), (0, 0.8, false)] {
        law.read(1, &sample(waiting, kv));
        assert_eq!((law.admits_at(1, 0), law.admits_at(0, 0)), (open, true));
    }
    law.read(1, &Sample::default());
    assert!(law.admits_at(1, 0), "what is not said is not known");
}
