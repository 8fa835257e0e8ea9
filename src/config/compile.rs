//! From what was written to what is run by: defaults, ranges, and what must fit together.
//!
//! Every default of the program stands here, in `server`, `pool`, `class` and `tenant`, and
//! nowhere else.

use std::sync::Arc;
use std::time::Duration;

use super::checks::{Compiler, secs};
use super::file::{ConfigFile, DrainFile, LogFile, TimeoutsFile};
use super::model::{Config, DrainConfig, LogConfig, LogFormat, TimeoutConfig};
use super::read::read;
use super::{ConfigErrors, Sources, class, pool, tenant};
use crate::domain::Endpoint;

/// vLLM closes an idle connection after 5 s (uvicorn's keep-alive); ours must be gone before.
const ENGINE_IDLE: Duration = Duration::from_secs(5);

/// Reads and checks a whole configuration; every fault of every file at once.
pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    let (file, faults): (ConfigFile, _) = read(&sources.name, &sources.text);
    let mut compiler = Compiler { faults, others: Vec::new(), warnings: Vec::new(), sources };
    let server = compiler.server(&file.server, !file.tenants.is_empty());
    let timeouts = compiler.timeouts(&file.timeouts);
    let drain = drain(&file.drain);
    let log = compiler.log(&file.log);
    let tenants = Arc::new(tenant::compile(&mut compiler, &file.tenants, &file.pools));
    let endpoints = server.as_ref().map_or(&Endpoint::ALL[..], |server| &server.endpoints);
    let known = class::Known { endpoints, tenants: &tenants };
    let classes = class::compile(&mut compiler, &file.classes, &known);
    let pools = pool::compile(&mut compiler, &file.pools, &classes, &tenants);
    let Compiler { faults, others, warnings, .. } = compiler;
    let mut errors = faults.into_errors();
    errors.extend(others);
    match server {
        Some(server) if errors.is_empty() => {
            Ok(Config { server, timeouts, drain, log, classes, pools, tenants, warnings })
        }
        _ => Err(ConfigErrors(errors)),
    }
}

impl Compiler<'_> {
    fn timeouts(&mut self, file: &TimeoutsFile) -> TimeoutConfig {
        let at = |key: &str| format!("timeouts.{key}");
        let timeouts = TimeoutConfig {
            connect: self.span(&at("connect"), file.connect, secs(1)),
            first_byte: self.span(&at("first_byte"), file.first_byte, secs(30)),
            head_hold: self.span(&at("head_hold"), file.head_hold, secs(10)),
            between_frames: self.span(&at("between_frames"), file.between_frames, secs(60)),
            total: self.span(&at("total"), file.total, Duration::from_mins(30)),
            client_stall: self.span(&at("client_stall"), file.client_stall, secs(30)),
            upstream_idle: self.span(&at("upstream_idle"), file.upstream_idle, secs(4)),
        };
        if timeouts.head_hold >= timeouts.first_byte {
            let message = "is not shorter than first_byte, so that a hold never ends in a retry";
            self.faults.add(&at("head_hold"), message, Some("less than timeouts.first_byte"));
        }
        if timeouts.first_byte > timeouts.total {
            let message = "is longer than total";
            self.faults.add(&at("first_byte"), message, Some("at most timeouts.total"));
        }
        if timeouts.upstream_idle >= ENGINE_IDLE {
            let message = "vLLM closes idle connections after 5s: requests would be lost";
            self.faults.add(&at("upstream_idle"), message, Some("less than 5s"));
        }
        timeouts
    }

    fn log(&mut self, file: &LogFile) -> LogConfig {
        let written = file.format.as_deref().unwrap_or_default();
        let format = LogFormat::ALL.into_iter().find(|format| format.as_str() == written);
        if format.is_none() && file.format.is_some() {
            let allowed = LogFormat::ALL.map(LogFormat::as_str).join(" or ");
            self.faults.add("log.format", format!("{written:?} is no format"), Some(&allowed));
        }
        LogConfig {
            filter: file.filter.as_deref().unwrap_or("info").into(),
            format: format.unwrap_or_default(),
            access: file.access.unwrap_or(true),
        }
    }
}

/// Both may be zero. By default they end together just below Kubernetes' grace of 30 s.
fn drain(file: &DrainFile) -> DrainConfig {
    DrainConfig {
        delay: file.delay.map_or(secs(3), |span| span.0),
        deadline: file.deadline.map_or(secs(25), |span| span.0),
    }
}
