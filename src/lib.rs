//! Weir: an admission-control gateway in front of vLLM replicas.

pub mod dispatch;
pub mod domain;
