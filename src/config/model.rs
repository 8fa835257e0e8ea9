//! What the program runs by: every default filled in, every value checked.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::dispatch::Policy;
use crate::domain::{ClassId, Endpoint, Slo};
use crate::tenants::Directory;

use super::{Classes, ReplicaAddress, Secret};

/// A whole checked configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Listeners and what they allow.
    pub server: ServerConfig,
    /// How long each phase of a request may take.
    pub timeouts: TimeoutConfig,
    /// The way out.
    pub drain: DrainConfig,
    /// Logs.
    pub log: LogConfig,
    /// Kinds of workload, of all pools alike.
    pub classes: Classes,
    /// Pools in the order of the file, at least one; model names and aliases are unique.
    pub pools: Vec<Arc<PoolConfig>>,
    /// Holders of keys; with none, anyone is served.
    pub tenants: Arc<Directory>,
    /// What is allowed but worth saying, for `weir check` and the log.
    pub warnings: Vec<Warning>,
}

impl Config {
    /// The pool that serves this model name or alias.
    pub fn pool(&self, model: &str) -> Option<&Arc<PoolConfig>> {
        self.pools
            .iter()
            .find(|pool| &*pool.model == model || pool.aliases.iter().any(|a| &**a == model))
    }
}

/// The two listeners. All of it but `limits` and `endpoints` needs a restart.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerConfig {
    /// What applications call.
    pub listen: SocketAddr,
    /// Metrics, health, status page, control.
    pub admin: SocketAddr,
    /// Whether strangers may be served on an address other than loopback.
    pub allow_anonymous: bool,
    /// Certificate and key of the public listener; plain without.
    pub tls: Option<TlsPaths>,
    /// What the admin listener asks for, off loopback, for all but metrics and probes.
    pub admin_token: Option<Secret>,
    /// The endpoints that are on, in the order of [`Endpoint::ALL`].
    pub endpoints: Arc<[Endpoint]>,
    /// Status of an answer that sheds load: 503 or 429.
    pub overload_status: u16,
    /// Bounds on what a client may send.
    pub limits: ServerLimits,
}

impl ServerConfig {
    /// Whether anyone on the network would be served, and nobody has said that they may.
    pub(super) fn open_to_strangers(&self, tenants: bool) -> bool {
        !tenants && !self.allow_anonymous && !self.listen.ip().is_loopback()
    }
}

/// PEM files; read, and read again, by the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsPaths {
    /// Certificate chain.
    pub cert: Arc<str>,
    /// Private key.
    pub key: Arc<str>,
}

/// Bounds on what a client may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerLimits {
    /// Connections open at once.
    pub max_connections: u32,
    /// From a connection's first byte, or its last answer, to whole headers.
    pub header_timeout: Duration,
    /// Bytes of all headers together.
    pub max_header_bytes: u32,
    /// Number of headers.
    pub max_headers: u32,
    /// Bytes of one body.
    pub max_body_bytes: u64,
    /// Bytes of all bodies that are held at once, queued and running.
    pub max_buffered_bytes: u64,
    /// From whole headers to a whole body.
    pub body_timeout: Duration,
    /// Slowest body, bytes a second.
    pub min_body_rate: u64,
    /// A kept-alive connection without a request is closed after this.
    pub idle_timeout: Duration,
}

/// How long each phase of a request may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeoutConfig {
    /// To open a connection to a replica.
    pub connect: Duration,
    /// From sending the request to the first byte of the answer's body.
    pub first_byte: Duration,
    /// How long the answer's head is held back for the first frame that the engine caused.
    pub head_hold: Duration,
    /// Between two reads of a running stream.
    pub between_frames: Duration,
    /// The whole request, from the moment it was received.
    pub total: Duration,
    /// A client that reads less than 1 KiB in this time, with the buffer full, is cut.
    pub client_stall: Duration,
    /// An unused connection to a replica is not used again after this (vLLM closes at 5 s).
    pub upstream_idle: Duration,
}

