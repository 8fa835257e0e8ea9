//! The few conversions between counts and real numbers, each with its rounding stated.

use std::time::Duration;

/// A count as a real number; exact below 2^53, which no count here reaches.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(super) const fn real(count: u64) -> f64 {
    count as f64
}

/// The whole part of a real number as a count; 0 below zero or for NaN, saturating above.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates and takes NaN for 0, which is what is wanted"
)]
pub(super) const fn whole(value: f64) -> u64 {
    value as u64
}

/// Seconds as a duration: zero below zero or for NaN, and at most a day, since nobody is told to
/// wait longer.
pub(super) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.clamp(0.0, 86_400.0)).unwrap_or_default()
}
