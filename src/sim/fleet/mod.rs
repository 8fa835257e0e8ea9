//! A fleet in virtual time: clients, gateways and replicas on one agenda.
//!
//! Gateways are [`Gate`]s, ours the very `Dispatcher` that runs live; replicas are engine models;
//! clients draw their calls from a workload and come back as the SDKs do. Nothing here reads a
//! clock: time is what is next on the agenda, so an hour takes as long as its events, and the
//! same seed gives the same run.
//!
//! What it leaves out: the network and the gateway's own work (both take no time), tokenizing,
//! and readers slower than their streams.

mod agenda;
mod clients;
mod gateway;
mod seen;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use seen::{End, Seen};
pub use server::Trouble;

use super::{Emission, EngineParams, Gate};
use crate::dispatch::{Effect, Event, ReplicaSpec};
use crate::domain::{Health, ReplicaId, Timestamp};
use crate::workload::{Flows, Offered, Pacing, Seeds, Workload};
use agenda::{Agenda, Due};
use clients::{Attempt, Call, FlowState};
use server::Server;

/// The finest step in which time passes for a gate, as live.
const SHORTEST_TICK: Duration = Duration::from_millis(1);

/// What stands there.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// Replicas, all alike.
    pub replicas: u32,
    /// What each is.
    pub engine: EngineParams,
    /// From one scrape of a replica to the next; gateways and replicas are staggered.
    pub scrape: Duration,
    /// How long a scrape takes; its values are of its beginning.
    pub scrape_takes: Duration,
    /// From one probe to the next.
    pub probe: Duration,
    /// How long an answer's head is held for its first token.
    pub head_hold: Duration,
    /// How long a first token may take at all.
    pub first_byte: Duration,
    /// What goes wrong.
    pub faults: Vec<FaultPlan>,
}

/// A fault with its time and place.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultPlan {
    /// What.
    pub trouble: Trouble,
    /// Which replicas.
    pub replicas: Vec<usize>,
    /// From when on.
    pub at: Duration,
    /// How long; for good where not said.
    pub lasts: Option<Duration>,
}

/// What is offered, for how long.
#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// Calls a second, where the workload has no rate of its own.
    pub rate: Option<f64>,
    /// Left out of every figure.
    pub warm_up: Duration,
    /// What is counted: calls due in it.
    pub window: Duration,
    /// How long after the last arrival what is open may still end.
    pub grace: Duration,
    /// Whether clients say how long their answers will be (`max_tokens`).
    pub says_output: bool,
    /// How long a client waits for a first token before it gives up.
    pub patience: Option<Duration>,
}

/// What a run came to.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Seeing {
    /// The calls due in the window, in the order in which they were begun.
    pub calls: Vec<Seen>,
    /// Most sequences at one replica at any time in the window.
    pub standing: usize,
    /// Requests that gateways sent to replicas in the window.
    pub sent: u64,
    /// Preemptions of all replicas.
    pub preemptions: u64,
    /// Prompt tokens looked up in prefix caches.
    pub prefix_queries: u64,
    /// And found there.
    pub prefix_hits: u64,
}

/// Runs `load` of `workload` through `gates` to the fleet of `setup`.
pub fn run(
    setup: &Setup,
    load: &Load,
    workload: &Arc<Workload>,
    gates: Vec<Box<dyn Gate>>,
    seeds: Seeds,
) -> Seeing {
    let mut fleet = Fleet::new(setup, load, workload, gates, seeds);
    fleet.begin();
    fleet.run();
    fleet.seeing()
}

/// A gateway and when it wants to be woken.
#[derive(Debug)]
struct Gateway {
    gate: Box<dyn Gate>,
    wake: Option<Timestamp>,
    ticked: Timestamp,
}

