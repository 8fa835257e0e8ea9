//! One pool: its replicas, its targets, and the dispatcher's policy for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::dispatch::{ClassPolicy, LimitPolicy, Policy, QueuePolicy, TenantPolicy};
use crate::domain::Slo;
use crate::tenants::Directory;

use super::checks::{Compiler, secs};
use super::file::{LimitsFile, PoolFile, PoolLimitsFile, ProvenanceFile, SloFile};
use super::model::{LimitSource, PoolConfig, ProbeConfig, Provenance, ScrapeConfig};
use super::read::read;
use super::{Classes, ReplicaAddress, Scheme};

/// The queue's wait as a share of the tightest TTFT target: most of the target must be left for
/// the engine's own queue and prefill.
const WAIT_SHARE: f64 = 0.4;
/// The queue's wait where no TTFT target is given: as for a target of 1 s.
const WAIT_UNTARGETED: Duration = Duration::from_millis(400);
/// Most requests that wait: behind the bound in seconds, for memory's sake alone.
const COUNT: u32 = 1_024;
/// Most bytes of body that wait; likewise.
const BYTES: u64 = 256 << 20;
/// A reading is stale after this many scrape periods.
const STALE_PERIODS: u32 = 4;
/// More than any engine runs, and low enough that sums of it cannot overflow.
const MOST: u32 = 1_000_000;

/// All pools; what is faulty is noted, and left out.
pub(super) fn compile(
    into: &mut Compiler<'_>,
    files: &[PoolFile],
    classes: &Classes,
    tenants: &Directory,
) -> Vec<Arc<PoolConfig>> {
    if files.is_empty() {
        into.faults.add("pools", "there are no pools", Some("at least one [[pools]]"));
    }
    unique_names(into, files);
    let addresses = addresses(into, files);
    let mut pools = Vec::new();
    for (index, (file, replicas)) in files.iter().zip(addresses).enumerate() {
        let at = format!("pools[{index}]");
        pools.extend(pool(into, file, &at, replicas, (classes, tenants)).map(Arc::new));
    }
    pools
}

/// No name may lead to two pools.
fn unique_names(into: &mut Compiler<'_>, files: &[PoolFile]) {
    let mut seen: BTreeMap<&str, String> = BTreeMap::new();
    for (index, file) in files.iter().enumerate() {
        let model = file.model.iter().map(|name| (format!("pools[{index}].model"), name));
        let aliases = file.aliases.iter().enumerate();
        let aliases = aliases.map(|(n, name)| (format!("pools[{index}].aliases[{n}]"), name));
        for (path, name) in model.chain(aliases) {
            if let Some(other) = seen.get(name.trim()) {
                let message = format!("{name:?} is taken by {other}");
                into.faults.add(&path, message, Some("a name that no other pool has"));
            } else {
                seen.insert(name.trim(), path);
            }
        }
    }
}

/// Every replica of every pool, each only once in the whole file: two ledgers of one engine
/// would each admit its whole limit.
fn addresses(into: &mut Compiler<'_>, files: &[PoolFile]) -> Vec<Vec<ReplicaAddress>> {
    let mut seen: BTreeMap<ReplicaAddress, String> = BTreeMap::new();
    let mut pools = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let list = format!("pools[{index}].replicas");
        if file.replicas.is_empty() {
            into.faults.add(&list, "there are no replicas", Some("at least one URL"));
        }
        let mut replicas = Vec::new();
        for (n, text) in file.replicas.iter().enumerate() {
            let path = format!("{list}[{n}]");
            match text.parse::<ReplicaAddress>() {
                Err(why) => {
                    let allowed = Some(r#"a server's root, such as "http://10.0.0.7:8000""#);
                    // A password must not end up in a log.
                    let shown =
                        if text.contains('@') { "it".to_owned() } else { format!("{text:?}") };
                    into.faults.add(&path, format!("{shown} {why}"), allowed);
                }
                Ok(address) if address.scheme() == Scheme::Https => {
                    let message = "TLS to replicas is not built in yet";
                    into.faults.add(&path, message, Some("http://"));
                }
                Ok(address) => {
                    if let Some(other) = seen.get(&address) {
                        let message = format!("{address} is listed already, as {other}");
                        into.faults.add(&path, message, Some("each replica once"));
                    } else {
                        seen.insert(address.clone(), path);
                        replicas.push(address);
                    }
                }
            }
        }
        pools.push(replicas);
    }
    pools
}

