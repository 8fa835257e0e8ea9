//! A gateway on a real socket, with its records caught.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use weir::config::{Config, Sources, load};
use weir::dispatch::Note;
use weir::domain::{Failure, RequestRecord};
use weir::lifecycle::{Clock, Drain, Tasks};
use weir::proxy::{Observer, Parts, Peer, Proxy, RelayBody};
use weir::server::{ConnectionLimits, Listener, Serve, Tls, bind};
use weir::telemetry::Telemetry;
use weir::upstream::Replicas;

use super::{Replica, until};

/// A gateway.
pub(crate) struct Gateway {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its inside.
    pub(crate) proxy: Arc<Proxy>,
    records: Arc<Mutex<Vec<RequestRecord>>>,
    certificate: CertificateDer<'static>,
    /// While it lives the listener does.
    _drain: Drain,
}

struct Caught(Arc<Mutex<Vec<RequestRecord>>>);

impl Observer for Caught {
    fn record(&self, record: &RequestRecord) {
        self.0.lock().push(record.clone());
    }
    fn attempt_failed(&self, _: &str, _: &str, _: Failure) {}
    fn answered(&self, _: &str, _: &str, _: u16) {}
    fn note(&self, _: &str, _: &str, _: Note) {}
}

/// The configuration of a pool `tiny` over these replicas. `server` is put before the pool,
/// `pool` after its first keys.
pub(crate) fn config(replicas: &[&Replica], server: &str, pool: &str) -> Arc<Config> {
    let mut text = format!(
        "[server]\nlisten = \"127.0.0.1:18080\"\nadmin = \"127.0.0.1:19090\"\n{server}\n\
         [[pools]]\nmodel = \"tiny\"\naliases = [\"gpt-4\"]\nreplicas = ["
    );
    for replica in replicas {
        write!(text, "\"http://{}\",", replica.address).unwrap();
    }
    write!(text, "]\n{pool}\n").unwrap();
    Arc::new(load(&Sources::only("test.toml", &text)).unwrap_or_else(|e| panic!("{e:?}\n{text}")))
}

impl Gateway {
    /// Plain, before these replicas.
    pub(crate) fn start(replicas: &[&Replica], server: &str, pool: &str) -> Self {
        Self::serve(replicas, server, pool, false)
    }

    /// Plain or over TLS.
    pub(crate) fn serve(replicas: &[&Replica], server: &str, pool: &str, tls: bool) -> Self {
        let records = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&records);
        let clock = Clock::start();
        let tasks = Tasks::default();
        let config = config(replicas, server, pool);
        let parts = Parts {
            clock,
            tasks: tasks.clone(),
            replicas: Arc::new(Replicas::new(clock)),
            observer: Arc::new(Caught(sink)),
            seed: 7,
        };
        let proxy = Proxy::new(parts, config);
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let (pair, certificate) = certificate();
        let drain = Drain::new();
        let listener = Listener {
            socket,
            tls: tls.then_some(pair),
            max_connections: 10_000,
            limits: ConnectionLimits::default(),
            connections: Telemetry::new().unwrap().connections(),
            clock,
            tasks: tasks.clone(),
            drain: drain.watch(),
        };
        drop(tasks.spawn("listener", listener.serve(Front(Arc::clone(&proxy)))));
        Self { address, proxy, records, certificate, _drain: drain }
    }

    /// The certificates that its clients trust.
    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }

    /// All records so far.
    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        self.records.lock().clone()
    }

    /// Waits for that many records, checks that no more have come, and returns them.
    pub(crate) async fn ended(&self, count: usize) -> Vec<RequestRecord> {
        until("records of every request", || self.records.lock().len() >= count).await;
        let records = self.records();
        assert_eq!(records.len(), count, "one record a request");
        records
    }

    /// Waits until no request holds anything at the gate.
    pub(crate) async fn idle(&self) {
        until("an empty gate", || {
            self.proxy.snapshots().iter().all(|pool| {
                let gate = &pool.gate;
                gate.in_flight == 0
                    && gate.queue.waiting == 0
                    && gate.replicas.iter().all(|r| r.in_flight == 0 && r.prefill_tokens == 0)
            }) && self.proxy.held_bytes() == 0
        })
        .await;
        assert_eq!(self.proxy.streams(), 0);
    }
}

/// The proxy, as the listener sees it.
#[derive(Clone)]
struct Front(Arc<Proxy>);

impl Serve for Front {
    type Body = RelayBody;
    type Peer = Peer;

    fn peer(&self, address: SocketAddr, tls: bool) -> Peer {
        Peer { tls, ..Peer::new(address) }
    }

    async fn hangup(peer: Peer) {
        peer.hangup.wanted().await;
    }

    async fn handle(&self, request: Request<Incoming>, peer: Peer) -> Response<RelayBody> {
        self.0.handle(request, peer).await
    }
}

fn certificate() -> (Arc<Tls>, CertificateDer<'static>) {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    (Arc::new(Tls::load(&cert, &key).unwrap()), pair.cert.der().clone())
}
