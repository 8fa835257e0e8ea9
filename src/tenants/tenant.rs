//! One holder of keys.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::domain::TenantId;

use super::{Caps, Isolation, KeyDigest, Quota, Rights};

/// The name that stands for whoever is served where no tenants are configured.
pub const ANYONE: &str = "anyone";

/// One holder of keys and the rules for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Tenant {
    /// What metrics, logs and the store know it by.
    pub name: Arc<str>,
    /// What the dispatcher knows it by.
    pub id: TenantId,
    /// Digests of its keys; any of them opens.
    pub keys: Vec<KeyDigest>,
    /// Its part of its class's tokens, beside the other tenants' parts; above 0.
    pub weight: f64,
    /// What it may ask for.
    pub rights: Rights,
    /// How much it may ask for over time.
    pub quota: Quota,
    /// How large one request may be.
    pub caps: Caps,
    /// Whose prefix cache it shares.
    pub isolation: Isolation,
}

impl Tenant {
    /// One that may do everything and has no keys yet.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            id: tenant_id(name),
            keys: Vec::new(),
            weight: 1.0,
            rights: Rights::default(),
            quota: Quota::default(),
            caps: Caps::default(),
            isolation: Isolation::default(),
        }
    }
}

/// The id of the tenant of this name: always the same for one name, in every process, so that a
/// reload or a second gateway needs no table of who was who. Never the id of "anyone".
///
/// It is the head of a digest. Two names that fall together are so rare (one in a million for a
/// hundred tenants) that `config` refuses them, and one of them can be renamed.
pub fn tenant_id(name: &str) -> TenantId {
    let digest = Sha256::digest(name.as_bytes());
    let head = digest.iter().take(4).fold(0, |head, byte| head << 8 | u32::from(*byte));
    TenantId(head.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_id_in_every_process() {
        // `printf search | sha256sum | head -c 8`
        assert_eq!(tenant_id("search"), TenantId(0x2419_3290));
        assert_ne!(tenant_id("search"), tenant_id("Search"));
        assert_ne!(tenant_id(""), TenantId::default());
    }
}
