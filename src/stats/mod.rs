//! Statistics over measured samples: order statistics and proportions, with intervals.
//!
//! Pure arithmetic over slices. No distribution is assumed for latencies: quantiles and their
//! intervals come from ranks, since a tail is what an SLO is about and a tail is never normal.
//! Batch means, slopes and warm-up cutting belong to the sweep and are not here yet.

mod proportion;
mod quantile;

pub use proportion::{Interval, wilson};
pub use quantile::{Quantiles, mean, quantile, quantile_interval, sort};

/// Standard normal quantile for a two-sided 95 % interval.
pub const Z95: f64 = 1.959_963_985;
