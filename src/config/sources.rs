//! The texts that a configuration is made of, fetched by somebody else.

use std::collections::BTreeMap;

use super::file::ConfigFile;
use super::read::read;

/// A configuration file and whatever it points at.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sources {
    /// The main file's name, for messages.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Other files by the path that the main file gives, each with its text or why it could
    /// not be read.
    pub files: BTreeMap<String, Result<String, String>>,
    /// Environment variables by name; `None` where unset.
    pub env: BTreeMap<String, Option<String>>,
}

impl Sources {
    /// A file that points at nothing.
    pub fn only(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.to_owned(), ..Self::default() }
    }
}

/// What a file points at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct References {
    /// Paths, relative ones to the main file's folder.
    pub files: Vec<String>,
    /// Names of environment variables.
    pub env: Vec<String>,
}

/// What a text points at; as much as can be made out where it is faulty.
pub fn references(text: &str) -> References {
    let (file, _faults): (ConfigFile, _) = read("", text);
    let server = [file.server.admin_token_file];
    let pools = file.pools.iter().flat_map(|pool| [&pool.api_key_file, &pool.limits_file]);
    let files = server.into_iter().flatten().chain(pools.flatten().cloned());
    let keys = file.pools.iter().filter_map(|pool| pool.api_key_env.clone());
    References {
        files: files.collect(),
        env: file.server.admin_token_env.into_iter().chain(keys).collect(),
    }
}
