//! Tokens a minute: an account that may be overdrawn.
//!
//! What a request will use is known only when it has ended, so it is charged by an estimate and
//! settled later, upwards or downwards. `governor` can do neither: its cells cannot be given back,
//! nor taken after the fact, nor more than a burst of them at once. Hence a plain account that
//! fills at the rate up to a burst. A request goes when there is what it is expected to use, or,
//! where that is more than the account ever holds, when it is full. A debt is paid back by time
//! before anything else goes, so that the rate holds over any longer time whatever was estimated.

use std::time::Duration;

use crate::domain::Timestamp;

use super::num::{real, seconds, whole};
use super::promises::Promises;
use super::quota::Level;

/// One tenant's tokens a minute.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenAccount {
    per_minute: u64,
    /// Most that is saved up.
    capacity: f64,
    /// Below zero is a debt.
    balance: f64,
    /// When `balance` was that.
    at: Timestamp,
    promises: Promises,
}

impl TokenAccount {
    /// Full. `save` is how long the rate may be saved up.
    pub(super) fn new(per_minute: u64, save: Duration, now: Timestamp) -> Self {
        let capacity = (real(per_minute) * save.as_secs_f64() / 60.0).max(1.0);
        Self { per_minute, capacity, balance: capacity, at: now, promises: Promises::default() }
    }

    /// Goes by another rate. A debt stays a debt; what was left stays in proportion.
    pub(super) fn set(&mut self, per_minute: u64, save: Duration, now: Timestamp) {
        let before = self.balance_at(now);
        let mut next = Self::new(per_minute, save, now);
        let share = before / self.capacity;
        next.balance = if before < 0.0 { before } else { share * next.capacity };
        *self = next;
    }

    /// How long until so many tokens may be charged; zero where they may now.
    pub(super) fn wait(&self, now: Timestamp, tokens: u64) -> Duration {
        let wanted = real(tokens.max(1)).min(self.capacity);
        seconds((wanted - self.balance_at(now)) / self.per_second())
    }

    /// Charges tokens, whatever that makes of the balance; gives them back where negative.
    pub(super) fn charge(&mut self, now: Timestamp, tokens: f64) {
        self.balance = (self.balance_at(now) - tokens).min(self.capacity);
        self.at = self.at.max(now);
    }

    /// When a refused client should come back.
    pub(super) fn promise(&mut self, now: Timestamp, wait: Duration, tokens: u64) -> Duration {
        self.promises.next(now, wait, seconds(real(tokens) / self.per_second()))
    }

    pub(super) fn level(&self, now: Timestamp) -> Level {
        let balance = self.balance_at(now);
        Level {
            limit: self.per_minute,
            burst: whole(self.capacity),
            left: whole(balance),
            full_in: seconds((self.capacity - balance) / self.per_second()),
        }
    }

    fn balance_at(&self, now: Timestamp) -> f64 {
        let come = now.saturating_since(self.at).as_secs_f64() * self.per_second();
        (self.balance + come).min(self.capacity)
    }

    fn per_second(&self) -> f64 {
        real(self.per_minute.max(1)) / 60.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVE: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::since_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_debt_is_paid_before_anything_goes() {
        let mut account = TokenAccount::new(6_000, SAVE, at(0));
        assert_eq!(account.level(at(0)).burst, 1_500);
        assert_eq!(account.wait(at(0), 1_500), Duration::ZERO);
        account.charge(at(0), 1_500.0);
        account.charge(at(0), 1_000.0);
        assert_eq!(account.wait(at(0), 100), Duration::from_secs(11));
        assert_eq!(account.level(at(0)).left, 0);
        account.charge(at(0), -2_500.0);
        assert_eq!(account.wait(at(0), 1_500), Duration::ZERO);
        account.charge(at(0), -9_999.0);
        assert_eq!(account.level(at(0)).left, 1_500, "nobody saves more than a burst");
    }

    #[test]
    fn what_never_fits_goes_when_the_account_is_full() {
        let mut account = TokenAccount::new(6_000, SAVE, at(0));
        assert_eq!(account.wait(at(0), 1_000_000), Duration::ZERO);
        account.charge(at(0), 1.0);
        assert_eq!(account.wait(at(0), 1_000_000), Duration::from_millis(10));
    }

    #[test]
    fn another_rate_forgives_no_debt_and_gives_no_burst() {
        let mut account = TokenAccount::new(6_000, SAVE, at(0));
        account.charge(at(0), 2_500.0);
        account.set(60_000, SAVE, at(0));
        assert_eq!(account.wait(at(0), 1), Duration::from_millis(1_001));
        account.charge(at(0), -1_000.0);
        account.charge(at(0), -7_500.0);
        account.set(6_000, SAVE, at(0));
        assert_eq!(account.level(at(0)).left, 750, "half stays half");
    }
}
