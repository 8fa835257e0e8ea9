//! What `/status` says: the process, its configuration, and each pool's gate, as JSON.
//!
//! Durations are seconds, with the unit in the name. What is unknown is `null`, never zero.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::domain::{
    Ends, Health, PoolSnapshot, Quantiles, QueuePart, Recent, ReplicaSnapshot, ShedNote, Slo,
    Timestamp,
};
use crate::lifecycle::Phase;
use crate::telemetry::Telemetry;

/// Everything. `extra` is what the application adds of its own (configuration, warnings).
pub(super) fn page(phase: Phase, now: Timestamp, telemetry: &Telemetry, extra: Value) -> Value {
    let recent = telemetry.recent(now);
    let pools = telemetry.pools();
    let mut page = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": now.as_secs_f64(),
        "phase": phase.as_str(),
        "pools": pools.iter().map(|one| pool(one, &recent, telemetry)).collect::<Vec<_>>(),
    });
    if let (Some(page), Value::Object(extra)) = (page.as_object_mut(), extra) {
        for (key, value) in extra {
            page.entry(key).or_insert(value);
        }
    }
    page
}

fn pool(pool: &PoolSnapshot, recent: &[Recent], telemetry: &Telemetry) -> Value {
    let gate = &pool.gate;
    let replicas = gate.replicas.iter().map(|one| replica(pool, one));
    let classes = recent.iter().filter(|one| one.pool == pool.model).map(class);
    let bound = telemetry.targets_of(&pool.model).map(|held_to| held_to.queue_wait.as_secs_f64());
    json!({
        "model": &*pool.model,
        "in_flight": gate.in_flight,
        "limit": gate.limit,
        "completions_per_second": gate.completions_per_second,
        "queue": {
            "waiting": gate.queue.waiting,
            "bytes": gate.queue.bytes,
            "oldest_wait_seconds": gate.queue.oldest_wait.as_secs_f64(),
            "estimated_wait_seconds": gate.queue.estimated_wait.as_secs_f64(),
            "parts": gate.queue.parts.iter().map(|one| part(pool, one)).collect::<Vec<_>>(),
            "limit_wait_seconds": bound,
        },
        "wanted_replicas": telemetry.wanted_replicas(gate, &pool.model),
        "outdated": pool.outdated.iter().map(|why| &**why).collect::<Vec<_>>(),
        "classes": classes.collect::<Vec<_>>(),
        "replicas": replicas.collect::<Vec<_>>(),
        "sheds": gate.sheds.iter().rev().map(|note| shed(pool, note)).collect::<Vec<_>>(),
    })
}

/// The last minute of a class, and its totals since the start.
fn class(recent: &Recent) -> Value {
    json!({
        "class": &*recent.class,
        "slo": slo(recent.slo),
        "window_seconds": recent.window.as_secs_f64(),
        "ends": ends(&recent.ends),
        "total": ends(&recent.total),
        "ttft": recent.ttft.map(quantiles),
        "tpot": recent.tpot.map(quantiles),
        "itl": recent.itl.map(quantiles),
    })
}

fn slo(slo: Slo) -> Value {
    let seconds = |target: Option<Duration>| target.map(|target| target.as_secs_f64());
    json!({
        "ttft_seconds": seconds(slo.ttft),
        "tpot_seconds": seconds(slo.tpot),
        "itl_seconds": seconds(slo.itl),
        "e2e_seconds": seconds(slo.e2e),
    })
}

fn ends(ends: &Ends) -> Value {
    let refused = ends.refused.iter().map(|(reason, count)| (reason.as_str(), *count));
    json!({
        "offered": ends.offered,
        "completed": ends.completed,
        "good": ends.good,
        "cancelled": ends.cancelled,
        "failed": ends.failed,
        "shed": ends.shed(),
        "refused_count": ends.refused.iter().map(|(_, count)| count).sum::<u64>(),
        "refused": refused.collect::<BTreeMap<_, _>>(),
        "input_tokens": ends.input_tokens,
        "output_tokens": ends.output_tokens,
        "cached_tokens": ends.cached_tokens,
    })
}

fn quantiles(seen: Quantiles) -> Value {
    json!({
        "count": seen.count,
        "p50_seconds": seen.p50_seconds,
        "p95_seconds": seen.p95_seconds,
        "p99_seconds": seen.p99_seconds,
    })
}

fn age(now: Timestamp, then: Timestamp) -> f64 {
    now.saturating_since(then).as_secs_f64()
}

