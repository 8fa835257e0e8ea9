//! The delay that a frame picks up on its way: straight, through a bare tokio copy, and through
//! Weir, all at the same time in one run.
//!
//! `cargo bench --bench relay [-- --streams 16 --seconds 10 --interval-ms 20]`
//!
//! The origin stamps each frame with the clock that the reader reads it by. The three paths run
//! side by side, so that a stall of the machine hits them alike, and what is told is the
//! difference to the bare copy: a proxy cannot be faster than moving the bytes.

mod gateway;
mod origin;
mod reader;
mod splice;

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use weir::lifecycle::Clock;
use weir::stats::Quantiles;

/// The bound that the bench holds Weir to, beside the bare copy, seconds.
const ADDED_P99_BOUND_SECONDS: f64 = 0.002;

/// What is run; `--bench`, which cargo passes, is ignored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    streams: u32,
    frames: u32,
    interval: Duration,
}

impl Shape {
    fn from_args() -> anyhow::Result<Self> {
        let (mut streams, mut seconds, mut interval_ms) = (16, 10, 20);
        let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
        while let Some(name) = args.next() {
            let value = args.next().with_context(|| format!("{name} needs a value"))?.parse()?;
            match name.as_str() {
                "--streams" => streams = value,
                "--seconds" => seconds = value,
                "--interval-ms" => interval_ms = value,
                other => anyhow::bail!("unknown argument {other}"),
            }
        }
        anyhow::ensure!(interval_ms > 0, "--interval-ms must be over 0");
        let interval = Duration::from_millis(interval_ms.into());
        Ok(Self { streams, frames: seconds * 1000 / interval_ms, interval })
    }
}

fn main() -> anyhow::Result<()> {
    let shape = Shape::from_args()?;
    let clock = Clock::start();
    let origin = origin::start(clock, shape)?;
    let splice = splice::start(origin)?;
    let gateway = gateway::start(origin)?;
    let paths = [("direct", origin), ("tokio copy", splice), ("weir", gateway.address)];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let delays = runtime.block_on(measure(clock, shape, paths.map(|(_, address)| address)))?;

    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{} streams a path, {} frames each, one every {:?}; delay in ms",
        shape.streams, shape.frames, shape.interval
    )?;
    writeln!(
        out,
        "{:<12} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "path", "frames", "p50", "p95", "p99", "max"
    )?;
    let mut p99 = Vec::new();
    for ((name, _), mut delays) in paths.iter().zip(delays) {
        let sums =
            Quantiles::of(&mut delays).with_context(|| format!("no frame came by {name}"))?;
        let [p50, p95, at99, max] = [sums.p50, sums.p95, sums.p99, sums.max].map(|s| s * 1e3);
        writeln!(out, "{name:<12} {:>8} {p50:>8.3} {p95:>8.3} {at99:>8.3} {max:>8.3}", sums.count)?;
        p99.push(sums.p99);
    }
    let [_, copy, weir] = p99[..] else { anyhow::bail!("three paths are measured") };
    let added = weir - copy;
    writeln!(out, "added to the bare copy at p99: {:.3} ms (bound 2 ms)", added * 1e3)?;
    anyhow::ensure!(added <= ADDED_P99_BOUND_SECONDS, "the relay adds too much");
    Ok(())
}

/// Reads all streams of all paths at once; the delays in seconds by path.
async fn measure(
    clock: Clock,
    shape: Shape,
    paths: [SocketAddr; 3],
) -> anyhow::Result<[Vec<f64>; 3]> {
    let mut tasks = JoinSet::new();
    for _ in 0..shape.streams {
        for (path, address) in paths.into_iter().enumerate() {
            tasks.spawn(async move { (path, reader::read(clock, address).await) });
        }
        // Spread the phases of the streams over the interval.
        tokio::time::sleep(shape.interval / shape.streams.max(1)).await;
    }
    let mut delays = [Vec::new(), Vec::new(), Vec::new()];
    while let Some(ended) = tasks.join_next().await {
        let (path, read) = ended?;
        if let Some(delays) = delays.get_mut(path) {
            delays.extend(read?);
        }
    }
    for (path, delays) in delays.iter().enumerate() {
        let expected = shape.streams * shape.frames;
        anyhow::ensure!(
            delays.len() == expected as usize,
            "path {path} brought {} frames of {expected}",
            delays.len()
        );
    }
    Ok(delays)
}
