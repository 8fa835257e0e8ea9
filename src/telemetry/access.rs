//! One line a request, on the target `access`. Numbers and names, never a word of the text.
//!
//! Switch it off by the filter (`info,access=off`). Phases are in seconds. Fields that do not
//! apply are left out.

use std::time::Duration;

use tracing::info;

use crate::domain::{Endpoint, Reason, RequestRecord};

/// Writes the line.
pub(super) fn write(record: &RequestRecord) {
    let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
    let usage = record.usage;
    let rejection = record.rejection;
    let gaps = record.gaps.count();
    info!(
        target: "access",
        request_id = &*record.request_id,
        pool = record.pool.as_deref(),
        tenant = &*record.tenant,
        class = &*record.class,
        endpoint = record.endpoint.map(Endpoint::as_str),
        stream = record.stream,
        replica = record.replica.as_deref(),
        attempts = record.attempts,
        status = record.status,
        outcome = record.outcome.as_str(),
        reason = record.outcome.reason().map(Reason::as_str),
        good = record.good(),
        queue_wait = seconds(record.queue_wait),
        first_frame = seconds(record.first_frame),
        ttft = seconds(record.ttft),
        tpot = seconds(record.tpot),
        longest_gap = (gaps > 0).then_some(record.gaps.longest_seconds),
        e2e = record.e2e.as_secs_f64(),
        frames = record.frames,
        bytes = record.bytes,
        input_tokens = usage.map(|usage| usage.input),
        output_tokens = usage.map(|usage| usage.output),
        cached_tokens = usage.and_then(|usage| usage.cached),
        limit = rejection.map(|rejection| rejection.limit),
        reading = rejection.map(|rejection| rejection.reading),
        reading_age = rejection.map(|rejection| rejection.age.as_secs_f64()),
        retry_after = seconds(rejection.and_then(|rejection| rejection.retry_after)),
    );
}
