//! From a request to its answer: routes, key, faults, the engine.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;

use super::body::{Body, Connection, Stream};
use super::call::{Call, Shape};
use super::errors::Refusal;
use super::faults::{Fault, FaultKind, Faults};
use super::frames::Writer;
use super::metrics;
use super::null::{NullFrames, NullParts};
use super::options::Options;
use super::room::{Room, Ticket};
use crate::lifecycle::Clock;
use crate::sim::{Job, chain_hash};

/// Requests kept to be looked at.
const MOST_SEEN: usize = 64;

/// An inference request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its path.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// What a replica has been asked, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Inference requests that arrived whole.
    pub received: u64,
    /// Sequences that run, and streams without an engine.
    pub running: usize,
    /// Sequences that wait.
    pub waiting: usize,
    /// Sequences that ended by themselves or at their limit.
    pub finished: u64,
    /// Sequences aborted.
    pub aborted: u64,
    /// Connections accepted.
    pub connections: u64,
}

pub(super) struct Service {
    pub(super) options: Options,
    pub(super) room: Arc<Room>,
    pub(super) faults: Faults,
    pub(super) clock: Clock,
    pub(super) received: AtomicU64,
    pub(super) connections: AtomicU64,
    /// Held for a push or a copy only.
    pub(super) seen: Mutex<VecDeque<Seen>>,
    /// What `/metrics` said when it was frozen.
    frozen: Mutex<Option<String>>,
    null: Option<Arc<NullParts>>,
    null_streams: Arc<AtomicU32>,
}

type Answer = Result<Response<Body>, Refusal>;

impl Service {
    pub(super) fn new(options: Options, clock: Clock) -> Self {
        let room = Arc::new(Room::new(options.engine.clone(), options.speed, clock));
        let null = options.null.map(|null| Arc::new(NullParts::new(&options.model, null)));
        Self {
            room,
            faults: Faults::default(),
            clock,
            received: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            seen: Mutex::new(VecDeque::new()),
            frozen: Mutex::new(None),
            null,
            null_streams: Arc::new(AtomicU32::new(0)),
            options,
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let (received, connections) =
            (self.received.load(Ordering::Relaxed), self.connections.load(Ordering::Relaxed));
        let null_streams = self.null_streams.load(Ordering::Relaxed);
        self.room.read(|state| {
            let counters = state.engine.counters();
            Stats {
                received,
                connections,
                running: state.engine.running() + null_streams as usize,
                waiting: state.engine.waiting(),
                finished: counters.stopped + counters.at_length,
                aborted: counters.aborted,
            }
        })
    }

    /// Answers one request.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        connection: Arc<Connection>,
    ) -> io::Result<Response<Body>> {
        if request.uri().path() == "/fault" {
            return Ok(self.fault(request).await);
        }
        self.faults.released(&[FaultKind::Hang]).await;
        let answer = match self.route(request, connection).await {
            Ok(answer) => answer,
            Err(refusal) => json(refusal.status, refusal.body),
        };
        Ok(answer)
    }

    async fn route(&self, request: Request<Incoming>, connection: Arc<Connection>) -> Answer {
        let path = request.uri().path();
        if path.starts_with("/v1") && !self.key_fits(request.headers()) {
            return Err(Refusal::key());
        }
        let shape = match path {
            "/v1/chat/completions" => Shape::Chat,
            "/v1/completions" => Shape::Completions,
            "/v1/responses" => Shape::Responses,
            "/v1/messages" => Shape::Messages,
            "/v1/embeddings" => Shape::Embeddings,
            "/v1/messages/count_tokens" | "/tokenize" => return self.count(request).await,
            _ => return self.look(request.method(), path),
        };
        if request.method() != Method::POST {
            return Err(Refusal::method());
        }
        self.infer(shape, request, connection).await
    }

    fn key_fits(&self, headers: &HeaderMap) -> bool {
        let Some(key) = &self.options.api_key else { return true };
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        bearer.and_then(|bearer| bearer.strip_prefix("Bearer ")) == Some(key)
    }

    /// What is only looked at.
    fn look(&self, method: &Method, path: &str) -> Answer {
        let known = ["/health", "/ping", "/metrics", "/version", "/v1/models", "/load"];
        if !known.contains(&path) {
            return Err(Refusal::path());
        }
        if method != Method::GET {
            return Err(Refusal::method());
        }
        Ok(match path {
            "/metrics" => self.metrics(),
            "/version" => json(StatusCode::OK, "{\"version\":\"0.32.0\"}".to_owned()),
            "/v1/models" => json(StatusCode::OK, self.models()),
            "/load" => {
                let stats = self.stats();
                let load = stats.running + stats.waiting;
                json(StatusCode::OK, format!("{{\"server_load\":{load}}}"))
            }
            _ => {
                let well = !self.faults.is_on(FaultKind::Unhealthy);
                let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                respond(status, None, Body::Whole(None))
            }
        })
    }

