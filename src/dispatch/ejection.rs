//! Passive health: taking out a replica that fails the requests it is sent.
//!
//! Consecutive strikes open the breaker. A connect error or a first-byte timeout is a strike by
//! itself; a 5xx, a reset or an error in the first frame only when another replica then answered
//! the same request well, since else the request may be at fault. Refusals (4xx) and "busy" are
//! answers: they never count, or one bad client would eject a whole pool. After a pause one
//! request is let through as a probe; it decides.
//!
//! How many of a pool may be out at once is the dispatcher's to say: it alone sees all of them.

use std::time::Duration;

use crate::domain::{Failure, Timestamp};

use super::num::real;

/// Strikes in a row that eject.
const STRIKES: u32 = 3;
/// First pause; doubled each time up to the longest.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// What a failure adds to a replica's relative load, its bound, and the time in which it fades.
const PENALTY: f64 = 0.25;
const MOST_PENALTY: f64 = 1.0;
const FADES: f64 = 5.0;

/// The breaker's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Closed,
    Open(Timestamp),
    HalfOpen { probing: bool },
}

/// The breaker of one replica.
#[derive(Clone, Debug)]
pub(super) struct Ejection {
    state: State,
    strikes: u32,
    times: u32,
    penalty: f64,
    penalty_at: Timestamp,
}

impl Default for Ejection {
    fn default() -> Self {
        Self {
            state: State::Closed,
            strikes: 0,
            times: 0,
            penalty: 0.0,
            penalty_at: Timestamp::ZERO,
        }
    }
}

/// Whether this failure is a strike by itself.
pub(super) const fn strikes_alone(failure: Failure) -> bool {
    matches!(failure, Failure::Connect | Failure::FirstByteTimeout | Failure::Stalled)
}

/// Whether it is one when another replica then answers well.
pub(super) const fn strikes_if_answered(failure: Failure) -> bool {
    matches!(
        failure,
        Failure::Status(_) | Failure::Protocol | Failure::Reset | Failure::EngineError
    )
}

impl Ejection {
    /// Whether it is out, or being probed.
    pub(super) const fn is_out(&self) -> bool {
        !matches!(self.state, State::Closed)
    }

    /// Whether a request may be sent.
    pub(super) const fn admits(&self) -> bool {
        matches!(self.state, State::Closed | State::HalfOpen { probing: false })
    }

    /// Whether the next request sent is the probe.
    pub(super) const fn wants_probe(&self) -> bool {
        matches!(self.state, State::HalfOpen { probing: false })
    }

    /// The probe was sent.
    pub(super) const fn probing(&mut self) {
        self.state = State::HalfOpen { probing: true };
    }

    /// The probe ended and says nothing (its client went away).
    pub(super) const fn probe_lost(&mut self) {
        if matches!(self.state, State::HalfOpen { .. }) {
            self.state = State::HalfOpen { probing: false };
        }
    }

    /// Brings it back without proof. Whether it was out.
    pub(super) const fn close(&mut self) -> bool {
        let out = self.is_out();
        self.state = State::Closed;
        self.strikes = 0;
        out
    }

    /// When it is next to be looked at.
    pub(super) const fn deadline(&self) -> Option<Timestamp> {
        match self.state {
            State::Open(until) => Some(until),
            _ => None,
        }
    }

    /// Time has come to `now`.
    pub(super) fn tick(&mut self, now: Timestamp) {
        if self.deadline().is_some_and(|until| until <= now) {
            self.state = State::HalfOpen { probing: false };
        }
    }

    /// A strike. Whether there are now enough of them to eject.
    pub(super) fn strike(&mut self, now: Timestamp) -> bool {
        self.penalty = (self.penalty(now) + PENALTY).min(MOST_PENALTY);
        self.penalty_at = now;
        self.strikes = self.strikes.saturating_add(1);
        match self.state {
            State::Closed => self.strikes >= STRIKES,
            State::HalfOpen { .. } => true,
            State::Open(_) => false,
        }
    }

    /// Takes it out.
    pub(super) fn open(&mut self, now: Timestamp) {
        let pause = PAUSE.saturating_mul(1 << self.times.min(4)).min(LONGEST_PAUSE);
        self.times = self.times.saturating_add(1);
        self.state = State::Open(now + pause);
    }

    /// It answered. Whether that brought it back.
    pub(super) fn answered(&mut self) -> bool {
        self.strikes = 0;
        let back = matches!(self.state, State::HalfOpen { .. });
        if back {
            self.state = State::Closed;
        } else if !self.is_out() {
            self.times = 0;
        }
        back
    }

    /// What its failures add to its relative load.
    pub(super) fn penalty(&self, now: Timestamp) -> f64 {
        if self.penalty == 0.0 {
            return 0.0;
        }
        let nanos = real(now.as_nanos().saturating_sub(self.penalty_at.as_nanos()));
        self.penalty * (-nanos / 1e9 / FADES).exp()
    }
}
