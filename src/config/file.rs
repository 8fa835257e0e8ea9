//! The file as an operator writes it: every key that exists, none of them required by serde.
//!
//! What is missing or wrong together is `compile`'s business, so that it is all said at once.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::units::{Size, Span};

/// A whole configuration file.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    pub(super) server: ServerFile,
    pub(super) timeouts: TimeoutsFile,
    pub(super) drain: DrainFile,
    pub(super) log: LogFile,
    pub(super) classes: Vec<ClassFile>,
    pub(super) pools: Vec<PoolFile>,
    pub(super) tenants: Vec<TenantFile>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ServerFile {
    pub(super) listen: Option<String>,
    pub(super) admin: Option<String>,
    pub(super) allow_anonymous: Option<bool>,
    pub(super) tls: Option<TlsFile>,
    pub(super) admin_token_file: Option<String>,
    pub(super) admin_token_env: Option<String>,
    pub(super) endpoints: Option<Vec<String>>,
    pub(super) overload_status: Option<i64>,
    pub(super) limits: ServerLimitsFile,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TlsFile {
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ServerLimitsFile {
    pub(super) max_connections: Option<i64>,
    pub(super) header_timeout: Option<Span>,
    pub(super) max_header_bytes: Option<Size>,
    pub(super) max_headers: Option<i64>,
    pub(super) max_body_bytes: Option<Size>,
    pub(super) max_buffered_bytes: Option<Size>,
    pub(super) body_timeout: Option<Span>,
    pub(super) min_body_rate: Option<Size>,
    pub(super) idle_timeout: Option<Span>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TimeoutsFile {
    pub(super) connect: Option<Span>,
    pub(super) first_byte: Option<Span>,
    pub(super) head_hold: Option<Span>,
    pub(super) between_frames: Option<Span>,
    pub(super) total: Option<Span>,
    pub(super) client_stall: Option<Span>,
    pub(super) upstream_idle: Option<Span>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DrainFile {
    pub(super) delay: Option<Span>,
    pub(super) deadline: Option<Span>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LogFile {
    pub(super) filter: Option<String>,
    pub(super) format: Option<String>,
    pub(super) access: Option<bool>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PoolFile {
    pub(super) model: Option<String>,
    pub(super) aliases: Vec<String>,
    pub(super) replicas: Vec<String>,
    pub(super) api_key_file: Option<String>,
    pub(super) api_key_env: Option<String>,
    pub(super) slo: SloFile,
    pub(super) limits: PoolLimitsFile,
    pub(super) limits_file: Option<String>,
    pub(super) retry: RetryFile,
    pub(super) scrape: ScrapeFile,
    pub(super) probe: ProbeFile,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SloFile {
    pub(super) ttft: Option<Span>,
    pub(super) tpot: Option<Span>,
    pub(super) itl: Option<Span>,
    pub(super) e2e: Option<Span>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PoolLimitsFile {
    pub(super) in_flight: Option<i64>,
    pub(super) max_num_seqs: Option<i64>,
    pub(super) queue_wait: Option<Span>,
    pub(super) queue_count: Option<i64>,
    pub(super) queue_bytes: Option<Size>,
    pub(super) gateways: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RetryFile {
    pub(super) attempts: Option<i64>,
    pub(super) budget: Option<f64>,
    pub(super) stall_after: Option<Span>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ScrapeFile {
    pub(super) period: Option<Span>,
    pub(super) timeout: Option<Span>,
    pub(super) stale_after: Option<Span>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProbeFile {
    pub(super) period: Option<Span>,
    pub(super) timeout: Option<Span>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TenantFile {
    pub(super) name: Option<String>,
    pub(super) keys: Vec<String>,
    pub(super) keys_folder: Option<String>,
    pub(super) keys_env: Option<String>,
    pub(super) weight: Option<f64>,
    pub(super) models: Option<Vec<String>>,
    pub(super) routes: Option<Vec<String>>,
    pub(super) expires: Option<String>,
    pub(super) blocked: Option<bool>,
    pub(super) requests_per_minute: Option<i64>,
    pub(super) tokens_per_minute: Option<i64>,
    pub(super) parallel: Option<i64>,
    pub(super) burst: Option<Span>,
    pub(super) max_input_tokens: Option<i64>,
    pub(super) max_output_tokens: Option<i64>,
    pub(super) over_output: Option<String>,
    pub(super) priority: Option<i64>,
    pub(super) isolation: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClassFile {
    pub(super) name: Option<String>,
    pub(super) share: Option<f64>,
    pub(super) critical: Option<bool>,
    pub(super) slo: SloFile,
    #[serde(rename = "match")]
    pub(super) recognise: Option<MatchFile>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MatchFile {
    /// Any header, by its name; each must have the value.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) tenants: Option<Vec<String>>,
    pub(super) endpoints: Option<Vec<String>>,
    pub(super) prompt_tokens: Option<TokensFile>,
    pub(super) prompt_bytes: Option<SizesFile>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TokensFile {
    pub(super) min: Option<i64>,
    pub(super) max: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SizesFile {
    pub(super) min: Option<Size>,
    pub(super) max: Option<Size>,
}

/// A limits file, as `weir sweep` writes it: what it found, and how that came to be.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsFile {
    pub(super) limits: PoolLimitsFile,
    pub(super) provenance: ProvenanceFile,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProvenanceFile {
    pub(super) when: Option<String>,
    pub(super) vllm: Option<String>,
    pub(super) model: Option<String>,
    pub(super) hardware: Option<String>,
    pub(super) slo: SloFile,
    pub(super) sweep: Option<String>,
}
