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
    let measured = rejection.and_then(|rejection| Some((rejection, rejection.unit?)));
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
        limit = measured.map(|(rejection, _)| rejection.limit),
        reading = measured.map(|(rejection, _)| rejection.reading),
        unit = measured.map(|(_, unit)| unit.as_str()),
        reading_age = measured.map(|(rejection, _)| rejection.age.as_secs_f64()),
        retry_after = seconds(rejection.and_then(|rejection| rejection.retry_after)),
    );
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::Value;

    use super::*;
    use crate::domain::{Gaps, Outcome, Rejection, Slo, Timestamp, Unit};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The fields of the line that a request leaves.
    fn line(rejection: Rejection) -> Value {
        let record = RequestRecord {
            request_id: "id".into(),
            endpoint: Some(Endpoint::Completions),
            pool: Some("tiny".into()),
            tenant: "anyone".into(),
            class: "batch".into(),
            replica: None,
            stream: true,
            outcome: Outcome::Evicted(rejection.reason),
            status: 503,
            attempts: 0,
            received: Timestamp::ZERO,
            queue_wait: None,
            first_frame: None,
            ttft: None,
            tpot: None,
            e2e: Duration::ZERO,
            gaps: Gaps::default(),
            frames: 0,
            bytes: 0,
            usage: None,
            slo: Slo::default(),
            rejection: Some(rejection),
        };
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber =
            tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || write(&record));
        let text = String::from_utf8(kept.0.lock().clone()).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["fields"].clone()
    }

    #[test]
    fn a_shed_leaves_its_class_and_the_limit_that_it_met() {
        let shed = Rejection {
            retry_after: Some(Duration::from_millis(1500)),
            unit: Some(Unit::Seconds),
            limit: 0.4,
            reading: 1.25,
            age: Duration::from_millis(250),
            ..Rejection::plain(Reason::QueueWait)
        };
        let fields = line(shed);
        let expected = [
            ("class", "batch".into()),
            ("reason", "queue_wait".into()),
            ("unit", "seconds".into()),
            ("limit", 0.4.into()),
            ("reading", 1.25.into()),
            ("reading_age", 0.25.into()),
            ("retry_after", Value::from(1.5)),
        ];
        for (name, value) in expected {
            assert_eq!(fields[name], value, "{name} in {fields}");
        }
        let plain = line(Rejection::plain(Reason::Draining));
        assert!(plain.get("limit").is_none() && plain.get("unit").is_none(), "{plain}");
    }
}
