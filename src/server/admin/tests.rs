//! The admin side: who is answered, with what, and that it answers whatever happens elsewhere.

use std::net::Ipv4Addr;

use super::*;

fn admin_options(telemetry: Arc<Telemetry>, drain: &Drain) -> AdminOptions {
    AdminOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        token: None,
        telemetry,
        phase: drain.watch(),
        configured: Arc::new(|| true),
        extra: Arc::new(|| json!({ "generation": 3 })),
        config: Arc::new(|| json!({ "settings": {} })),
        reload: Arc::new(|| Box::pin(async { Err("config.toml: pools: none".to_owned()) })),
        clock: Clock::start(),
    }
}

/// Asks over a plain socket; status and body.
fn admin_ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[test]
fn admin_answers_while_the_public_runtime_stands_still() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let (blocked, is_blocked) = std::sync::mpsc::channel();
    let public = std::thread::spawn(move || {
        runtime.block_on(async move {
            blocked.send(()).unwrap();
            held.recv().unwrap();
        });
    });
    is_blocked.recv().unwrap();

    let drain = Drain::new();
    let admin = start_admin(admin_options(Telemetry::new().unwrap(), &drain)).unwrap();
    let (status, metrics) = admin_ask(admin.address(), "GET", "/metrics", "");
    assert_eq!(status, 200);
    assert!(metrics.contains("weir_build_info"));
    assert_eq!(admin_ask(admin.address(), "GET", "/livez", ""), (200, "ok\n".to_owned()));
    admin.stop();
    let_go.send(()).unwrap();
    public.join().unwrap();
}

#[test]
fn readiness_follows_the_phase_and_liveness_does_not() {
    let drain = Drain::new();
    let admin = start_admin(admin_options(Telemetry::new().unwrap(), &drain)).unwrap();
    let ask = |path| admin_ask(admin.address(), "GET", path, "");
    assert_eq!(ask("/readyz").0, 200);
    drain.advance(Phase::Unready);
    assert_eq!(ask("/readyz"), (503, "unready\n".to_owned()));
    assert_eq!(ask("/livez").0, 200);
    drain.advance(Phase::Closed);
    assert_eq!(ask("/livez").0, 200, "the admin side closes last");
    admin.stop();
}

#[test]
fn an_unconfigured_process_is_not_ready() {
    let drain = Drain::new();
    let options = AdminOptions {
        configured: Arc::new(|| false),
        ..admin_options(Telemetry::new().unwrap(), &drain)
    };
    let admin = start_admin(options).unwrap();
    let answer = admin_ask(admin.address(), "GET", "/readyz", "");
    assert_eq!(answer, (503, "unconfigured\n".to_owned()));
    admin.stop();
}

#[test]
fn status_shows_the_pools_and_what_the_application_adds() {
    let telemetry = Telemetry::new().unwrap();
    telemetry.watch_gates(|| {
        vec![crate::domain::PoolSnapshot {
            model: "tiny".into(),
            gate: crate::domain::GateSnapshot { in_flight: 7, ..Default::default() },
            ..Default::default()
        }]
    });
    let drain = Drain::new();
    let admin = start_admin(admin_options(telemetry, &drain)).unwrap();
    let (status, body) = admin_ask(admin.address(), "GET", "/status", "");
    let page: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(page["generation"], 3);
    assert_eq!(page["phase"], "serving");
    assert_eq!(page["pools"][0]["model"], "tiny");
    assert_eq!(page["pools"][0]["in_flight"], 7);
    let (status, body) = admin_ask(admin.address(), "POST", "/config/reload", "");
    assert_eq!((status, body.contains("pools: none")), (422, true));
    assert_eq!(admin_ask(admin.address(), "GET", "/config/reload", "").0, 405);
    assert_eq!(admin_ask(admin.address(), "GET", "/elsewhere", "").0, 404);
    admin.stop();
}

