//! PURE: the holders of keys, and what each of them may do.
//!
//! A [`Tenant`] is one application or team that shares the service with others. It is known by
//! its keys, of which only digests are kept ([`KeyDigest`]); what it may ask for stands in its
//! [`Rights`], how much over time in its [`Quota`], how
//! large one request may be in its [`Caps`], and whose cache it shares in its [`Isolation`]. The [`Directory`] finds the tenant of a key;
//! a [`Meter`] holds one tenant to its quota.
//!
//! `config` builds all of this from the operator's file; this room knows of no file, no header
//! and no clock: time is handed in, live by the proxy and simulated by the simulator.

mod caps;
mod directory;
mod habits;
mod isolation;
mod key;
mod meter;
mod num;
mod promises;
mod quota;
mod request_rate;
mod rights;
mod tenant;
mod token_account;

pub use caps::{Caps, OverOutput};
pub use directory::Directory;
pub use habits::Ask;
pub use isolation::{Isolation, SHARED};
pub use key::{KeyDigest, NotADigest};
pub use meter::{Charge, Meter, Spent};
pub use quota::{DEFAULT_BURST, Level, Levels, Quota};
pub use rights::Rights;
pub use tenant::{ANYONE, Tenant, tenant_id};
