//! The one handler of all inference paths: from a request's head to the gate.
//!
//! Each step either goes on or refuses, and a refusal always has a reason, an answer in the
//! endpoint's dialect, and a record. Nothing of a request reaches a replica before every step
//! has passed.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Version, header};
use http_body::Body;

use crate::config::Asked;
use crate::domain::{
    ClassId, Dialect, Endpoint, Outcome, Reason, RequestFacts, TenantId, Timestamp,
};
use crate::openai::{Edits, Peek, peek};
use crate::tenants::Tenant;
use crate::vllm::{route, upstream_path};

use super::Proxy;
use super::auth;
use super::forward::Forward;
use super::headers::{self, Hints};
use super::intake::{self, BodyLimits, Intake, IntakeError};
use super::job::Job;
use super::peer::Peer;
use super::pools::{Pool, View};
use super::quota::{self, Account};
use super::recorder::Recorder;
use super::relay::RelayBody;
use super::respond::{self, Refusal};

/// Fields of a body that would steer the engine past the gate.
const STRIPPED: &[&str] =
    &["priority", "kv_transfer_params", "ec_transfer_params", "vllm_xargs", "request_id"];

/// The head of a request, and what is known of it so far.
struct Arrival {
    request_id: HeaderValue,
    headers: HeaderMap,
    endpoint: Endpoint,
    peer: Peer,
    /// Whose key it came with; `None` where anyone is served.
    tenant: Option<Arc<Tenant>>,
    /// What that tenant has used.
    account: Option<Arc<Account>>,
    recorder: Recorder,
    view: Arc<View>,
}

/// What is called, and whose key it came with.
type Known = (Endpoint, Option<Arc<Tenant>>);

impl Proxy {
    /// Answers one request. Never fails: what goes wrong is an answer.
    pub async fn handle<B>(self: &Arc<Self>, request: Request<B>, peer: Peer) -> Response<RelayBody>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, mut body) = request.into_parts();
        let version = head.version;
        let id = headers::request_id(&head.headers, || self.new_request_id());
        let header_id = HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("weir"));
        let view = self.view();
        let endpoint = route(&head.method, head.uri.path(), &view.config.server.endpoints);
        let mut recorder = self.recorder(id, endpoint);
        let expects = head.headers.contains_key(header::EXPECT);
        let admitted = self.admissible(endpoint, &head.headers, &view, &mut recorder);
        let tenant = admitted.as_ref().ok().and_then(|(_, tenant)| tenant.clone());
        let account = tenant.and_then(|tenant| view.account(&tenant));
        let admitted = admitted.and_then(|known| self.within_rates(account.as_ref(), known));
        let told = account.clone();
        let mut response = match admitted {
            Ok((Endpoint::Models, tenant)) => {
                let answer = self.models(&view, tenant.as_deref()).await;
                recorder.note(|record| record.status = answer.status().as_u16());
                recorder.finish(Outcome::Completed);
                answer
            }
            Ok((endpoint, tenant)) => {
                let request_id = header_id.clone();
                let alone = version < Version::HTTP_2;
                let headers = head.headers;
                let arrival = Arrival {
                    request_id,
                    headers,
                    endpoint,
                    peer,
                    tenant,
                    account,
                    recorder,
                    view,
                };
                self.take_in(arrival, &mut body, alone).await
            }
            Err(refusal) => {
                // A client that waits for our leave to send its body needs no reading of it.
                let whole =
                    if expects { body.is_end_stream() } else { intake::discard(&mut body).await };
                let dialect = endpoint.map_or(Dialect::Unary, Endpoint::dialect);
                refuse(&mut recorder, &refusal.closing(!whole), dialect)
            }
        };
        if let Some(account) = told {
            account.tell(self.now(), response.headers_mut());
        }
        respond::named(response, &header_id, version)
    }
}

impl Proxy {
    /// What the head alone decides.
    fn admissible(
        &self,
        endpoint: Option<Endpoint>,
        headers: &HeaderMap,
        view: &View,
        recorder: &mut Recorder,
    ) -> Result<Known, Refusal> {
        let endpoint = endpoint.ok_or_else(|| Refusal::plain(Reason::UnknownPath))?;
        if self.is_draining() {
            return Err(Refusal::plain(Reason::Draining).closing(true));
        }
        let tenants = &view.config.tenants;
        if !tenants.is_empty() {
            recorder.note(|record| record.tenant = Arc::from("unknown"));
        }
        let tenant = auth::identify(tenants, headers)?;
        if let Some(tenant) = &tenant {
            recorder.note(|record| record.tenant = Arc::clone(&tenant.name));
            auth::may_call(tenant, endpoint, self.wall())?;
        }
        Ok((endpoint, tenant))
    }

