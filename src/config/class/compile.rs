//! From `[[classes]]` as written to classes that each can match.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use crate::domain::{ClassId, Endpoint, Slo, TenantId};
use crate::tenants::Directory;

use super::cover::{Earlier, shadows};
use super::rule::ANY;
use super::{ClassConfig, ClassRule, Classes, DEFAULT_CLASS};
use crate::config::checks::Compiler;
use crate::config::file::{ClassFile, MatchFile, SizesFile, TokensFile};
use crate::config::pool;

/// Classes in one file. Each is a row of every metric that is told by class.
const MOST: usize = 16;
/// Longest name: it becomes a label of metrics.
const LONGEST_NAME: usize = 64;
/// Headers whose values must not stand in a configuration.
const SECRETS: [&str; 4] = ["authorization", "proxy-authorization", "x-api-key", "cookie"];
/// Longest prompt that can be asked for, tokens.
const MOST_TOKENS: i64 = 1_000_000_000;

/// What classes are checked against.
pub(in crate::config) struct Known<'a> {
    /// The endpoints that are served.
    pub(in crate::config) endpoints: &'a [Endpoint],
    /// Holders of keys.
    pub(in crate::config) tenants: &'a Directory,
}

/// All classes, the default among them; what is faulty is noted, and left out.
pub(in crate::config) fn compile(
    into: &mut Compiler<'_>,
    files: &[ClassFile],
    known: &Known<'_>,
) -> Classes {
    if files.len() > MOST {
        let message = format!("there are {} classes", files.len());
        into.faults.add("classes", message, Some(&format!("{MOST} at most")));
    }
    let mut default_at = String::new();
    let mut default = ClassConfig {
        id: ClassId::default(),
        name: DEFAULT_CLASS.into(),
        slo: Slo::default(),
        share: 1.0,
        critical: false,
        rule: None,
    };
    let mut seen: BTreeMap<Arc<str>, String> = BTreeMap::new();
    let mut list: Vec<(String, ClassConfig)> = Vec::new();
    for (index, file) in files.iter().take(MOST).enumerate() {
        let at = format!("classes[{index}]");
        let Some(class) = class(into, file, &at, known) else { continue };
        if let Some(other) = seen.insert(Arc::clone(&class.name), format!("{at}.name")) {
            let message = format!("{:?} is taken by {other}", class.name);
            into.faults.add(&format!("{at}.name"), message, Some("a name that no other class has"));
        } else if *class.name == *DEFAULT_CLASS {
            (default_at, default) = (at, class);
        } else {
            list.push((at, class));
        }
    }
    reachable(into, &list, known.endpoints);
    critical(into, &list);
    if default.critical {
        let message = "makes everything critical that no other class takes: no small part";
        into.warn(&format!("{default_at}.critical"), message);
    }
    Classes::new(std::iter::once(default).chain(list.into_iter().map(|(_, class)| class)).collect())
}

fn class(
    into: &mut Compiler<'_>,
    file: &ClassFile,
    at: &str,
    known: &Known<'_>,
) -> Option<ClassConfig> {
    let name = name(into, file, at);
    let slo = pool::slo(into, &format!("{at}.slo"), file.slo);
    let share = file.share.unwrap_or(1.0);
    if !(0.001..=1_000.0).contains(&share) {
        let message = format!("{share} is out of range");
        into.faults.add(&format!("{at}.share"), message, Some("0.001 to 1000"));
    }
    let is_default = name.as_deref() == Some(DEFAULT_CLASS);
    let rule = rule(into, file.recognise.as_ref(), is_default, &format!("{at}.match"), known);
    let critical = file.critical.unwrap_or(false);
    Some(ClassConfig { id: ClassId::default(), name: name?, slo, share, critical, rule })
}

fn name(into: &mut Compiler<'_>, file: &ClassFile, at: &str) -> Option<Arc<str>> {
    let path = format!("{at}.name");
    let name = into.required(&path, file.name.as_deref())?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_word = name.len() <= LONGEST_NAME && name.bytes().all(plain) && &*name != "unknown";
    if !is_word {
        let allowed = format!(
            "letters, digits, \".\", \"_\" and \"-\", {LONGEST_NAME} at most, and not \"unknown\""
        );
        into.faults.add(&path, format!("{name:?} is no name for a class"), Some(&allowed));
    }
    is_word.then_some(name)
}

/// The rule, or `None` where there is none or nothing could match it.
fn rule(
    into: &mut Compiler<'_>,
    file: Option<&MatchFile>,
    is_default: bool,
    at: &str,
    known: &Known<'_>,
) -> Option<ClassRule> {
    let said = file.filter(|file| **file != MatchFile::default());
    let Some(file) = said.filter(|_| !is_default) else {
        if is_default && file.is_some() {
            let message = "is given for \"default\", which takes what no other class takes";
            into.faults.add(at, message, Some("no match, or another name"));
        } else if !is_default {
            let message = "says nothing: the class would take every request";
            into.faults.add(at, message, Some("a condition, or the name \"default\""));
        }
        return None;
    };
    let rule = ClassRule {
        headers: headers(into, &file.headers, &format!("{at}.headers")),
        tenants: file
            .tenants
            .as_ref()
            .map(|names| tenants(into, names, &format!("{at}.tenants"), known)),
        endpoints: file
            .endpoints
            .as_ref()
            .map(|names| endpoints(into, names, &format!("{at}.endpoints"), known)),
        prompt_tokens: tokens(into, file.prompt_tokens, &format!("{at}.prompt_tokens")),
        prompt_bytes: bytes(into, file.prompt_bytes, &format!("{at}.prompt_bytes")),
    };
    let (tokens_at, bytes_at) = (format!("{at}.prompt_tokens"), format!("{at}.prompt_bytes"));
    if rule.lengths().is_empty() && !into.faults.has(&tokens_at) && !into.faults.has(&bytes_at) {
        let message = "has no length in common with prompt_bytes, at four bytes a token";
        into.faults.add(&tokens_at, message, None);
    }
    Some(rule)
}

