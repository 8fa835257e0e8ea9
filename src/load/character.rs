//! What a recorded load is like: lengths, rate, how bursty it is, how much of its prompts repeats.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::stats::{self, Quantiles};
use crate::workload::{Row, Trace};

/// A trace in a few numbers. `None` is "not known from this trace".
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Character {
    /// Requests.
    pub requests: usize,
    /// First to last, seconds.
    pub seconds: f64,
    /// Requests a second.
    pub rate: Option<f64>,
    /// Prompt tokens.
    pub input_tokens: Option<Quantiles>,
    /// Output tokens.
    pub output_tokens: Option<Quantiles>,
    /// Index of dispersion of the counts in windows of 1, 10 and 60 s: variance over mean. 1 is
    /// Poisson, more is bursts, less is a metronome.
    pub dispersion: [Option<f64>; 3],
    /// Share of the named prompt blocks that an earlier request had at the same place after the
    /// same beginning: what an endless prefix cache would find.
    pub repeated_prefix: Option<f64>,
}

impl Character {
    /// Of a whole trace.
    pub fn of(trace: &Trace) -> Self {
        let rows = trace.rows();
        let seconds = rows.last().map_or(0.0, |row| row.at.as_secs_f64());
        let tokens = |pick: fn(&Row) -> u32| {
            Quantiles::of(&mut rows.iter().map(|row| f64::from(pick(row))).collect::<Vec<_>>())
        };
        Self {
            requests: rows.len(),
            seconds,
            rate: trace.rate(),
            input_tokens: tokens(|row| row.input),
            output_tokens: tokens(|row| row.output),
            dispersion: [1.0, 10.0, 60.0].map(|width| dispersion(rows, seconds, width)),
            repeated_prefix: repeated(rows),
        }
    }
}

/// Fewer whole windows than this have no variance worth telling.
const LEAST_WINDOWS: usize = 5;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a trace's length over a second; casts saturate"
)]
fn dispersion(rows: &[Row], seconds: f64, width: f64) -> Option<f64> {
    let windows = (seconds / width) as usize;
    if !(LEAST_WINDOWS..=100_000_000).contains(&windows) {
        return None;
    }
    let mut counts = vec![0.0; windows];
    for row in rows {
        if let Some(count) = counts.get_mut((row.at.as_secs_f64() / width) as usize) {
            *count += 1.0;
        }
    }
    let mean = stats::mean(&counts).filter(|mean| *mean > 0.0)?;
    let squares: Vec<f64> = counts.iter().map(|count| (count - mean).powi(2)).collect();
    Some(stats::mean(&squares)? / mean)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn repeated(rows: &[Row]) -> Option<f64> {
    let (mut known, mut found, mut all) = (BTreeSet::new(), 0_usize, 0_usize);
    for row in rows {
        let mut chain = 0_u64;
        for block in &row.blocks {
            // A block counts together with all before it (FxHash's mixing).
            chain =
                (chain.rotate_left(5) ^ block).wrapping_mul(0x517c_c1b7_2722_0a95).wrapping_add(1);
            all += 1;
            found += usize::from(!known.insert(chain));
        }
    }
    (all > 0).then(|| found as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn csv(times: impl Iterator<Item = f64>) -> Trace {
        let mut text = "timestamp,input,output\n".to_owned();
        times.for_each(|at| writeln!(text, "{at},100,10").unwrap());
        Trace::read(&text, None).unwrap()
    }

    #[test]
    fn clumps_are_told_from_a_metronome() {
        let even = Character::of(&csv((0..1000).map(|at| f64::from(at) / 10.0)));
        let clumps = Character::of(&csv((0..1000).map(|at| f64::from(at / 100 * 10))));
        assert!(even.dispersion[0].unwrap() < 0.1, "{even:?}");
        assert!(clumps.dispersion[0].unwrap() > 50.0, "{clumps:?}");
        assert_eq!(even.dispersion[2], None, "one window is no variance");
        assert!((even.rate.unwrap() - 10.0).abs() < 0.2);
        assert_eq!((even.requests, even.repeated_prefix), (1000, None));
    }

    #[test]
    fn only_what_repeats_from_the_beginning_is_a_prefix() {
        let line = |blocks: &str| {
            format!(
                "{{\"timestamp\":0,\"input_length\":2000,\"output_length\":5,\"hash_ids\":[{blocks}]}}\n"
            )
        };
        let text = [line("1,2,3,4"), line("1,2,9,4"), line("7,2")].concat();
        let trace = Trace::read(&text, None).unwrap();
        // Two of ten: 4 after 9, and 2 after 7, are at their place but not after the same.
        assert_eq!(Character::of(&trace).repeated_prefix, Some(0.2));
    }
}
