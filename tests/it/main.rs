//! One binary for all integration tests, so that they link once.

mod layering;
