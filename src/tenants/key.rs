//! A key as it is kept: its SHA-256, never itself.
//!
//! Keys are long random words (`weir key new` makes them), so a plain digest is enough: there is
//! nothing to guess that a slow or salted hash would have to protect. A digest that leaks, with
//! a configuration file or a backup, opens nothing.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// How a digest begins where it is written down.
const SCHEME: &str = "sha256:";

/// The SHA-256 of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// No key that can be found has this digest: what an unknown key is compared with.
    pub(super) const NOBODYS: Self = Self([0; 32]);

    /// The digest of this key.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Whether two digests are the same, in a time that does not depend on where they differ.
    pub fn same(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// Its first bytes: enough to tell it from all others, too little to be compared alone.
    pub(super) fn head(&self) -> u64 {
        self.0.iter().take(8).fold(0, |head, byte| head << 8 | u64::from(*byte))
    }
}

/// A text that is no digest of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("is no digest of a key")]
pub struct NotADigest;

impl FromStr for KeyDigest {
    type Err = NotADigest;

    /// Reads `sha256:` and 64 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let digits = text.strip_prefix(SCHEME).ok_or(NotADigest)?.as_bytes();
        let mut bytes = [0; 32];
        let (pairs, rest) = digits.as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(NotADigest);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            let value = digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low);
            *byte = value.and_then(|value| u8::try_from(value).ok()).ok_or(NotADigest)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Enough to tell keys apart in a log; a weak key could be guessed from the whole.
impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{:08x}..", self.head() >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_what_sha256sum_says() {
        let written = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
        let digest = KeyDigest::of(b"foo");
        assert_eq!(digest.to_string(), written);
        assert!(written.parse::<KeyDigest>().unwrap().same(&digest));
        assert_eq!(written.to_uppercase().replace("SHA", "sha").parse(), Ok(digest));
        assert_eq!(format!("{digest:?}"), "sha256:2c26b46b..");
    }

    #[test]
    fn digests_that_differ_anywhere_are_not_the_same() {
        let digest = KeyDigest::of(b"foo");
        for bit in 0..256 {
            let mut other = digest;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!other.same(&digest), "bit {bit}");
        }
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        let whole = KeyDigest::of(b"foo").to_string();
        let bare = whole.strip_prefix(SCHEME).unwrap();
        let short = whole.strip_suffix('e').unwrap();
        let long = format!("{whole}0");
        let wide = whole.replace("2c", "é");
        for wrong in ["", "sha256:", "sk-secret", bare, short, &long, &wide, "sha256:+1"] {
            assert_eq!(wrong.parse::<KeyDigest>(), Err(NotADigest), "{wrong}");
        }
    }
}
