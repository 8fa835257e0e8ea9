//! `weir demo`: simulated replicas, the gateway and more load than they can take, in one process.
//!
//! All of it is the real thing but the engines: the gateway is the one of `weir serve`, reached
//! over a socket. Everything listens on loopback, on ports that are free.

use std::future::{Future, ready};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::app::{App, Launch};
use crate::config::{self, Config, Sources};
use crate::domain::Slo;
use crate::lifecycle::{Clock, Signals, Tasks};
use crate::load::{Live, LoadOptions, LoadReport, Mode, Reading, run as run_load};
use crate::reload::Handle;
use crate::replica::{Options, Replica, RunningReplica};
use crate::telemetry::Telemetry;
use crate::workload::{Class, Lengths, Workload};

/// Load is offered in rounds of this length at most, since a round remembers each request.
const LONGEST_ROUND: Duration = Duration::from_mins(10);

/// Simulated replicas.
const REPLICAS: u64 = 2;

/// Requests that one replica holds: just above where its TPOT and throughput bend.
const IN_FLIGHT: u32 = 96;

const TTFT: Duration = Duration::from_secs(1);
const TPOT: Duration = Duration::from_millis(50);

/// Arguments of `weir demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Stop after this long; else on Ctrl-C
    #[arg(long = "for", value_name = "DURATION")]
    pub length: Option<humantime::Duration>,
    /// Requests a second; the two replicas together can do about 45
    #[arg(long, default_value_t = 70.0)]
    pub rate: f64,
    /// Factor on the engines' speed
    #[arg(long, default_value_t = 1.0)]
    pub speed: f64,
}

/// Runs the demo and prints a line each second, then what became of all requests.
pub fn run(args: &DemoArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let within = |value: f64, most: f64| value > 0.0 && value <= most;
    anyhow::ensure!(within(args.rate, 1e5), "--rate must be over 0 and at most 100000");
    anyhow::ensure!(within(args.speed, 1e3), "--speed must be over 0 and at most 1000");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(demo(args, Clock::start(), out));
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended.map(|()| ExitCode::SUCCESS)
}

async fn demo(args: &DemoArgs, clock: Clock, out: &mut impl Write) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let tasks = Tasks::default();
    let mut replicas = Vec::new();
    for seed in 0..REPLICAS {
        let options = Options { speed: args.speed, seed, ..Options::default() };
        let listener = tokio::net::TcpListener::bind(options.listen).await?;
        replicas.push(Replica::serve(options, listener, clock, &tasks)?);
    }
    let (app, handle) = gateway(configuration(&replicas)?, clock, &tasks)?;
    introduce(args, &app, &replicas, out)?;

    let (stop, stopped) = watch::channel(false);
    let live = Arc::new(Live::default());
    let mut totals = Totals::default();
    let load = rounds(args, app.listen(), clock, &live, stopped, &mut totals);
    let ending = async {
        signals.stop.received().await;
        stop.send_replace(true);
    };
    narrate(load, ending, clock, &live, out).await?;
    totals.write(out)?;
    // The load is over, so there is nobody to wait for.
    app.stop(&handle.config(), ready(())).await;
    Ok(())
}

/// The gateway of `weir serve`, with a configuration that came from no file.
fn gateway(config: Config, clock: Clock, tasks: &Tasks) -> anyhow::Result<(App, Arc<Handle>)> {
    let telemetry = Telemetry::new()?;
    let handle = Handle::new(config, "demo", clock.wall());
    let app = App::start(Launch {
        clock,
        handle: Arc::clone(&handle),
        asker: None,
        telemetry,
        tasks: tasks.clone(),
        seed: 1,
    })?;
    Ok((app, handle))
}

/// The configuration that a user would write for these replicas.
fn configuration(replicas: &[RunningReplica]) -> anyhow::Result<Config> {
    let urls: Vec<String> = replicas.iter().map(|one| format!("\"{}\"", one.url())).collect();
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [log]\nfilter = \"warn\"\naccess = false\n\
         [[pools]]\nmodel = \"tiny\"\nreplicas = [{}]\n\
         slo = {{ ttft = \"{}ms\", tpot = \"{}ms\" }}\n\
         [pools.limits]\nin_flight = {IN_FLIGHT}\nqueue_wait = \"400ms\"\n",
        urls.join(", "),
        TTFT.as_millis(),
        TPOT.as_millis(),
    );
    config::load(&Sources::only("demo", &text))
        .map_err(|errors| anyhow::anyhow!("the demo's own configuration is wrong: {:?}", errors.0))
}

fn introduce(
    args: &DemoArgs,
    app: &App,
    replicas: &[RunningReplica],
    out: &mut impl Write,
) -> io::Result<()> {
    let (listen, admin) = (app.listen(), app.admin());
    writeln!(out, "gateway  http://{listen}   admin  http://{admin}/status  /metrics")?;
    for replica in replicas {
        writeln!(out, "replica  {}   simulated, {IN_FLIGHT} in flight at most", replica.url())?;
    }
    writeln!(
        out,
        "load     {} requests/s in an open loop, TTFT held to {} ms\n\ntry it while it runs:\n  \
         curl -iN http://{listen}/v1/chat/completions -H 'content-type: application/json' \\\n    \
         -d '{{\"model\":\"tiny\",\"stream\":true,\"max_tokens\":20,\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'\n",
        args.rate,
        TTFT.as_millis()
    )?;
    writeln!(out, "  time  offered  admitted   shed  failed   TTFT p95   tokens/s")?;
    out.flush()
}