fn headers(
    into: &mut Compiler<'_>,
    written: &BTreeMap<String, String>,
    at: &str,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for (name, value) in written {
        let path = crate::config::read::join(at, name);
        let Ok(name) = name.parse::<HeaderName>() else {
            into.faults.add(&path, "is no name of a header", Some("such as x-workload"));
            continue;
        };
        if SECRETS.contains(&name.as_str()) {
            let message = "carries a secret, which does not belong here";
            into.faults.add(&path, message, Some("another header, or tenants"));
        } else if headers.iter().any(|(other, _)| *other == name) {
            into.faults.add(&path, "is there twice", None);
        } else if let Some(value) = value.parse().ok().filter(|_| !value.trim().is_empty()) {
            headers.push((name, value));
        } else {
            into.faults.add(&path, format!("{value:?} is no value of a header"), None);
        }
    }
    headers
}

fn tenants(
    into: &mut Compiler<'_>,
    names: &[String],
    at: &str,
    known: &Known<'_>,
) -> Vec<(TenantId, Arc<str>)> {
    if names.is_empty() {
        into.faults.add(at, "is empty: the class can never match", Some("names of tenants"));
    }
    let mut tenants = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        if let Some(tenant) = known.tenants.named(name) {
            tenants.insert(tenant.id, Arc::clone(&tenant.name));
        } else {
            let message = format!("there is no tenant {name:?}");
            into.faults.add(&format!("{at}[{index}]"), message, Some("a name of [[tenants]]"));
        }
    }
    tenants.into_iter().collect()
}

fn endpoints(
    into: &mut Compiler<'_>,
    names: &[String],
    at: &str,
    known: &Known<'_>,
) -> Vec<Endpoint> {
    if names.is_empty() {
        into.faults.add(at, "is empty: the class can never match", Some("names of endpoints"));
        return Vec::new();
    }
    let endpoints = into.named(at, names);
    for endpoint in &endpoints {
        let word = endpoint.as_str();
        let path = names.iter().position(|name| name == word);
        let path = path.map_or_else(|| at.to_owned(), |index| format!("{at}[{index}]"));
        if *endpoint == Endpoint::Models {
            into.faults.add(&path, format!("{word:?} has no class: Weir answers it itself"), None);
        } else if !known.endpoints.contains(endpoint) {
            let message = format!("{word:?} is not served");
            into.faults.add(&path, message, Some("what server.endpoints lists"));
        }
    }
    endpoints
}

fn tokens(into: &mut Compiler<'_>, file: Option<TokensFile>, at: &str) -> RangeInclusive<u64> {
    let Some(TokensFile { min, max }) = file else { return ANY };
    for (key, tokens) in [("min", min), ("max", max)] {
        if let Some(tokens) = tokens.filter(|tokens| !(0..=MOST_TOKENS).contains(tokens)) {
            let allowed = format!("0 to {MOST_TOKENS}");
            into.faults.add(
                &format!("{at}.{key}"),
                format!("{tokens} is out of range"),
                Some(&allowed),
            );
        }
    }
    let whole = |tokens: i64| u64::try_from(tokens).unwrap_or_default();
    range(into, min.map(whole), max.map(whole), at)
}

fn bytes(into: &mut Compiler<'_>, file: Option<SizesFile>, at: &str) -> RangeInclusive<u64> {
    let Some(SizesFile { min, max }) = file else { return ANY };
    range(into, min.map(|size| size.0), max.map(|size| size.0), at)
}

fn range(
    into: &mut Compiler<'_>,
    min: Option<u64>,
    max: Option<u64>,
    at: &str,
) -> RangeInclusive<u64> {
    if min.is_none() && max.is_none() {
        into.faults.add(at, "says neither min nor max", None);
    }
    let range = min.unwrap_or(0)..=max.unwrap_or(u64::MAX);
    if range.is_empty() {
        let message = "is above max: the class can never match";
        into.faults.add(&format!("{at}.min"), message, Some("at most max"));
    }
    range
}

/// No class may be left without any request by those that are tried before it. Rules that are
/// faulty already are not asked: what they would have been is not known.
fn reachable(into: &mut Compiler<'_>, list: &[(String, ClassConfig)], on: &[Endpoint]) {
    let on: Vec<_> = on.iter().copied().filter(|endpoint| *endpoint != Endpoint::Models).collect();
    let mut earlier: Vec<Earlier<'_>> = Vec::new();
    for (at, class) in list {
        let Some(rule) = &class.rule else { continue };
        let path = format!("{at}.match");
        if into.faults.has(&path) {
            continue;
        }
        if let Some(shadowing) = shadows(rule, &earlier, &on) {
            let names: Vec<_> = shadowing.iter().map(|name| format!("{name:?}")).collect();
            let names = names.join(", ");
            let message =
                format!("can never match: nothing is left by {names}, which are tried before it");
            into.faults.add(&path, message, Some("a place before them, or other conditions"));
        }
        earlier.push((&class.name, rule));
    }
}

/// Strict priority is for a few.
fn critical(into: &mut Compiler<'_>, list: &[(String, ClassConfig)]) {
    for (at, class) in list.iter().filter(|(_, class)| class.critical) {
        if class.rule.as_ref().is_some_and(|rule| rule.tenants.is_none()) {
            let message = "is open to anyone who sends such a request: name its tenants";
            into.warn(&format!("{at}.critical"), message);
        }
    }
}
