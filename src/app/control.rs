//! What the admin listener shows of the configuration, and how it asks for another.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::config::{LimitSource, settings};
use crate::reload::{Asker, Cause, Handle, Outcome, Past};
use crate::server::Reload;

/// Makes a page.
type Page = Arc<dyn Fn() -> Value + Send + Sync>;

/// What `/status` shows of the configuration: which one runs, where its limits come from, what is
/// wrong with the newest file, and what the last reloads changed.
pub(super) fn status(handle: Arc<Handle>) -> Page {
    Arc::new(move || {
        let running = handle.running();
        let pools = running.config.pools.iter();
        let limits = pools.map(|pool| (pool.model.to_string(), limits_from(&pool.limits_from)));
        json!({
            "config": {
                "generation": running.generation,
                "hash": &*running.hash,
                "since_epoch_seconds": epoch(running.since),
                "limits_from": limits.collect::<Map<_, _>>(),
                "refused": handle.refusal().map(|errors| {
                    errors.0.iter().map(ToString::to_string).collect::<Vec<_>>()
                }),
                "reloads": handle.past().iter().map(past).collect::<Vec<_>>(),
            }
        })
    })
}

fn epoch(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn limits_from(source: &LimitSource) -> Value {
    match source {
        LimitSource::Assumed => json!("assumed"),
        LimitSource::Written => json!("configuration"),
        LimitSource::Measured(how) => json!({
            "file": &*how.file, "when": how.when.as_deref(), "vllm": how.vllm.as_deref(),
            "model": how.model.as_deref(), "hardware": how.hardware.as_deref(),
            "sweep": how.sweep.as_deref(),
        }),
    }
}

fn past(past: &Past) -> Value {
    let (mut changes, mut faults, mut generation) = (Vec::new(), Vec::new(), None);
    match &past.report.outcome {
        Outcome::Unchanged => {}
        Outcome::Applied { generation: taken, changes: made } => {
            generation = Some(*taken);
            changes = made.iter().map(ToString::to_string).collect();
        }
        Outcome::Refused(errors) => faults = errors.0.iter().map(ToString::to_string).collect(),
    }
    json!({
        "at_epoch_seconds": epoch(past.at),
        "cause": past.report.cause.as_str(),
        "outcome": past.report.outcome.as_str(),
        "generation": generation,
        "changes": changes,
        "faults": faults,
    })
}

/// `GET /config`: every key with its value as the file would write it, secrets masked, and
/// whether a reload can change it.
pub(super) fn config(handle: Arc<Handle>) -> Page {
    Arc::new(move || {
        let running = handle.running();
        let keys = settings(&running.config).into_iter().map(|setting| {
            let said = json!({ "value": setting.value, "applies": setting.applies.as_str() });
            (setting.path, said)
        });
        json!({
            "generation": running.generation,
            "hash": &*running.hash,
            "since_epoch_seconds": epoch(running.since),
            "settings": keys.collect::<Map<_, _>>(),
        })
    })
}

/// `POST /config/reload`.
pub(super) fn reload(asker: Option<Asker>, handle: Arc<Handle>) -> Reload {
    Arc::new(move || {
        let (asker, handle) = (asker.clone(), Arc::clone(&handle));
        Box::pin(async move {
            let asker = asker.ok_or("this gateway was not started from a file")?;
            let report = asker.reload(Cause::Admin).await.ok_or("the process is ending")?;
            let changes = match &report.outcome {
                Outcome::Refused(errors) => {
                    let said: Vec<_> = errors.0.iter().map(ToString::to_string).collect();
                    return Err(said.join("\n"));
                }
                Outcome::Unchanged => Vec::new(),
                Outcome::Applied { changes, .. } => {
                    changes.iter().map(ToString::to_string).collect()
                }
            };
            let outcome = report.outcome.as_str();
            let generation = handle.running().generation;
            Ok(json!({ "outcome": outcome, "generation": generation, "changes": changes }))
        })
    })
}
