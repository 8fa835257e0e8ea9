//! From what was written to what is run by: defaults, ranges, and what must fit together.
//!
//! Every default of the program stands here and in `pool`, and nowhere else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::Endpoint;

use super::file::{ConfigFile, DrainFile, LogFile, ServerFile, ServerLimitsFile, TimeoutsFile};
use super::model::{
    Config, DrainConfig, LogConfig, LogFormat, ServerConfig, ServerLimits, TimeoutConfig, TlsPaths,
    Warning,
};
use super::pool;
use super::read::{Faults, read};
use super::units::{Size, Span};
use super::{ConfigError, ConfigErrors, Secret, Sources};

/// vLLM closes an idle connection after 5 s (uvicorn's keep-alive); ours must be gone before.
const ENGINE_IDLE: Duration = Duration::from_secs(5);

/// Reads and checks a whole configuration; every fault of every file at once.
pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    let (file, faults): (ConfigFile, _) = read(&sources.name, &sources.text);
    let mut compiler = Compiler { faults, others: Vec::new(), warnings: Vec::new(), sources };
    let server = compiler.server(&file.server);
    let timeouts = compiler.timeouts(&file.timeouts);
    let drain = drain(&file.drain);
    let log = compiler.log(&file.log);
    let pools = pool::compile(&mut compiler, &file.pools);
    let Compiler { faults, others, warnings, .. } = compiler;
    let mut errors = faults.into_errors();
    errors.extend(others);
    match server {
        Some(server) if errors.is_empty() => {
            Ok(Config { server, timeouts, drain, log, pools, warnings })
        }
        _ => Err(ConfigErrors(errors)),
    }
}

/// Where faults and warnings of one compilation gather.
pub(super) struct Compiler<'a> {
    pub(super) faults: Faults,
    /// Faults of other files than the main one.
    pub(super) others: Vec<ConfigError>,
    pub(super) warnings: Vec<Warning>,
    pub(super) sources: &'a Sources,
}

