//! One binary for all integration tests, so that they link once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test ends where it fails, in its helpers too"
)]

mod app;
mod cancel;
mod classes;
mod config_corpus;
mod demo;
mod faults;
mod hostile;
mod layering;
mod quotas;
mod relay;
mod relay_reload;
mod relay_slow;
mod relay_storm;
mod reload;
mod rig;
mod tenants;
