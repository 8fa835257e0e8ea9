//! An interval for a share: goodput is a share of what was offered.

/// A two-sided interval, both ends included.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Wilson's score interval for `hits` of `total` at confidence `z`; the whole of 0 to 1 when
/// nothing was observed. (E. B. Wilson, JASA 1927: it behaves at shares near 0 and 1, where the
/// normal interval leaves them.)
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub fn wilson(hits: u64, total: u64, z: f64) -> Interval {
    if total == 0 {
        return Interval { low: 0.0, high: 1.0 };
    }
    let n = total as f64;
    let share = hits.min(total) as f64 / n;
    let z2 = z * z;
    let centre = share + z2 / (2.0 * n);
    let half = z * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    Interval {
        low: ((centre - half) / scale).clamp(0.0, 1.0),
        high: ((centre + half) / scale).clamp(0.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perfect_ten_still_leaves_doubt() {
        let interval = wilson(10, 10, super::super::Z95);
        assert!((interval.low - 0.722).abs() < 0.001, "{interval:?}");
        assert!((interval.high - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_observed_says_nothing() {
        assert_eq!(wilson(0, 0, super::super::Z95), Interval { low: 0.0, high: 1.0 });
    }
}
