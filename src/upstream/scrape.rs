//! Reads a replica's metrics, over and over.

use tokio::sync::watch;

use crate::domain::{Sample, Timestamp};
use crate::vllm::parse_metrics;

use super::fetch::{FetchError, fetch};
use super::observe::{Observation, Post, Watch};
use super::pace::Pace;

/// The loop of one replica; ends with its watch.
pub(super) async fn run(post: Post, plan: watch::Receiver<Watch>) {
    let mut pace = Pace::new(plan, post.clock, post.replica.id(), |plan| plan.scrape.period);
    let mut told = Told::default();
    while let Some(plan) = pace.beat().await {
        let reading = tokio::select! {
            reading = read(&post, &plan) => reading,
            () = pace.ended() => return,
        };
        told.tell(post.replica.name(), &reading);
        post.report(match reading {
            Ok(sample) => Observation::Sample(sample),
            Err(error) => Observation::ScrapeFailed(error.as_str()),
        });
    }
}

async fn read(post: &Post, plan: &Watch) -> Result<Sample, FetchError> {
    let asked = Timestamp::since_origin(post.clock.elapsed());
    let authorization = plan.authorization();
    let text =
        fetch(&post.replica, "/metrics", authorization.as_ref(), plan.scrape.timeout).await?;
    let taken = Timestamp::since_origin(post.clock.elapsed());
    Ok(parse_metrics(&text, asked, taken)?)
}

/// What the log was told last, so that it hears of changes and not of every period.
#[derive(Default)]
struct Told {
    failing: Option<&'static str>,
    missing: Vec<&'static str>,
}

impl Told {
    fn tell(&mut self, replica: &str, reading: &Result<Sample, FetchError>) {
        match reading {
            Err(error) => {
                let word = error.as_str();
                if self.failing.replace(word) != Some(word) {
                    tracing::warn!(replica, reason = word, %error, "cannot read its metrics");
                }
            }
            Ok(sample) => {
                if self.failing.take().is_some() {
                    tracing::info!(replica, "its metrics can be read again");
                }
                let missing = missing(sample);
                if missing != self.missing {
                    tracing::warn!(replica, ?missing, "metrics that its scrape lacks");
                    self.missing = missing;
                }
            }
        }
    }
}

/// What admission and routing would go by and this sample does not have.
fn missing(sample: &Sample) -> Vec<&'static str> {
    [
        ("running", sample.running.is_none()),
        ("waiting", sample.waiting.is_none()),
        ("kv_usage", sample.kv_usage.is_none()),
        ("kv_capacity_tokens", sample.kv_capacity_tokens.is_none()),
    ]
    .into_iter()
    .filter_map(|(name, absent)| absent.then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let full = Sample {
            running: Some(0),
            waiting: Some(0),
            kv_usage: Some(0.0),
            kv_capacity_tokens: Some(1),
            ..Sample::default()
        };
        assert!(missing(&full).is_empty());
        assert_eq!(missing(&Sample { kv_usage: None, ..full }), ["kv_usage"]);
    }
}
