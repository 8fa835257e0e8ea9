//! Connections from end to end: over a duplex pipe with time paused where time is the point,
//! over real sockets where the socket is.

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::connection::{self, Scene};
use super::refusal::Refusals;
use super::{ConnectionLimits, Listener, Serve, Tls, bind};
use crate::lifecycle::{Clock, Drain, Phase, Tasks};
use crate::telemetry::Telemetry;

type TestBody = UnsyncBoxBody<Bytes, Infallible>;

/// Echoes a body, or holds the answer until told to go on.
#[derive(Clone, Default)]
struct Echo {
    seen: Arc<AtomicUsize>,
    go: Arc<Notify>,
    hangup: Arc<Notify>,
}

impl Serve for Echo {
    type Body = TestBody;
    type Peer = (bool, Arc<Notify>);

    fn peer(&self, _address: SocketAddr, tls: bool) -> Self::Peer {
        (tls, Arc::clone(&self.hangup))
    }

    async fn hangup((_, hangup): Self::Peer) {
        hangup.notified().await;
    }

    async fn handle(&self, request: Request<Incoming>, peer: Self::Peer) -> Response<TestBody> {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let hold = request.uri().path() == "/hold";
        let version = request.version();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        if hold {
            self.go.notified().await;
        }
        Response::builder()
            .header("x-tls", peer.0.to_string())
            .header("x-version", format!("{version:?}"))
            .body(Full::new(body).boxed_unsync())
            .unwrap()
    }
}

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        header_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_mins(1),
        max_header_bytes: 4096,
        max_headers: 20,
        max_streams: 8,
    }
}

/// A connection over a pipe; the drain is kept, since its drop is the end.
fn piped(echo: &Echo, drain: &Drain) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let tasks = Tasks::default();
    let scene = Arc::new(Scene {
        serve: echo.clone(),
        limits: limits(),
        builder: connection::builder(&limits(), tasks.clone()),
        clock: Clock::start(),
        drain: drain.watch(),
        refusals: Refusals::new(Telemetry::new().unwrap().connections(), Clock::start()),
    });
    let peer = echo.peer(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), false);
    (client, tasks.spawn("connection", connection::run(scene, server, peer)))
}

/// Sends `bytes` over one connection and returns all that comes back until its end.
async fn exchange(bytes: &[u8]) -> (String, usize) {
    let (echo, drain) = (Echo::default(), Drain::new());
    let (mut client, done) = piped(&echo, &drain);
    client.write_all(bytes).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    done.await.unwrap();
    (answer, echo.seen.load(Ordering::Relaxed))
}

fn is_refused(answer: &str, status: u16, reason: &str) -> bool {
    answer.starts_with(&format!("HTTP/1.1 {status} "))
        && answer.contains(&format!("x-weir-reason: {reason}\r\n"))
        && answer.contains(&format!("\"reason\":\"{reason}\""))
        && answer.contains("\r\nx-request-id: weir-")
        && answer.matches("HTTP/1.1 ").count() == 1
}