fn replica(pool: &PoolSnapshot, replica: &ReplicaSnapshot) -> Value {
    let reading = replica.sample.as_ref().map(|sample| {
        json!({
            "age_seconds": age(pool.gate.at, sample.taken),
            "engines": sample.engines,
            "running": sample.running,
            "waiting": sample.waiting,
            "kv_usage": sample.kv_usage,
            "kv_capacity_tokens": sample.kv_capacity_tokens,
            "preemptions": sample.preemptions,
            "prefix_queried_tokens": sample.prefix_queries,
            "prefix_hit_tokens": sample.prefix_hits,
            "asleep": sample.asleep,
        })
    });
    json!({
        "name": &*pool.name_of(replica.id),
        "version": pool.version_of(replica.id).map(|version| &**version),
        "health": replica.health.map(Health::as_str),
        "ejected": replica.ejected,
        "draining": replica.draining,
        "in_flight": replica.in_flight,
        "limit": replica.limit,
        "limit_assumed": replica.assumed,
        "foreign": replica.foreign,
        "prefill_tokens": replica.prefill_tokens,
        "kv_tokens": replica.kv_tokens,
        "reading": reading,
    })
}

fn part(pool: &PoolSnapshot, part: &QueuePart) -> Value {
    json!({
        "class": &*pool.parties.class(part.class),
        "tenant": &*pool.parties.tenant(part.tenant),
        "waiting": part.waiting,
        "tokens": part.tokens,
        "oldest_wait_seconds": part.oldest_wait.as_secs_f64(),
    })
}

fn shed(pool: &PoolSnapshot, note: &ShedNote) -> Value {
    let measured = note.unit.map(|unit| (unit, note.limit, note.reading));
    json!({
        "age_seconds": age(pool.gate.at, note.at),
        "reason": note.reason.as_str(),
        "class": &*pool.parties.class(note.class),
        "tenant": &*pool.parties.tenant(note.tenant),
        "unit": measured.map(|(unit, ..)| unit.as_str()),
        "limit": measured.map(|(_, limit, _)| limit),
        "reading": measured.map(|(.., reading)| reading),
        "reading_age_seconds": measured.map(|_| note.age.as_secs_f64()),
        "retry_after_seconds": note.retry_after.map(|wait| wait.as_secs_f64()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::domain::{ClassId, GateSnapshot, Parties, QueueSnapshot, Reason, TenantId, Unit};

    #[test]
    fn what_waits_and_what_was_shed_is_told_by_name() {
        let (class, tenant) = (ClassId(1), TenantId(7));
        let part = QueuePart {
            class,
            tenant,
            waiting: 3,
            tokens: 900,
            oldest_wait: Duration::from_millis(250),
        };
        let note = ShedNote {
            at: Timestamp::ZERO,
            reason: Reason::QueueFull,
            unit: Some(Unit::Bytes),
            limit: 64.0,
            reading: 80.0,
            age: Duration::from_millis(500),
            retry_after: None,
            class,
            tenant,
        };
        let plain = ShedNote { reason: Reason::Draining, unit: None, tenant: TenantId(9), ..note };
        let queue = QueueSnapshot { waiting: 3, parts: vec![part], ..QueueSnapshot::default() };
        let snapshot = PoolSnapshot {
            model: "tiny".into(),
            parties: Arc::new(Parties {
                classes: ["default".into(), "batch".into()].into(),
                tenants: vec![(tenant, "search".into())],
            }),
            gate: GateSnapshot { queue, sheds: vec![plain, note], ..GateSnapshot::default() },
            ..PoolSnapshot::default()
        };
        let page = pool(&snapshot, &[], &Telemetry::new().unwrap());
        let waits = &page["queue"]["parts"][0];
        assert_eq!((&waits["class"], &waits["tenant"]), (&"batch".into(), &"search".into()));
        assert_eq!((&waits["waiting"], &waits["tokens"]), (&3.into(), &900.into()));
        let (last, before) = (&page["sheds"][0], &page["sheds"][1]);
        assert_eq!((&last["reason"], &last["unit"]), (&"queue_full".into(), &"bytes".into()));
        assert_eq!((&last["limit"], &last["reading"]), (&64.0.into(), &80.0.into()));
        assert_eq!((&last["class"], &last["reading_age_seconds"]), (&"batch".into(), &0.5.into()));
        assert_eq!((&before["limit"], &before["tenant"]), (&Value::Null, &"9".into()));
    }
}
