//! Paces a run: each request leaves when it is due, whatever became of the others.
//!
//! All requests live in one `JoinSet`, so that the end of the run, or dropping it, cancels them.
//! The loop measures how late it was itself: a generator that cannot keep its own schedule
//! measures itself, and its figures are void.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};

use super::attempt::{End, Run, Seen};
use super::client::{Client, TargetError};
use super::live::Live;
use super::{LoadOptions, LoadReport, Mode, Plan, Planned};
use crate::lifecycle::Clock;

/// Runs a load to its end, or until `stop` is ready: then no more is sent, what is open may
/// still end within `grace`, and the report is of what was sent.
///
/// `live` can be read meanwhile. Needs a tokio runtime with timer and IO.
pub async fn run(
    options: LoadOptions,
    clock: Clock,
    live: Arc<Live>,
    stop: impl Future<Output = ()>,
) -> Result<LoadReport, TargetError> {
    let client = Client::resolve(&options.url).await?;
    let origin = clock.elapsed();
    let run = Arc::new(Run { options, client, clock, origin, live });
    let mut stop = pin!(stop);
    let mut collected = Vec::new();
    let offered_until = match run.options.mode {
        Mode::Open(rate) => open(&run, rate, stop.as_mut(), &mut collected).await,
        Mode::Closed(clients) => closed(&run, clients, stop.as_mut(), &mut collected).await,
    };
    Ok(LoadReport::of(&run.options, &collected, offered_until))
}

/// The end of arrivals, from the start of the run.
fn last_arrival(options: &LoadOptions) -> Duration {
    options.warm_up.saturating_add(options.duration)
}

async fn open(
    run: &Arc<Run>,
    rate: f64,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    collected: &mut Vec<Seen>,
) -> Duration {
    let options = &run.options;
    let end = last_arrival(options);
    let mut open = Open::default();
    let mut stopped_at = None;
    for planned in Plan::open(options.seed, options.input, options.output, rate) {
        if planned.due >= end {
            break;
        }
        if !open.wait_until(run, planned.due, stop.as_mut(), collected).await {
            stopped_at = Some(run.elapsed());
            break;
        }
        if open.tasks.len() >= options.max_in_flight {
            let late = run.elapsed().saturating_sub(planned.due);
            collected.push(Seen { late, ..Seen::new(planned.due, End::Dropped) });
            continue;
        }
        open.send(run, planned);
    }
    if stopped_at.is_none() && !open.wait_until(run, end, stop, collected).await {
        stopped_at = Some(run.elapsed());
    }
    open.drain(run, collected).await;
    stopped_at.unwrap_or(end)
}

async fn closed(
    run: &Arc<Run>,
    clients: u32,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    collected: &mut Vec<Seen>,
) -> Duration {
    let options = &run.options;
    let end = last_arrival(options);
    let clients = (clients as usize).min(options.max_in_flight);
    let mut open = Open::default();
    let mut sleep = pin!(tokio::time::sleep(end.saturating_sub(run.elapsed())));
    let mut stopped_at = None;
    for planned in Plan::open(options.seed, options.input, options.output, 1.0) {
        if open.tasks.len() >= clients {
            tokio::select! {
                biased;
                () = &mut sleep => break,
                () = stop.as_mut() => {
                    stopped_at = Some(run.elapsed());
                    break;
                }
                Some(ended) = open.tasks.join_next() => open.ended(ended, collected),
            }
        }
        open.send(run, Planned { due: run.elapsed(), ..planned });
    }
    open.drain(run, collected).await;
    stopped_at.unwrap_or(end)
}

/// Requests sent and not ended. Due times are kept here too, so that what is cancelled with its
/// task is still counted.
#[derive(Default)]
struct Open {
    tasks: JoinSet<(u64, Seen)>,
    due: BTreeMap<u64, Duration>,
    next: u64,
}

impl Open {
    fn send(&mut self, run: &Arc<Run>, planned: Planned) {
        run.live.sent();
        let (shared, number) = (run.clone(), self.next);
        self.tasks.spawn(async move { (number, shared.follow(&planned).await) });
        self.due.insert(number, planned.due);
        self.next += 1;
    }

    /// Waits until `due`, taking in what ends meanwhile; false when stopped before.
    async fn wait_until(
        &mut self,
        run: &Run,
        due: Duration,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        collected: &mut Vec<Seen>,
    ) -> bool {
        let ahead = due.saturating_sub(run.elapsed());
        if ahead.is_zero() {
            // A timer fires at the next millisecond at best, even one that is due: with it, a
            // loop that is behind would send a thousand a second and never catch up.
            while let Some(ended) = self.tasks.try_join_next() {
                self.ended(ended, collected);
            }
            return tokio::select! {
                biased;
                () = stop.as_mut() => false,
                () = tokio::task::yield_now() => true,
            };
        }
        let mut sleep = pin!(tokio::time::sleep(ahead));
        loop {
            tokio::select! {
                biased;
                () = &mut sleep => return true,
                () = stop.as_mut() => return false,
                Some(ended) = self.tasks.join_next() => self.ended(ended, collected),
            }
        }
    }

    /// A task that did not end by itself stays in `due`, and is counted as cancelled.
    fn ended(&mut self, ended: Result<(u64, Seen), JoinError>, collected: &mut Vec<Seen>) {
        if let Ok((number, seen)) = ended {
            self.due.remove(&number);
            collected.push(seen);
        }
    }

    /// Lets what is open end within the grace, then cancels the rest.
    async fn drain(mut self, run: &Run, collected: &mut Vec<Seen>) {
        let mut grace = pin!(tokio::time::sleep(run.options.grace));
        while !self.tasks.is_empty() {
            tokio::select! {
                biased;
                () = &mut grace => break,
                Some(ended) = self.tasks.join_next() => self.ended(ended, collected),
            }
        }
        self.tasks.shutdown().await;
        collected.extend(self.due.into_values().map(|due| Seen::new(due, End::Cancelled)));
    }
}