#[tokio::test(start_paused = true)]
async fn a_head_that_cannot_be_taken_is_refused_with_its_reason() {
    let many = (0..21).map(|n| format!("x-{n}: y\r\n")).collect::<Vec<_>>().concat();
    let flood = (0..50_000).map(|n| format!("x-{n}: y\r\n")).collect::<Vec<_>>().concat();
    let large = format!("x-large: {}\r\n", "y".repeat(4096));
    let cases = [
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431, "headers"),
        (format!("GET / HTTP/1.1\r\n{flood}\r\n"), 431, "headers"),
        (format!("GET / HTTP/1.1\r\n{large}\r\n"), 431, "headers"),
        (format!("GET / HTTP/1.1\r\n{}", large.repeat(50)), 431, "headers"),
        ("\0\u{1}\u{2} nonsense\r\n\r\n".to_owned(), 400, "malformed"),
        ("GET / HTTP/1.1\r\nno colon here\r\n\r\n".to_owned(), 400, "malformed"),
        (
            "POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            400,
            "malformed",
        ),
        ("POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n".to_owned(), 400, "malformed"),
    ];
    for (head, status, reason) in cases {
        let (mut echo_seen, mut answer) = (0, String::new());
        let shown: String = head.chars().take(60).collect();
        let (echo, drain) = (Echo::default(), Drain::new());
        let (client, done) = piped(&echo, &drain);
        let (mut read, mut write) = tokio::io::split(client);
        let send = async {
            // The refusal may come before all of it is written.
            let _cut_off = write.write_all(head.as_bytes()).await.is_err();
        };
        let _both = tokio::join!(send, read.read_to_string(&mut answer));
        echo_seen += echo.seen.load(Ordering::Relaxed);
        assert!(is_refused(&answer, status, reason), "{shown:?} -> {answer:?}");
        assert_eq!(echo_seen, 0, "{shown:?}");
        drop((read, write));
        done.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_is_told_so_even_when_it_trickles() {
    let (echo, drain) = (Echo::default(), Drain::new());
    let (mut client, done) = piped(&echo, &drain);
    let mut sent = 0;
    for byte in b"GET / HTTP/1.1\r\nhost: a\r\n".iter().cycle() {
        if client.write_all(&[*byte]).await.is_err() || done.is_finished() {
            break;
        }
        sent += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(is_refused(&answer, 408, "slow_request"), "{answer}");
    assert!((5..=8).contains(&sent), "cut after {sent} bytes, one a second, of 5 s");
}

#[tokio::test(start_paused = true)]
async fn silence_is_not_a_slow_head() {
    let (echo, drain) = (Echo::default(), Drain::new());
    let (mut client, done) = piped(&echo, &drain);
    let request = b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi";
    for _ in 0..3 {
        client.write_all(request).await.unwrap();
        let mut answer = vec![0; 1024];
        let read = client.read(&mut answer).await.unwrap();
        assert!(answer[..read].ends_with(b"hi"));
        // Far more than a head may take, less than a connection may rest.
        tokio::time::sleep(Duration::from_secs(50)).await;
    }
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"", "an idle connection ends without a word");
    done.await.unwrap();
    assert_eq!(echo.seen.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_take_as_long_as_it_likes() {
    let (echo, drain) = (Echo::default(), Drain::new());
    let (mut client, _done) = piped(&echo, &drain);
    client.write_all(b"GET /hold HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_hours(1)).await;
    echo.go.notify_one();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_looks_like_a_refusal_is_left_alone() {
    let text = "HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n";
    let one = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    let last = one.replace("content-length", "connection: close\r\ncontent-length");
    let (answer, seen) = exchange(format!("{one}{one}{last}").as_bytes()).await;
    assert_eq!(seen, 3);
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3);
    assert_eq!(answer.matches("Too Large").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_hung_up_on_loses_its_connection() {
    let (echo, drain) = (Echo::default(), Drain::new());
    let (mut client, done) = piped(&echo, &drain);
    client.write_all(b"GET /hold HTTP/1.1\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    echo.hangup.notify_one();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"");
    done.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn draining_ends_idle_connections_and_lets_busy_ones_finish() {
    let (echo, drain) = (Echo::default(), Drain::new());
    let (mut idle, idle_done) = piped(&echo, &drain);
    idle.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let (mut busy, _) = piped(&echo, &drain);
    busy.write_all(b"GET /hold HTTP/1.1\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;

    drain.advance(Phase::Unready);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!idle_done.is_finished(), "unready still serves");

    drain.advance(Phase::Draining);
    idle_done.await.unwrap();
    let (mut late, late_done) = piped(&echo, &drain);
    late.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    late.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "a late client gets one answer: {answer}");
    late_done.await.unwrap();

    echo.go.notify_one();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

/// A listener on a free port, its address, and what must live as long.
struct Running {
    address: SocketAddr,
    tasks: Tasks,
    drain: Drain,
    telemetry: Arc<Telemetry>,
}

fn listen(echo: &Echo, tls: Option<Arc<Tls>>, max_connections: usize) -> Running {
    let socket = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = socket.local_addr().unwrap();
    let (tasks, drain, telemetry) = (Tasks::default(), Drain::new(), Telemetry::new().unwrap());
    let listener = Listener {
        socket,
        tls,
        max_connections,
        limits: limits(),
        connections: telemetry.connections(),
        clock: Clock::start(),
        tasks: tasks.clone(),
        drain: drain.watch(),
    };
    drop(tasks.spawn("listener", listener.serve(echo.clone())));
    Running { address, tasks, drain, telemetry }
}

struct Certificate {
    dir: tempfile::TempDir,
    roots: rustls::RootCertStore,
}

fn certificate() -> Certificate {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    Certificate { dir, roots }
}

impl Certificate {
    fn load(&self) -> Arc<Tls> {
        let file = |name| self.dir.path().join(name);
        Arc::new(Tls::load(&file("cert.pem"), &file("key.pem")).unwrap())
    }

    async fn connect(
        &self,
        address: SocketAddr,
        alpn: &str,
    ) -> tokio_rustls::client::TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let stream = TcpStream::connect(address).await.unwrap();
        let name = "localhost".try_into().unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }
}

/// A body of two frames and no known length.
struct TwoFrames(std::array::IntoIter<&'static str, 2>);

impl hyper::body::Body for TwoFrames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = self.0.next().map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes()))));
        Poll::Ready(frame)
    }
}

#[derive(Clone)]
struct OnTasks(Tasks);

impl<F> hyper::rt::Executor<F> for OnTasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(self.0.spawn("client", future));
    }
}

