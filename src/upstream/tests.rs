//! The client against real sockets: what is counted is connections and outcomes, never time.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::testing::{LONG, Peer, post, text};
use super::{ConnectionCounts, Exchange, SendError, UpstreamError};
use crate::domain::Failure;

const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

fn failure(outcome: Result<Exchange, SendError>) -> Failure {
    match outcome {
        Ok(exchange) => panic!("an answer came: {:?}", exchange.head),
        Err(error) => error.failure,
    }
}

async fn error(mut exchange: Exchange) -> (String, UpstreamError) {
    let mut came = String::new();
    loop {
        match exchange.body.frame().await {
            Some(Ok(frame)) => {
                came.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
            }
            Some(Err(error)) => {
                assert!(exchange.body.frame().await.is_none(), "nothing follows an error");
                return (came, error);
            }
            None => panic!("ended cleanly after {came:?}"),
        }
    }
}

#[tokio::test]
async fn a_whole_answer_gives_its_connection_back() {
    let peer = Peer::start().await;
    let (mut line, exchange) = peer.first(WHOLE).await;
    assert_eq!(text(exchange.unwrap()).await, "ok");
    for _ in 0..5 {
        let exchange = peer.ask(&mut line, WHOLE).await.unwrap();
        assert_eq!(text(exchange).await, "ok");
    }
    let expected = ConnectionCounts { opened: 1, reused: 5, idle: 1 };
    assert_eq!(peer.replica.connections(), expected);
}

#[tokio::test]
async fn a_body_that_nobody_polls_to_its_end_still_gives_the_connection_back() {
    let peer = Peer::start().await;
    let (_line, exchange) = peer.first(WHOLE).await;
    let mut exchange = exchange.unwrap();
    assert_eq!(exchange.body.size_hint().exact(), Some(2));
    exchange.body.frame().await.unwrap().unwrap();
    assert!(exchange.body.is_end_stream(), "hyper's server polls no further");
    drop(exchange);
    assert_eq!(peer.replica.connections().idle, 1);

    let (_other, empty) = peer_without_idle(&peer, "HTTP/1.1 204 No Content\r\n\r\n").await;
    assert!(empty.body.is_end_stream());
    assert_eq!(peer.replica.connections().idle, 1);
}

async fn peer_without_idle(peer: &Peer, answer: &str) -> (super::testing::Line, Exchange) {
    peer.replica.retire();
    let (line, exchange) = peer.first(answer).await;
    (line, exchange.unwrap())
}

#[tokio::test]
async fn frames_pass_one_by_one_as_they_are_sent() {
    let peer = Peer::start().await;
    let (mut line, exchange) = peer.first(CHUNKED).await;
    let mut body = exchange.unwrap().body;
    for k in 0..50 {
        let frame = format!("data: {k}\n\n");
        line.write(&format!("{:x}\r\n{frame}\r\n", frame.len())).await;
        let came = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(came, frame.as_bytes());
    }
    line.write("0\r\n\r\n").await;
    assert!(body.frame().await.is_none());
    assert_eq!(peer.replica.connections().idle, 1);
}

#[tokio::test]
async fn a_connection_that_will_close_is_not_kept() {
    let peer = Peer::start().await;
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    for answer in [closing, "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"] {
        let (mut line, exchange) = peer.first(answer).await;
        assert_eq!(text(exchange.unwrap()).await, "ok");
        line.closed().await;
        assert_eq!(peer.replica.connections().idle, 0);
    }
}

#[tokio::test]
async fn an_answer_without_length_ends_with_its_connection() {
    let peer = Peer::start().await;
    let (line, exchange) = peer.first("HTTP/1.1 200 OK\r\n\r\nall of it").await;
    drop(line);
    assert_eq!(text(exchange.unwrap()).await, "all of it");
    assert_eq!(peer.replica.connections().idle, 0);
}

