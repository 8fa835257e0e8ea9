//! The replicas as a whole: who is on the list, what is known of them, who is taken out.

use std::sync::Arc;

use crate::domain::{Health, ReplicaId, Sample, Timestamp};

use super::replica::Replica;
use super::{Dispatcher, Effect, Note, Policy, ReplicaSpec, limiter, tightest};

impl Dispatcher {
    /// The list is now this one. Who left keeps its ledger until its last request has ended,
    /// and finds it again when it comes back.
    pub(super) fn set_replicas(
        &mut self,
        now: Timestamp,
        specs: &[ReplicaSpec],
        out: &mut Vec<Effect>,
    ) {
        for replica in &mut self.replicas {
            replica.listed = false;
        }
        for spec in specs {
            let at = match self.replicas.binary_search_by_key(&spec.id, |replica| replica.id) {
                Ok(at) => at,
                Err(at) => {
                    self.replicas.insert(at, Replica::new(spec.id, now));
                    at
                }
            };
            if let Some(replica) = self.replicas.get_mut(at) {
                replica.listed = true;
                replica.own_limit = spec.in_flight;
            }
        }
        self.replicas.retain(|replica| replica.listed || replica.ledger.requests() > 0);
        self.spare_last(out);
        self.refresh();
    }

    pub(super) fn set_policy(&mut self, policy: Arc<Policy>) {
        self.tightest = tightest(&policy);
        self.queue.set_rules(&policy);
        self.policy = policy;
        self.refresh();
    }

    pub(super) fn probed(
        &mut self,
        now: Timestamp,
        id: ReplicaId,
        health: Health,
        out: &mut Vec<Effect>,
    ) {
        if let Some(replica) = self.replica_mut(id) {
            replica.health = Some(health);
            replica.health_at = now;
        }
        self.spare_last(out);
    }

    pub(super) fn telemetry(
        &mut self,
        now: Timestamp,
        id: ReplicaId,
        sample: Sample,
        out: &mut Vec<Effect>,
    ) {
        let (gateways, stale_after) = (self.policy.gateways, self.policy.stale_after);
        let Some(replica) = self.replica_mut(id) else { return };
        let fresh = sample.taken + stale_after > now;
        let reading = replica.read(now, sample, gateways);
        if reading.restarted {
            out.push(Effect::Note(Note::Restarted(id)));
        }
        if let Some(metric) = reading.unknown {
            out.push(Effect::Note(Note::Unknown(id, metric)));
        }
        if fresh && replica.stale {
            replica.stale = false;
            out.push(Effect::Note(Note::Fresh(id)));
        }
        self.spare_last(out);
        self.refresh();
    }

    /// Says which readings have grown stale, and half-opens breakers whose pause is over.
    pub(super) fn advance_fleet(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        if self.fleet_deadline.is_none_or(|at| at > now) {
            return;
        }
        let after = self.policy.stale_after;
        for replica in &mut self.replicas {
            if replica.stale_at(after).is_some_and(|at| at <= now) {
                replica.stale = true;
                replica.foreign = None;
                out.push(Effect::Note(Note::Stale(replica.id)));
            }
            replica.ejection.tick(now);
        }
        self.refresh();
    }

    /// A strike against a replica; takes it out where the pool can spare it.
    pub(super) fn strike(&mut self, now: Timestamp, id: ReplicaId, out: &mut Vec<Effect>) {
        let Some(at) = self.at(id) else { return };
        let listed = self.replicas.iter().filter(|replica| replica.listed).count();
        let others_out = self
            .replicas
            .iter()
            .filter(|replica| replica.id != id && replica.listed && replica.ejection.is_out())
            .count();
        let another = self.replicas.iter().any(|r| r.id != id && r.is_usable());
        let Some(replica) = self.replicas.get_mut(at) else { return };
        let enough = replica.ejection.strike(now);
        if !enough || !replica.listed {
            return;
        }
        if another && (others_out + 1) * 2 <= listed {
            replica.ejection.open(now);
            out.push(Effect::Note(Note::Ejected(id)));
            self.refresh();
        }
        self.spare_last(out);
    }

    /// A pool's last replicas are never out: where all that are sound are, all come back.
    fn spare_last(&mut self, out: &mut Vec<Effect>) {
        if self.replicas.iter().any(|replica| replica.is_sound() && !replica.ejection.is_out()) {
            return;
        }
        for replica in &mut self.replicas {
            if replica.is_sound() && replica.ejection.close() {
                out.push(Effect::Note(Note::Reinstated(replica.id)));
            }
        }
    }

    /// Recomputes what rests on the list, the readings and the policy: limits, the others' mean
    /// load, and the next moment to look.
    fn refresh(&mut self) {
        let per_request = self.learned.tokens_per_request();
        let (mut known, mut sum) = (0_u32, 0.0);
        let mut deadline: Option<Timestamp> = None;
        for replica in &mut self.replicas {
            let limit = limiter::base(
                &self.policy,
                replica.own_limit,
                replica.sample.as_ref(),
                per_request,
            );
            replica.assumed = limit.assumed;
            replica.limit = limiter::share(limit.value, self.policy.gateways, replica.foreign);
            if let Some(foreign) = replica.foreign {
                known += 1;
                sum += foreign;
            }
            let next = [replica.stale_at(self.policy.stale_after), replica.ejection.deadline()];
            deadline = next.into_iter().flatten().chain(deadline).min();
        }
        self.mean_foreign = if known > 0 { sum / f64::from(known) } else { 0.0 };
        self.fleet_deadline = deadline;
        let limit = self.usable_limit();
        self.budget.resize(limit);
    }
}