    /// Whether the tenant's quotas let anything go now, so that no body is read in vain. The
    /// list of models costs nothing and is always told.
    fn within_rates(
        &self,
        account: Option<&Arc<Account>>,
        (endpoint, tenant): Known,
    ) -> Result<Known, Refusal> {
        let account = account.filter(|_| endpoint != Endpoint::Models);
        match account.and_then(|account| account.refuses(self.now())) {
            Some(rejection) => Err(Refusal::rejected(rejection)),
            None => Ok((endpoint, tenant)),
        }
    }

    /// From the head on: the body, what it asks for, the gate, the answer.
    async fn take_in<B>(
        self: &Arc<Self>,
        mut arrival: Arrival,
        body: &mut B,
        alone: bool,
    ) -> Response<RelayBody>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let dialect = arrival.endpoint.dialect();
        let limits = &arrival.view.config.server.limits;
        let limits = BodyLimits {
            bytes: limits.max_body_bytes,
            time: limits.body_timeout,
            rate: limits.min_body_rate,
        };
        let intake = match intake::read(body, limits, &self.budget).await {
            Ok(intake) => intake,
            Err(IntakeError::Gone) => {
                // Nobody reads this; the recorder's drop tells of a client that went away.
                return Refusal::plain(Reason::Malformed).answer(dialect, 400);
            }
            Err(error) => {
                let whole = matches!(error, IntakeError::TooLarge(_) | IntakeError::NoMemory)
                    && intake::discard(body).await;
                let refusal = intake_refusal(error).closing(!whole);
                return refuse(&mut arrival.recorder, &refusal, dialect);
            }
        };
        let now = arrival.recorder.now();
        arrival.recorder.note(|record| record.received = now);
        match ask(&mut arrival, &intake.bytes) {
            Ok(asked) => self.go(arrival, asked, intake, now, alone).await,
            Err(refusal) => refuse(&mut arrival.recorder, &refusal, dialect),
        }
    }

    /// Through the gate, to a replica, and back.
    async fn go(
        self: &Arc<Self>,
        arrival: Arrival,
        asked: Wanted,
        intake: Intake,
        received: Timestamp,
        alone: bool,
    ) -> Response<RelayBody> {
        let Wanted { pool, class, peek, hints, strip_usage, body } = asked;
        let Arrival { request_id, headers, endpoint, peer, tenant, account, mut recorder, view } =
            arrival;
        let facts = RequestFacts {
            id: self.new_id(),
            tenant: id_of(tenant.as_deref()),
            class,
            received,
            stream: peek.stream,
            sequences: peek.sequences.max(1),
            prompt_bytes: peek.prompt_bytes,
            prompt_tokens: peek.prompt_tokens,
            max_output: peek.max_output,
            body_bytes: intake.bytes.len() as u64,
            deadline: hints.deadline.map(|deadline| received + deadline),
            prefix: Arc::clone(&peek.prefix),
            client_retries: hints.retries,
        };
        recorder.note(|record| {
            record.pool = Some(Arc::clone(&pool.name));
            record.stream = peek.stream;
            record.class = view.class_name(class);
            record.slo = pool.config.slo_of(class);
        });
        if self.poisoned.refuses(&body, received) {
            return refuse(&mut recorder, &Refusal::plain(Reason::Poison), endpoint.dialect());
        }
        if let Some(account) = account {
            let ask = quota::ask(&peek, endpoint.generates());
            match account.admit(recorder.now(), ask) {
                Ok(hold) => recorder.holds(hold),
                Err(rejection) => {
                    let refusal = Refusal::rejected(rejection);
                    return refuse(&mut recorder, &refusal, endpoint.dialect());
                }
            }
        }
        let gate = Arc::clone(&pool.gate);
        let timeouts = view.config.timeouts;
        let job = Job {
            pool,
            endpoint,
            dialect: endpoint.dialect(),
            stream: peek.stream,
            strip_usage,
            path: upstream_path(endpoint),
            headers,
            request_id,
            body,
            _share: intake.share,
            received,
            timeouts,
            overload_status: view.config.server.overload_status,
            hangup: alone.then_some(peer.hangup),
        };
        let cutoff = self.cutoff(timeouts.total);
        if !endpoint.holds_permit() {
            return super::direct::answer(job, recorder, cutoff).await;
        }
        let ticket = gate.arrive(facts);
        let forward = Forward {
            job,
            recorder,
            tender: Arc::clone(&self.tender),
            poisoned: Arc::clone(&self.poisoned),
            own_error: None,
        };
        forward.run(ticket, cutoff).await
    }
}

/// A request whose body is understood.
struct Wanted {
    pool: Arc<Pool>,
    class: ClassId,
    peek: Peek,
    hints: Hints,
    strip_usage: bool,
    body: Bytes,
}

