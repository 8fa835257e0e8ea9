//! The replicas' own metrics while a run goes on.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;

use super::client::Client;
use crate::domain::{Sample, Timestamp};
use crate::knee::Shown;
use crate::lifecycle::Clock;
use crate::vllm::parse_metrics;

/// Between two scrapes of a replica: more often would stall its loop.
const PERIOD: Duration = Duration::from_millis(500);

/// Longest answer read.
const MOST_BYTES: usize = 8 << 20;

/// What was read, a row a replica, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Watched {
    rows: Vec<Vec<Sample>>,
}

impl Watched {
    /// Reads all `replicas` again and again, until it is dropped.
    pub(super) async fn watch(&mut self, replicas: &[Client], clock: Clock) {
        self.rows.resize_with(replicas.len(), Vec::new);
        loop {
            for (client, row) in replicas.iter().zip(&mut self.rows) {
                row.extend(scrape(client, clock).await);
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// The whole run in a few numbers.
    pub(super) fn shown(&self) -> Shown {
        let mean = |pick: fn(&Sample) -> Option<u32>| {
            let means = self.rows.iter().filter_map(|row| {
                let read: Vec<f64> = row.iter().filter_map(pick).map(f64::from).collect();
                crate::stats::mean(&read)
            });
            means.reduce(|sum, mean| sum + mean)
        };
        let grown =
            |row: &Vec<Sample>| row.last()?.preemptions?.checked_sub(row.first()?.preemptions?);
        Shown {
            running: mean(|sample| sample.running),
            waiting: mean(|sample| sample.waiting),
            kv_usage: self.rows.iter().flatten().filter_map(|one| one.kv_usage).reduce(f64::max),
            preemptions: self.rows.iter().filter_map(grown).reduce(|sum, more| sum + more),
        }
    }
}

/// One reading; `None` where none could be had.
async fn scrape(client: &Client, clock: Clock) -> Option<Sample> {
    let request = client.get().body(Full::new(Bytes::new())).ok()?;
    let asked = Timestamp::since_origin(clock.elapsed());
    let mut exchange = client.send(request).await.ok()?;
    let mut text = Vec::new();
    while let Some(data) = exchange.data().await {
        text.extend_from_slice(&data.ok()?);
        if text.len() > MOST_BYTES {
            return None;
        }
    }
    let good = exchange.head.status.is_success();
    exchange.keep();
    let taken = Timestamp::since_origin(clock.elapsed());
    parse_metrics(&text, asked, taken).ok().filter(|_| good)
}
