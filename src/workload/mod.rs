//! PURE: what is sent: how long prompts and answers are, when they arrive, what they share, how
//! clients come back.
//!
//! A [`WorkloadFile`] is what an operator writes, a [`Workload`] what is drawn from. [`Offered`]
//! gives its [`Flow`]s with their times for an open loop, [`Flows`] without them for a closed
//! one. Everything comes from [`Seeds`] that the caller gives, so that two runs (or two rates)
//! offer the same requests. It makes numbers; who turns them into text and sends them, and on
//! which clock, is `load`'s and `sim`'s.

mod arrivals;
mod class;
mod compile;
mod draw;
mod fault;
mod file;
mod flow;
mod lengths;
mod model;
mod offered;
mod pause;
mod retry;
mod trace;

pub use arrivals::{ArrivalModel, Arrivals, Bursts, Process, State};
pub use class::{Class, FollowUp, Header, Prefix, Tenant};
pub use draw::{Flows, Seeds};
pub use fault::{Fault, Faults};
pub use file::WorkloadFile;
pub use flow::{Call, Flow, Piece, Role, Stage};
pub use lengths::Lengths;
pub use model::{Pacing, Replay, Workload};
pub use offered::Offered;
pub use pause::Pause;
pub use retry::{ClientModel, Retrier, Told};
pub use trace::{Row, TimeUnit, Trace};
