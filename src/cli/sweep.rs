//! `weir sweep`: finds the knee, and writes what it found to a folder.

use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::sweep_files::{self as files, Settings};
use crate::domain::Slo;
use crate::lifecycle::Clock;
use crate::load::{LoadOptions, Mode, Sweep, SweepError, SweepOptions, SweepResult};
use crate::workload::{Class, Lengths, Workload};

/// Arguments of `weir sweep`.
#[derive(Clone, Debug, clap::Args)]
pub struct SweepArgs {
    /// Where to send: one replica, or a gateway in front of several
    #[arg(long)]
    pub url: http::Uri,
    /// Model to ask for
    #[arg(long)]
    pub model: String,
    /// Bearer token
    #[arg(long)]
    pub key: Option<String>,
    /// What to send, as docs/WORKLOADS.md describes it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "output", "spread"])]
    pub workload: Option<PathBuf>,
    /// Prompt tokens, mean
    #[arg(long, default_value_t = 1000)]
    pub input: u32,
    /// Output tokens, mean
    #[arg(long, default_value_t = 200)]
    pub output: u32,
    /// Half the width of both lengths, as a share of their mean
    #[arg(long, default_value_t = 0.0)]
    pub spread: f64,
    /// Target of the p95 of TTFT
    #[arg(long)]
    pub slo_ttft: humantime::Duration,
    /// Target of the p95 of the mean time per output token
    #[arg(long)]
    pub slo_tpot: Option<humantime::Duration>,
    /// Target of the p99 of the gaps between frames
    #[arg(long)]
    pub slo_itl: Option<humantime::Duration>,
    /// Target of the p95 of the whole
    #[arg(long)]
    pub slo_e2e: Option<humantime::Duration>,
    /// Minutes rather than an hour, for a wider answer
    #[arg(long)]
    pub quick: bool,
    /// Length of a run, instead of the sweep's own choice
    #[arg(long)]
    pub window: Option<humantime::Duration>,
    /// A replica's /metrics, once for each [default: /metrics at the URL's own address]
    #[arg(long, value_name = "URL")]
    pub metrics: Vec<http::Uri>,
    /// Replicas behind the URL, by which the limit is divided [default: the metrics named]
    #[arg(long)]
    pub replicas: Option<u32>,
    /// What it runs on, for the record
    #[arg(long)]
    pub hardware: Option<String>,
    /// Seeds arrivals and lengths
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder for the results; runs that lie there from the same sweep are taken up
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

impl SweepArgs {
    fn slo(&self) -> Slo {
        Slo {
            ttft: Some(self.slo_ttft.into()),
            tpot: self.slo_tpot.map(Into::into),
            itl: self.slo_itl.map(Into::into),
            e2e: self.slo_e2e.map(Into::into),
        }
    }

    fn options(&self) -> anyhow::Result<SweepOptions> {
        let workload = match &self.workload {
            Some(path) => super::workload::read(path)?,
            None => Workload::of(Class {
                prompt: Lengths::around(self.input, self.spread),
                output: Lengths::around(self.output, self.spread),
                slo: self.slo(),
                ..Class::fixed(1, 1)
            }),
        };
        let mut load = LoadOptions::new(self.url.clone(), self.model.clone(), Mode::Closed(1));
        load.key.clone_from(&self.key);
        load.seed = self.seed;
        load.texts = self.seed;
        load.calibrate = true;
        load.workload = Arc::new(workload);
        let metrics =
            if self.metrics.is_empty() { vec![self.own()?] } else { self.metrics.clone() };
        Ok(SweepOptions {
            load,
            slo: self.slo(),
            quick: self.quick,
            window: self.window.map(Into::into),
            metrics,
        })
    }

    /// The URL with the path of metrics.
    fn own(&self) -> anyhow::Result<http::Uri> {
        let authority = self.url.authority().context("the URL names no host")?;
        Ok(format!("http://{authority}/metrics").parse()?)
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let workload = match &self.workload {
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?,
            None => format!("{} {} {}", self.input, self.output, self.spread),
        };
        Ok(Settings {
            url: self.url.to_string(),
            model: self.model.clone(),
            workload,
            slo: format!("{:?}", self.slo()),
            quick: self.quick,
            window_seconds: self.window.map(|window| Duration::from(window).as_secs_f64()),
            seed: self.seed,
        })
    }
}

/// Runs the sweep. Exit code 2 when the target cannot be measured, 1 when no knee was found.
///
/// One thread on purpose: the generator is to leave the other cores to what it measures.
pub fn run(args: &SweepArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let interrupted = async {
            // Without a handler the signal itself ends the process.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        sweep(args, out, pin!(interrupted)).await
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    let result = match ended {
        Ok(result) => result,
        Err(error) if error.is::<SweepError>() => {
            writeln!(std::io::stderr(), "weir sweep: {error:#}")?;
            return Ok(ExitCode::from(2));
        }
        Err(error) => return Err(error),
    };
    Ok(if result.knee.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn sweep(
    args: &SweepArgs,
    out: &mut impl Write,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> anyhow::Result<SweepResult> {
    let options = args.options()?;
    let clock = Clock::start();
    let settings = args.settings()?;
    let earlier = files::earlier(&args.out, &settings)?;
    if !earlier.is_empty() {
        writeln!(out, "{} runs are taken up from {}", earlier.len(), args.out.display())?;
    }
    let mut number = earlier.len();
    let mut sweep = tokio::select! {
        begun = Sweep::begin(options, earlier, clock) => begun?,
        () = stop.as_mut() => anyhow::bail!("stopped before anything was measured"),
    };
    while let Some(ask) = sweep.next() {
        let (done, most) = sweep.progress();
        let seconds = sweep.duration(&ask).as_secs_f64();
        write!(
            out,
            "run {} of at most {most}: {:.2}/s for {seconds:.0} s .. ",
            done + 1,
            ask.rate
        )?;
        out.flush()?;
        let Some(run) = sweep.offer(ask, stop.as_mut()).await? else {
            writeln!(out, "stopped")?;
            break;
        };
        files::keep(&args.out, number, &run)?;
        number += 1;
        let void = run.void.clone();
        sweep.take(run);
        let result = sweep.result();
        let level = result.levels.iter().find(|level| level.rate.total_cmp(&ask.rate).is_eq());
        let said =
            level.map(|level| format!("{:?}: {}", level.judgement.verdict, level.judgement.why));
        writeln!(out, "{}", void.map(|why| format!("void: {why}")).or(said).unwrap_or_default())?;
        // What was measured is there whatever happens next.
        write(args, &result, clock)?;
    }
    let result = sweep.result();
    write(args, &result, clock)?;
    match &result.knee {
        Some(knee) => writeln!(
            out,
            "knee: {:.2} to {} requests/s with {:.1} in flight; {:?} binds; see {}",
            knee.found.low.unwrap_or(0.0),
            knee.found.high.map_or("?".to_owned(), |high| format!("{high:.2}")),
            knee.in_flight,
            knee.binding,
            args.out.display()
        )?,
        None => writeln!(out, "no rate passed; see {}", args.out.display())?,
    }
    Ok(result)
}

fn write(args: &SweepArgs, result: &SweepResult, clock: Clock) -> anyhow::Result<()> {
    let replicas =
        args.replicas.unwrap_or_else(|| u32::try_from(args.metrics.len()).unwrap_or(u32::MAX));
    let origin = files::Origin {
        wall: clock.wall(),
        model: &args.model,
        hardware: args.hardware.as_deref(),
        slo: &args.slo(),
        replicas: replicas.max(1),
    };
    files::write(&args.out, result, &origin)
}
