//! What Weir knows of vLLM itself: which of its routes may be reached, and what its metrics are
//! called, through all the versions that renamed them.
//!
//! Pure tables and parsers. Who asks, when, and over which connection is `upstream`'s.

mod exposition;
mod labels;
mod metrics;
mod names;
mod routes;

pub use metrics::{MetricsError, parse_metrics};
pub use routes::{DEFAULT_ENDPOINTS, route, upstream_path};
