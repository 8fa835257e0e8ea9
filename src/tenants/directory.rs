//! Whose key is this?
//!
//! A key is hashed before anything is looked up, so what the lookup could tell by its timing is
//! about a digest that nobody can aim: to learn a stored digest bit by bit, one would have to
//! find keys whose digests begin as wished, and would know nothing of the key even then. The
//! digest itself is compared in constant time, and as often for a key that is not known.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::TenantId;

use super::{KeyDigest, Tenant};

/// All tenants of a configuration.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Directory {
    /// In the order of the file.
    tenants: Vec<Arc<Tenant>>,
    /// By the head of a digest: the digest, and whose it is.
    by_key: HashMap<u64, Vec<(KeyDigest, usize)>>,
}

impl Directory {
    /// Of these tenants, whose keys and names are all different.
    pub fn new(tenants: Vec<Arc<Tenant>>) -> Self {
        let mut by_key: HashMap<u64, Vec<(KeyDigest, usize)>> = HashMap::new();
        for (at, tenant) in tenants.iter().enumerate() {
            for key in &tenant.keys {
                by_key.entry(key.head()).or_default().push((*key, at));
            }
        }
        Self { tenants, by_key }
    }

    /// Whether there are no tenants: then anyone is served.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// All tenants, in the order of the file.
    pub fn tenants(&self) -> &[Arc<Tenant>] {
        &self.tenants
    }

    /// The tenant that holds this key.
    pub fn holder(&self, key: &[u8]) -> Option<&Arc<Tenant>> {
        let shown = KeyDigest::of(key);
        let nobody = [(KeyDigest::NOBODYS, usize::MAX)];
        let candidates = self.by_key.get(&shown.head()).map_or(&nobody[..], Vec::as_slice);
        let mut holder = usize::MAX;
        for (digest, at) in candidates {
            if digest.same(&shown) {
                holder = *at;
            }
        }
        self.tenants.get(holder)
    }

    /// The tenant of this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Tenant>> {
        self.tenants.iter().find(|tenant| &*tenant.name == name)
    }

    /// The tenant of this id.
    pub fn with_id(&self, id: TenantId) -> Option<&Arc<Tenant>> {
        self.tenants.iter().find(|tenant| tenant.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::tenant_id;

    fn tenant(name: &str, keys: &[&str]) -> Arc<Tenant> {
        let keys = keys.iter().map(|key| KeyDigest::of(key.as_bytes())).collect();
        Arc::new(Tenant { keys, ..Tenant::named(name) })
    }

    fn holder<'a>(directory: &'a Directory, key: &str) -> Option<&'a str> {
        directory.holder(key.as_bytes()).map(|tenant| &*tenant.name)
    }

    #[test]
    fn each_of_several_keys_opens_and_nothing_else_does() {
        let directory = Directory::new(vec![
            tenant("a", &["old", "new"]),
            tenant("b", &["b"]),
            tenant("c", &[]),
        ]);
        assert_eq!(holder(&directory, "old"), Some("a"));
        assert_eq!(holder(&directory, "new"), Some("a"));
        assert_eq!(holder(&directory, "b"), Some("b"));
        for wrong in ["", "ol", "old ", "OLD", "c", "a"] {
            assert_eq!(holder(&directory, wrong), None, "{wrong:?}");
        }
        assert_eq!(directory.with_id(tenant_id("c")), directory.named("c"));
        assert!(directory.named("d").is_none());
    }

    #[test]
    fn digests_with_the_same_head_are_told_apart() {
        let mut directory = Directory::new(vec![tenant("a", &["one"]), tenant("b", &["two"])]);
        let (one, two) = (KeyDigest::of(b"one"), KeyDigest::of(b"two"));
        directory.by_key = HashMap::from([
            (one.head(), vec![(two, 1), (one, 0)]),
            (two.head(), vec![(one, 0), (two, 1)]),
        ]);
        assert_eq!(holder(&directory, "one"), Some("a"));
        assert_eq!(holder(&directory, "two"), Some("b"));
    }

    #[test]
    fn without_tenants_no_key_opens() {
        assert!(Directory::default().is_empty());
        assert_eq!(holder(&Directory::default(), ""), None);
    }
}