async fn ask<T>(io: T, h2: bool) -> (http::HeaderMap, Bytes)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tasks = Tasks::default();
    let request =
        Request::post("http://localhost/").body(TwoFrames(["one ", "two"].into_iter())).unwrap();
    let io = TokioIo::new(io);
    let response = if h2 {
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(OnTasks(tasks.clone()), io).await.unwrap();
        drop(tasks.spawn("client", connection));
        send.send_request(request).await.unwrap()
    } else {
        let (mut send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        drop(tasks.spawn("client", connection));
        send.send_request(request).await.unwrap()
    };
    let (head, body) = response.into_parts();
    (head.headers, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn both_versions_of_http_work_plain_and_encrypted() {
    let certificate = certificate();
    for (tls, h2) in [(false, false), (false, true), (true, false), (true, true)] {
        let echo = Echo::default();
        let running = listen(&echo, tls.then(|| certificate.load()), 10);
        let (headers, body) = if tls {
            let alpn = if h2 { "h2" } else { "http/1.1" };
            let io = certificate.connect(running.address, alpn).await;
            assert_eq!(io.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
            ask(io, h2).await
        } else {
            ask(TcpStream::connect(running.address).await.unwrap(), h2).await
        };
        assert_eq!(body, "one two");
        assert_eq!(headers["x-tls"], tls.to_string());
        let version = if h2 { Version::HTTP_2 } else { Version::HTTP_11 };
        assert_eq!(headers["x-version"], format!("{version:?}"));
        running.drain.advance(Phase::Closed);
        running.tasks.idle().await;
        assert_eq!(running.telemetry.connections().open.get(), 0);
    }
}

#[tokio::test]
async fn a_failed_handshake_is_counted_and_harms_nobody() {
    let certificate = certificate();
    let running = listen(&Echo::default(), Some(certificate.load()), 10);
    let mut plain = TcpStream::connect(running.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _closed_or_reset = plain.read_to_end(&mut answer).await.is_ok();
    assert_eq!(running.telemetry.connections().tls_failed.get(), 1);
    let io = certificate.connect(running.address, "http/1.1").await;
    assert_eq!(ask(io, false).await.1, "one two");
}

#[test]
fn a_certificate_that_cannot_be_read_leaves_the_old_in_force() {
    let certificate = certificate();
    let tls = certificate.load();
    let before = tls.config();
    let cert = certificate.dir.path().join("cert.pem");
    std::fs::write(&cert, "no certificate").unwrap();
    assert!(tls.reload().is_err());
    assert!(Arc::ptr_eq(&before, &tls.config()));
    std::fs::remove_file(&cert).unwrap();
    assert!(tls.reload().unwrap_err().is_missing());
    let other = self::certificate();
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(other.dir.path().join(name), certificate.dir.path().join(name)).unwrap();
    }
    tls.reload().unwrap();
    assert!(!Arc::ptr_eq(&before, &tls.config()));
}

#[tokio::test]
async fn one_connection_too_many_is_turned_away_and_told_why() {
    let running = listen(&Echo::default(), None, 1);
    let mut first = TcpStream::connect(running.address).await.unwrap();
    first.write_all(b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
    assert!(first.read(&mut [0; 1024]).await.unwrap() > 0);

    let mut second = TcpStream::connect(running.address).await.unwrap();
    let mut answer = String::new();
    second.read_to_string(&mut answer).await.unwrap();
    assert!(is_refused(&answer, 503, "overloaded"), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    assert_eq!(running.telemetry.connections().over_cap.get(), 1);
}

#[tokio::test]
async fn a_closed_process_accepts_nothing() {
    let running = listen(&Echo::default(), None, 10);
    running.drain.advance(Phase::Closed);
    running.tasks.idle().await;
    assert!(TcpStream::connect(running.address).await.is_err());
}