#[derive(Debug)]
struct Fleet<'a> {
    setup: &'a Setup,
    load: &'a Load,
    workload: &'a Arc<Workload>,
    /// Seeds what is drawn beside the flows.
    salt: u64,
    now: Timestamp,
    agenda: Agenda,
    gateways: Vec<Gateway>,
    servers: Vec<Server>,
    offered: Option<Offered>,
    /// The flow that comes next in an open loop.
    next: Option<crate::workload::Flow>,
    /// The source of a closed loop.
    closed: Option<Flows>,
    flows: Vec<FlowState>,
    calls: Vec<Call>,
    attempts: Vec<Attempt>,
    /// Calls begun in the window that have not ended.
    open: usize,
    sent: u64,
    /// Kept only for its memory.
    effects: Vec<Effect>,
    /// Kept only for its memory.
    emissions: Vec<Emission>,
}

impl<'a> Fleet<'a> {
    fn new(
        setup: &'a Setup,
        load: &'a Load,
        workload: &'a Arc<Workload>,
        gates: Vec<Box<dyn Gate>>,
        seeds: Seeds,
    ) -> Self {
        let gateway = |gate| Gateway { gate, wake: None, ticked: Timestamp::ZERO };
        let is_closed = matches!(workload.pacing, Pacing::Closed { .. });
        let offered = || Offered::new(workload, load.rate, Timestamp::ZERO, seeds);
        Self {
            setup,
            load,
            workload,
            salt: seeds.requests,
            now: Timestamp::ZERO,
            agenda: Agenda::default(),
            gateways: gates.into_iter().map(gateway).collect(),
            servers: (0..setup.replicas).map(|_| Server::new(setup.engine.clone())).collect(),
            offered: (!is_closed).then(offered),
            next: None,
            closed: is_closed.then(|| Flows::new(Arc::clone(workload), seeds)),
            flows: Vec::new(),
            calls: Vec::new(),
            attempts: Vec::new(),
            open: 0,
            sent: 0,
            effects: Vec::new(),
            emissions: Vec::new(),
        }
    }

    /// The end of arrivals.
    fn until(&self) -> Timestamp {
        Timestamp::ZERO + self.load.warm_up + self.load.window
    }

    /// Whether what is due at this time is counted.
    fn counts(&self, at: Timestamp) -> bool {
        at >= Timestamp::ZERO + self.load.warm_up && at < self.until()
    }

    fn begin(&mut self) {
        let ids = 0..u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        let specs: Vec<_> =
            ids.map(|id| ReplicaSpec { id: ReplicaId(id), in_flight: None }).collect();
        let (gates, servers) = (self.gateways.len(), self.servers.len());
        for gate in 0..gates {
            self.tell(gate, Event::Replicas(specs.clone()));
            for replica in 0..servers {
                let nth = gate * servers + replica;
                self.agenda.at(
                    part(self.setup.scrape, nth, gates * servers),
                    Due::Scrape { gate, replica },
                );
                self.tell(gate, Event::Health(replica_id(replica), Health::Up));
                self.agenda
                    .at(part(self.setup.probe, nth, gates * servers), Due::Probe { gate, replica });
            }
        }
        for (at, fault) in self.setup.faults.iter().enumerate() {
            self.agenda.at(Timestamp::ZERO + fault.at, Due::FaultOn(at));
            if let Some(lasts) = fault.lasts {
                self.agenda.at(Timestamp::ZERO + fault.at + lasts, Due::FaultOff(at));
            }
        }
        match self.workload.pacing {
            Pacing::Closed { clients, .. } => {
                for _ in 0..clients {
                    self.agenda.at(Timestamp::ZERO, Due::Client);
                }
            }
            Pacing::Open(_) | Pacing::Trace(_) => self.draw(),
        }
    }

