//! Statistics over measured samples: order statistics and proportions, with intervals.
//!
//! Pure arithmetic over slices. No distribution is assumed for latencies: quantiles and their
//! intervals come from ranks, since a tail is what an SLO is about and a tail is never normal.
//! Samples that hang together, as near a knee, get their intervals from batches; trends and the end
//! of a warm-up are found by tests of their own.

mod batch;
mod proportion;
mod quantile;
mod slope;
mod warm_up;

pub use batch::{Estimate, batched_quantile};
pub use proportion::{Interval, wilson};
pub use quantile::{Quantiles, mean, quantile, quantile_interval, sort};
pub use slope::{Slope, slope};
pub use warm_up::mser5;

/// Standard normal quantile for a two-sided 95 % interval.
pub const Z95: f64 = 1.959_963_985;