/// Reads what a body asks for, and prepares what the replica gets of it.
fn ask(arrival: &mut Arrival, body: &Bytes) -> Result<Wanted, Refusal> {
    let hints = headers::hints(&arrival.headers)
        .map_err(|error| Refusal::because(Reason::Malformed, error.to_string()))?;
    let endpoint = arrival.endpoint;
    let content_type = arrival.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let mut peek = peek(endpoint, content_type, body)
        .map_err(|error| Refusal::because(error.reason, error.message).param(error.param))?;
    let pool = arrival.view.pool(&peek.model);
    let named = |tenant: &Tenant| tenant.rights.model(&peek.model, pool.map(|pool| &*pool.name));
    if !arrival.tenant.as_deref().is_none_or(named) {
        // The same for a model that does not exist, which is not for this tenant to find out.
        return Err(Refusal::plain(Reason::Model).param(Some("model")));
    }
    let pool = pool.ok_or_else(|| {
        let message = format!("The model `{}` does not exist.", shown(&peek.model));
        Refusal::because(Reason::UnknownModel, message).param(Some("model"))
    })?;
    if peek.background {
        let message = "`background` requests are not relayed: they outlive their place.";
        return Err(Refusal::because(Reason::Malformed, message).param(Some("background")));
    }
    if peek.previous_response_id.is_some() && pool.replicas.len() > 1 {
        let message = "`previous_response_id` is not relayed to a pool of several replicas.";
        let refusal = Refusal::because(Reason::Malformed, message);
        return Err(refusal.param(Some("previous_response_id")));
    }
    let class = arrival.view.config.classes.recognise(&Asked {
        headers: &arrival.headers,
        tenant: id_of(arrival.tenant.as_deref()),
        endpoint,
        prompt_bytes: peek.prompt_bytes,
        prompt_tokens: peek.prompt_tokens,
    });
    let bounded = bounds(arrival, &peek)?;
    let own_usage = matches!(endpoint.dialect(), Dialect::Chat | Dialect::Completions);
    let strip_usage = peek.stream && own_usage && !peek.usage_asked;
    let edits = Edits {
        model: (*peek.model != *pool.name).then_some(&*pool.name),
        include_usage: strip_usage,
        max_output: bounded.output,
        cache_salt: bounded.salt.as_deref(),
        priority: bounded.priority,
        strip: STRIPPED,
    };
    let body = peek.splice(body, &edits);
    let pool = Arc::clone(pool);
    peek.max_output = bounded.output.or(peek.max_output);
    peek.cache_salt = bounded.salt.or(peek.cache_salt);
    Ok(Wanted { pool, class, peek, hints, strip_usage, body })
}

/// What a tenant's bounds write into a request.
#[derive(Default)]
struct Bounded {
    /// Output tokens a sequence.
    output: Option<u32>,
    salt: Option<String>,
    priority: Option<i64>,
}

/// Holds a request to its tenant's bounds.
fn bounds(arrival: &Arrival, peek: &Peek) -> Result<Bounded, Refusal> {
    let Some(tenant) = arrival.tenant.as_deref() else { return Ok(Bounded::default()) };
    let generates = arrival.endpoint.generates();
    let ask = quota::ask(peek, generates);
    let input = arrival.account.as_ref().map_or(0, |account| account.input(&ask));
    tenant.caps.admits_input(input).map_err(Refusal::rejected)?;
    if !generates {
        return Ok(Bounded::default());
    }
    let output = tenant.caps.output_each(peek.sequences, peek.max_output);
    let at_fault = Some("max_tokens");
    let output = output.map_err(|rejection| Refusal::rejected(rejection).param(at_fault))?;
    let salt = tenant.isolation.salt(&tenant.name, peek.cache_salt.as_deref());
    Ok(Bounded { output, salt, priority: tenant.caps.priority(peek.priority) })
}

/// What the gate knows a tenant by; anyone's where there are none.
fn id_of(tenant: Option<&Tenant>) -> TenantId {
    tenant.map_or_else(TenantId::default, |tenant| tenant.id)
}

/// A name from a stranger, short enough to be said back.
fn shown(model: &str) -> String {
    model.chars().take(100).collect()
}

fn intake_refusal(error: IntakeError) -> Refusal {
    let reason = match error {
        IntakeError::TooLarge(_) => Reason::Body,
        IntakeError::TooSlow => Reason::SlowRequest,
        IntakeError::NoMemory => Reason::Overloaded,
        IntakeError::Broken | IntakeError::Gone => Reason::Malformed,
    };
    Refusal::because(reason, error.to_string())
}

/// A refusal's answer and its record.
fn refuse(recorder: &mut Recorder, refusal: &Refusal, dialect: Dialect) -> Response<RelayBody> {
    // Nothing is refused here for load of the engine, so the operators' status has no part.
    let answer = refusal.answer(dialect, refusal.reason.status());
    let outcome = Outcome::Rejected(refusal.reason);
    recorder.refuse(outcome, answer.status().as_u16(), refusal.rejection());
    answer
}