/// The way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrainConfig {
    /// How long to go on serving after readiness has failed.
    pub delay: Duration,
    /// How long, after that, queued and running work may go on.
    pub deadline: Duration,
}

/// Logs go to standard error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogConfig {
    /// A level, or `tracing` directives (`info,weir::proxy=debug`).
    pub filter: Arc<str>,
    /// How a line looks.
    pub format: LogFormat,
    /// Whether each request leaves a line.
    pub access: bool,
}

/// How a log line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// Every format, as the file spells it.
    pub const ALL: [Self; 2] = [Self::Text, Self::Json];

    /// The word of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// The replicas of one model and the rules for them.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolConfig {
    /// The name that clients and replicas know the model by.
    pub model: Arc<str>,
    /// Other names that clients may use.
    pub aliases: Vec<Arc<str>>,
    /// vLLM servers, each once; at least one.
    pub replicas: Vec<ReplicaAddress>,
    /// The key that replicas ask for, in place of the client's.
    pub api_key: Option<Secret>,
    /// The targets.
    pub slo: Slo,
    /// The rules, as the dispatcher takes them.
    pub policy: Arc<Policy>,
    /// Reading the replicas' metrics.
    pub scrape: ScrapeConfig,
    /// Asking the replicas for their health.
    pub probe: ProbeConfig,
    /// Where the limits come from.
    pub limits_from: LimitSource,
}

impl PoolConfig {
    /// The targets of a class in this pool.
    pub fn slo_of(&self, class: ClassId) -> Slo {
        self.policy.classes.get(usize::from(class.0)).map_or(self.slo, |class| class.slo)
    }
}

/// Reading the replicas' metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrapeConfig {
    /// From one reading's start to the next's; readings never overlap.
    pub period: Duration,
    /// Longest reading.
    pub timeout: Duration,
}

/// Asking the replicas for their health.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeConfig {
    /// From one probe's start to the next's.
    pub period: Duration,
    /// Longest probe.
    pub timeout: Duration,
}

/// Where a pool's in-flight limit comes from.
#[derive(Clone, PartialEq, Debug)]
pub enum LimitSource {
    /// Nobody measured or set one: the engine's own facts stand in.
    Assumed,
    /// The operator's word in the configuration.
    Written,
    /// A limits file, with how it came to be.
    Measured(Provenance),
}

impl LimitSource {
    /// The vLLM version that the limit was measured on, where a replica runs another: the knee
    /// moves with it. `None` where they agree, or where nobody measured or noted it.
    pub fn measured_on_other(&self, running: &str) -> Option<&str> {
        let Self::Measured(Provenance { vllm: Some(measured), .. }) = self else { return None };
        (&**measured != running).then_some(&**measured)
    }
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Assumed => f.write_str("assumed from the engine's facts"),
            Self::Written => f.write_str("written in the configuration"),
            Self::Measured(how) => {
                let Provenance { file, when, vllm, model, hardware, slo: _, sweep } = how;
                write!(f, "measured: {file}")?;
                let facts = [("", when), ("vLLM ", vllm), ("", model), ("", hardware)];
                for (word, fact) in facts.into_iter().chain([("sweep ", sweep)]) {
                    if let Some(fact) = fact {
                        write!(f, ", {word}{fact}")?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// How a limit came to be. Free text but for the targets.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Provenance {
    /// The limits file.
    pub file: Arc<str>,
    /// When.
    pub when: Option<Arc<str>>,
    /// Which vLLM.
    pub vllm: Option<Arc<str>>,
    /// Which model.
    pub model: Option<Arc<str>>,
    /// On what.
    pub hardware: Option<Arc<str>>,
    /// For which targets.
    pub slo: Slo,
    /// By which sweep.
    pub sweep: Option<Arc<str>>,
}

/// Something that is allowed but worth saying.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// Key path.
    pub path: String,
    /// What.
    pub message: String,
}
