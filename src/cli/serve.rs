//! `weir serve`: the gateway, from its configuration to its last byte.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rand::RngExt as _;

use crate::app::{App, Launch};
use crate::config::LogFormat;
use crate::lifecycle::{Clock, Signals, Tasks};
use crate::reload::{Loader, Outcome, Reloader, Report, Running};
use crate::telemetry::{LogStyle, Telemetry, init_logging};

use super::check;

/// Arguments of `weir serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// The configuration
    #[arg(long, short, value_name = "FILE", default_value = "weir.toml")]
    pub config: PathBuf,
    /// Threads that carry requests; by default one a core
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Serves until told to stop. 2 when the configuration is wrong.
pub fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let clock = Clock::start();
    let telemetry = Telemetry::new()?;
    let counted = Arc::clone(&telemetry);
    let count = move |report: &Report, running: &Running| count(&counted, report, running);
    let reloader = match Reloader::start(Loader::new(&args.config), clock, count) {
        Ok(reloader) => reloader,
        Err(errors) => {
            check::faults(&errors, &mut std::io::stderr().lock())?;
            return Ok(ExitCode::from(check::INVALID));
        }
    };
    let log = reloader.handle().config().log.clone();
    let style = match log.format {
        LogFormat::Text => LogStyle::Text,
        LogFormat::Json => LogStyle::Json,
    };
    // A request's line has a target of its own, so leaving it out is one more directive.
    let filter =
        if log.access { log.filter.to_string() } else { format!("{},access=off", log.filter) };
    let _flushed_at_the_end = init_logging(style, &filter)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = args.threads {
        runtime.worker_threads(usize::from(threads));
    }
    let runtime = runtime.enable_all().build().context("cannot start the runtime")?;
    let served = runtime.block_on(serve(reloader, telemetry, clock));
    runtime.shutdown_timeout(Duration::from_secs(1));
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(reloader: Reloader, telemetry: Arc<Telemetry>, clock: Clock) -> anyhow::Result<()> {
    let Signals { mut stop, hangup } = Signals::listen().context("cannot listen for signals")?;
    let panics = Arc::clone(&telemetry);
    let tasks = Tasks::new(move |task| panics.task_panicked(task));
    let handle = Arc::clone(reloader.handle());
    let app = App::start(Launch {
        clock,
        handle: Arc::clone(&handle),
        asker: Some(reloader.asker()),
        telemetry,
        tasks: tasks.clone(),
        seed: rand::rng().random(),
    })?;
    drop(tasks.background("reloader", reloader.run(Some(hangup))));
    stop.received().await;
    app.stop(&handle.config(), stop.received()).await;
    Ok(())
}

/// What became of a reload, for the metrics; the log has it from the reloader.
fn count(telemetry: &Telemetry, report: &Report, running: &Running) {
    match report.outcome {
        Outcome::Refused(_) => telemetry.config_refused(),
        Outcome::Applied { .. } | Outcome::Unchanged => {
            telemetry.config_taken(running.generation, &running.hash, running.since);
        }
    }
}
