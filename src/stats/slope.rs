//! Whether a series grows: a least-squares slope with an interval that respects correlation.

use super::quantile::as_f64;
use super::{Interval, batch};

/// A trend of a series of evenly spaced readings.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Slope {
    /// Growth from the first reading to the last, in the series' own unit.
    pub growth: f64,
    /// At 95 %.
    pub interval: Interval,
}

/// The trend of `series`; `None` of fewer than eight readings. The readings are averaged into
/// ten groups first, and what correlation the residuals still have widens the interval.
pub fn slope(series: &[f64]) -> Option<Slope> {
    const GROUPS: usize = 10;
    if series.len() < 8 {
        return None;
    }
    let size = series.len().div_ceil(GROUPS);
    let groups: Vec<f64> =
        series.chunks(size).map(|group| group.iter().sum::<f64>() / as_f64(group.len())).collect();
    let n = as_f64(groups.len());
    let at = |index: usize| as_f64(index) / (n - 1.0) - 0.5;
    let mean = groups.iter().sum::<f64>() / n;
    let spread: f64 = (0..groups.len()).map(|index| at(index).powi(2)).sum();
    let along: f64 = groups.iter().enumerate().map(|(index, y)| at(index) * (y - mean)).sum();
    let growth = along / spread;
    let residuals: Vec<f64> =
        groups.iter().enumerate().map(|(index, y)| y - mean - growth * at(index)).collect();
    let squares: f64 = residuals.iter().map(|one| one * one).sum();
    let neighbours: f64 = residuals.windows(2).map(|pair| pair.iter().product::<f64>()).sum();
    let left = if squares > 0.0 { (neighbours / squares).clamp(0.0, 0.8) } else { 0.0 };
    let variance = squares / (n - 2.0) * (1.0 + left) / (1.0 - left);
    let half = batch::student(n - 2.0) * (variance / spread).sqrt();
    Some(Slope { growth, interval: Interval { low: growth - half, high: growth + half } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_from_noise() {
        let noise = |at: usize| f64::from(u32::try_from((at * 7919) % 101).unwrap()) / 10.0;
        let flat: Vec<f64> = (0..200).map(noise).collect();
        let interval = slope(&flat).unwrap().interval;
        assert!(interval.low < 0.0 && interval.high > 0.0, "{interval:?}");
        let growing: Vec<f64> = (0..200).map(|at| noise(at) + 0.2 * as_f64(at)).collect();
        let found = slope(&growing).unwrap();
        assert!(found.interval.low > 20.0 && (found.growth - 40.0).abs() < 6.0, "{found:?}");
        assert_eq!(slope(&[1.0; 7]), None);
    }
}
