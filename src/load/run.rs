//! Paces a run: each flow begins when it is due, whatever became of the others.
//!
//! All flows live in one `JoinSet`, so that the end of the run, or dropping it, cancels them.
//! The loop measures how late it was itself: a generator that cannot keep its own schedule
//! measures itself, and its figures are void.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::attempt::{Run, Sending, Who};
use super::client::{Client, TargetError};
use super::cpu::Used;
use super::live::Live;
use super::observed::observed;
use super::{LoadOptions, LoadReport, Mode, Ratio};
use crate::domain::Timestamp;
use crate::knee::Observed;
use crate::lifecycle::Clock;
use crate::workload::{Call, Flow, Flows, Offered, Pacing, Pause, Piece, Role, Seeds};

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
    Box::pin(run_observed(options, clock, live, stop)).await.map(|(report, _)| report)
}

/// As [`run`], with the series that a search for the knee needs.
pub(super) async fn run_observed(
    options: LoadOptions,
    clock: Clock,
    live: Arc<Live>,
    stop: impl Future<Output = ()>,
) -> Result<(LoadReport, Observed), TargetError> {
    let client = Client::resolve(&options.url).await?;
    let until = AtomicU64::new(nanos(options.end()));
    let origin = clock.elapsed();
    let record = Mutex::default();
    let mut run =
        Run { options, client, clock, origin, live, ratio: Ratio::default(), until, record };
    if run.options.calibrate {
        run.ratio = calibrate(&run).await.unwrap_or_default();
        *run.record.get_mut() = super::record::Record::default();
        run.origin = clock.elapsed();
    }
    let run = Arc::new(run);
    let mut stop = pin!(stop);
    let before = Used::read();
    let mut tasks = JoinSet::new();
    let stopped = match run.options.mode {
        Mode::Open(rate) => open(&run, Some(rate), stop.as_mut(), &mut tasks).await,
        Mode::Recorded => open(&run, None, stop.as_mut(), &mut tasks).await,
        Mode::Closed(clients) => closed(&run, clients, stop.as_mut(), &mut tasks).await,
    };
    let offered_until = stopped.unwrap_or_else(|| run.options.end());
    run.until.store(nanos(offered_until), Ordering::Relaxed);
    let cpu =
        Used::read().zip(before).and_then(|(now, before)| now.share_since(before, run.elapsed()));
    drain(&run, tasks).await;
    let mut record = std::mem::take(&mut *run.record.lock());
    record.close();
    let observed = observed(&run.options, &record, offered_until);
    Ok((LoadReport::of(&run.options, &record, offered_until, cpu, run.ratio), observed))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Asks for one token after a short and a long prompt, and sees what the server counted.
async fn calibrate(run: &Run) -> Option<Ratio> {
    const WORDS: [u32; 2] = [64, 512];
    for (seed, tokens) in (1_u64..).zip(WORDS) {
        let prompt = vec![Piece { role: Role::User, seed: seed ^ run.options.texts << 8, tokens }];
        let call = Call { prompt, output_tokens: 1, salt: seed };
        let sending = Sending { who: Who::default(), call: &call, answers: &[], quoted: false };
        run.call(run.elapsed(), sending).await?;
    }
    let counted: Vec<u64> = run.record.lock().seen.iter().map(|seen| seen.prompt).collect();
    let [short, long] = counted.try_into().ok()?;
    Ratio::of((WORDS[0], short), (WORDS[1], long))
}

/// Offers flows at `rate`, or as recorded; when it was stopped, if it was.
async fn open(
    run: &Arc<Run>,
    rate: Option<f64>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    tasks: &mut JoinSet<()>,
) -> Option<Duration> {
    let options = &run.options;
    let end = options.end();
    let seeds = Seeds { requests: options.seed, texts: options.texts };
    for (due, flow) in Offered::new(&options.workload, rate, Timestamp::ZERO, seeds) {
        let due = due.saturating_since(Timestamp::ZERO);
        if due >= end {
            break;
        }
        if !wait_until(run, due, stop.as_mut(), tasks).await {
            return Some(run.elapsed());
        }
        tasks.spawn(Arc::clone(run).follow(due, Arc::new(flow)));
    }
    if wait_until(run, end, stop, tasks).await { None } else { Some(run.elapsed()) }
}

/// Holds `clients` to the end; when it was stopped, if it was.
async fn closed(
    run: &Arc<Run>,
    clients: u32,
    stop: Pin<&mut impl Future<Output = ()>>,
    tasks: &mut JoinSet<()>,
) -> Option<Duration> {
    let options = &run.options;
    let seeds = Seeds { requests: options.seed, texts: options.texts };
    let flows = Arc::new(Mutex::new(Flows::new(Arc::clone(&options.workload), seeds)));
    let think = match &options.workload.pacing {
        Pacing::Closed { think, .. } => *think,
        Pacing::Open(_) | Pacing::Trace(_) => Pause::default(),
    };
    for number in 0..clients {
        let (run, flows) = (Arc::clone(run), Arc::clone(&flows));
        tasks.spawn(client(run, flows, think, u64::from(number)));
    }
    if wait_until(run, options.end(), stop, tasks).await { None } else { Some(run.elapsed()) }
}

/// One client of a closed loop.
async fn client(run: Arc<Run>, flows: Arc<Mutex<Flows>>, think: Pause, number: u64) {
    use rand::SeedableRng as _;
    let mut rng = rand::rngs::StdRng::seed_from_u64(run.options.seed.wrapping_add(number));
    while run.elapsed() < run.sends_until() {
        let Some(flow) = next(&flows) else { return };
        Arc::clone(&run).follow(run.elapsed(), Arc::new(flow)).await;
        let pause = think.draw(&mut rng);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

fn next(flows: &Mutex<Flows>) -> Option<Flow> {
    flows.lock().next()
}

/// Waits until `due`, taking in what ends meanwhile; false when stopped before.
async fn wait_until(
    run: &Run,
    due: Duration,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    tasks: &mut JoinSet<()>,
) -> bool {
    let ahead = due.saturating_sub(run.elapsed());
    if ahead.is_zero() {
        // A timer fires at the next millisecond at best, even one that is due: with it, a
        // loop that is behind would send a thousand a second and never catch up.
        while tasks.try_join_next().is_some() {}
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
            Some(_ended) = tasks.join_next() => {}
        }
    }
}

/// Lets what is open end within the grace, then cancels the rest.
async fn drain(run: &Run, mut tasks: JoinSet<()>) {
    let mut grace = pin!(tokio::time::sleep(run.options.grace));
    while !tasks.is_empty() {
        tokio::select! {
            biased;
            () = &mut grace => break,
            Some(_ended) = tasks.join_next() => {}
        }
    }
    tasks.shutdown().await;
}
