//! Weir: an admission-control gateway in front of vLLM replicas.

pub mod app;
pub mod cli;
pub mod config;
pub mod dispatch;
pub mod domain;
pub mod knee;
pub mod lifecycle;
pub mod load;
pub mod openai;
pub mod proxy;
pub mod reload;
pub mod replica;
pub mod server;
pub mod sim;
pub mod stats;
pub mod telemetry;
pub mod tenants;
pub mod upstream;
pub mod vllm;
pub mod workload;
