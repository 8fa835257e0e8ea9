//! `weir key`: keys for tenants, and the digests that the configuration holds of them.
//!
//! A key is never an argument: arguments are seen by everyone on the machine and stay in the
//! shell's history.

use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rand::RngExt as _;
use rand::distr::Alphanumeric;

use crate::tenants::KeyDigest;

/// Letters and digits of a new key; 48 of 62 are 285 bits.
const LENGTH: usize = 48;

/// Far more than any key.
const LONGEST: u64 = 64 * 1024;

/// What to do.
#[derive(Clone, Copy, Debug, clap::Subcommand)]
pub enum KeyCommand {
    /// Make a key; prints it and its digest, a line each
    New,
    /// Read a key from standard input and print its digest
    Hash,
}

/// Runs it; keys are read from `input`.
pub fn run(
    command: &KeyCommand,
    input: &mut impl Read,
    out: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    match command {
        KeyCommand::New => {
            // Seeded by the system, and again and again: fit for secrets.
            let random = rand::rng().sample_iter(Alphanumeric).take(LENGTH).map(char::from);
            let key: String = "sk-".chars().chain(random).collect();
            writeln!(out, "{key}")?;
            writeln!(out, "{}", KeyDigest::of(key.as_bytes()))?;
        }
        KeyCommand::Hash => {
            let mut text = String::new();
            let mut input = input.take(LONGEST);
            input.read_to_string(&mut text).context("standard input holds no text")?;
            let key = text.trim();
            if key.is_empty() {
                bail!("standard input holds no key");
            }
            if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                bail!("a key is one word of printable ASCII");
            }
            writeln!(out, "{}", KeyDigest::of(key.as_bytes()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(command: KeyCommand, input: &str) -> anyhow::Result<String> {
        let mut out = Vec::new();
        run(&command, &mut input.as_bytes(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_new_key_has_the_digest_that_is_printed_with_it() {
        let (one, other) = (said(KeyCommand::New, "").unwrap(), said(KeyCommand::New, "").unwrap());
        let (key, digest) = one.split_once('\n').unwrap();
        assert_ne!(other.lines().next(), Some(key));
        assert!(key.starts_with("sk-") && key.len() == 3 + LENGTH, "{key}");
        assert_eq!(said(KeyCommand::Hash, &format!("{key}\n")).unwrap(), digest);
        assert!(KeyDigest::of(key.as_bytes()).same(&digest.trim().parse().unwrap()));
    }

    #[test]
    fn what_is_no_key_has_no_digest() {
        for wrong in ["", "  \n", "two words", "sché"] {
            assert!(said(KeyCommand::Hash, wrong).is_err(), "{wrong:?}");
        }
    }
}
