//! Clients: flows with their stages and calls, sent, refused, sent again, given up.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::seen::{End, Seen};
use super::{Due, Fleet};
use crate::dispatch::Event;
use crate::domain::{Reason, Rejection, RequestFacts, RequestId, ShouldRetry, TenantId, Timestamp};
use crate::workload::{Flow, Pacing, Retrier, Told};

/// Bytes that a token of a prompt is written with.
const BYTES_PER_TOKEN: u64 = 4;
/// Tokens of a block that a gateway hashes: 256 bytes.
const PREFIX_TOKENS: u32 = 64;

/// A flow under way.
#[derive(Debug)]
pub(super) struct FlowState {
    flow: Flow,
    stage: usize,
    /// Calls of the stage that have not ended.
    open: usize,
    failed: bool,
}

/// A call and what has become of it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) seen: Seen,
    /// Whether it was due in the window.
    pub(super) counted: bool,
    ended: bool,
    flow: usize,
    retrier: Retrier,
    salt: u64,
    pub(super) output: u32,
    /// What the engine hashes of its prompt, block by block.
    pub(super) blocks: Arc<[u64]>,
    /// What a gateway hashes of it.
    prefix: Arc<[u64]>,
}

/// One attempt of a client: a request of a gateway, whose id is its place in the list.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) call: usize,
    pub(super) gate: usize,
    pub(super) sent: Timestamp,
    /// The replica that works on it.
    pub(super) replica: Option<usize>,
    /// How often it was dispatched.
    pub(super) dispatched: u32,
    pub(super) first: Option<Timestamp>,
    pub(super) last: Timestamp,
    pub(super) tokens: u32,
    /// When the gate was last told of its progress.
    pub(super) told: Timestamp,
    pub(super) ended: bool,
}