/// Offers load, round after round, until stopped or for as long as was asked.
async fn rounds(
    args: &DemoArgs,
    gateway: SocketAddr,
    clock: Clock,
    live: &Arc<Live>,
    stopped: watch::Receiver<bool>,
    totals: &mut Totals,
) -> anyhow::Result<()> {
    let mut rest = args.length.map_or(Duration::MAX, Into::into);
    let url: http::Uri = format!("http://{gateway}").parse()?;
    for seed in 1.. {
        let mut stopped = stopped.clone();
        if rest.is_zero() || *stopped.borrow() {
            break;
        }
        let mut options = LoadOptions::new(url.clone(), "tiny", Mode::Open(args.rate));
        options.seed = seed;
        options.workload = Arc::new(Workload::of(Class {
            prompt: Lengths::around(1000, 0.5),
            output: Lengths::around(150, 0.5),
            slo: Slo { ttft: Some(TTFT), tpot: Some(TPOT), ..Slo::default() },
            ..Class::fixed(1, 1)
        }));
        options.texts = seed;
        options.duration = rest.min(LONGEST_ROUND);
        rest = rest.saturating_sub(options.duration);
        let stop = async move {
            // An error means that nobody is left to stop it, which is a stop too.
            let _stopped = stopped.wait_for(|stopped| *stopped).await.is_ok();
        };
        totals.add(&run_load(options, clock, Arc::clone(live), stop).await?);
    }
    Ok(())
}

/// Writes a line a second until `load` has ended; `ending` asks it to.
async fn narrate(
    load: impl Future<Output = anyhow::Result<()>>,
    ending: impl Future<Output = ()>,
    clock: Clock,
    live: &Live,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let (mut load, mut ending) = (pin!(load), pin!(ending));
    let mut asked = false;
    let origin = clock.elapsed();
    let mut before = Reading::default();
    for second in 1_u32.. {
        let due = origin.saturating_add(Duration::from_secs(second.into()));
        let mut tick = pin!(clock.sleep_until(due));
        loop {
            tokio::select! {
                () = &mut tick => break,
                ended = &mut load => return ended,
                () = &mut ending, if !asked => {
                    asked = true;
                    writeln!(out, "stopping: what is open may end")?;
                }
            }
        }
        let now = live.read();
        line(second, &before, &now, out)?;
        before = now;
    }
    Ok(())
}

/// What happened in one second.
fn line(second: u32, before: &Reading, now: &Reading, out: &mut impl Write) -> io::Result<()> {
    let ttft = now.ttft_p95_seconds.map_or("-".to_owned(), |s| format!("{:.0} ms", s * 1e3));
    writeln!(
        out,
        "{second:5}s {:8} {:9} {:6} {:7} {ttft:>10} {:10}",
        now.offered - before.offered,
        now.admitted - before.admitted,
        now.refused - before.refused,
        now.failed - before.failed,
        now.frames - before.frames,
    )?;
    out.flush()
}

/// What became of all requests of all rounds.
#[derive(Clone, Default, Debug)]
struct Totals {
    offered: u64,
    ok: u64,
    good: u64,
    shed: u64,
    failed: u64,
    cancelled: u64,
    ttft_p95_seconds: Option<f64>,
    void: Option<String>,
}

impl Totals {
    fn add(&mut self, report: &LoadReport) {
        self.offered += report.all.offered;
        self.ok += report.all.ok;
        self.good += report.all.good;
        self.shed += report.all.shed;
        self.failed += report.all.errors + report.all.dropped;
        self.cancelled += report.all.cancelled;
        self.ttft_p95_seconds = report.all.ttft_seconds.map(|ttft| ttft.p95);
        self.void.clone_from(&report.void);
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "\n{} offered = {} answered + {} shed with 503 + {} failed + {} cancelled at the end",
            self.offered, self.ok, self.shed, self.failed, self.cancelled
        )?;
        let ttft = self.ttft_p95_seconds.map_or("-".to_owned(), |s| format!("{:.0} ms", s * 1e3));
        writeln!(
            out,
            "{} of the answered met TTFT {} ms and TPOT {} ms; TTFT p95 {ttft}",
            self.good,
            TTFT.as_millis(),
            TPOT.as_millis()
        )?;
        if let Some(why) = &self.void {
            writeln!(out, "the load generator says: {why}")?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_totals_name_every_outcome() {
        let totals =
            Totals { offered: 10, ok: 4, shed: 3, failed: 2, cancelled: 1, ..Totals::default() };
        let mut out = Vec::new();
        totals.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("10 offered = 4 answered + 3 shed with 503 + 2 failed + 1 cancelled")
        );
    }

    #[test]
    fn a_line_is_of_its_second_alone() {
        let before = Reading { offered: 100, admitted: 60, refused: 40, ..Reading::default() };
        let now = Reading { offered: 170, admitted: 105, refused: 64, frames: 900, ..before };
        let mut out = Vec::new();
        line(7, &before, &Reading { ttft_p95_seconds: Some(0.4123), ..now }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let cells: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(cells, ["7s", "70", "45", "24", "0", "412", "ms", "900"]);
    }
}
