//! Which pool serves a model, and what it needs for that: the running configuration's view.
//!
//! A reload builds a new view. A pool that stays keeps its gate, and with it its queue, its
//! ledger and its streams; only its rules and replicas change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderValue;

use crate::config::{Config, DEFAULT_CLASS, PoolConfig};
use crate::dispatch::{Event, Policy, ReplicaSpec};
use crate::domain::{ClassId, Health, Parties, PoolSnapshot, ReplicaId, TenantId};
use crate::tenants::{ANYONE, Directory, Tenant};
use crate::upstream::{Replica, Replicas};

use super::Parts;
use super::gate::{Gate, NoteSink};
use super::observer::about;
use super::quota::Account;

/// One model's replicas, behind one gate.
pub struct Pool {
    /// The model's name, as metrics and logs show it.
    pub name: Arc<str>,
    /// The gate that all its requests pass.
    pub gate: Arc<Gate>,
    pub(super) config: Arc<PoolConfig>,
    pub(super) replicas: Vec<Arc<Replica>>,
    known: Arc<Replicas>,
    parties: Arc<Parties>,
    /// What a replica is shown in place of the client's key.
    pub(super) authorization: Option<HeaderValue>,
    /// Where the next request that needs no slot looks first.
    turn: AtomicUsize,
}

impl Pool {
    /// The replica of that id: also one that a reload has brought since this view was built,
    /// since the gate, which outlives views, may already send there.
    pub fn replica(&self, id: ReplicaId) -> Option<Arc<Replica>> {
        self.known.replica(id)
    }

    /// What `/status` and the gauges show.
    pub fn snapshot(&self) -> PoolSnapshot {
        let gate = self.gate.snapshot();
        let known = gate.replicas.iter().filter_map(|shown| self.known.replica(shown.id));
        let (mut names, mut versions, mut outdated) = (Vec::new(), Vec::new(), Vec::new());
        for replica in known {
            names.push((replica.id(), Arc::clone(replica.name())));
            let Some(version) = replica.facts().and_then(|facts| facts.version.clone()) else {
                continue;
            };
            if let Some(measured) = self.config.limits_from.measured_on_other(&version) {
                outdated.push(
                    format!("{}: vLLM {version}, measured on {measured}", replica.name()).into(),
                );
            }
            versions.push((replica.id(), version.into()));
        }
        let (model, parties) = (Arc::clone(&self.name), Arc::clone(&self.parties));
        PoolSnapshot { model, names, parties, versions, outdated, gate }
    }

    /// A replica for a call that needs no slot: in turn, passing by those that are known to be
    /// down or out. `skip` has just failed.
    pub(super) fn any_replica(&self, skip: Option<ReplicaId>) -> Option<Arc<Replica>> {
        let shown = self.gate.snapshot().replicas;
        let usable = |id: ReplicaId| {
            Some(id) != skip
                && shown.iter().find(|replica| replica.id == id).is_none_or(|replica| {
                    replica.health != Some(Health::Down) && !replica.ejected && !replica.draining
                })
        };
        let count = self.replicas.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = || (0..count).filter_map(|step| self.replicas.get((first + step) % count));
        in_turn()
            .find(|replica| usable(replica.id()))
            .or_else(|| in_turn().find(|replica| Some(replica.id()) != skip))
            .map(Arc::clone)
    }
}

/// The running configuration, as requests see it.
pub(super) struct View {
    pub(super) config: Arc<Config>,
    pub(super) pools: Vec<Arc<Pool>>,
    /// By every name that a request may use: models and their aliases.
    by_name: HashMap<Arc<str>, usize>,
    /// What each tenant has used.
    accounts: BTreeMap<TenantId, Arc<Account>>,
}

