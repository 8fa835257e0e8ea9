//! The holders of keys: who they are, by which keys they are known, and what they may do.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::domain::{TenantId, UnixTime};
use crate::tenants::{
    ANYONE, Caps, DEFAULT_BURST, Directory, Isolation, KeyDigest, OverOutput, Quota, Rights,
    SHARED, Tenant, tenant_id,
};

use super::checks::Compiler;
use super::file::{PoolFile, TenantFile};

/// Longest name: it becomes a label of metrics.
const LONGEST_NAME: usize = 64;
/// A key that is shorter can be guessed, and its digest turned back into it.
const SHORTEST_KEY: usize = 20;
/// A rate that is saved up for longer is no rate a minute any more.
const LONGEST_BURST: Duration = Duration::from_mins(10);
/// More tokens a minute than any fleet makes.
const MOST_TOKENS: u64 = 1_000_000_000_000;
/// What a key looks like in the file.
const DIGEST: &str = r#""sha256:" and 64 hexadecimal digits, as `weir key new` prints them"#;

/// All tenants; what is faulty is noted, and left out.
pub(super) fn compile(
    into: &mut Compiler<'_>,
    files: &[TenantFile],
    pools: &[PoolFile],
) -> Directory {
    let models: BTreeSet<&str> = pools
        .iter()
        .flat_map(|pool| pool.model.iter().chain(&pool.aliases))
        .map(|name| name.trim())
        .collect();
    let mut taken = Taken::default();
    let mut tenants = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let at = format!("tenants[{index}]");
        let name = name(into, file, &at);
        let keys = keys(into, file, &at, &mut taken.keys);
        let rights = rights(into, file, &at, &models);
        let weight = weight(into, file, &at);
        let quota = quota(into, file, &at);
        let caps = caps(into, file, &at);
        let isolation = isolation(into, file, &at);
        let Some(name) = name else { continue };
        let id = tenant_id(&name);
        if taken.unique(into, &at, &name, id) {
            tenants.push(Arc::new(Tenant {
                name,
                id,
                keys,
                weight,
                rights,
                quota,
                caps,
                isolation,
            }));
        }
    }
    Directory::new(tenants)
}

/// What the tenants so far are known by: no two of them may be taken for each other.
#[derive(Default)]
struct Taken {
    names: BTreeMap<Arc<str>, String>,
    ids: BTreeMap<TenantId, Arc<str>>,
    keys: BTreeMap<KeyDigest, String>,
}

impl Taken {
    fn unique(&mut self, into: &mut Compiler<'_>, at: &str, name: &Arc<str>, id: TenantId) -> bool {
        let path = format!("{at}.name");
        if let Some(other) = self.names.get(name) {
            let message = format!("{name:?} is taken by {other}");
            into.faults.add(&path, message, Some("a name that no other tenant has"));
            return false;
        }
        self.names.insert(Arc::clone(name), at.to_owned());
        if let Some(other) = self.ids.insert(id, Arc::clone(name)) {
            let message = format!("{name:?} and {other:?} have the same id by an unlucky chance");
            into.faults.add(&path, message, Some("any other name"));
            return false;
        }
        true
    }
}

fn name(into: &mut Compiler<'_>, file: &TenantFile, at: &str) -> Option<Arc<str>> {
    let path = format!("{at}.name");
    let name = into.required(&path, file.name.as_deref())?;
    if !is_plain(&name) {
        let message = format!("{name:?} is no name for a tenant");
        into.faults.add(&path, message, Some(&plain_names()));
        return None;
    }
    if [ANYONE, "unknown"].contains(&&*name) {
        let message = format!("{name:?} means something else in metrics and logs");
        into.faults.add(&path, message, Some("another name"));
        return None;
    }
    Some(name)
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(plain)
}

fn plain_names() -> String {
    format!("letters, digits, \".\", \"_\" and \"-\", {LONGEST_NAME} at most")
}

