//! What a reload would change, whether it can, and what that does to running work.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::model::{Config, ServerConfig, ServerLimits};
use super::settings::{Applies, Setting, pool_path, settings, tenant_path};
use super::{ConfigError, ConfigErrors};

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
    let (gone, come) = (only_in(old, new), only_in(new, old));
    let by_path = |config, without: &[(String, Kind)]| -> Vec<Setting> {
        let mut list = settings(config);
        list.retain(|setting| !without.iter().any(|(path, _)| setting.path.starts_with(path)));
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
    changes.extend(come.iter().map(|(path, kind)| Change {
        path: path.clone(),
        old: None,
        new: Some(format!("new {}", kind.as_str())),
        applies: Applies::Live,
        effect: kind.come(),
    }));
    let missing = was.iter().filter(|setting| !after.contains_key(&setting.path));
    changes.extend(missing.map(|setting| change(Some(setting), None)));
    changes.extend(gone.iter().map(|(path, kind)| Change {
        path: path.clone(),
        old: Some(kind.as_str().to_owned()),
        new: None,
        applies: Applies::Live,
        effect: kind.gone(),
    }));
    changes
}

/// The new configuration with what a running process cannot change as it is running now: every
/// key that needs a restart, and the ids of classes, which running requests bear.
///
/// # Errors
/// Where the two together would be what neither is: served to strangers on an address that only
/// a restart closes.
pub fn hold_fixed(running: &Config, new: Config) -> Result<Config, ConfigErrors> {
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
    let classes = new.classes.keep_ids(&running.classes);
    let mut pools = new.pools;
    for pool in &mut pools {
        let pool = Arc::make_mut(pool);
        Arc::make_mut(&mut pool.policy).classes = classes.policies(pool.slo);
    }
    let held = Config { server, log: running.log.clone(), classes, pools, ..new };
    if held.server.open_to_strangers(!held.tenants.is_empty()) {
        return Err(ConfigErrors(vec![ConfigError {
            file: "the running configuration".to_owned(),
            line: None,
            path: "tenants".to_owned(),
            message: format!(
                "there are none, and {} would be open to anyone until a restart",
                held.server.listen
            ),
            allowed: Some("at least one tenant, or a restart".to_owned()),
        }]));
    }
    Ok(held)
}

/// What comes and goes as a whole, and is one line then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Pool,
    Tenant,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Tenant => "tenant",
        }
    }

    const fn come(self) -> &'static str {
        match self {
            Self::Pool => "its model is served from now on",
            Self::Tenant => "its keys are taken from now on",
        }
    }

    const fn gone(self) -> &'static str {
        match self {
            Self::Pool => "its model is unknown to new requests; what runs ends in peace",
            Self::Tenant => "its keys are refused from now on; what runs ends in peace",
        }
    }
}

fn only_in(one: &Config, other: &Config) -> Vec<(String, Kind)> {
    let known = |model: &str| other.pools.iter().any(|pool| &*pool.model == model);
    let pools = one.pools.iter().filter(|pool| !known(&pool.model));
    let pools = pools.map(|pool| (pool_path(&pool.model), Kind::Pool));
    let tenants = one.tenants.tenants().iter();
    let tenants = tenants.filter(|tenant| other.tenants.named(&tenant.name).is_none());
    pools.chain(tenants.map(|tenant| (tenant_path(&tenant.name), Kind::Tenant))).collect()
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
        _ if path.starts_with("classes") => {
            "for requests that come from now on; what waits or runs keeps its class"
        }
        Some("timeouts") => "for requests that come from now on",
        Some("drain") => "for the next shutdown",
        _ => "from now on; nothing running is cut",
    }
}
