//! One tenant's quotas at work: what may go now, what it is charged, what it turned out to use.
//!
//! Admission charges a request and count, rate and tokens are one step; whoever admits holds a
//! [`Charge`] and brings it back once with what was [`Spent`]. A request that is refused further
//! on costs nothing. Time is handed in, so that the same meter runs live and in the simulator.
//!
//! It limits one gateway; several that share a tenant each have a meter of their own.

use std::time::Duration;

use crate::domain::{Reason, Rejection, Timestamp, Unit};

use super::habits::{Ask, Habits, Mean};
use super::num::{real, seconds};
use super::quota::{Level, Levels, Quota};
use super::request_rate::RequestRate;
use super::token_account::TokenAccount;

/// Nobody is told to come back sooner.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// What an admitted request owes: to be brought back once.
#[derive(Debug)]
#[must_use = "an admitted request is settled when it has ended"]
pub struct Charge {
    ask: Ask,
    /// Tokens charged, and the input among them.
    tokens: u64,
    input: u64,
    at: Timestamp,
}

/// What an admitted request turned out to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spent {
    /// Nothing: it was refused by us, or no replica served it.
    Nothing,
    /// A request and no tokens: its own fault, or its client left before it ran.
    Request,
    /// These tokens, by the replica's count.
    Counted {
        /// Prompt tokens.
        input: u64,
        /// Generated tokens.
        output: u64,
    },
    /// Its prompt, and the output tokens that were seen.
    Seen(u64),
    /// What was expected, since nobody counted.
    Expected,
}

/// The quotas of one tenant, and what has been used of them.
#[derive(Debug)]
pub struct Meter {
    quota: Quota,
    requests: Option<RequestRate>,
    tokens: Option<TokenAccount>,
    running: u32,
    habits: Habits,
    /// Seconds that a request is under way.
    stay: Mean,
}

impl Meter {
    /// Nothing used yet.
    pub fn new(quota: Quota, now: Timestamp) -> Self {
        let (requests, tokens) = (None, None);
        let (habits, stay) = (Habits::default(), Mean::default());
        let unlimited = Quota { burst: quota.burst, ..Quota::default() };
        let mut meter = Self { quota: unlimited, requests, tokens, running: 0, habits, stay };
        meter.set(quota, now);
        meter
    }

    /// Goes by other quotas. What runs goes on; what was used stays used.
    pub fn set(&mut self, quota: Quota, now: Timestamp) {
        if quota == self.quota {
            return;
        }
        let save = quota.burst;
        match (quota.requests_per_minute, &mut self.requests) {
            (Some(rate), Some(requests)) => requests.set(rate, save, now),
            (rate, requests) => *requests = rate.map(|rate| RequestRate::new(rate, save, now)),
        }
        match (quota.tokens_per_minute, &mut self.tokens) {
            (Some(rate), Some(tokens)) => tokens.set(rate, save, now),
            (rate, tokens) => *tokens = rate.map(|rate| TokenAccount::new(rate, save, now)),
        }
        self.quota = quota;
    }

    /// Prompt tokens to expect of a request, by what the tenant's texts have been before.
    pub fn input(&self, ask: &Ask) -> u64 {
        self.habits.input(ask)
    }

    /// Why no request of this tenant may go now, however small; charges nothing.
    pub fn refuses(&mut self, now: Timestamp) -> Option<Rejection> {
        self.full(now)
            .or_else(|| self.over_tokens(now, 0))
            .or_else(|| self.over_requests(now, self.requests.as_ref()?.wait(now)))
    }

    /// Lets a request go and charges it, or says why not and when to come back.
    pub fn admit(&mut self, now: Timestamp, ask: Ask) -> Result<Charge, Rejection> {
        let input = self.habits.input(&ask);
        let tokens = input.saturating_add(self.habits.output(&ask));
        if let Some(refused) = self.full(now).or_else(|| self.over_tokens(now, tokens)) {
            return Err(refused);
        }
        if let Some(Err(wait)) = self.requests.as_mut().map(|requests| requests.take(now))
            && let Some(refused) = self.over_requests(now, wait)
        {
            return Err(refused);
        }
        if let Some(account) = &mut self.tokens {
            account.charge(now, real(tokens));
        }
        self.running = self.running.saturating_add(1);
        Ok(Charge { ask, tokens, input, at: now })
    }

    /// An admitted request has ended.
    #[expect(clippy::needless_pass_by_value, reason = "a charge is settled once: it is used up")]
    pub fn settle(&mut self, now: Timestamp, charge: Charge, spent: Spent) {
        let Charge { ask, tokens, input, at } = charge;
        self.running = self.running.saturating_sub(1);
        let used = match spent {
            Spent::Nothing | Spent::Request => 0,
            Spent::Counted { input, output } => {
                self.habits.observe(&ask, input, output);
                input.saturating_add(output)
            }
            Spent::Seen(output) => input.saturating_add(output),
            Spent::Expected => tokens,
        };
        if let Some(account) = &mut self.tokens {
            account.charge(now, real(used) - real(tokens));
        }
        if spent != Spent::Nothing {
            self.stay.observe(now.saturating_since(at).as_secs_f64());
        } else if let Some(requests) = &mut self.requests {
            requests.give_back(now);
        }
    }

    /// Requests under way.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Where the quotas stand.
    pub fn levels(&self, now: Timestamp) -> Levels {
        let parallel = self.quota.parallel.map(|most| Level {
            limit: most.into(),
            burst: most.into(),
            left: most.saturating_sub(self.running).into(),
            full_in: Duration::ZERO,
        });
        Levels {
            requests: self.requests.as_ref().map(|requests| requests.level(now)),
            tokens: self.tokens.as_ref().map(|tokens| tokens.level(now)),
            parallel,
            burst: self.quota.burst,
        }
    }

    fn full(&self, _now: Timestamp) -> Option<Rejection> {
        let most = self.quota.parallel.filter(|most| self.running >= *most)?;
        // A place comes free as often as that, at the pace of the requests so far.
        let stay = self.stay.known().unwrap_or(1.0);
        let wait = seconds(stay / f64::from(most.max(1)));
        Some(refusal(Reason::Parallel, wait, f64::from(most), f64::from(self.running)))
    }

    fn over_tokens(&mut self, now: Timestamp, tokens: u64) -> Option<Rejection> {
        let account = self.tokens.as_mut()?;
        let wait = account.wait(now, tokens);
        if wait.is_zero() {
            return None;
        }
        let wait = account.promise(now, wait, tokens);
        let level = account.level(now);
        let used = level.burst.saturating_sub(level.left).saturating_add(tokens);
        Some(refusal(Reason::RateTokens, wait, real(level.limit), real(used)))
    }

    fn over_requests(&mut self, now: Timestamp, wait: Duration) -> Option<Rejection> {
        let requests = self.requests.as_mut().filter(|_| !wait.is_zero())?;
        let wait = requests.promise(now, wait);
        let level = requests.level(now);
        let used = level.burst.saturating_sub(level.left).saturating_add(1);
        Some(refusal(Reason::RateRequests, wait, real(level.limit), real(used)))
    }
}

fn refusal(reason: Reason, wait: Duration, limit: f64, reading: f64) -> Rejection {
    let retry_after = Some(wait.max(SHORTEST_WAIT));
    Rejection { retry_after, unit: Unit::of(reason), limit, reading, ..Rejection::plain(reason) }
}

#[cfg(test)]
mod tests;