/// Digests of all keys, wherever they stand; each opens for one tenant alone.
fn keys(
    into: &mut Compiler<'_>,
    file: &TenantFile,
    at: &str,
    holders: &mut BTreeMap<KeyDigest, String>,
) -> Vec<KeyDigest> {
    let mut found = Vec::new();
    for (index, text) in file.keys.iter().enumerate() {
        let path = format!("{at}.keys[{index}]");
        match text.parse() {
            Ok(digest) => found.push((path, digest)),
            // What stands there may be the key itself, so it is not said.
            Err(_) => into.faults.add(&path, "is no digest of a key", Some(DIGEST)),
        }
    }
    found.extend(mounted(into, file, &format!("{at}.keys_folder")));
    found.extend(variable(into, file, &format!("{at}.keys_env")));
    if file.keys.is_empty() && file.keys_folder.is_none() && file.keys_env.is_none() {
        into.warn(&format!("{at}.keys"), "there are none: this tenant cannot be used");
    }
    let mut keys = Vec::new();
    for (path, digest) in found {
        match holders.get(&digest) {
            Some(other) if other != at => {
                let message = format!("holds a key that is {other}'s already");
                into.faults.add(&path, message, Some("each key for one tenant"));
            }
            Some(_) => {}
            None => {
                holders.insert(digest, at.to_owned());
                keys.push(digest);
            }
        }
    }
    keys
}

/// The keys in a folder, as Kubernetes mounts a secret: each file holds one or more.
fn mounted(into: &mut Compiler<'_>, file: &TenantFile, path: &str) -> Vec<(String, KeyDigest)> {
    let Some(folder) = &file.keys_folder else { return Vec::new() };
    let not_read = Err("was not read".to_owned());
    let files = match into.sources.folders.get(folder).unwrap_or(&not_read) {
        Ok(files) => files,
        Err(why) => {
            into.faults.add(path, format!("{folder:?} {why}"), None);
            return Vec::new();
        }
    };
    let mut keys = Vec::new();
    for (name, text) in files {
        match text {
            Ok(text) => keys.extend(words(into, path, &format!("{folder}/{name}"), text)),
            Err(why) => into.faults.add(path, format!("\"{folder}/{name}\" {why}"), None),
        }
    }
    if keys.is_empty() {
        into.faults.add(path, format!("{folder:?} holds no key"), Some("a file for each key"));
    }
    keys
}

fn variable(into: &mut Compiler<'_>, file: &TenantFile, path: &str) -> Vec<(String, KeyDigest)> {
    let Some(name) = &file.keys_env else { return Vec::new() };
    let value = into.sources.env.get(name).and_then(Option::as_deref);
    let Some(value) = value else {
        into.faults.add(path, format!("{name} is not set"), None);
        return Vec::new();
    };
    let keys = words(into, path, name, value);
    if keys.is_empty() {
        into.faults.add(path, format!("{name} holds no key"), Some("keys with spaces between"));
    }
    keys
}

/// Keys or their digests, with white space between.
fn words(
    into: &mut Compiler<'_>,
    path: &str,
    whence: &str,
    text: &str,
) -> Vec<(String, KeyDigest)> {
    let mut keys = Vec::new();
    for word in text.split_whitespace() {
        if word.starts_with("sha256:") {
            if let Ok(digest) = word.parse() {
                keys.push((path.to_owned(), digest));
            } else {
                let message = format!("{whence} holds a broken digest");
                into.faults.add(path, message, Some(DIGEST));
            }
            continue;
        }
        if !word.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("{whence} holds a key that no header can carry");
            into.faults.add(path, message, Some("printable ASCII"));
            continue;
        }
        if word.len() < SHORTEST_KEY {
            let message = format!(
                "{whence} holds a key of less than {SHORTEST_KEY} characters: it can be guessed"
            );
            into.warn(path, message);
        }
        keys.push((path.to_owned(), KeyDigest::of(word.as_bytes())));
    }
    keys
}

