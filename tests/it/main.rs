//! One binary for all integration tests, so that they link once.

mod config_corpus;
mod layering;
mod reload;