#[test]
fn off_loopback_all_but_metrics_and_probes_needs_the_token() {
    let drain = Drain::new();
    let options = AdminOptions {
        listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        token: Some("secret".into()),
        ..admin_options(Telemetry::new().unwrap(), &drain)
    };
    let admin = start_admin(options).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, admin.address().port()));
    for path in ["/metrics", "/livez", "/readyz"] {
        assert_eq!(admin_ask(address, "GET", path, "").0, 200, "{path}");
    }
    for wrong in ["", "authorization: Bearer secre\r\n", "authorization: secret\r\n"] {
        assert_eq!(admin_ask(address, "GET", "/status", wrong).0, 401, "{wrong}");
        assert_eq!(admin_ask(address, "POST", "/config/reload", wrong).0, 401, "{wrong}");
    }
    let right = "authorization: Bearer secret\r\n";
    assert_eq!(admin_ask(address, "GET", "/status", right).0, 200);
    admin.stop();
}

#[test]
fn off_loopback_without_a_token_nobody_is_let_in() {
    let drain = Drain::new();
    let options = AdminOptions {
        listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        ..admin_options(Telemetry::new().unwrap(), &drain)
    };
    let admin = start_admin(options).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, admin.address().port()));
    let empty = "authorization: Bearer \r\n";
    assert_eq!(admin_ask(address, "GET", "/status", empty).0, 401);
    admin.stop();
}

#[test]
fn the_page_asks_for_nothing_and_its_data_for_the_token() {
    let drain = Drain::new();
    let options = AdminOptions {
        listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        token: Some("secret".into()),
        ..admin_options(Telemetry::new().unwrap(), &drain)
    };
    let admin = start_admin(options).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, admin.address().port()));
    let (status, page) = admin_ask(address, "GET", "/", "");
    assert_eq!((status, page.starts_with("<!doctype html>")), (200, true));
    for path in ["/status/stream", "/config"] {
        assert_eq!(admin_ask(address, "GET", path, "").0, 401, "{path}");
    }
    admin.stop();
}

#[test]
fn the_stream_of_statuses_begins_at_once_and_ends_with_the_process() {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let drain = Drain::new();
    let admin = start_admin(admin_options(Telemetry::new().unwrap(), &drain)).unwrap();
    let mut stream = std::net::TcpStream::connect(admin.address()).unwrap();
    stream.write_all(b"GET /status/stream HTTP/1.1\r\nconnection: close\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream);
    let event = lines.by_ref().lines().map(Result::unwrap).find(|line| line.starts_with("data: "));
    let page: Value = serde_json::from_str(event.unwrap().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(page["phase"], "serving");
    drain.advance(Phase::Closed);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("\"phase\":\"closed\""), "{rest}");
    admin.stop();
}

#[test]
fn a_strangers_page_gets_nothing_on_loopback() {
    let drain = Drain::new();
    let admin = start_admin(admin_options(Telemetry::new().unwrap(), &drain)).unwrap();
    let ask = |method, headers| admin_ask(admin.address(), method, "/config/reload", headers).0;
    // 422 is the reload's own answer.
    for ours in [
        "",
        "host: 127.0.0.1:9090\r\norigin: http://127.0.0.1:9090\r\n",
        "host: localhost:9090\r\norigin: http://localhost:9090\r\n",
        "host: [::1]:9090\r\n",
        "host: weir\r\n",
    ] {
        assert_eq!(ask("POST", ours), 422, "{ours}");
    }
    for foreign in [
        "host: 127.0.0.1:9090\r\norigin: https://evil.example\r\n",
        "host: 127.0.0.1:9090\r\norigin: null\r\n",
        "host: 127.0.0.1:9090\r\norigin: http://127.0.0.1:8080\r\n",
        "host: evil.example:9090\r\n",
        "host: evil.example:9090\r\norigin: http://evil.example:9090\r\n",
    ] {
        assert_eq!(ask("POST", foreign), 403, "{foreign}");
    }
    admin.stop();
}
