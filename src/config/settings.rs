//! A configuration as a flat list of what it says, in the words of the file.
//!
//! `weir check` prints it and [`super::diff()`] compares two of it. So that no key can be left
//! out of a comparison, everything is taken apart here once, without `..`.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use crate::dispatch::{LimitPolicy, Policy, QueuePolicy};
use crate::domain::Slo;
use crate::tenants::{Caps, Isolation, Quota, Rights, SHARED, Tenant};

use super::units::show_size;
use super::{
    ClassConfig, ClassRule, Classes, Config, LimitSource, PoolConfig, Secret, ServerConfig,
};

/// Whether a reload can change a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Applies {
    /// In the running process.
    Live,
    /// Only by a restart; a reload keeps the old value and says so.
    Restart,
}

impl Applies {
    /// The words for a person.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Restart => "needs a restart",
        }
    }
}

/// One key and its value.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// Key path, pools and replicas by name: `pools["tiny"].limits.in_flight`.
    pub path: String,
    /// As the file would write it; secrets are masked.
    pub value: String,
    /// Whether a reload can change it.
    pub applies: Applies,
    /// What the mask hides, so that a change of it shows.
    pub(super) secret: Option<Secret>,
}

/// Everything that a configuration says, in the order of `config/example.toml`.
pub fn settings(config: &Config) -> Vec<Setting> {
    let Config { server, timeouts, drain, log, classes, pools, tenants, warnings: _ } = config;
    let mut list = List::default();
    list.server(server);
    list.span("timeouts.connect", timeouts.connect);
    list.span("timeouts.first_byte", timeouts.first_byte);
    list.span("timeouts.head_hold", timeouts.head_hold);
    list.span("timeouts.between_frames", timeouts.between_frames);
    list.span("timeouts.total", timeouts.total);
    list.span("timeouts.client_stall", timeouts.client_stall);
    list.span("timeouts.upstream_idle", timeouts.upstream_idle);
    list.span("drain.delay", drain.delay);
    list.span("drain.deadline", drain.deadline);
    list.fixed("log.filter", &format!("{:?}", log.filter));
    list.fixed("log.format", &format!("{:?}", log.format.as_str()));
    list.fixed("log.access", &log.access);
    list.classes(classes);
    for pool in pools {
        list.pool(pool);
    }
    for tenant in tenants.tenants() {
        list.tenant(tenant);
    }
    list.0
}

#[derive(Default)]
struct List(Vec<Setting>);

impl List {
    fn add(&mut self, path: &str, value: &dyn fmt::Display, applies: Applies) {
        let (path, value) = (path.to_owned(), value.to_string());
        self.0.push(Setting { path, value, applies, secret: None });
    }

    fn live(&mut self, path: &str, value: &dyn fmt::Display) {
        self.add(path, value, Applies::Live);
    }

    fn fixed(&mut self, path: &str, value: &dyn fmt::Display) {
        self.add(path, value, Applies::Restart);
    }

    fn span(&mut self, path: &str, value: Duration) {
        self.live(path, &show_span(value));
    }

    fn secret(&mut self, path: &str, secret: Option<&Secret>, applies: Applies) {
        if let Some(secret) = secret {
            let (path, value) = (path.to_owned(), "***".to_owned());
            self.0.push(Setting { path, value, applies, secret: Some(secret.clone()) });
        }
    }

    fn server(&mut self, server: &ServerConfig) {
        let ServerConfig {
            listen,
            admin,
            allow_anonymous,
            tls,
            admin_token,
            endpoints,
            overload_status,
            limits,
        } = server;
        self.fixed("server.listen", &format!("\"{listen}\""));
        self.fixed("server.admin", &format!("\"{admin}\""));
        self.fixed("server.allow_anonymous", allow_anonymous);
        if let Some(tls) = tls {
            self.fixed("server.tls.cert", &format!("{:?}", tls.cert));
            self.fixed("server.tls.key", &format!("{:?}", tls.key));
        }
        self.secret("server.admin_token", admin_token.as_ref(), Applies::Restart);
        let names: Vec<_> = endpoints.iter().map(|endpoint| endpoint.as_str()).collect();
        self.live("server.endpoints", &format!("{names:?}"));
        self.live("server.overload_status", overload_status);
        self.fixed("server.limits.max_connections", &limits.max_connections);
        self.fixed("server.limits.header_timeout", &show_span(limits.header_timeout));
        self.fixed("server.limits.max_header_bytes", &bytes(limits.max_header_bytes.into()));
        self.fixed("server.limits.max_headers", &limits.max_headers);
        self.live("server.limits.max_body_bytes", &bytes(limits.max_body_bytes));
        self.live("server.limits.max_buffered_bytes", &bytes(limits.max_buffered_bytes));
        self.span("server.limits.body_timeout", limits.body_timeout);
        self.live("server.limits.min_body_rate", &bytes(limits.min_body_rate));
        self.fixed("server.limits.idle_timeout", &show_span(limits.idle_timeout));
    }