    fn metrics(&self) -> Response<Body> {
        let extra = metrics::Extra {
            model: &self.options.model,
            null_streams: self.null_streams.load(Ordering::Relaxed),
        };
        let render = || self.room.read(|state| metrics::render(state, &extra, &self.faults));
        let text = {
            let mut frozen = self.frozen.lock();
            if self.faults.is_on(FaultKind::FrozenMetrics) {
                frozen.get_or_insert_with(render).clone()
            } else {
                *frozen = None;
                render()
            }
        };
        respond(StatusCode::OK, Some("text/plain; version=1.0.0; charset=utf-8"), text.into())
    }

    fn models(&self) -> String {
        let model = serde_json::Value::from(self.options.model.as_str());
        let (created, most) = (self.now(), self.options.max_model_len);
        format!(
            "{{\"object\":\"list\",\"data\":[{{\"id\":{model},\"object\":\"model\",\"created\":{created},\
             \"owned_by\":\"vllm\",\"root\":{model},\"parent\":null,\"max_model_len\":{most},\
             \"permission\":[{{\"id\":\"modelperm-{created:016x}\",\"object\":\"model_permission\",\
             \"created\":{created},\"allow_create_engine\":false,\"allow_sampling\":true,\
             \"allow_logprobs\":true,\"allow_search_indices\":false,\"allow_view\":true,\
             \"allow_fine_tuning\":false,\"organization\":\"*\",\"group\":null,\
             \"is_blocking\":false}}]}}]}}"
        )
    }

    /// What the tokenizer answers alone.
    async fn count(&self, request: Request<Incoming>) -> Answer {
        if request.method() != Method::POST {
            return Err(Refusal::method());
        }
        let tokenize = request.uri().path() == "/tokenize";
        let body = collect(request.into_body()).await?;
        let shape = if tokenize && memchr::memmem::find(&body, b"\"prompt\"").is_some() {
            Shape::Completions
        } else {
            Shape::Messages
        };
        let call = Call::read(shape, &body, &self.options.model, self.options.engine.block_size)?;
        let tokens = call.prompt_tokens();
        let answer = if tokenize {
            let most = self.options.max_model_len;
            let ids: Vec<String> = (0..tokens).map(|id| id.to_string()).collect();
            format!(
                "{{\"count\":{tokens},\"max_model_len\":{most},\"tokens\":[{}],\"token_strs\":null}}",
                ids.join(",")
            )
        } else {
            format!("{{\"input_tokens\":{tokens},\"context_management\":null}}")
        };
        Ok(json(StatusCode::OK, answer))
    }

    async fn infer(
        &self,
        shape: Shape,
        request: Request<Incoming>,
        connection: Arc<Connection>,
    ) -> Answer {
        let (head, body) = request.into_parts();
        let body = collect(body).await?;
        let serial = self.received.fetch_add(1, Ordering::Relaxed);
        self.remember(&head, &body);
        if self.faults.take(FaultKind::Error500, u32::MAX).is_some() {
            return Err(Refusal::internal());
        }
        if self.faults.take(FaultKind::Busy503, u32::MAX).is_some() {
            return Err(Refusal::busy());
        }
        let call = Call::read(shape, &body, &self.options.model, self.options.engine.block_size)?;
        if let (Some(parts), Some(null)) = (&self.null, self.options.null) {
            let (parts, open) = (Arc::clone(parts), Arc::clone(&self.null_streams));
            return Ok(if call.stream {
                let frames = NullFrames::new(parts, &call, null, self.clock, open);
                events(Body::Null(Box::new(frames)))
            } else {
                let whole = Body::Whole(Some(parts.whole.clone()));
                respond(StatusCode::OK, Some("application/json"), whole)
            });
        }
        let seed = chain_hash(self.options.seed, serial);
        let ticket = self.submit(&call)?;
        let id = head.headers.get("x-request-id").and_then(|id| id.to_str().ok());
        let id = id.map_or_else(|| format!("{seed:016x}"), str::to_owned);
        let writer = Writer::new(&call, &self.options.model, &id, self.now(), seed);
        if call.stream {
            let stream = Stream::new(ticket, writer, self.faults.clone(), connection);
            return Ok(events(Body::Stream(Box::new(stream))));
        }
        let whole = self.whole(ticket, writer).await?;
        Ok(json(StatusCode::OK, whole))
    }

