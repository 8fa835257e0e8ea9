//! What `/status` says: the process, its configuration, and each pool's gate, as JSON.
//!
//! Durations are seconds, with the unit in the name. What is unknown is `null`, never zero.

use serde_json::{Value, json};

use crate::domain::{GateSnapshot, Health, PoolSnapshot, ReplicaSnapshot, ShedNote, Timestamp};
use crate::lifecycle::Phase;

/// The page. `extra` is what the application adds of its own (configuration, warnings).
pub(super) fn page(
    phase: Phase,
    uptime_seconds: f64,
    pools: &[PoolSnapshot],
    extra: Value,
) -> Value {
    let mut page = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": uptime_seconds,
        "phase": phase.as_str(),
        "pools": pools.iter().map(pool).collect::<Vec<_>>(),
    });
    if let (Some(page), Value::Object(extra)) = (page.as_object_mut(), extra) {
        for (key, value) in extra {
            page.entry(key).or_insert(value);
        }
    }
    page
}

fn pool(pool: &PoolSnapshot) -> Value {
    let gate = &pool.gate;
    let replicas = gate.replicas.iter().map(|one| replica(pool, one));
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
        },
        "replicas": replicas.collect::<Vec<_>>(),
        "sheds": gate.sheds.iter().rev().map(|note| shed(gate, note)).collect::<Vec<_>>(),
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
            "asleep": sample.asleep,
        })
    });
    json!({
        "name": &*pool.name_of(replica.id),
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

fn shed(gate: &GateSnapshot, note: &ShedNote) -> Value {
    json!({
        "age_seconds": age(gate.at, note.at),
        "reason": note.reason.as_str(),
        "limit": note.limit,
        "reading": note.reading,
        "retry_after_seconds": note.retry_after.map(|wait| wait.as_secs_f64()),
    })
}
