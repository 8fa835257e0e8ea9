//! A word that must never be printed.

use std::fmt;
use std::sync::Arc;

/// A key or token. Its `Debug` is masked; only [`Secret::reveal`] shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Takes over a secret, without the white space around it (files end in a newline).
    pub fn new(word: &str) -> Self {
        Self(word.trim().into())
    }

    /// The secret itself, for the one place that sends or compares it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_is_masked_and_white_space_goes() {
        let secret = Secret::new(" hunter2\n");
        assert_eq!(secret.reveal(), "hunter2");
        assert!(!format!("{:?}", Some(secret)).contains("hunter2"));
    }
}