fn pool(
    into: &mut Compiler<'_>,
    file: &PoolFile,
    at: &str,
    replicas: Vec<ReplicaAddress>,
    (classes, tenants): (&Classes, &Directory),
) -> Option<PoolConfig> {
    let model = into.required(&format!("{at}.model"), file.model.as_deref());
    let aliases = file.aliases.iter().enumerate();
    let aliases: Vec<_> = aliases
        .filter_map(|(n, name)| into.required(&format!("{at}.aliases[{n}]"), Some(name)))
        .collect();
    let api_key = into.secret(
        &format!("{at}.api_key"),
        file.api_key_file.as_deref(),
        file.api_key_env.as_deref(),
    );
    let slo = slo(into, &format!("{at}.slo"), file.slo);
    let (limits, limits_from) = limits(into, file, at);
    let scrape = ScrapeConfig {
        period: into.span(
            &format!("{at}.scrape.period"),
            file.scrape.period,
            Duration::from_millis(500),
        ),
        timeout: into.span(&format!("{at}.scrape.timeout"), file.scrape.timeout, secs(2)),
    };
    let probe = ProbeConfig {
        period: into.span(&format!("{at}.probe.period"), file.probe.period, secs(1)),
        timeout: into.span(&format!("{at}.probe.timeout"), file.probe.timeout, secs(2)),
    };
    if let LimitSource::Measured(how) = &limits_from
        && how.slo != Slo::default()
        && how.slo != slo
    {
        let message = "was measured for other targets than slo";
        into.warn(&format!("{at}.limits_file"), message);
    }
    let classes = classes.policies(slo);
    let policy =
        Policy { tenants: shares(tenants), ..policy(into, file, at, classes, limits, scrape) };
    Some(PoolConfig {
        model: model?,
        aliases,
        replicas,
        api_key,
        slo,
        policy: Arc::new(policy),
        scrape,
        probe,
        limits_from,
    })
}

/// Targets; none has a default.
pub(super) fn slo(into: &mut Compiler<'_>, at: &str, file: SloFile) -> Slo {
    let mut target = |key: &str, written: Option<super::units::Span>| {
        written.map(|_| into.span(&format!("{at}.{key}"), written, secs(1)))
    };
    Slo {
        ttft: target("ttft", file.ttft),
        tpot: target("tpot", file.tpot),
        itl: target("itl", file.itl),
        e2e: target("e2e", file.e2e),
    }
}

fn policy(
    into: &mut Compiler<'_>,
    file: &PoolFile,
    at: &str,
    classes: Vec<ClassPolicy>,
    limits: Limits,
    scrape: ScrapeConfig,
) -> Policy {
    let stale_default = scrape.period.saturating_mul(STALE_PERIODS);
    let stale_at = format!("{at}.scrape.stale_after");
    let stale_after = into.span(&stale_at, file.scrape.stale_after, stale_default);
    if stale_after < scrape.period {
        let message = "is shorter than scrape.period: every reading would be stale";
        into.faults.add(&stale_at, message, Some("at least scrape.period"));
    }
    let budget = file.retry.budget.unwrap_or(0.2);
    if !(0.0..=1.0).contains(&budget) {
        let message = format!("{budget} is out of range");
        into.faults.add(&format!("{at}.retry.budget"), message, Some("0.0 to 1.0"));
    }
    let tightest = classes.iter().filter_map(|class| class.slo.ttft).min();
    let wait = limits.wait.unwrap_or_else(|| tightest.map_or(WAIT_UNTARGETED, wait_for));
    if tightest.is_some_and(|ttft| wait >= ttft) {
        let message =
            "is not shorter than the tightest slo.ttft: what waits that long has missed it already";
        into.warn(&format!("{at}.limits.queue_wait"), message);
    }
    Policy {
        limit: LimitPolicy {
            in_flight: limits.in_flight,
            max_num_seqs: limits.max_num_seqs,
            adapt: true,
        },
        queue: QueuePolicy {
            wait,
            count: limits.count.unwrap_or(COUNT),
            bytes: limits.bytes.unwrap_or(BYTES),
        },
        classes,
        tenants: Vec::new(),
        shadow: false,
        stale_after,
        attempts: into.count(&format!("{at}.retry.attempts"), file.retry.attempts, 2, 1..=10),
        retry_budget: budget,
        stall_after: into.span(&format!("{at}.retry.stall_after"), file.retry.stall_after, secs(5)),
        gateways: limits.gateways.unwrap_or(1),
    }
}

/// Every tenant's part, in the order of their ids.
fn shares(tenants: &Directory) -> Vec<TenantPolicy> {
    let shares = tenants.tenants().iter();
    let mut shares: Vec<_> =
        shares.map(|tenant| TenantPolicy { id: tenant.id, weight: tenant.weight }).collect();
    shares.sort_by_key(|share| share.id);
    shares
}

