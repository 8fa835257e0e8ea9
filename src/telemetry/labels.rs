//! The closed sets that labels take their values from.
//!
//! Endpoints, outcomes, reasons and failures are enums. Pools, classes and replicas are names
//! from the configuration: [`Known`] lists them, and a name it does not list becomes
//! [`UNKNOWN`], so that ten thousand invented models are one series.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The value of a label whose true value is not from the closed set, or not there at all.
pub(super) const UNKNOWN: &str = "unknown";

/// The class of requests in a pool that configures none; always allowed.
const DEFAULT_CLASS: &str = "default";

/// The names of one configured pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolLabels {
    /// The model's name.
    pub model: Arc<str>,
    /// Its classes' names.
    pub classes: Vec<Arc<str>>,
    /// Its replicas' names.
    pub replicas: Vec<Arc<str>>,
}

/// All names that may be labels now.
#[derive(Debug, Default)]
pub(super) struct Known {
    pools: BTreeMap<Arc<str>, PoolNames>,
}

#[derive(Debug, Default)]
struct PoolNames {
    classes: BTreeSet<Arc<str>>,
    replicas: BTreeSet<Arc<str>>,
}

impl Known {
    pub(super) fn new(pools: &[PoolLabels]) -> Self {
        let names = pools.iter().map(|pool| {
            let classes = pool.classes.iter().cloned().collect();
            let replicas = pool.replicas.iter().cloned().collect();
            (Arc::clone(&pool.model), PoolNames { classes, replicas })
        });
        Self { pools: names.collect() }
    }

    /// The pool's name, or [`UNKNOWN`].
    pub(super) fn pool<'a>(&self, pool: Option<&'a str>) -> &'a str {
        pool.filter(|pool| self.pools.contains_key(*pool)).unwrap_or(UNKNOWN)
    }

    /// The class's name where that pool has it, or [`UNKNOWN`].
    pub(super) fn class<'a>(&self, pool: &str, class: &'a str) -> &'a str {
        let known = class == DEFAULT_CLASS
            || self.pools.get(pool).is_some_and(|names| names.classes.contains(class));
        if known { class } else { UNKNOWN }
    }

    /// The replica's name where that pool has it, or [`UNKNOWN`].
    pub(super) fn replica<'a>(&self, pool: &str, replica: &'a str) -> &'a str {
        let known = self.pools.get(pool).is_some_and(|names| names.replicas.contains(replica));
        if known { replica } else { UNKNOWN }
    }

    /// Every (pool, replica).
    pub(super) fn replicas(&self) -> BTreeSet<(Arc<str>, Arc<str>)> {
        let pairs = self.pools.iter().flat_map(|(pool, names)| {
            names.replicas.iter().map(|replica| (Arc::clone(pool), Arc::clone(replica)))
        });
        pairs.collect()
    }
}
