//! A run's record as the search for the knee wants it: series in the order of time.

use std::time::Duration;

use super::LoadOptions;
use super::attempt::{End, Seen};
use super::record::Record;
use crate::knee::Observed;

/// Readings of the calls in flight.
const READINGS: u32 = 100;

/// Of the calls that were due in the window before `until`.
pub(super) fn observed(options: &LoadOptions, record: &Record, until: Duration) -> Observed {
    let within = |one: &&Seen| (options.warm_up..until).contains(&one.due);
    let mut seen: Vec<&Seen> = record.seen.iter().filter(within).collect();
    seen.sort_by_key(|one| one.due);
    let whole: Vec<&Seen> = seen.iter().copied().filter(|one| one.end == End::Ok).collect();
    let seconds = |pick: fn(&Seen) -> Option<Duration>| {
        whole.iter().filter_map(|one| pick(one)).map(|span| span.as_secs_f64()).collect()
    };
    let step = until.saturating_sub(options.warm_up) / READINGS;
    Observed {
        ttft: seconds(|one| one.ttft),
        itl: whole.iter().flat_map(|one| &one.gaps).map(|gap| f64::from(*gap)).collect(),
        tpot: seconds(|one| one.tpot),
        e2e: seconds(|one| Some(one.e2e)),
        in_flight: (0..READINGS).map(|at| open(record, options.warm_up + step * at)).collect(),
        offered: count(seen.len()),
        failed: count(seen.len() - whole.len()),
    }
}

/// Calls open at `at`; what was cancelled was open to the end.
fn open(record: &Record, at: Duration) -> f64 {
    let open = |one: &&Seen| {
        let ended = if one.end == End::Cancelled { Duration::MAX } else { one.due + one.e2e };
        one.end != End::Dropped && one.due <= at && at < ended
    };
    f64::from(u32::try_from(record.seen.iter().filter(open).count()).unwrap_or(u32::MAX))
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::super::attempt::Who;
    use super::*;

    #[test]
    fn series_are_in_the_order_of_arrival_and_failed_calls_are_counted_apart() {
        let url = "http://localhost".parse().unwrap();
        let options = LoadOptions::new(url, "tiny", Mode::Open(1.0));
        let seen = |due, e2e, end: End| Seen {
            ttft: Some(Duration::from_secs(e2e) / 2),
            e2e: Duration::from_secs(e2e),
            ..Seen::new(Duration::from_secs(due), Who::default(), end)
        };
        let record = Record {
            seen: vec![
                seen(5, 2, End::Ok),
                seen(1, 8, End::Ok),
                seen(2, 0, End::Shed),
                seen(3, 0, End::Cancelled),
            ],
            ..Record::default()
        };
        let observed = observed(&options, &record, Duration::from_secs(10));
        assert_eq!(observed.ttft, [4.0, 1.0]);
        assert_eq!((observed.offered, observed.failed), (4, 2));
        // At 6 s: two that were answered later, and the one that never was.
        assert!((observed.in_flight[60] - 3.0).abs() < 1e-9);
        assert!((observed.in_flight[95] - 1.0).abs() < 1e-9);
    }
}
