//! What this binary is.

/// The version in `Cargo.toml`.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