    /// The ids are the process's own business and no part of what the file says.
    fn classes(&mut self, classes: &Classes) {
        let order: Vec<_> = classes.all().iter().skip(1).map(|class| &*class.name).collect();
        self.live("classes (in order)", &format!("{order:?}"));
        for ClassConfig { id: _, name, slo, share, critical, rule } in classes.all() {
            let at = format!("classes[{name:?}]");
            self.live(&format!("{at}.share"), share);
            self.live(&format!("{at}.critical"), critical);
            self.slo(&at, slo);
            if let Some(rule) = rule {
                self.rule(&format!("{at}.match"), rule);
            }
        }
    }

    fn rule(&mut self, at: &str, rule: &ClassRule) {
        let ClassRule { headers, tenants, endpoints, prompt_tokens, prompt_bytes } = rule;
        for (name, value) in headers {
            self.live(&format!("{at}.headers.{name}"), &format!("{value:?}"));
        }
        if let Some(tenants) = tenants {
            let names: Vec<_> = tenants.iter().map(|(_, name)| &**name).collect();
            self.live(&format!("{at}.tenants"), &format!("{names:?}"));
        }
        if let Some(endpoints) = endpoints {
            let names: Vec<_> = endpoints.iter().map(|endpoint| endpoint.as_str()).collect();
            self.live(&format!("{at}.endpoints"), &format!("{names:?}"));
        }
        for (key, range, show) in [
            ("prompt_tokens", prompt_tokens, (|tokens| tokens.to_string()) as fn(u64) -> String),
            ("prompt_bytes", prompt_bytes, bytes),
        ] {
            if *range.start() > 0 {
                self.live(&format!("{at}.{key}.min"), &show(*range.start()));
            }
            if *range.end() < u64::MAX {
                self.live(&format!("{at}.{key}.max"), &show(*range.end()));
            }
        }
    }

    fn pool(&mut self, pool: &PoolConfig) {
        let PoolConfig {
            model,
            aliases,
            replicas,
            api_key,
            slo,
            policy,
            scrape,
            probe,
            limits_from,
        } = pool;
        let at = pool_path(model);
        self.live(&format!("{at}.aliases"), &format!("{aliases:?}"));
        for replica in replicas {
            self.live(&format!("{at}.replicas[\"{replica}\"]"), &"listed");
        }
        self.secret(&format!("{at}.api_key"), api_key.as_ref(), Applies::Live);
        self.slo(&at, slo);
        self.policy(&at, policy, limits_from);
        self.span(&format!("{at}.scrape.period"), scrape.period);
        self.span(&format!("{at}.scrape.timeout"), scrape.timeout);
        self.span(&format!("{at}.probe.period"), probe.period);
        self.span(&format!("{at}.probe.timeout"), probe.timeout);
    }

    fn slo(&mut self, at: &str, slo: &Slo) {
        let Slo { ttft, tpot, itl, e2e } = slo;
        for (key, target) in [("ttft", ttft), ("tpot", tpot), ("itl", itl), ("e2e", e2e)] {
            if let Some(target) = target {
                self.span(&format!("{at}.slo.{key}"), *target);
            }
        }
    }

