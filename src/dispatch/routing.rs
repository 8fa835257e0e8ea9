//! Which replica takes a request: filter, score, pick.
//!
//! The score is load relative to the limit, from our exact count and, on top, what the last
//! scrape showed of others. Our own count rises with each pick, so a burst between two scrapes
//! spreads. Equals are drawn at random, so several gateways do not march in step.

use rand::RngExt;
use rand::rngs::StdRng;

use crate::domain::Timestamp;

use super::admission::{self, Ask};
use super::replica::Replica;

/// Scores closer than this are equal.
const EQUAL: f64 = 1e-9;

/// The index of the replica to use among `open` ones, or `None` where no gate passes.
pub(super) fn pick(
    replicas: &[Replica],
    open: &[usize],
    ask: &Ask,
    allowed: impl Fn(&Replica) -> bool,
    (now, unknown_foreign): (Timestamp, f64),
    rng: &mut StdRng,
) -> Option<usize> {
    let mut best: Option<(f64, usize)> = None;
    let mut equals = 0_u32;
    for &at in open {
        let Some(replica) = replicas.get(at) else { continue };
        if !replica.ejection.admits() || !allowed(replica) || !admission::passes(replica, ask) {
            continue;
        }
        let score = if replica.ejection.wants_probe() {
            -1.0
        } else {
            replica.load(ask.sequences, unknown_foreign, now)
        };
        match best {
            Some((least, _)) if score > least + EQUAL => {}
            Some((least, _)) if score >= least - EQUAL => {
                equals += 1;
                if rng.random_range(0..=equals) == 0 {
                    best = Some((least, at));
                }
            }
            _ => {
                equals = 0;
                best = Some((score, at));
            }
        }
    }
    best.map(|(_, at)| at)
}