    fn remember(&self, head: &http::request::Parts, body: &Bytes) {
        if self.options.record {
            let path = head.uri.path().to_owned();
            let mut seen = self.seen.lock();
            if seen.len() == MOST_SEEN {
                seen.pop_front();
            }
            seen.push_back(Seen { path, headers: head.headers.clone(), body: body.clone() });
        }
    }

    /// Hands the engine what the call asks for, where it may.
    fn submit(&self, call: &Call) -> Result<Ticket, Refusal> {
        let most = self.options.max_model_len;
        let longest = call.prompts.iter().map(|prompt| prompt.tokens).max().unwrap_or(0);
        if longest >= most {
            return Err(Refusal::context(longest, most));
        }
        let room_left = most - longest;
        if let Some(asked) = call.max_output.filter(|asked| *asked > room_left) {
            let message = format!(
                "'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's \
                 maximum context length is {most} tokens and your request has {longest} input \
                 tokens ({asked} > {most} - {longest}). (parameter=max_tokens, value={asked})"
            );
            return Err(Refusal::bad(&message, Some("max_tokens")));
        }
        let (output, stops) = match (call.shape, call.max_output) {
            (Shape::Embeddings, _) => (0, true),
            (_, Some(asked)) => (asked, false),
            (_, None) if call.ignore_eos => (room_left, false),
            (_, None) => (self.options.default_output.clamp(1, room_left), true),
        };
        let jobs: Vec<Job> = call
            .prompts
            .iter()
            .flat_map(|prompt| (0..call.n).map(move |_| prompt))
            .map(|prompt| Job {
                id: 0,
                prompt_tokens: prompt.tokens,
                prefix: Arc::clone(&prompt.prefix),
                output,
                stops,
            })
            .collect();
        self.room
            .submit(jobs.into_iter(), self.options.max_num_queued_reqs)
            .ok_or_else(Refusal::busy)
    }

    /// Waits for all of a call's sequences.
    async fn whole(&self, ticket: Ticket, mut writer: Writer) -> Result<String, Refusal> {
        let mut ready = Vec::new();
        while !writer.done() {
            std::future::poll_fn(|cx| ticket.slot.poll_collect(cx, &mut ready)).await;
            writer.collect(&ready);
            if self.faults.take(FaultKind::EngineDeath, u32::MAX).is_some() {
                return Err(Refusal::dead());
            }
        }
        Ok(writer.whole())
    }

    /// `GET` lists the faults, `POST` switches one on (`"on": false`: off), `DELETE` clears all.
    async fn fault(&self, request: Request<Incoming>) -> Response<Body> {
        match *request.method() {
            Method::GET => {}
            Method::DELETE => self.faults.clear_all(),
            Method::POST => {
                let Ok(body) = collect(request.into_body()).await else {
                    return json(StatusCode::BAD_REQUEST, "{}".to_owned());
                };
                if let Err(error) = self.switch(&body) {
                    let message = serde_json::Value::from(error.to_string());
                    return json(StatusCode::BAD_REQUEST, format!("{{\"error\":{message}}}"));
                }
            }
            _ => return json(StatusCode::METHOD_NOT_ALLOWED, "{}".to_owned()),
        }
        let list = serde_json::to_string(&self.faults.list()).unwrap_or_default();
        json(StatusCode::OK, format!("{{\"faults\":{list}}}"))
    }

    fn switch(&self, body: &[u8]) -> serde_json::Result<()> {
        let mut order: serde_json::Value = serde_json::from_slice(body)?;
        let on = order
            .as_object_mut()
            .and_then(|order| order.remove("on"))
            .is_none_or(|on| on.as_bool() != Some(false));
        let fault: Fault = serde_json::from_value(order)?;
        if on {
            self.faults.set(fault);
        } else {
            self.faults.clear(fault.kind);
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        let since = self.clock.wall().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }
}

async fn collect(body: Incoming) -> Result<Bytes, Refusal> {
    let whole = body.collect().await.map_err(|error| Refusal::bad(&error.to_string(), None))?;
    Ok(whole.to_bytes())
}

fn events(body: Body) -> Response<Body> {
    respond(StatusCode::OK, Some("text/event-stream; charset=utf-8"), body)
}

fn json(status: StatusCode, body: String) -> Response<Body> {
    respond(status, Some("application/json"), body.into())
}

fn respond(status: StatusCode, kind: Option<&'static str>, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("uvicorn"));
    if let Some(kind) = kind {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    answer
}