#[tokio::test]
async fn an_idle_connection_that_the_replica_closed_is_seen_before_it_is_used() {
    let peer = Peer::start().await;
    let (line, exchange) = peer.first(WHOLE).await;
    text(exchange.unwrap()).await;
    drop(line);
    // Idles once, so that the runtime looks at its sockets and hears of the close.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let (_line, exchange) = peer.first(WHOLE).await;
    assert_eq!(text(exchange.unwrap()).await, "ok");
    let expected = ConnectionCounts { opened: 2, reused: 0, idle: 1 };
    assert_eq!(peer.replica.connections(), expected);
}

#[tokio::test]
async fn a_close_that_crosses_the_request_is_the_keep_alive_race() {
    for reset in [false, true] {
        let peer = Peer::start().await;
        let (mut line, exchange) = peer.first(WHOLE).await;
        text(exchange.unwrap()).await;
        let crossing = async {
            line.request().await;
            if reset { line.reset() } else { drop(line) }
        };
        let (sent, ()) = tokio::join!(peer.replica.send(post("{}"), LONG), crossing);
        assert_eq!(failure(sent), Failure::IdleClosed);
        assert_eq!(peer.replica.connections().idle, 0);
    }
}

#[tokio::test]
async fn a_reused_connection_that_breaks_after_a_byte_is_no_race() {
    let peer = Peer::start().await;
    let (mut line, exchange) = peer.first(WHOLE).await;
    text(exchange.unwrap()).await;
    let breaking = async {
        line.serve("HTTP/1.1 200 OK\r\ncontent").await;
        drop(line);
    };
    let (sent, ()) = tokio::join!(peer.replica.send(post("{}"), LONG), breaking);
    assert_eq!(failure(sent), Failure::Reset);
}

#[tokio::test]
async fn a_fresh_connection_that_dies_is_a_reset() {
    let peer = Peer::start().await;
    for reset in [false, true] {
        let dying = async {
            let mut line = peer.accept().await;
            line.request().await;
            if reset { line.reset() } else { drop(line) }
        };
        let (sent, ()) = tokio::join!(peer.replica.send(post("{}"), LONG), dying);
        assert_eq!(failure(sent), Failure::Reset);
    }
}

#[tokio::test]
async fn what_is_not_http_is_a_protocol_failure() {
    let peer = Peer::start().await;
    let huge = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(200_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(1_000));
    for garbage in [
        "SSH-2.0-OpenSSH_9.6\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        huge.as_str(),
        many.as_str(),
    ] {
        let serving = async {
            let mut line = peer.accept().await;
            line.request().await;
            // The gateway may hang up before it has all of it.
            let _cut = tokio::io::AsyncWriteExt::write_all(&mut line.socket, garbage.as_bytes())
                .await
                .is_err();
            line
        };
        let (sent, _line) = tokio::join!(peer.replica.send(post("{}"), LONG), serving);
        assert_eq!(failure(sent), Failure::Protocol, "{}", garbage.len());
    }
}

#[tokio::test]
async fn an_interim_answer_is_passed_over() {
    let peer = Peer::start().await;
    let interim = format!("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n{WHOLE}");
    let (_line, exchange) = peer.first(&interim).await;
    let exchange = exchange.unwrap();
    assert_eq!(exchange.head.status, 200);
    assert_eq!(text(exchange).await, "ok");
}

#[tokio::test]
async fn nobody_listening_is_a_connect_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let peer = Peer::start().await;
    let gone = peer.replicas.intern(&address);
    assert_eq!(failure(gone.send(post("{}"), LONG).await), Failure::Connect);
    assert_eq!(gone.connections(), ConnectionCounts::default());
}

#[tokio::test]
async fn a_replica_that_wants_tls_is_never_spoken_to_in_plain() {
    let peer = Peer::start().await;
    let address = format!("https://{}", peer.replica.name()).parse().unwrap();
    let secured = peer.replicas.intern(&address);
    assert_ne!(secured.id(), peer.replica.id());
    assert_eq!(failure(secured.send(post("{}"), LONG).await), Failure::Connect);
}