    fn run(&mut self) {
        let end = self.until() + self.load.grace;
        loop {
            let next = self.agenda.next().unwrap_or(Timestamp::MAX);
            let wake = self.gateways.iter().enumerate().filter_map(|(at, gateway)| {
                Some((gateway.wake?.max(gateway.ticked + SHORTEST_TICK), at))
            });
            let (at, gate) = wake.min().map_or((Timestamp::MAX, 0), |(at, gate)| (at, gate));
            if at.min(next) > end || (at.min(next) >= self.until() && self.open == 0) {
                break;
            }
            if at < next {
                self.now = self.now.max(at);
                if let Some(gateway) = self.gateways.get_mut(gate) {
                    gateway.ticked = self.now;
                }
                self.tell(gate, Event::Tick);
            } else if let Some((at, due)) = self.agenda.pop() {
                self.now = self.now.max(at);
                self.happen(due);
            }
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Flow => self.flow_arrives(),
            Due::Client => self.client_begins(),
            Due::Stage(flow) => self.stage(flow),
            Due::Call(call) => self.send(call),
            Due::Patience(request) => self.give_up(request),
            Due::Step { replica, life } => self.step_ends(replica, life),
            Due::Hold(request, sent) => self.hold_ends(request, sent),
            Due::FirstByte(request, sent) => self.first_byte_is_late(request, sent),
            Due::Scrape { gate, replica } => self.scrape(gate, replica),
            Due::Scraped { gate, replica, sample } => {
                self.tell(gate, Event::Telemetry(replica_id(replica), *sample));
            }
            Due::Probe { gate, replica } => self.probe(gate, replica),
            Due::FaultOn(at) => self.fault(at, true),
            Due::FaultOff(at) => self.fault(at, false),
        }
    }

    fn scrape(&mut self, gate: usize, replica: usize) {
        self.agenda.at(self.now + self.setup.scrape, Due::Scrape { gate, replica });
        let Some(server) = self.servers.get(replica).filter(|server| server.answers()) else {
            return;
        };
        let mut sample = Box::new(server.sample(self.now));
        sample.taken = self.now + self.setup.scrape_takes;
        self.agenda.at(sample.taken, Due::Scraped { gate, replica, sample });
    }

    fn probe(&mut self, gate: usize, replica: usize) {
        self.agenda.at(self.now + self.setup.probe, Due::Probe { gate, replica });
        let up = self.servers.get(replica).is_some_and(Server::answers);
        let health = if up { Health::Up } else { Health::Down };
        self.tell(gate, Event::Health(replica_id(replica), health));
    }

    fn fault(&mut self, at: usize, on: bool) {
        let Some(plan) = self.setup.faults.get(at) else { return };
        for &replica in &plan.replicas {
            let Some(server) = self.servers.get_mut(replica) else { continue };
            server.trouble(self.now, plan.trouble, on);
            let resumed = server.resumes();
            if plan.trouble == Trouble::Crash && on {
                self.lose(replica);
            }
            match resumed {
                Some(life) => self.step_ends(replica, life),
                None => self.kick(replica),
            }
        }
    }

    /// Lets a replica begin a step where it idles.
    fn kick(&mut self, replica: usize) {
        let Some(server) = self.servers.get_mut(replica) else { return };
        if let Some((takes, life)) = server.begin(self.now) {
            self.agenda.at(self.now + takes, Due::Step { replica, life });
        }
    }

    fn seeing(self) -> Seeing {
        let counted = self.servers.iter().map(Server::counted);
        let [preemptions, prefix_queries, prefix_hits] = counted
            .fold([0; 3], |[a, b, c], [preemptions, queries, hits]| {
                [a + preemptions, b + queries, c + hits]
            });
        Seeing {
            standing: self.servers.iter().map(|server| server.most).max().unwrap_or(0),
            sent: self.sent,
            preemptions,
            prefix_queries,
            prefix_hits,
            calls: self.calls.into_iter().filter(|call| call.counted).map(|c| c.seen).collect(),
        }
    }
}

fn replica_id(at: usize) -> ReplicaId {
    ReplicaId(u32::try_from(at).unwrap_or(u32::MAX))
}

/// The `nth` of `of` even parts of a period.
fn part(period: Duration, nth: usize, of: usize) -> Timestamp {
    let (nth, of) = (u32::try_from(nth).unwrap_or(0), u32::try_from(of.max(1)).unwrap_or(1));
    Timestamp::ZERO + period * nth / of
}
