//! TOML text to a file type, with every fault of it at once.
//!
//! serde stops at its first error. So the document is parsed once into a tree that knows its
//! lines, and deserialized again and again: each fault is noted with its key path, the faulty
//! key is taken out of the tree, until what is left fits. The schema thus stands once, in the
//! derived types, and serde's own messages name the allowed keys.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::ConfigError;

/// More than anyone reads; bounds the work on a file that is something else altogether.
const MOST_FAULTS: usize = 50;

/// The faults of one file, and where its keys stand.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    file: String,
    lines: BTreeMap<String, usize>,
    found: Vec<ConfigError>,
}

impl Faults {
    fn new(file: &str) -> Self {
        Self { file: file.to_owned(), lines: BTreeMap::new(), found: Vec::new() }
    }

    /// Notes a fault of this key, unless it or a table around it is known to be faulty already.
    pub(super) fn add(&mut self, path: &str, message: impl Into<String>, allowed: Option<&str>) {
        let known = |error: &ConfigError| {
            let within = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
            error.path.is_empty() || path.strip_prefix(&error.path).is_some_and(within)
        };
        if self.found.len() < MOST_FAULTS && !self.found.iter().any(known) {
            self.found.push(ConfigError {
                file: self.file.clone(),
                line: self.line(path),
                path: path.to_owned(),
                message: message.into(),
                allowed: allowed.map(str::to_owned),
            });
        }
    }

    /// Whether something is wrong with this key or within it.
    pub(super) fn has(&self, path: &str) -> bool {
        let within = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        self.found.iter().any(|error| error.path.strip_prefix(path).is_some_and(within))
    }

    /// The line of a key, or of the nearest table around it.
    fn line(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = path.rsplit_once(['.', '['])?.0;
        }
    }

    /// Whether nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// What was found, in the order of lines; what is nowhere to be found comes last.
    pub(super) fn into_errors(mut self) -> Vec<ConfigError> {
        self.found.sort_by_key(|error| (error.line.is_none(), error.line));
        if self.found.len() >= MOST_FAULTS {
            self.found.push(ConfigError {
                file: self.file,
                line: None,
                path: String::new(),
                message: "has so many faults that the rest was not looked for".to_owned(),
                allowed: None,
            });
        }
        self.found
    }
}

/// Reads a text as far as it goes. What is faulty is left out of the result, and noted.
pub(super) fn read<T: DeserializeOwned + Default>(name: &str, text: &str) -> (T, Faults) {
    let mut faults = Faults::new(name);
    let (mut tree, errors) = DeTable::parse_recoverable(text);
    let ends = LineEnds::of(text);
    for error in errors.into_iter().take(MOST_FAULTS) {
        faults.found.push(ConfigError {
            file: name.to_owned(),
            line: error.span().map(|span| ends.line(span.start)),
            path: String::new(),
            message: error.message().trim().replace('\n', ", "),
            allowed: None,
        });
    }
    if !faults.is_empty() {
        // What a recovered tree says beside its syntax errors is a guess.
        return (T::default(), faults);
    }
    note_lines(tree.get_ref(), "", &ends, &mut faults.lines);
    refuse_lists(tree.get_mut(), "", &mut faults);
    let mut replaced = BTreeSet::new();
    while faults.found.len() < MOST_FAULTS {
        let attempt: Result<T, _> =
            serde_path_to_error::deserialize(Deserializer::from(tree.clone()));
        let error = match attempt {
            Ok(file) => return (file, faults),
            Err(error) => error,
        };
        let path = path_text(error.path());
        let (message, allowed) = if is_secret(&path) {
            ("is of a wrong type".to_owned(), Some("a list of digests".to_owned()))
        } else {
            split(error.inner().message())
        };
        let fresh = replaced.insert(path.clone());
        if fresh {
            faults.add(&path, message, allowed.as_deref());
        }
        let segments: Vec<_> = error.path().iter().collect();
        if !remove(tree.get_mut(), &segments, fresh) {
            break;
        }
    }
    (T::default(), faults)
}

/// Whether somebody may have written a secret there, which serde would say back.
fn is_secret(path: &str) -> bool {
    path.rsplit('.').next().is_some_and(|key| key == "keys" || key.starts_with("keys["))
}

/// serde's "what, expected which" in two, in the words of TOML rather than of Rust.
fn split(message: &str) -> (String, Option<String>) {
    let message = message.trim().replace('`', "\"");
    let Some((what, allowed)) = message.split_once(", expected ") else {
        return (message, None);
    };
    let what = if what.starts_with("unknown field") { "unknown key" } else { what };
    let allowed = match allowed.strip_prefix("one of ").unwrap_or(allowed) {
        "i64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        rust if rust.starts_with("struct ") => "a table",
        other => other,
    };
    (what.to_owned(), Some(allowed.to_owned()))
}

