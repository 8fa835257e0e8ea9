//! Asks a replica for its health, over and over, and now and then what it serves.

use std::time::Duration;

use tokio::sync::watch;

use crate::domain::Health;

use super::facts::Facts;
use super::fetch::fetch;
use super::observe::{Observation, Post, Watch};
use super::pace::Pace;

/// Its models and version are asked for when it comes up, and after that this often: adapters
/// come and go, and a rolling update may not be seen as a failed probe.
const FACTS_PERIOD: Duration = Duration::from_secs(30);

/// The loop of one replica; ends with its watch.
pub(super) async fn run(post: Post, plan: watch::Receiver<Watch>) {
    let mut pace = Pace::new(plan, post.clock, post.replica.id(), |plan| plan.probe.period);
    let mut last: Option<Health> = None;
    let mut facts_due = Duration::ZERO;
    while let Some(plan) = pace.beat().await {
        let look = async {
            let health = probe(&post, &plan, last).await;
            let came_up = health == Health::Up && last != Some(Health::Up);
            if health == Health::Up && (came_up || post.clock.elapsed() >= facts_due) {
                learn(&post, &plan).await;
                facts_due = post.clock.elapsed() + FACTS_PERIOD;
            }
            health
        };
        last = tokio::select! {
            health = look => Some(health),
            () = pace.ended() => return,
        };
    }
}

async fn probe(post: &Post, plan: &Watch, last: Option<Health>) -> Health {
    let authorization = plan.authorization();
    let answer = fetch(&post.replica, "/health", authorization.as_ref(), plan.probe.timeout).await;
    let health = if answer.is_ok() { Health::Up } else { Health::Down };
    // Told first, so that asking for more does not delay it.
    post.report(Observation::Health(health));
    if last != Some(health) {
        let replica = &**post.replica.name();
        match answer {
            Ok(_) => tracing::info!(replica, "is up"),
            Err(error) => tracing::warn!(replica, reason = error.as_str(), %error, "is down"),
        }
    }
    health
}

async fn learn(post: &Post, plan: &Watch) {
    let authorization = plan.authorization();
    match Facts::of(&post.replica, authorization.as_ref(), plan.probe.timeout).await {
        Ok(facts) => post.replica.learn(facts),
        Err(error) => {
            let replica = &**post.replica.name();
            tracing::debug!(replica, reason = error.as_str(), %error, "does not say what it serves");
        }
    }
}
