//! PURE: from the operator's file to typed, checked settings, and the difference of two.
//!
//! What the operator wrote ([`ConfigFile`], every key optional) and what the program uses
//! ([`Config`], nothing optional that has a default) are two types, with [`load`] between them:
//! it reports *every* error of a file at once, each with its key path, its line and what would
//! have been allowed. [`diff()`] says what a reload would change and whether it can, running.
//!
//! This room opens no file and reads no environment: [`references`] says what a text points at,
//! `reload` fetches that, and [`Sources`] carries it in. Every default stands in `compile`,
//! `server`, `pool`, `class` or `tenant`.

mod address;
mod checks;
mod class;
mod compile;
mod diff;
mod error;
mod file;
mod model;
mod pool;
mod read;
mod secret;
mod server;
mod settings;
mod sources;
mod tenant;
mod units;

pub use address::{ReplicaAddress, Scheme};
pub use class::{Asked, ClassConfig, ClassRule, Classes, DEFAULT_CLASS};
pub use compile::load;
pub use diff::{Change, diff, hold_fixed};
pub use error::{ConfigError, ConfigErrors};
pub use file::{ConfigFile, LimitsFile};
pub use model::{
    Config, DrainConfig, LimitSource, LogConfig, LogFormat, PoolConfig, ProbeConfig, Provenance,
    ScrapeConfig, ServerConfig, ServerLimits, TimeoutConfig, TlsPaths, Warning,
};
pub use secret::Secret;
pub use settings::{Applies, Setting, settings};
pub use sources::{Folder, References, Sources, references};
pub use units::show_size;

#[cfg(test)]
mod tests;