#[tokio::test]
async fn a_connection_that_takes_too_long_is_a_connect_failure() {
    const SHORT: Duration = Duration::from_millis(50);
    // A listener that accepts nobody: once its backlog is full, the kernel answers no more.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let place = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(one)) = tokio::time::timeout(SHORT, TcpStream::connect(place)).await {
        waiting.push(one);
        assert!(waiting.len() < 100, "the backlog never fills");
    }
    let peer = Peer::start().await;
    let full = peer.replicas.intern(&format!("http://{place}").parse().unwrap());
    assert_eq!(failure(full.send(post("{}"), SHORT).await), Failure::Connect);
}

#[tokio::test]
async fn an_answer_that_ends_early_never_ends_cleanly() {
    let short = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nha";
    let open = format!("{CHUNKED}2\r\nha\r\n");
    let inside = format!("{CHUNKED}9\r\nha");
    let size = format!("{CHUNKED}2\r\nha\r\n1");
    for answer in [short, &open, &inside, &size] {
        let peer = Peer::start().await;
        let (line, exchange) = peer.first(answer).await;
        drop(line);
        let (came, error) = error(exchange.unwrap()).await;
        assert_eq!((came.as_str(), error), ("ha", UpstreamError::Truncated), "{answer}");
        assert_eq!(peer.replica.connections().idle, 0);
    }
}

#[tokio::test]
async fn a_reset_in_mid_answer_is_told_apart() {
    let peer = Peer::start().await;
    let (mut line, exchange) = peer.first(&format!("{CHUNKED}2\r\nha\r\n")).await;
    let mut exchange = exchange.unwrap();
    let first = exchange.body.frame().await.unwrap().unwrap();
    assert_eq!(first.data_ref().unwrap(), &Bytes::from_static(b"ha"));
    line.write("2\r\n").await;
    line.reset();
    assert_eq!(error(exchange).await.1, UpstreamError::Reset);
}

#[tokio::test]
async fn broken_chunks_are_a_protocol_error() {
    let peer = Peer::start().await;
    let answer = format!("{CHUNKED}2\r\nha\r\nzz\r\n");
    let (_line, exchange) = peer.first(&answer).await;
    let (came, error) = error(exchange.unwrap()).await;
    assert_eq!((came.as_str(), error), ("ha", UpstreamError::Protocol));
}

#[tokio::test]
async fn dropping_the_body_closes_the_connection() {
    let peer = Peer::start().await;
    let (mut line, exchange) = peer.first(&format!("{CHUNKED}2\r\nha\r\n")).await;
    drop(exchange.unwrap());
    line.closed().await;
    assert_eq!(peer.replica.connections().idle, 0);
}

#[tokio::test]
async fn dropping_the_request_closes_the_connection() {
    let peer = Peer::start().await;
    let mut sending = Box::pin(peer.replica.send(post("{}"), LONG));
    let mut line = tokio::select! {
        _ = &mut sending => panic!("no answer was sent"),
        line = async { let mut line = peer.accept().await; line.request().await; line } => line,
    };
    drop(sending);
    line.closed().await;
}

#[tokio::test]
async fn a_slow_reader_stops_the_replica_and_loses_nothing() {
    const TOTAL: usize = 16 * 1024 * 1024;
    let peer = Peer::start().await;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {TOTAL}\r\n\r\n");
    let (line, exchange) = peer.first(&head).await;
    let mut body = exchange.unwrap().body;
    let mut socket = line.socket;
    let filler = vec![b'x'; 64 * 1024];
    let mut sent = 0;
    // Nobody polls the body, so the socket fills up and takes no more.
    while let Ok(Ok(written)) = tokio::time::timeout(
        Duration::from_millis(50),
        tokio::io::AsyncWriteExt::write(&mut socket, &filler),
    )
    .await
    {
        sent += written;
        assert!(sent < TOTAL, "nothing may buffer a whole answer");
    }
    let rest = async {
        while sent < TOTAL {
            let most = filler.len().min(TOTAL - sent);
            sent += tokio::io::AsyncWriteExt::write(&mut socket, &filler[..most]).await.unwrap();
        }
    };
    let reading = async {
        let mut came = 0;
        while let Some(frame) = body.frame().await {
            came += frame.unwrap().into_data().unwrap().len();
        }
        came
    };
    let (came, ()) = tokio::join!(reading, rest);
    assert_eq!(came, TOTAL);
    assert_eq!(peer.replica.connections().idle, 1);
}