    fn policy(&mut self, at: &str, policy: &Policy, from: &LimitSource) {
        let LimitPolicy { in_flight, max_num_seqs, adapt: _ } = policy.limit;
        let QueuePolicy { wait, count, bytes: queue_bytes } = policy.queue;
        let assumed = || "assumed".to_owned();
        let in_flight = in_flight.map_or_else(assumed, |limit| limit.to_string());
        self.live(&format!("{at}.limits.in_flight"), &in_flight);
        self.live(&format!("{at}.limits (from)"), from);
        if let Some(most) = max_num_seqs {
            self.live(&format!("{at}.limits.max_num_seqs"), &most);
        }
        self.span(&format!("{at}.limits.queue_wait"), wait);
        self.live(&format!("{at}.limits.queue_count"), &count);
        self.live(&format!("{at}.limits.queue_bytes"), &bytes(queue_bytes));
        self.live(&format!("{at}.limits.gateways"), &policy.gateways);
        self.live(&format!("{at}.retry.attempts"), &policy.attempts);
        self.live(&format!("{at}.retry.budget"), &policy.retry_budget);
        self.span(&format!("{at}.retry.stall_after"), policy.stall_after);
        self.span(&format!("{at}.scrape.stale_after"), policy.stale_after);
    }
}

impl List {
    fn tenant(&mut self, tenant: &Tenant) {
        let Tenant { name, id: _, keys, weight, rights, quota, caps, isolation } = tenant;
        let Rights { models, routes, expires, blocked } = rights;
        let at = tenant_path(name);
        let digests: Vec<_> = keys.iter().map(ToString::to_string).collect();
        self.0.push(Setting {
            path: format!("{at}.keys"),
            value: format!("{} ***", keys.len()),
            applies: Applies::Live,
            secret: Some(Secret::new(&digests.join(" "))),
        });
        self.live(&format!("{at}.weight"), weight);
        if let Some(models) = models {
            let names: Vec<_> = models.iter().collect();
            self.live(&format!("{at}.models"), &format!("{names:?}"));
        }
        if let Some(routes) = routes {
            let names: Vec<_> = routes.iter().map(|endpoint| endpoint.as_str()).collect();
            self.live(&format!("{at}.routes"), &format!("{names:?}"));
        }
        if let Some(end) = expires {
            let end = UNIX_EPOCH + Duration::from_secs(end.as_secs());
            let end = humantime::format_rfc3339_seconds(end);
            self.live(&format!("{at}.expires"), &format!("\"{end}\""));
        }
        self.live(&format!("{at}.blocked"), blocked);
        self.quota(&at, quota);
        self.caps(&at, caps);
        let isolation = match isolation {
            Isolation::Own => return,
            Isolation::Group(name) => &**name,
            Isolation::Shared => SHARED,
        };
        self.live(&format!("{at}.isolation"), &format!("{isolation:?}"));
    }

    fn caps(&mut self, at: &str, caps: &Caps) {
        let Caps { input, output, over_output, priority } = caps;
        if let Some(input) = input {
            self.live(&format!("{at}.max_input_tokens"), input);
        }
        if let Some(output) = output {
            self.live(&format!("{at}.max_output_tokens"), output);
            self.live(&format!("{at}.over_output"), &format!("{:?}", over_output.as_str()));
        }
        if let Some(priority) = priority {
            self.live(&format!("{at}.priority"), priority);
        }
    }

    fn quota(&mut self, at: &str, quota: &Quota) {
        let Quota { requests_per_minute, tokens_per_minute, parallel, burst } = quota;
        let mut number = |key: &str, written: Option<u64>| {
            if let Some(number) = written {
                self.live(&format!("{at}.{key}"), &number);
            }
        };
        number("requests_per_minute", requests_per_minute.map(|rate| rate.get().into()));
        number("tokens_per_minute", *tokens_per_minute);
        number("parallel", parallel.map(u64::from));
        if requests_per_minute.is_some() || tokens_per_minute.is_some() {
            self.span(&format!("{at}.burst"), *burst);
        }
    }
}

/// How a tenant's keys begin.
pub(super) fn tenant_path(name: &str) -> String {
    format!("tenants[{name:?}]")
}

/// How a pool's keys begin.
pub(super) fn pool_path(model: &str) -> String {
    format!("pools[{model:?}]")
}

fn show_span(duration: Duration) -> String {
    format!("\"{}\"", humantime::format_duration(duration))
}

fn bytes(bytes: u64) -> String {
    format!("\"{}\"", show_size(bytes))
}
