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
    /// Folders by the path that the main file gives, each with the files in it by name, or why
    /// it could not be read. Hidden files are left out.
    pub folders: BTreeMap<String, Result<Folder, String>>,
    /// Environment variables by name; `None` where unset.
    pub env: BTreeMap<String, Option<String>>,
}

/// The files of one folder by name, each with its text or why it could not be read.
pub type Folder = BTreeMap<String, Result<String, String>>;

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
    /// Paths of folders, likewise.
    pub folders: Vec<String>,
    /// Names of environment variables.
    pub env: Vec<String>,
}

/// What a text points at; as much as can be made out where it is faulty.
pub fn references(text: &str) -> References {
    let (file, _faults): (ConfigFile, _) = read("", text);
    let server = [file.server.admin_token_file];
    let pools = file.pools.iter().flat_map(|pool| [&pool.api_key_file, &pool.limits_file]);
    let files = server.into_iter().flatten().chain(pools.flatten().cloned());
    let of_pools = file.pools.iter().filter_map(|pool| pool.api_key_env.clone());
    let of_tenants = file.tenants.iter().filter_map(|tenant| tenant.keys_env.clone());
    let env = file.server.admin_token_env.into_iter().chain(of_pools).chain(of_tenants);
    References {
        files: files.collect(),
        folders: file.tenants.iter().filter_map(|tenant| tenant.keys_folder.clone()).collect(),
        env: env.collect(),
    }
}