/// serde takes a list for a table, as the values of its keys in order; TOML does not.
fn refuse_lists(table: &mut DeTable<'_>, path: &str, faults: &mut Faults) {
    const TABLES: [&str; 3] = ["pools", "classes", "tenants"];
    const LISTS: [&str; 9] = [
        "pools",
        "classes",
        "tenants",
        "replicas",
        "aliases",
        "endpoints",
        "keys",
        "models",
        "routes",
    ];
    // A class lists tenants by name.
    let tables = |key: &str| path.is_empty() && TABLES.contains(&key);
    let keys: Vec<_> = table.keys().map(|key| key.get_ref().to_string()).collect();
    for key in keys {
        let path = join(path, &key);
        let Some(value) = table.get_mut(key.as_str()) else {
            continue;
        };
        match value.get_mut() {
            DeValue::Table(table) => refuse_lists(table, &path, faults),
            DeValue::Array(array) if LISTS.contains(&key.as_str()) => {
                for (index, element) in array.iter_mut().enumerate() {
                    let path = format!("{path}[{index}]");
                    match element.get_mut() {
                        DeValue::Table(table) => refuse_lists(table, &path, faults),
                        list @ DeValue::Array(_) => {
                            let (allowed, harmless) = if tables(&key) {
                                ("a table", DeValue::Table(DeTable::new()))
                            } else {
                                ("a string", DeValue::String("".into()))
                            };
                            faults.add(&path, "is a list", Some(allowed));
                            *list = harmless;
                        }
                        _ => {}
                    }
                }
            }
            DeValue::Array(_) => {
                faults.add(&path, "is a list", None);
                table.remove(key.as_str());
            }
            _ => {}
        }
    }
}

fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => text = format!("{text}[{index}]"),
            Segment::Map { key } => text = join(&text, key),
            Segment::Enum { variant } => text = join(&text, variant),
            Segment::Unknown => {}
        }
    }
    text
}

/// A key path, one key longer.
pub(super) fn join(path: &str, key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let key =
        if !key.is_empty() && key.chars().all(plain) { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// Takes the value at a path out of the tree; an element of an array is made harmless instead
/// (an empty text, then an empty table), so that its neighbours keep their index.
fn remove(table: &mut DeTable<'_>, path: &[&Segment], fresh: bool) -> bool {
    let [Segment::Map { key }, rest @ ..] = path else {
        return false;
    };
    if rest.is_empty() {
        return table.remove(key.as_str()).is_some();
    }
    table.get_mut(key.as_str()).is_some_and(|value| remove_within(value, rest, fresh))
}

fn remove_within(value: &mut Spanned<DeValue<'_>>, path: &[&Segment], fresh: bool) -> bool {
    match (value.get_mut(), path) {
        (DeValue::Table(table), path) => remove(table, path, fresh),
        (DeValue::Array(array), [Segment::Seq { index }, rest @ ..]) => {
            let Some(element) = array.get_mut(*index) else {
                return false;
            };
            if !rest.is_empty() {
                return remove_within(element, rest, fresh);
            }
            let harmless = match element.get_ref() {
                _ if fresh => DeValue::String("".into()),
                DeValue::String(_) => DeValue::Table(DeTable::new()),
                _ => return false,
            };
            *element.get_mut() = harmless;
            true
        }
        _ => false,
    }
}

fn note_lines(
    table: &DeTable<'_>,
    path: &str,
    ends: &LineEnds,
    lines: &mut BTreeMap<String, usize>,
) {
    for (key, value) in table {
        let path = join(path, key.get_ref());
        lines.insert(path.clone(), ends.line(key.span().start));
        note_value(value, &path, ends, lines);
    }
}

fn note_value(
    value: &Spanned<DeValue<'_>>,
    path: &str,
    ends: &LineEnds,
    lines: &mut BTreeMap<String, usize>,
) {
    match value.get_ref() {
        DeValue::Table(table) => note_lines(table, path, ends, lines),
        DeValue::Array(array) => {
            for (index, element) in array.iter().enumerate() {
                let path = format!("{path}[{index}]");
                lines.insert(path.clone(), ends.line(element.span().start));
                note_value(element, &path, ends, lines);
            }
        }
        _ => {}
    }
}

/// Where the lines of a text end, so that the line of an offset is found without reading it all.
struct LineEnds(Vec<usize>);

impl LineEnds {
    fn of(text: &str) -> Self {
        Self(memchr::memchr_iter(b'\n', text.as_bytes()).collect())
    }

    /// The line of an offset, from 1.
    fn line(&self, offset: usize) -> usize {
        self.0.partition_point(|end| *end < offset) + 1
    }
}