impl View {
    /// The view of a configuration. Pools that were there before keep their gates.
    pub(super) fn build(before: Option<&Self>, config: Arc<Config>, parts: &Parts) -> Self {
        let parties = Arc::new(Parties {
            classes: Arc::clone(config.classes.names()),
            tenants: tenant_names(&config.tenants),
        });
        let mut by_name = HashMap::new();
        let mut pools = Vec::with_capacity(config.pools.len());
        for (at, pool) in config.pools.iter().enumerate() {
            let names = std::iter::once(&pool.model).chain(&pool.aliases);
            by_name.extend(names.map(|name| (Arc::clone(name), at)));
            let kept = before.and_then(|view| view.pools.iter().find(|p| p.name == pool.model));
            pools.push(build_pool(kept, pool, Arc::clone(&parties), parts));
        }
        // A pool that is gone takes nothing new; what it holds goes on to its end.
        for gone in before.iter().flat_map(|view| &view.pools) {
            if !pools.iter().any(|pool| pool.name == gone.name) {
                gone.gate.event(Event::Replicas(Vec::new()));
            }
        }
        let accounts = accounts(before, &config.tenants, parts);
        Self { config, pools, by_name, accounts }
    }

    /// What a tenant has used.
    pub(super) fn account(&self, tenant: &Tenant) -> Option<Arc<Account>> {
        self.accounts.get(&tenant.id).map(Arc::clone)
    }

    /// What metrics and logs know a class by.
    pub(super) fn class_name(&self, class: ClassId) -> Arc<str> {
        let known = self.config.classes.names().get(usize::from(class.0));
        known.map_or_else(|| DEFAULT_CLASS.into(), Arc::clone)
    }

    /// The pool that serves a model or alias.
    pub(super) fn pool(&self, model: &str) -> Option<&Arc<Pool>> {
        self.by_name.get(model).and_then(|at| self.pools.get(*at))
    }
}

/// What each tenant has used: of one that was there before, what it had used then too.
fn accounts(
    before: Option<&View>,
    tenants: &Directory,
    parts: &Parts,
) -> BTreeMap<TenantId, Arc<Account>> {
    let now = parts.now();
    let account = |tenant: &Arc<Tenant>| {
        let kept = before.and_then(|view| view.account(tenant));
        let account = kept.unwrap_or_else(|| Account::new(tenant.quota, now));
        account.set(tenant.quota, now);
        (tenant.id, account)
    };
    tenants.tenants().iter().map(account).collect()
}

/// Every tenant's name, or "anyone" where there are none.
fn tenant_names(tenants: &Directory) -> Vec<(TenantId, Arc<str>)> {
    if tenants.is_empty() {
        return vec![(TenantId::default(), ANYONE.into())];
    }
    tenants.tenants().iter().map(|tenant| (tenant.id, Arc::clone(&tenant.name))).collect()
}

fn build_pool(
    kept: Option<&Arc<Pool>>,
    config: &Arc<PoolConfig>,
    parties: Arc<Parties>,
    parts: &Parts,
) -> Arc<Pool> {
    let replicas: Vec<_> =
        config.replicas.iter().map(|address| parts.replicas.intern(address)).collect();
    let specs =
        replicas.iter().map(|replica| ReplicaSpec { id: replica.id(), in_flight: None }).collect();
    let policy = Arc::clone(&config.policy);
    let gate = match kept {
        Some(pool) => {
            pool.gate.event(Event::Policy(policy));
            Arc::clone(&pool.gate)
        }
        None => new_gate(config, policy, parts),
    };
    gate.event(Event::Replicas(specs));
    let authorization = config.api_key.as_ref().and_then(|key| {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", key.reveal())).ok()?;
        value.set_sensitive(true);
        Some(value)
    });
    let name = Arc::clone(&config.model);
    let config = Arc::clone(config);
    let known = Arc::clone(&parts.replicas);
    let turn = AtomicUsize::new(0);
    Arc::new(Pool { name, gate, config, replicas, known, parties, authorization, turn })
}

fn new_gate(config: &PoolConfig, policy: Arc<Policy>, parts: &Parts) -> Arc<Gate> {
    let name = Arc::clone(&config.model);
    let (observer, replicas) = (Arc::clone(&parts.observer), Arc::clone(&parts.replicas));
    let sink: NoteSink = Box::new(move |note| {
        let replica = replicas.replica(about(&note));
        observer.note(&name, replica.as_ref().map_or("", |replica| replica.name()), note);
    });
    let gate = Gate::new(policy, parts.seed, parts.clock, sink);
    let _task = parts.tasks.background("gate", gate.deadlines());
    gate
}