impl Fleet<'_> {
    /// Draws the next flow of an open loop.
    pub(super) fn draw(&mut self) {
        let Some((due, flow)) = self.offered.as_mut().and_then(Iterator::next) else { return };
        if due < self.until() {
            self.next = Some(flow);
            self.agenda.at(due, Due::Flow);
        }
    }

    pub(super) fn flow_arrives(&mut self) {
        if let Some(flow) = self.next.take() {
            self.enter(flow);
        }
        self.draw();
    }

    pub(super) fn client_begins(&mut self) {
        if self.now < self.until()
            && let Some(flow) = self.closed.as_mut().and_then(Iterator::next)
        {
            self.enter(flow);
        }
    }

    fn enter(&mut self, flow: Flow) {
        let at = self.flows.len();
        self.flows.push(FlowState { flow, stage: 0, open: 0, failed: false });
        self.stage(at);
    }

    /// Sends the calls of a flow's stage.
    pub(super) fn stage(&mut self, at: usize) {
        let counted = self.counts(self.now);
        let now = self.now;
        let block_size = self.setup.engine.block_size;
        let caches = self.setup.engine.prefix_caching;
        let client = self.workload.client;
        let Some(begun) = self.flows.get_mut(at) else { return };
        let Some(stage) = begun.flow.stages.get(begun.stage) else { return };
        begun.open = stage.calls.len();
        let first = self.calls.len();
        for call in &stage.calls {
            let blocks = if caches { call.block_hashes(block_size) } else { Vec::new() };
            let seen = Seen {
                class: begun.flow.class,
                tenant: begun.flow.tenant,
                due: now,
                gateway: 0,
                end: End::Open,
                ttft: None,
                ttft_from_due: None,
                tpot: None,
                e2e: Duration::ZERO,
                attempts: 0,
                refusals: Vec::new(),
                prompt: call.prompt_tokens(),
                tokens: 0,
            };
            self.calls.push(Call {
                seen,
                counted,
                ended: false,
                flow: at,
                retrier: Retrier::new(client),
                salt: call.salt,
                output: call.output_tokens,
                blocks: blocks.into(),
                prefix: call.block_hashes(PREFIX_TOKENS).into(),
            });
        }
        let last = self.calls.len();
        self.open += if counted { last - first } else { 0 };
        for call in first..last {
            self.send(call);
        }
    }

    /// Sends a call to a gateway, for the first time or again.
    pub(super) fn send(&mut self, at: usize) {
        let (id, now) = (self.attempts.len(), self.now);
        let gates = u64::try_from(self.gateways.len()).unwrap_or(1).max(1);
        let counts = self.workload.client.counts_retries();
        let Some(call) = self.calls.get_mut(at) else { return };
        let drawn = call.salt.wrapping_add(u64::from(call.seen.attempts)) >> 7;
        let gate = usize::try_from(drawn % gates).unwrap_or(0);
        call.seen.gateway = gate;
        call.seen.attempts += 1;
        let call = &*call;
        let prompt = u64::from(call.seen.prompt) * BYTES_PER_TOKEN;
        let facts = RequestFacts {
            id: request_id(id),
            tenant: TenantId(call.seen.tenant.0),
            class: call.seen.class,
            received: now,
            stream: true,
            sequences: 1,
            prompt_bytes: prompt,
            prompt_tokens: None,
            max_output: self.load.says_output.then_some(call.output),
            body_bytes: prompt + 256,
            deadline: self.load.patience.map(|patience| now + patience),
            prefix: Arc::clone(&call.prefix),
            client_retries: if counts { call.retrier.done() } else { 0 },
        };
        self.attempts.push(Attempt {
            call: at,
            gate,
            sent: now,
            replica: None,
            dispatched: 0,
            first: None,
            last: now,
            tokens: 0,
            told: now,
            ended: false,
        });
        if let Some(patience) = self.load.patience {
            self.agenda.at(now + patience, Due::Patience(id));
        }
        self.tell(gate, Event::Arrive(facts));
    }

    /// A client has waited long enough for its first token.
    pub(super) fn give_up(&mut self, request: usize) {
        let Some(attempt) = self.attempts.get_mut(request) else { return };
        if attempt.ended || attempt.first.is_some() {
            return;
        }
        attempt.ended = true;
        let (gate, replica, call) = (attempt.gate, attempt.replica, attempt.call);
        self.abort(replica, request);
        self.tell(gate, Event::Cancel(request_id(request)));
        self.end(call, End::Cancelled);
    }

    /// An attempt was answered with a refusal.
    pub(super) fn refused(&mut self, request: usize, rejection: &Rejection) {
        let (now, salt) = (self.now, self.salt);
        let Some(attempt) = self.attempts.get_mut(request) else { return };
        attempt.ended = true;
        let at = attempt.call;
        let Some(call) = self.calls.get_mut(at) else { return };
        call.seen.refusals.push(rejection.reason);
        let told = Told {
            status: Some(rejection.reason.status()),
            retry_after: rejection.retry_after,
            should_retry: (rejection.should_retry == ShouldRetry::No).then_some(false),
        };
        let turn = call.retrier.done() * 8 + 8;
        let uniform = unit((call.salt ^ salt.rotate_left(32)).rotate_left(turn));
        if let Some(wait) = call.retrier.after(told, uniform) {
            self.agenda.at(now + wait, Due::Call(at));
        } else {
            let shed = matches!(rejection.reason.status(), 429 | 503);
            let reason = rejection.reason;
            self.end(at, if shed { End::Shed(reason) } else { End::Failed(reason) });
        }
    }

    /// A stream ended, well or not.
    pub(super) fn ended(&mut self, request: usize, failed: Option<Reason>) {
        let now = self.now;
        let Some(attempt) = self.attempts.get_mut(request) else { return };
        attempt.ended = true;
        let at = attempt.call;
        let Some(call) = self.calls.get_mut(at) else { return };
        let seen = &mut call.seen;
        seen.ttft = attempt.first.map(|first| first.saturating_since(attempt.sent));
        seen.ttft_from_due = attempt.first.map(|first| first.saturating_since(seen.due));
        seen.tokens = attempt.tokens;
        seen.e2e = now.saturating_since(attempt.sent);
        if let (Some(first), 2..) = (attempt.first, attempt.tokens) {
            seen.tpot = attempt.last.saturating_since(first).checked_div(attempt.tokens - 1);
        }
        self.end(at, failed.map_or(End::Ok, End::Failed));
    }

    /// A call has ended: its flow goes on, or ends too.
    fn end(&mut self, at: usize, end: End) {
        let now = self.now;
        let Some(call) = self.calls.get_mut(at) else { return };
        if std::mem::replace(&mut call.ended, true) {
            return;
        }
        call.seen.end = end;
        (call.blocks, call.prefix) = (Arc::from([]), Arc::from([]));
        self.open -= usize::from(call.counted);
        let (flow, salt) = (call.flow, call.salt);
        let Some(its) = self.flows.get_mut(flow) else { return };
        its.open -= 1;
        its.failed |= end != End::Ok;
        if its.open > 0 {
            return;
        }
        its.stage += 1;
        let next = its.flow.stages.get(its.stage).filter(|_| !its.failed);
        if let Some(stage) = next {
            self.agenda.at(now + stage.pause, Due::Stage(flow));
            return;
        }
        its.flow.stages = Vec::new();
        if let Pacing::Closed { think, .. } = self.workload.pacing {
            let pause = think.draw(&mut StdRng::seed_from_u64(salt));
            self.agenda.at(now + pause, Due::Client);
        }
    }
}

pub(super) fn request_id(at: usize) -> RequestId {
    RequestId(u64::try_from(at).unwrap_or(u64::MAX))
}

/// The top 53 bits as a number in 0..1.
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact in an f64")]
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
