//! What a reload would change, whether it can, and what that does to running work.

use std::collections::BTreeMap;
use std::fmt;

use super::model::{Config, ServerConfig, ServerLimits};
use super::settings::{Applies, Setting, pool_path, settings};

/// One difference between two configurations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Key path, pools and replicas by name.
    pub path: String,
    /// What it was; `None` where it is new.
    pub old: Option<String>,
    /// What it would be; `None` where it is gone.
    pub new: Option<String>,
    /// Whether a reload can do it.
    pub applies: Applies,
    /// What it does to running work.
    pub effect: &'static str,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => write!(f, "~ {}: {old} -> {new}", self.path)?,
            (None, Some(new)) => write!(f, "+ {}: {new}", self.path)?,
            (Some(old), None) => write!(f, "- {}: {old}", self.path)?,
            (None, None) => f.write_str(&self.path)?,
        }
        write!(f, " ({}: {})", self.applies.as_str(), self.effect)
    }
}

/// Every difference, in the order of the new file; what is gone comes last.
pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    let (gone, come) = (pools_only_in(old, new), pools_only_in(new, old));
    let by_path = |config, without: &[String]| -> Vec<Setting> {
        let mut list = settings(config);
        list.retain(|setting| !without.iter().any(|pool| setting.path.starts_with(pool)));
        list
    };
    let (was, will) = (by_path(old, &gone), by_path(new, &come));
    let before: BTreeMap<_, _> = was.iter().map(|setting| (&setting.path, setting)).collect();
    let after: BTreeMap<_, _> = will.iter().map(|setting| (&setting.path, setting)).collect();
    let mut changes = Vec::new();
    for setting in &will {
        let past = before.get(&setting.path).copied();
        if past != Some(setting) {
            changes.push(change(past, Some(setting)));
        }
    }
    changes.extend(come.iter().map(|pool| Change {
        path: pool.clone(),
        old: None,
        new: Some("new pool".to_owned()),
        applies: Applies::Live,
        effect: "its model is served from now on",
    }));
    let missing = was.iter().filter(|setting| !after.contains_key(&setting.path));
    changes.extend(missing.map(|setting| change(Some(setting), None)));
    changes.extend(gone.iter().map(|pool| Change {
        path: pool.clone(),
        old: Some("pool".to_owned()),
        new: None,
        applies: Applies::Live,
        effect: "its model is unknown to new requests; what runs ends in peace",
    }));
    changes
}

/// The new configuration with every key that needs a restart as it is running now.
#[must_use]
pub fn hold_fixed(running: &Config, new: Config) -> Config {
    let ServerConfig { listen, admin, allow_anonymous, tls, admin_token, .. } =
        running.server.clone();
    let ServerLimits {
        max_connections,
        header_timeout,
        max_header_bytes,
        max_headers,
        idle_timeout,
        ..
    } = running.server.limits;
    let limits = ServerLimits {
        max_connections,
        header_timeout,
        max_header_bytes,
        max_headers,
        idle_timeout,
        ..new.server.limits
    };
    let server =
        ServerConfig { listen, admin, allow_anonymous, tls, admin_token, limits, ..new.server };
    Config { server, log: running.log.clone(), ..new }
}

fn pools_only_in(one: &Config, other: &Config) -> Vec<String> {
    let known = |model: &str| other.pools.iter().any(|pool| &*pool.model == model);
    let only = one.pools.iter().filter(|pool| !known(&pool.model));
    only.map(|pool| pool_path(&pool.model)).collect()
}

fn change(old: Option<&Setting>, new: Option<&Setting>) -> Change {
    let either = new.or(old);
    let path = either.map(|setting| setting.path.clone()).unwrap_or_default();
    let applies = either.map_or(Applies::Live, |setting| setting.applies);
    let text = |setting: Option<&Setting>| setting.map(|setting| setting.value.clone());
    let (old, new) = (text(old), text(new));
    let effect = match applies {
        Applies::Restart => "the running value stays until then",
        Applies::Live => effect(&path, old.as_deref(), new.as_deref()),
    };
    Change { path, old, new, applies, effect }
}

fn effect(path: &str, old: Option<&str>, new: Option<&str>) -> &'static str {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    if path.contains("].replicas[") {
        return match new {
            Some(_) => "takes requests as soon as its first probe succeeds",
            None => "takes nothing new; what it runs ends in peace",
        };
    }
    if path.ends_with(".limits.in_flight") {
        return match (number(old), number(new)) {
            (Some(old), Some(new)) if new < old => {
                "cuts no stream; nothing new starts until enough have ended"
            }
            _ => "queued requests that fit now start at once",
        };
    }
    match path.split('.').next() {
        Some("timeouts") => "for requests that come from now on",
        Some("drain") => "for the next shutdown",
        _ => "from now on; nothing running is cut",
    }
}
