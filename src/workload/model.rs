//! A workload: classes, tenants, how it arrives, and how its clients come back.

use super::{ArrivalModel, Class, ClientModel, Pause, Tenant, Trace};

/// All that a load is made of, but its rate and its seeds.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// Kinds of requests; a class's id is its place here.
    pub classes: Vec<Class>,
    /// Who sends them, at least one; a tenant's id is its place here.
    pub tenants: Vec<Tenant>,
    /// When flows begin.
    pub pacing: Pacing,
    /// How a client that was refused comes back.
    pub client: ClientModel,
}

impl Default for Workload {
    /// Nothing, from anyone, without retries.
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            tenants: vec![Tenant::anyone()],
            pacing: Pacing::Open(ArrivalModel::default()),
            client: ClientModel::None,
        }
    }
}

/// When flows begin.
#[derive(Clone, PartialEq, Debug)]
pub enum Pacing {
    /// Whatever became of those before: what a public does, and the only way to see overload.
    Open(ArrivalModel),
    /// Each of so many clients begins when its last flow has ended, and a pause is over. It slows
    /// down with the server and so hides overload.
    Closed {
        /// How many.
        clients: u32,
        /// Between two flows of one client.
        think: Pause,
    },
    /// As it was recorded.
    Trace(Replay),
}

/// A trace and how it is replayed.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    /// What was recorded.
    pub trace: Trace,
    /// Factor on its rate.
    pub speed: f64,
    /// Tokens that a hash id of it stands for.
    pub block_tokens: u32,
}

impl Workload {
    /// One class in an open loop.
    pub fn of(class: Class) -> Self {
        Self { classes: vec![class], ..Self::default() }
    }

    /// Calls a second that it comes with by itself, as a trace does: a rate need not be given.
    pub fn own_rate(&self) -> Option<f64> {
        match &self.pacing {
            Pacing::Trace(replay) => Some(replay.trace.rate()? * replay.speed),
            Pacing::Open(_) | Pacing::Closed { .. } => None,
        }
    }
}
