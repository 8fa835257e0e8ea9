//! Fetches the texts of a configuration: its file, the files that it names, the environment.
//!
//! Reads are plain blocking ones: a few small files, on a task that has nothing else to do.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::config::{ConfigError, ConfigErrors, Folder, Sources, references};

/// Far above any configuration; what is larger was named by mistake (or is a device).
const LARGEST: u64 = 1 << 20;

/// Files of one folder; more were not put there for us.
const MOST_FILES: usize = 1_000;

/// Knows where the configuration is.
#[derive(Clone, Debug)]
pub struct Loader {
    path: PathBuf,
}

impl Loader {
    /// For this main file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The main file, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads everything afresh. Only the main file must be readable for that; what is missing
    /// beside it is carried along as a fault of the key that names it.
    pub fn fetch(&self) -> Result<Sources, ConfigErrors> {
        let name = self.path.display().to_string();
        let text = read(&self.path).map_err(|message| {
            let file = name.clone();
            let path = String::new();
            ConfigErrors(vec![ConfigError { file, line: None, path, message, allowed: None }])
        })?;
        let points_at = references(&text);
        let files = points_at.files.into_iter();
        let files = files.map(|file| (file.clone(), read(&self.resolve(&file)))).collect();
        let folders = points_at.folders.into_iter();
        let folders =
            folders.map(|path| (path.clone(), read_folder(&self.resolve(&path)))).collect();
        let env = points_at.env.into_iter();
        let env = env.map(|name| (name.clone(), variable(&name))).collect();
        Ok(Sources { name, text, files, folders, env })
    }

    /// The folders in which a change may change the configuration: those of every file that it
    /// is made of, both as they are named and as they resolve, so that an edit in place, a
    /// rename over the file and the swap of a symbolic link on the way to it all show.
    pub fn folders(&self, sources: Option<&Sources>) -> BTreeSet<PathBuf> {
        let named = sources.into_iter().flat_map(|sources| sources.files.keys());
        let named = named.map(|file| self.resolve(file));
        let mut folders = BTreeSet::new();
        for path in named.chain([self.path.clone()]) {
            folders.extend(folder(&path));
            folders.extend(path.canonicalize().ok().as_deref().and_then(folder));
        }
        let whole = sources.into_iter().flat_map(|sources| sources.folders.keys());
        folders.extend(whole.filter_map(|path| self.resolve(path).canonicalize().ok()));
        folders
    }

    /// A path that the main file gives: relative ones count from its folder.
    fn resolve(&self, file: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(file)
    }
}

fn folder(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    folder.canonicalize().ok()
}

fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    match file.take(LARGEST + 1).read_to_string(&mut text) {
        Ok(bytes) if bytes as u64 > LARGEST => Err("is larger than 1MiB".to_owned()),
        Ok(_) => Ok(text),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err("is not UTF-8".to_owned()),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// The files of a folder. Hidden ones are not meant: Kubernetes keeps a mounted secret's versions
/// in them, and its visible files are links there.
fn read_folder(path: &Path) -> Result<Folder, String> {
    let failed = |error| format!("cannot be read: {error}");
    let mut files = Folder::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || entry.path().is_dir() {
            continue;
        }
        if files.len() >= MOST_FILES {
            return Err(format!("holds more than {MOST_FILES} files"));
        }
        files.insert(name, read(&entry.path()));
    }
    Ok(files)
}

#[expect(clippy::disallowed_methods, reason = "the one place where the environment enters")]
fn variable(name: &str) -> Option<String> {
    // `var` panics on a name that no variable can have.
    let possible = !name.is_empty() && !name.contains(['=', '\0']);
    possible.then(|| std::env::var(name).ok()).flatten()
}
