//! Reports as lines of a table for a terminal; the JSON has the rest.
//!
//! Cells are parted by blanks and hold none, so that a script can take them by number.

use std::fmt;

use super::{Figures, LoadReport};
use crate::stats::Quantiles;

/// The heading over [`Row`]s; times are milliseconds.
pub const HEADING: &str = "offered/s    good/s  good%      ok/s  shed% errors ttft_p50 ttft_p95 \
    ttft_p99  itl_p99 shed_p99 retry_after% late_p99";

/// One report as one line; `-` where nothing was measured.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a>(pub &'a LoadReport);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.0.all;
        let bad = report.errors + report.cancelled + report.dropped;
        let told = share(report.refusals_with_retry_after, report.refusals);
        write!(
            f,
            "{:9.1} {:9.1} {:6.1} {:9.1} {:6.1} {bad:6}",
            report.offered_per_second,
            report.goodput_per_second,
            report.goodput_share * 100.0,
            report.ok_per_second,
            share(report.shed, report.offered).unwrap_or_default() * 100.0,
        )?;
        let pick = |of: Option<Quantiles>, pick: fn(Quantiles) -> f64| {
            Cell(of.map(|of| pick(of) * 1e3), 8)
        };
        write!(
            f,
            " {} {} {} {} {} {} {}",
            pick(report.ttft_seconds, |of| of.p50),
            pick(report.ttft_seconds, |of| of.p95),
            pick(report.ttft_seconds, |of| of.p99),
            pick(report.itl_seconds, |of| of.p99),
            pick(report.refusal_seconds, |of| of.p99),
            Cell(told.map(|share| share * 100.0), 12),
            pick(self.0.lateness_seconds, |of| of.p99),
        )?;
        self.0.void.as_ref().map_or(Ok(()), |why| write!(f, "  VOID: {why}"))
    }
}

/// The heading over [`Part`]s.
pub const PARTS_HEADING: &str = "part             offered/s    good/s  good%  shed% errors tries ttft_p50 ttft_p95 \
    tpot_p95  itl_p99  e2e_p95";

/// One class or tenant as one line.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a>(pub &'a str, pub &'a Figures);

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, part) = self;
        let bad = part.errors + part.cancelled + part.dropped;
        let pick = |of: Option<Quantiles>, pick: fn(Quantiles) -> f64| {
            Cell(of.map(|of| pick(of) * 1e3), 8)
        };
        write!(
            f,
            "{name:<16} {:9.1} {:9.1} {:6.1} {:6.1} {bad:6} {:5.2} {} {} {} {} {}",
            part.offered_per_second,
            part.goodput_per_second,
            part.goodput_share * 100.0,
            share(part.shed, part.offered).unwrap_or_default() * 100.0,
            part.attempts_per_call,
            pick(part.ttft_seconds, |of| of.p50),
            pick(part.ttft_seconds, |of| of.p95),
            pick(part.tpot_seconds, |of| of.p95),
            pick(part.itl_seconds, |of| of.p99),
            pick(part.e2e_seconds, |of| of.p95),
        )
    }
}

/// A number in so many columns, or a dash.
struct Cell(Option<f64>, usize);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "{value:>0$.1}", self.1),
            None => write!(f, "{:>1$}", "-", self.1),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::super::{LoadOptions, Mode, Ratio};
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_row_has_as_many_cells_as_the_heading() {
        let options =
            LoadOptions::new("http://localhost".parse().unwrap(), "tiny", Mode::Open(1.0));
        let mut report = LoadReport::of(
            &options,
            &Record::default(),
            Duration::from_secs(1),
            None,
            Ratio::default(),
        );
        assert!(report.void.take().is_some(), "nothing offered says nothing");
        let cells = |line: &str| line.split_whitespace().count();
        assert_eq!(cells(&Row(&report).to_string()), cells(HEADING));
        assert_eq!(cells(&Part("chat", &report.all).to_string()), cells(PARTS_HEADING));
    }
}