fn rights(into: &mut Compiler<'_>, file: &TenantFile, at: &str, known: &BTreeSet<&str>) -> Rights {
    let models = file.models.as_ref().map(|names| {
        let mut models = BTreeSet::new();
        for (index, name) in names.iter().enumerate() {
            if known.contains(name.as_str()) {
                models.insert(Arc::from(name.as_str()));
            } else {
                let message = format!("no pool serves {name:?}");
                into.faults.add(&format!("{at}.models[{index}]"), message, None);
            }
        }
        models
    });
    let routes = file.routes.as_ref().map(|names| into.named(&format!("{at}.routes"), names));
    let expires = file.expires.as_ref().and_then(|text| {
        let end = moment(text);
        if end.is_none() {
            let allowed = Some(r#"such as "2027-01-31" or "2027-01-31T12:00:00Z", in UTC"#);
            let message = format!("{text:?} is no date");
            into.faults.add(&format!("{at}.expires"), message, allowed);
        }
        end
    });
    Rights { models, routes, expires, blocked: file.blocked.unwrap_or(false) }
}

fn quota(into: &mut Compiler<'_>, file: &TenantFile, at: &str) -> Quota {
    let mut number =
        |key: &str, written, most| into.number(&format!("{at}.{key}"), written, 1..=most);
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    let requests = small(number("requests_per_minute", file.requests_per_minute, 1_000_000));
    let tokens_per_minute = number("tokens_per_minute", file.tokens_per_minute, MOST_TOKENS);
    let parallel = small(number("parallel", file.parallel, 1_000_000));
    let path = format!("{at}.burst");
    let burst = into.span(&path, file.burst, DEFAULT_BURST);
    if burst > LONGEST_BURST {
        into.faults.add(&path, "is longer than ten minutes", Some("1s to 10m"));
    }
    if file.burst.is_some() && requests.is_none() && tokens_per_minute.is_none() {
        into.warn(&path, "has no effect without a rate");
    }
    let requests_per_minute = requests.and_then(NonZeroU32::new);
    Quota { requests_per_minute, tokens_per_minute, parallel, burst }
}

fn caps(into: &mut Compiler<'_>, file: &TenantFile, at: &str) -> Caps {
    let most = u64::from(u32::MAX);
    let mut number = |key: &str, written| into.number(&format!("{at}.{key}"), written, 1..=most);
    let input = number("max_input_tokens", file.max_input_tokens);
    let output = number("max_output_tokens", file.max_output_tokens);
    let output = output.and_then(|number| u32::try_from(number).ok());
    let path = format!("{at}.over_output");
    let written = file.over_output.as_deref();
    let over_output = OverOutput::ALL.into_iter().find(|over| written == Some(over.as_str()));
    if let (Some(written), None) = (written, over_output) {
        let allowed = OverOutput::ALL.map(OverOutput::as_str).join(" or ");
        into.faults.add(&path, format!("{written:?} is no such choice"), Some(&allowed));
    }
    if over_output.is_some() && output.is_none() {
        into.warn(&path, "has no effect without max_output_tokens");
    }
    let over_output = over_output.unwrap_or_default();
    Caps { input, output, over_output, priority: file.priority }
}

fn isolation(into: &mut Compiler<'_>, file: &TenantFile, at: &str) -> Isolation {
    match file.isolation.as_deref() {
        None => Isolation::Own,
        Some(SHARED) => Isolation::Shared,
        Some(name) if is_plain(name) => Isolation::Group(name.into()),
        Some(name) => {
            let message = format!("{name:?} is no name for a group");
            into.faults.add(&format!("{at}.isolation"), message, Some(&plain_names()));
            Isolation::Own
        }
    }
}

/// A day's beginning, or a second, in UTC.
fn moment(text: &str) -> Option<UnixTime> {
    let text = text.trim();
    let whole =
        if text.contains(['T', ' ']) { text.to_owned() } else { format!("{text}T00:00:00Z") };
    let since = humantime::parse_rfc3339(&whole).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(UnixTime::from_secs(since.as_secs()))
}

fn weight(into: &mut Compiler<'_>, file: &TenantFile, at: &str) -> f64 {
    let weight = file.weight.unwrap_or(1.0);
    if (0.001..=1_000.0).contains(&weight) {
        return weight;
    }
    let message = format!("{weight} is out of range");
    into.faults.add(&format!("{at}.weight"), message, Some("0.001 to 1000"));
    1.0
}

#[cfg(test)]
mod tests;
