//! A gateway on a real socket, with its records caught.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use weir::config::{Config, Sources, load};
use weir::dispatch::Note;
use weir::domain::{Failure, RequestRecord};
use weir::lifecycle::{Clock, Tasks};
use weir::proxy::{Observer, Parts, Peer, Proxy};
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
    pub(crate) async fn start(replicas: &[&Replica], server: &str, pool: &str) -> Self {
        Self::serve(replicas, server, pool, false).await
    }

    /// Plain or over TLS.
    pub(crate) async fn serve(replicas: &[&Replica], server: &str, pool: &str, tls: bool) -> Self {
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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (acceptor, certificate) = acceptor();
        let acceptor = tls.then_some(acceptor);
        let serving = Arc::clone(&proxy);
        tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (proxy, acceptor) = (Arc::clone(&serving), acceptor.clone());
                tokio::spawn(async move {
                    let Some(acceptor) = acceptor else { return drive(proxy, stream, from).await };
                    if let Ok(stream) = acceptor.accept(stream).await {
                        drive(proxy, stream, from).await;
                    }
                });
            }
        });
        Self { address, proxy, records, certificate }
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

async fn drive<S>(proxy: Arc<Proxy>, stream: S, from: SocketAddr)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let peer = Peer::new(from);
    let hangup = peer.hangup.clone();
    let service = service_fn(move |request| {
        let (proxy, peer) = (Arc::clone(&proxy), peer.clone());
        async move { Ok::<_, std::convert::Infallible>(proxy.handle(request, peer).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().max_buf_size(16 * 1024);
    server.http2().max_send_buf_size(16 * 1024);
    tokio::select! {
        _end = server.serve_connection(TokioIo::new(stream), service) => {}
        () = hangup.wanted() => {}
    }
    // Whatever was on the way goes with the connection.
    tokio::time::sleep(Duration::ZERO).await;
}

fn acceptor() -> (TlsAcceptor, CertificateDer<'static>) {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = pair.cert.der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der()));
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (TlsAcceptor::from(Arc::new(config)), certificate)
}
