//! The listeners: where they are, what they serve, and what a client may send.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::domain::Endpoint;

use super::checks::{Compiler, secs};
use super::file::{ServerFile, ServerLimitsFile};
use super::model::{ServerConfig, ServerLimits, TlsPaths};

impl Compiler<'_> {
    /// `None` where a listener has no address.
    pub(super) fn server(&mut self, file: &ServerFile, tenants: bool) -> Option<ServerConfig> {
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
        self.listeners(listen, admin, file);
        let server = ServerConfig {
            listen,
            admin,
            allow_anonymous,
            tls,
            admin_token,
            endpoints,
            overload_status,
            limits,
        };
        self.strangers(&server, tenants);
        Some(server)
    }

    /// What the two addresses must not be together, and what each may be off loopback.
    fn listeners(&mut self, listen: SocketAddr, admin: SocketAddr, file: &ServerFile) {
        if listen == admin && listen.port() != 0 {
            let allowed = Some("an address of its own");
            self.faults.add("server.admin", "is the same address as server.listen", allowed);
        }
        let guarded = file.admin_token_file.is_some() || file.admin_token_env.is_some();
        if !admin.ip().is_loopback() && !guarded {
            let message = format!("{admin} is open to others and has no token");
            let allowed = Some("a loopback address, or admin_token_file or admin_token_env");
            self.faults.add("server.admin", message, allowed);
        }
    }

    /// Who is served, and whether that was meant.
    fn strangers(&mut self, server: &ServerConfig, tenants: bool) {
        let listen = server.listen;
        if server.open_to_strangers(tenants) {
            let message = format!("{listen} is open to others and no tenants are configured");
            let allowed = Some("[[tenants]], a loopback address, or allow_anonymous = true");
            self.faults.add("server.listen", message, allowed);
        } else if tenants {
            if server.allow_anonymous {
                let message = "has no effect beside tenants: every request needs a key";
                self.warn("server.allow_anonymous", message);
            }
            if !listen.ip().is_loopback() && server.tls.is_none() {
                let message = "is open to others without TLS: keys cross the network in the clear";
                self.warn("server.listen", message);
            }
        } else if server.allow_anonymous {
            let message = "no tenants are configured: anyone who reaches the address is served";
            self.warn("server.allow_anonymous", message);
        } else {
            let message = "no tenants are configured: anyone on this machine is served";
            self.warn("server.listen", message);
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
        let on: Vec<_> = match written {
            None => Endpoint::ALL.into_iter().filter(|e| on_by_default(*e)).collect(),
            Some(names) => self.named("server.endpoints", names),
        };
        on.into()
    }

    /// The endpoints of a list of names, in the order of [`Endpoint::ALL`].
    pub(super) fn named(&mut self, path: &str, names: &[String]) -> Vec<Endpoint> {
        let by_name: BTreeMap<_, _> =
            Endpoint::ALL.iter().map(|endpoint| (endpoint.as_str(), *endpoint)).collect();
        let all = Endpoint::ALL.map(Endpoint::as_str).join(", ");
        if names.is_empty() {
            self.faults.add(path, "nothing is served", Some(&all));
        }
        let mut on = Vec::new();
        for (index, name) in names.iter().enumerate() {
            match by_name.get(name.as_str()) {
                Some(endpoint) => on.push(*endpoint),
                None => self.faults.add(
                    &format!("{path}[{index}]"),
                    format!("{name:?} is no endpoint"),
                    Some(&all),
                ),
            }
        }
        Endpoint::ALL.into_iter().filter(|endpoint| on.contains(endpoint)).collect()
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
