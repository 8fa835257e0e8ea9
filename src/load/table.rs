//! Reports as lines of a table for a terminal; the JSON has the rest.

use std::fmt;

use super::LoadReport;
use crate::stats::Quantiles;

/// The heading over [`Row`]s.
pub const HEADING: &str = "offered/s   good/s   good%     ok/s   shed%  errors  ttft p50/p95/p99 ms  itl p99 ms  shed p99 ms  Retry-After  late p99 ms";

/// One report as one line.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a>(pub &'a LoadReport);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let ttft = report.ttft_seconds.unwrap_or_default();
        let p99 = |of: Option<Quantiles>| of.map(|of| of.p99 * 1e3);
        write!(
            f,
            "{:9.1} {:8.1} {:7.1} {:8.1} {:7.1} {:7}  {:6.0}/{:6.0}/{:6.0} {} {} {:>12} {}",
            report.offered_per_second,
            report.goodput_per_second,
            report.goodput_share * 100.0,
            report.ok_per_second,
            share(report.shed, report.offered) * 100.0,
            report.errors + report.cancelled + report.dropped,
            ttft.p50 * 1e3,
            ttft.p95 * 1e3,
            ttft.p99 * 1e3,
            Cell(p99(report.itl_seconds)),
            Cell(p99(report.refusal_seconds)),
            if report.refusals == 0 {
                "-".to_owned()
            } else {
                format!("{:.0}%", share(report.refusals_with_retry_after, report.refusals) * 100.0)
            },
            Cell(p99(report.lateness_seconds)),
        )?;
        match &report.void {
            Some(why) => write!(f, "  VOID: {why}"),
            None => Ok(()),
        }
    }
}

struct Cell(Option<f64>);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value:12.1}"),
            None => write!(f, "{:>12}", "-"),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
