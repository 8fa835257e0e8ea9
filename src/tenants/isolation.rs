//! Whose prefix cache a tenant shares.
//!
//! An engine answers faster where it has computed a prompt's beginning before. A tenant that
//! guesses another's prompt could so see by its own TTFT whether the guess was right. vLLM keeps
//! apart what was sent with different `cache_salt`s; so each group's requests carry a salt of
//! their own, with the client's own salt, if any, inside it and never instead of it.
//!
//! The salt follows from the group's name, so that all gateways agree on it. It is no secret: who
//! can speak to a replica past the gateway can write any salt, and needs none to read prompts.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// The word of the configuration for [`Isolation::Shared`].
pub const SHARED: &str = "shared";

/// Whose prefix cache a tenant shares.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Its own alone.
    #[default]
    Own,
    /// That of the tenants that name the same group.
    Group(Arc<str>),
    /// Everyone's that say so: faster where prompts begin alike, and open to probing.
    Shared,
}

impl Isolation {
    /// The salt of a tenant's request, whose client may have sent one of its own; `None` where
    /// nothing needs to be written.
    pub fn salt(&self, tenant: &str, client: Option<&str>) -> Option<String> {
        let (kind, name) = match self {
            Self::Shared if client.is_none() => return None,
            // Not even here as it is: it may be the salt of a group.
            Self::Shared => ("shared", ""),
            Self::Own => ("tenant", tenant),
            Self::Group(name) => ("group", &**name),
        };
        let mut hasher = Sha256::new();
        // No name holds a zero byte, so that no two of these are the same text.
        for part in ["weir", kind, name, client.map_or("", |_| "client")] {
            hasher.update(part);
            hasher.update([0]);
        }
        hasher.update(client.unwrap_or_default());
        let mut salt = String::with_capacity(64);
        for byte in hasher.finalize() {
            salt.extend([byte >> 4, byte & 15].map(hex));
        }
        Some(salt)
    }
}

fn hex(digit: u8) -> char {
    char::from_digit(digit.into(), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_groups_share_a_salt_whatever_their_clients_send() {
        let group = |name: &str| Isolation::Group(name.into());
        let all =
            [(Isolation::Own, "a"), (Isolation::Own, "b"), (group("a"), "c"), (group("b"), "c")];
        let clients = [None, Some(""), Some("a"), Some("client"), Some("b\0client")];
        let salts: BTreeSet<_> = all
            .iter()
            .flat_map(|(isolation, name)| clients.map(|client| isolation.salt(name, client)))
            .collect();
        assert_eq!(salts.len(), all.len() * clients.len());
        let stolen = Isolation::Own.salt("a", None);
        assert_ne!(Isolation::Own.salt("b", stolen.as_deref()), stolen);
        assert_eq!(group("a").salt("c", None), group("a").salt("d", None), "a group is one");
        assert_eq!(Isolation::Shared.salt("a", None), None);
        assert_ne!(Isolation::Shared.salt("b", stolen.as_deref()), stolen);
        assert_eq!(Isolation::Shared.salt("a", Some("x")), Isolation::Shared.salt("b", Some("x")));
    }

    #[test]
    fn a_salt_is_the_same_in_every_process() {
        // `printf 'weir\0tenant\0search\0\0' | sha256sum`
        let salt = Isolation::Own.salt("search", None).unwrap();
        assert_eq!(salt.len(), 64);
        assert!(salt.starts_with("e96ebb175b42"));
    }
}