fn wait_for(ttft: Duration) -> Duration {
    ttft.mul_f64(WAIT_SHARE)
}

/// The limits of a pool as far as they were given, wherever they stood.
#[derive(Clone, Copy, Default)]
struct Limits {
    in_flight: Option<u32>,
    max_num_seqs: Option<u32>,
    wait: Option<Duration>,
    count: Option<u32>,
    bytes: Option<u64>,
    gateways: Option<u32>,
}

impl Limits {
    fn overlaid_by(self, over: Self) -> Self {
        Self {
            in_flight: over.in_flight.or(self.in_flight),
            max_num_seqs: over.max_num_seqs.or(self.max_num_seqs),
            wait: over.wait.or(self.wait),
            count: over.count.or(self.count),
            bytes: over.bytes.or(self.bytes),
            gateways: over.gateways.or(self.gateways),
        }
    }
}

/// The limits of the pool's own table, overlaid by its limits file.
fn limits(into: &mut Compiler<'_>, file: &PoolFile, at: &str) -> (Limits, LimitSource) {
    let mut limits = check(into, file.limits, &format!("{at}.limits"));
    let mut from = match limits.in_flight {
        Some(_) => LimitSource::Written,
        None => LimitSource::Assumed,
    };
    if let Some(name) = &file.limits_file {
        let not_read = Err("was not read".to_owned());
        match into.sources.files.get(name).unwrap_or(&not_read) {
            Ok(text) => {
                let (over, provenance) = measured(into, name, text);
                if limits.in_flight.is_some() {
                    let message = format!("{name} says it too, and wins");
                    into.warn(&format!("{at}.limits.in_flight"), message);
                }
                limits = limits.overlaid_by(over);
                from = LimitSource::Measured(provenance);
            }
            Err(why) => {
                into.faults.add(&format!("{at}.limits_file"), format!("{name:?} {why}"), None);
            }
        }
    }
    if limits.in_flight.zip(limits.max_num_seqs).is_some_and(|(limit, most)| limit > most) {
        let message = "is above max_num_seqs: what is more waits inside the engine";
        into.warn(&format!("{at}.limits.in_flight"), message);
    }
    if limits.in_flight.is_none() {
        let message = "is not given: the limit is assumed from the engine's own facts";
        into.warn(&format!("{at}.limits.in_flight"), message);
    }
    (limits, from)
}

/// A limits file, with faults of its own.
fn measured(into: &mut Compiler<'_>, name: &str, text: &str) -> (Limits, Provenance) {
    let (file, faults): (LimitsFile, _) = read(name, text);
    let main = std::mem::replace(&mut into.faults, faults);
    let limits = check(into, file.limits, "limits");
    if file.limits.in_flight.is_none() {
        into.faults.add("limits.in_flight", "is missing", Some("a measured limit"));
    }
    let provenance = provenance(into, name, &file.provenance);
    let faults = std::mem::replace(&mut into.faults, main);
    into.others.extend(faults.into_errors());
    (limits, provenance)
}

fn check(into: &mut Compiler<'_>, file: PoolLimitsFile, at: &str) -> Limits {
    let mut count = |key: &str, written: Option<i64>, most: u32| {
        written.map(|_| into.count(&format!("{at}.{key}"), written, 1, 1..=most))
    };
    let in_flight = count("in_flight", file.in_flight, MOST);
    let max_num_seqs = count("max_num_seqs", file.max_num_seqs, MOST);
    let queue_count = count("queue_count", file.queue_count, MOST);
    let gateways = count("gateways", file.gateways, 1_000);
    let wait = file
        .queue_wait
        .map(|written| into.span(&format!("{at}.queue_wait"), Some(written), WAIT_UNTARGETED));
    let bytes = file.queue_bytes.map(|written| {
        into.size(&format!("{at}.queue_bytes"), Some(written), BYTES, 1 << 10..=1 << 40)
    });
    Limits { in_flight, max_num_seqs, wait, count: queue_count, bytes, gateways }
}

fn provenance(into: &mut Compiler<'_>, name: &str, file: &ProvenanceFile) -> Provenance {
    let text = |written: &Option<String>| written.as_deref().map(Arc::from);
    Provenance {
        file: name.into(),
        when: text(&file.when),
        vllm: text(&file.vllm),
        model: text(&file.model),
        hardware: text(&file.hardware),
        slo: slo(into, "provenance.slo", file.slo),
        sweep: text(&file.sweep),
    }
}