#[tokio::test]
async fn what_goes_out_has_our_framing_and_the_replicas_name() {
    let peer = Peer::start().await;
    let request = Request::post("http://elsewhere.example/v1/completions?x=1")
        .header(header::HOST, "elsewhere.example")
        .header(header::TRANSFER_ENCODING, "chunked")
        .header(header::CONTENT_LENGTH, "7")
        .header("x-request-id", "r-1")
        .body(Bytes::from_static(b"{\"a\":1}!"))
        .unwrap();
    let (sent, seen) = tokio::join!(peer.replica.send(request, LONG), async {
        peer.accept().await.serve(WHOLE).await
    });
    assert_eq!(text(sent.unwrap()).await, "ok");
    let (head, body) = seen.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "{\"a\":1}!");
    let mut lines: Vec<_> = head.lines().map(str::to_ascii_lowercase).collect();
    assert_eq!(lines.remove(0), "post /v1/completions?x=1 http/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", peer.replica.name());
    assert_eq!(lines, ["content-length: 8", host.as_str(), "x-request-id: r-1"]);
}

#[tokio::test]
async fn idle_connections_age_and_the_reaper_closes_them() {
    let peer = Peer::start().await;
    let (mut line, exchange) = peer.first(WHOLE).await;
    text(exchange.unwrap()).await;
    peer.replica.reap();
    assert_eq!(peer.replica.connections().idle, 1, "young ones stay");
    peer.replicas.set_idle_time(Duration::ZERO);
    peer.replica.reap();
    assert_eq!(peer.replica.connections().idle, 0);
    line.closed().await;

    peer.replicas.set_idle_time(LONG);
    let (mut line, exchange) = peer.first(WHOLE).await;
    text(exchange.unwrap()).await;
    peer.replicas.set_idle_time(Duration::ZERO);
    let (mut other, exchange) = peer.first(WHOLE).await;
    line.closed().await;
    text(exchange.unwrap()).await;
    assert_eq!(peer.replica.connections().reused, 0, "an old one is not used again");
    peer.replica.retire();
    other.closed().await;
}

#[tokio::test]
async fn many_at_once_use_a_connection_each_and_give_them_all_back() {
    let peer = Peer::start().await;
    let client = async {
        let sending = (0..20).map(|_| peer.replica.send(post("{}"), LONG));
        let mut sending: Vec<_> = sending.map(Box::pin).collect();
        let mut bodies = Vec::new();
        // Polled together, so that all are under way before the first is answered.
        while !sending.is_empty() {
            poll_fn(|cx| {
                let before = bodies.len();
                sending.retain_mut(|one| match one.as_mut().poll(cx) {
                    Poll::Ready(exchange) => {
                        bodies.push(exchange.unwrap());
                        false
                    }
                    Poll::Pending => true,
                });
                if bodies.len() > before { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        for body in bodies {
            assert_eq!(text(body).await, "ok");
        }
    };
    let server = async {
        let mut lines = Vec::new();
        for _ in 0..20 {
            lines.push(peer.accept().await);
        }
        for line in &mut lines {
            line.serve(WHOLE).await;
        }
        lines
    };
    let ((), _lines) = tokio::join!(client, server);
    assert_eq!(peer.replica.connections(), ConnectionCounts { opened: 20, reused: 0, idle: 20 });
}
