//! Bodies that have killed replicas, kept from killing more for a while.
//!
//! The dispatcher stops one request after it has failed at two replicas in a way that looks like
//! its own doing. Its client, or the client's library, sends the same body again; that one is
//! known here by its hash and refused before the gate. Nothing of the body is kept.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::domain::Timestamp;

/// How long a body is refused.
const REFUSED_FOR: Duration = Duration::from_mins(1);
/// Bodies remembered, at most; the oldest gives way.
const MOST: usize = 1024;

/// The hashes, each with its time.
///
/// The hash is keyed at random in each process, so that nobody can make a body that collides
/// with another's.
#[derive(Default)]
pub(super) struct Poisoned {
    keys: RandomState,
    /// Whether there is any: almost always not, and then no body is hashed.
    any: AtomicBool,
    /// Held for a look-up or an insertion.
    since: Mutex<BTreeMap<u64, Timestamp>>,
}

impl Poisoned {
    /// This body has killed replicas.
    pub(super) fn remember(&self, body: &[u8], now: Timestamp) {
        let hash = self.keys.hash_one(body);
        let mut since = self.since.lock();
        since.retain(|_, at| now.saturating_since(*at) < REFUSED_FOR);
        if since.len() >= MOST
            && let Some(oldest) = since.iter().min_by_key(|(_, at)| **at).map(|(hash, _)| *hash)
        {
            since.remove(&oldest);
        }
        since.insert(hash, now);
        self.any.store(true, Ordering::Release);
    }

    /// Whether this body is refused now.
    pub(super) fn refuses(&self, body: &[u8], now: Timestamp) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let hash = self.keys.hash_one(body);
        let mut since = self.since.lock();
        since.retain(|_, at| now.saturating_since(*at) < REFUSED_FOR);
        self.any.store(!since.is_empty(), Ordering::Release);
        since.contains_key(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::since_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_body_is_refused_for_a_minute_and_no_other_is() {
        let poisoned = Poisoned::default();
        assert!(!poisoned.refuses(b"a", at(0)));
        poisoned.remember(b"a", at(0));
        assert!(poisoned.refuses(b"a", at(59)));
        assert!(!poisoned.refuses(b"b", at(59)));
        assert!(!poisoned.refuses(b"a", at(60)));
        assert!(!poisoned.any.load(Ordering::Relaxed), "and costs nothing any more");
    }

    #[test]
    fn a_flood_of_them_stays_bounded() {
        let poisoned = Poisoned::default();
        for number in 0..5000_u64 {
            poisoned.remember(&number.to_le_bytes(), Timestamp::from_nanos(number));
        }
        assert_eq!(poisoned.since.lock().len(), MOST);
        assert!(poisoned.refuses(&4999_u64.to_le_bytes(), at(1)));
        assert!(!poisoned.refuses(&0_u64.to_le_bytes(), at(1)));
    }
}
