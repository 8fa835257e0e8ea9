//! The whole gateway on real sockets: a reload and a drain while streams run.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use weir::app::{App, Launch};
use weir::lifecycle::{Clock, Tasks};
use weir::reload::{Handle, Loader, Reloader};
use weir::replica::{Options, Replica, RunningReplica};
use weir::telemetry::Telemetry;

use crate::rig::FOREVER;

/// A gateway that was started from a file, before simulated replicas.
struct Running {
    app: App,
    handle: Arc<Handle>,
    file: PathBuf,
    listen: SocketAddr,
    admin: SocketAddr,
    _folder: tempfile::TempDir,
}

fn text(replicas: &[&RunningReplica], in_flight: u32) -> String {
    let urls: Vec<_> = replicas.iter().map(|replica| replica.url()).collect();
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [drain]\ndelay = \"0s\"\ndeadline = \"20s\"\n\
         [[pools]]\nmodel = \"tiny\"\nreplicas = {urls:?}\nslo = {{ ttft = \"20s\" }}\n\
         scrape = {{ period = \"100ms\" }}\nprobe = {{ period = \"100ms\" }}\n\
         [pools.limits]\nin_flight = {in_flight}\nqueue_wait = \"5s\"\n"
    )
}

impl Running {
    fn start(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.toml");
        fs::write(&file, text).unwrap();
        let (clock, tasks, telemetry) =
            (Clock::start(), Tasks::default(), Telemetry::new().unwrap());
        let reloader = Reloader::start(Loader::new(&file), clock, |_, _| {}).unwrap();
        let handle = Arc::clone(reloader.handle());
        let app = App::start(Launch {
            clock,
            handle: Arc::clone(&handle),
            asker: Some(reloader.asker()),
            telemetry,
            tasks: tasks.clone(),
            seed: 7,
        })
        .unwrap();
        drop(tasks.background("reloader", reloader.run(None)));
        let (listen, admin) = (app.listen(), app.admin());
        Self { app, handle, file, listen, admin, _folder: folder }
    }

    async fn status(&self) -> Value {
        let (_, body) = get(self.admin, "/status").await;
        serde_json::from_slice(&body).unwrap()
    }

    /// Waits until `/status` is as wanted.
    async fn shows(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let waited = tokio::time::timeout(FOREVER, async {
            while !holds(&self.status().await) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(waited.await.is_ok(), "never: {what}; status {:#}", self.status().await);
    }
}

async fn send(to: SocketAddr, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    drop(crate::rig::spawn(connection));
    sender.send_request(request).await.unwrap()
}

async fn get(to: SocketAddr, path: &str) -> (StatusCode, Bytes) {
    let request = Request::get(path).header("host", "weir").body(Full::default()).unwrap();
    let answer = send(to, request).await;
    (answer.status(), answer.into_body().collect().await.unwrap().to_bytes())
}

async fn chat(to: SocketAddr, tokens: u32) -> http::Response<Incoming> {
    let body = json!({
        "model": "tiny", "stream": true, "max_tokens": tokens, "ignore_eos": true,
        "messages": [{"role": "user", "content": "hello"}],
    });
    let request = Request::post("/v1/chat/completions")
        .header("host", "weir")
        .header("content-type", "application/json")
        .body(Full::from(body.to_string()))
        .unwrap();
    send(to, request).await
}

/// The stream's end: whether it is whole.
async fn is_whole(stream: http::Response<Incoming>) -> bool {
    let text = stream.into_body().collect().await.unwrap().to_bytes();
    let text = std::str::from_utf8(&text).unwrap();
    text.ends_with("data: [DONE]\n\n") && !text.contains("\"error\"")
}

#[tokio::test]
async fn a_reload_in_mid_stream_cuts_nothing_and_is_in_force() {
    let first = Replica::start(Options::default()).await.unwrap();
    let second = Replica::start(Options::default()).await.unwrap();
    let running = Running::start(&text(&[&first], 8));
    let streams: Vec<_> = {
        let mut streams = Vec::new();
        for _ in 0..6 {
            streams.push(chat(running.listen, 150).await);
        }
        streams
    };
    assert!(streams.iter().all(|stream| stream.status() == 200));

    // Lower than what runs, and the replica that carries all of it is gone from the list.
    fs::write(&running.file, text(&[&second], 2)).unwrap();
    running
        .shows("the new list", |status| {
            status["config"]["generation"] == 2
                && status["pools"][0]["replicas"].as_array().unwrap().iter().any(|replica| {
                    replica["health"] == "up"
                        && replica["limit"] == 2.0
                        && replica["draining"] == false
                })
        })
        .await;
    assert!(is_whole(chat(running.listen, 3).await).await);
    assert_eq!(second.stats().finished, 1, "the new request went to the new replica");
    for stream in streams {
        assert!(is_whole(stream).await, "the reload cut a stream");
    }

    // A bad file keeps what runs, and says so.
    fs::write(&running.file, "[[pools]]\nmodle = 1\n").unwrap();
    running.shows("the refusal", |status| status["config"]["refused"].is_array()).await;
    assert_eq!(running.status().await["config"]["generation"], 2);
    assert!(is_whole(chat(running.listen, 3).await).await);
}

#[tokio::test]
async fn a_drain_refuses_what_is_new_and_ends_what_runs() {
    let replica = Replica::start(Options::default()).await.unwrap();
    let running = Running::start(&text(&[&replica], 8));
    let (listen, admin) = (running.listen, running.admin);
    let stream = chat(listen, 200).await;
    assert_eq!(get(admin, "/readyz").await.0, 200);

    let config = running.handle.config();
    let down = running.app.stop(&config, std::future::pending());
    let beside = async {
        let refused = loop {
            let answer = chat(listen, 3).await;
            if answer.status() != 200 {
                break answer;
            }
            drop(answer);
        };
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.headers()["x-weir-reason"], "draining");
        assert!(refused.headers().contains_key("retry-after"));
        assert_eq!(refused.headers()["connection"], "close");
        assert_eq!(get(admin, "/readyz").await.0, 503);
        assert_eq!(get(admin, "/livez").await.0, 200);
        assert!(is_whole(stream).await, "the drain cut a stream");
    };
    tokio::join!(down, beside);
    assert!(TcpStream::connect(listen).await.is_err(), "the listener is closed");
    assert!(TcpStream::connect(admin).await.is_err(), "the admin listener closes last");
}