impl Compiler<'_> {
    fn server(&mut self, file: &ServerFile) -> Option<ServerConfig> {
        let listen = self.listen("server.listen", file.listen.as_deref(), "127.0.0.1:8080");
        let admin = self.listen("server.admin", file.admin.as_deref(), "127.0.0.1:9090");
        let allow_anonymous = file.allow_anonymous.unwrap_or(false);
        let admin_token = self.secret(
            "server.admin_token",
            file.admin_token_file.as_deref(),
            file.admin_token_env.as_deref(),
        );
        let tls = file.tls.as_ref().and_then(|tls| {
            let cert = self.required("server.tls.cert", tls.cert.as_deref());
            let key = self.required("server.tls.key", tls.key.as_deref());
            Some(TlsPaths { cert: cert?, key: key? })
        });
        let overload_status = match file.overload_status {
            None | Some(503) => 503,
            Some(429) => 429,
            Some(other) => {
                let message = format!("{other} is no status to shed load with");
                self.faults.add("server.overload_status", message, Some("503 or 429"));
                503
            }
        };
        let endpoints = self.endpoints(file.endpoints.as_deref());
        let limits = self.server_limits(&file.limits);
        let (listen, admin) = (listen?, admin?);
        self.listeners(listen, admin, allow_anonymous, file);
        Some(ServerConfig {
            listen,
            admin,
            allow_anonymous,
            tls,
            admin_token,
            endpoints,
            overload_status,
            limits,
        })
    }

    /// What the two addresses must not be together, and what each may be off loopback.
    fn listeners(
        &mut self,
        listen: SocketAddr,
        admin: SocketAddr,
        allow_anonymous: bool,
        file: &ServerFile,
    ) {
        if listen == admin && listen.port() != 0 {
            let allowed = Some("an address of its own");
            self.faults.add("server.admin", "is the same address as server.listen", allowed);
        }
        if allow_anonymous {
            let message = "no tenants are configured: anyone who reaches the address is served";
            self.warn("server.allow_anonymous", message);
        } else if !listen.ip().is_loopback() {
            let message = format!("{listen} is open to others and no tenants are configured");
            let allowed = Some("a loopback address, or allow_anonymous = true");
            self.faults.add("server.listen", message, allowed);
        } else {
            let message = "no tenants are configured: anyone on this machine is served";
            self.warn("server.listen", message);
        }
        let guarded = file.admin_token_file.is_some() || file.admin_token_env.is_some();
        if !admin.ip().is_loopback() && !guarded {
            let message = format!("{admin} is open to others and has no token");
            let allowed = Some("a loopback address, or admin_token_file or admin_token_env");
            self.faults.add("server.admin", message, allowed);
        }
    }

    fn listen(&mut self, path: &str, written: Option<&str>, default: &str) -> Option<SocketAddr> {
        let text = written.unwrap_or(default);
        let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let address = local.as_deref().unwrap_or(text).parse().ok();
        if address.is_none() {
            let allowed = Some(r#"an IP address and a port, such as "127.0.0.1:8080""#);
            self.faults.add(path, format!("{text:?} is no address to listen on"), allowed);
        }
        address
    }

    fn endpoints(&mut self, written: Option<&[String]>) -> Arc<[Endpoint]> {
        let by_name: BTreeMap<_, _> =
            Endpoint::ALL.iter().map(|endpoint| (endpoint.as_str(), *endpoint)).collect();
        let mut on = Vec::new();
        match written {
            None => on.extend(Endpoint::ALL.iter().copied().filter(|e| on_by_default(*e))),
            Some(names) => {
                let all = Endpoint::ALL.map(Endpoint::as_str).join(", ");
                if names.is_empty() {
                    self.faults.add("server.endpoints", "nothing is served", Some(&all));
                }
                for (index, name) in names.iter().enumerate() {
                    match by_name.get(name.as_str()) {
                        Some(endpoint) => on.push(*endpoint),
                        None => self.faults.add(
                            &format!("server.endpoints[{index}]"),
                            format!("{name:?} is no endpoint"),
                            Some(&all),
                        ),
                    }
                }
            }
        }
        Endpoint::ALL.iter().copied().filter(|endpoint| on.contains(endpoint)).collect()
    }

    fn server_limits(&mut self, file: &ServerLimitsFile) -> ServerLimits {
        let at = |key: &str| format!("server.limits.{key}");
        let limits = ServerLimits {
            max_connections: self.count(
                &at("max_connections"),
                file.max_connections,
                10_000,
                1..=1_000_000,
            ),
            header_timeout: self.span(&at("header_timeout"), file.header_timeout, secs(10)),
            max_header_bytes: u32::try_from(self.size(
                &at("max_header_bytes"),
                file.max_header_bytes,
                64 << 10,
                8 << 10..=1 << 20,
            ))
            .unwrap_or(u32::MAX),
            max_headers: self.count(&at("max_headers"), file.max_headers, 100, 16..=1_000),
            max_body_bytes: self.size(
                &at("max_body_bytes"),
                file.max_body_bytes,
                32 << 20,
                1 << 10..=1 << 40,
            ),
            max_buffered_bytes: self.size(
                &at("max_buffered_bytes"),
                file.max_buffered_bytes,
                1 << 30,
                1 << 10..=1 << 40,
            ),
            body_timeout: self.span(&at("body_timeout"), file.body_timeout, secs(60)),
            min_body_rate: self.size(
                &at("min_body_rate"),
                file.min_body_rate,
                1 << 10,
                1..=1 << 30,
            ),
            idle_timeout: self.span(&at("idle_timeout"), file.idle_timeout, secs(75)),
        };
        if limits.max_buffered_bytes < limits.max_body_bytes {
            let message = "is smaller than max_body_bytes: the largest body never fits";
            self.faults.add(&at("max_buffered_bytes"), message, Some("at least max_body_bytes"));
        }
        limits
    }

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

    pub(super) fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.warnings.push(Warning { path: path.to_owned(), message: message.into() });
    }

    /// A text that must be there and not empty.
    pub(super) fn required(&mut self, path: &str, written: Option<&str>) -> Option<Arc<str>> {
        match written.map(str::trim) {
            Some(text) if !text.is_empty() => return Some(text.into()),
            Some(_) => self.faults.add(path, "is empty", None),
            None => self.faults.add(path, "is missing", None),
        }
        None
    }

    /// A secret from a file or the environment, by the keys `path_file` and `path_env`.
    pub(super) fn secret(
        &mut self,
        path: &str,
        file: Option<&str>,
        env: Option<&str>,
    ) -> Option<Secret> {
        let (key, found) = match (file, env) {
            (None, None) => return None,
            (Some(_), Some(_)) => {
                let message = "stands beside its _file key; one of them is enough";
                self.faults.add(&format!("{path}_env"), message, None);
                return None;
            }
            (Some(file), None) => {
                let text = self.sources.files.get(file).cloned();
                let text = text.unwrap_or_else(|| Err("was not read".to_owned()));
                (format!("{path}_file"), text.map_err(|why| format!("{file:?} {why}")))
            }
            (None, Some(name)) => {
                let value = self.sources.env.get(name).cloned().flatten();
                (format!("{path}_env"), value.ok_or_else(|| format!("{name} is not set")))
            }
        };
        let found = found.map(|text| Secret::new(&text));
        match found {
            Ok(secret) if secret.reveal().is_empty() => {
                self.faults.add(&key, "leads to an empty secret", None);
            }
            Ok(secret) if !secret.reveal().bytes().all(|byte| byte.is_ascii_graphic()) => {
                let allowed = Some("printable ASCII on one line");
                self.faults.add(&key, "leads to a secret that no header can carry", allowed);
            }
            Ok(secret) => return Some(secret),
            Err(why) => self.faults.add(&key, why, None),
        }
        None
    }

    /// A duration above zero.
    pub(super) fn span(
        &mut self,
        path: &str,
        written: Option<Span>,
        default: Duration,
    ) -> Duration {
        match written {
            Some(Span(Duration::ZERO)) => {
                self.faults.add(path, "is zero", Some("more than 0s"));
                default
            }
            Some(Span(duration)) => duration,
            None => default,
        }
    }

    /// A whole number within a range.
    pub(super) fn count(
        &mut self,
        path: &str,
        written: Option<i64>,
        default: u32,
        range: std::ops::RangeInclusive<u32>,
    ) -> u32 {
        let Some(number) = written else {
            return default;
        };
        if let Some(number) = u32::try_from(number).ok().filter(|number| range.contains(number)) {
            return number;
        }
        let allowed = format!("{} to {}", range.start(), range.end());
        self.faults.add(path, format!("{number} is out of range"), Some(&allowed));
        default
    }

    /// A number of bytes within a range.
    pub(super) fn size(
        &mut self,
        path: &str,
        written: Option<Size>,
        default: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> u64 {
        let Some(Size(bytes)) = written else {
            return default;
        };
        if range.contains(&bytes) {
            return bytes;
        }
        let show = super::units::show_size;
        let allowed = format!("{} to {}", show(*range.start()), show(*range.end()));
        self.faults.add(path, format!("{} is out of range", show(bytes)), Some(&allowed));
        default
    }
}

/// Both may be zero. By default they end together just below Kubernetes' grace of 30 s.
fn drain(file: &DrainFile) -> DrainConfig {
    DrainConfig {
        delay: file.delay.map_or(secs(3), |span| span.0),
        deadline: file.deadline.map_or(secs(25), |span| span.0),
    }
}

/// What vLLM serves of generation and embedding; the rest is switched on by name.
const fn on_by_default(endpoint: Endpoint) -> bool {
    matches!(
        endpoint,
        Endpoint::ChatCompletions
            | Endpoint::Completions
            | Endpoint::Responses
            | Endpoint::Messages
            | Endpoint::CountTokens
            | Endpoint::Embeddings
            | Endpoint::Models
    )
}

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
