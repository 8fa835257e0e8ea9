//! PURE: the holders of keys, and what each of them may do.
//!
//! A [`Tenant`] is one application or team that shares the service with others. It is known by
//! its keys, of which only digests are kept ([`KeyDigest`]); what it may ask for stands in its
//! [`Rights`]. The [`Directory`] finds the tenant of a key.
//!
//! `config` builds all of this from the operator's file; this room knows of no file, no header
//! and no clock.

mod directory;
mod key;
mod rights;
mod tenant;

pub use directory::Directory;
pub use key::{KeyDigest, NotADigest};
pub use rights::Rights;
pub use tenant::{ANYONE, Tenant, tenant_id};
