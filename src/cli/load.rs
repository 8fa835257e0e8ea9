//! `weir load`: open-loop load on one address, at one rate or at several in turn.

use std::future::pending;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::domain::Slo;
use crate::lifecycle::Clock;
use crate::load::{HEADING, Lengths, LoadOptions, LoadReport, Mode, Row, run as run_load};

/// Arguments of `weir load`.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// Where to send: http://host:port, or with a path other than /v1/chat/completions
    #[arg(long)]
    pub url: http::Uri,
    /// Model to ask for
    #[arg(long, default_value = "tiny")]
    pub model: String,
    /// Bearer token
    #[arg(long)]
    pub key: Option<String>,
    /// Requests a second, Poisson; several are run in turn, with the same requests at each
    #[arg(long, value_delimiter = ',', required_unless_present = "clients")]
    pub rate: Vec<f64>,
    /// Closed loop of so many clients instead: it slows down with the server, so it hides
    /// overload
    #[arg(long, conflicts_with = "rate")]
    pub clients: Option<u32>,
    /// Measured window of each rate
    #[arg(long, default_value = "20s")]
    pub duration: humantime::Duration,
    /// Load before the window, left out of every figure
    #[arg(long, default_value = "3s")]
    pub warm_up: humantime::Duration,
    /// How long answers may still end after the last arrival
    #[arg(long, default_value = "10s")]
    pub grace: humantime::Duration,
    /// Prompt tokens, mean
    #[arg(long, default_value_t = 128)]
    pub input: u32,
    /// Output tokens, mean
    #[arg(long, default_value_t = 64)]
    pub output: u32,
    /// Half the width of both lengths, as a share of their mean
    #[arg(long, default_value_t = 0.0)]
    pub spread: f64,
    /// Prompt tokens at the head that are the same for all requests
    #[arg(long, default_value_t = 0)]
    pub shared_prefix: u32,
    /// Retries of a refused request, as the OpenAI clients do them
    #[arg(long, default_value_t = 0)]
    pub retries: u32,
    /// Target of goodput: due to first content
    #[arg(long, default_value = "1s")]
    pub slo_ttft: humantime::Duration,
    /// Target of goodput: mean time per output token after the first
    #[arg(long, default_value = "50ms")]
    pub slo_tpot: humantime::Duration,
    /// Seeds arrivals, lengths and texts
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Requests open at once; what is due beyond is not sent and voids the run
    #[arg(long, default_value_t = 16_384)]
    pub max_in_flight: usize,
    /// Write the reports here, as a JSON array
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl LoadArgs {
    fn options(&self, mode: Mode) -> LoadOptions {
        LoadOptions {
            url: self.url.clone(),
            model: self.model.clone(),
            key: self.key.clone(),
            mode,
            seed: self.seed,
            input: Lengths { mean: self.input, spread: self.spread },
            output: Lengths { mean: self.output, spread: self.spread },
            shared_prefix: self.shared_prefix,
            warm_up: self.warm_up.into(),
            duration: self.duration.into(),
            grace: self.grace.into(),
            retries: self.retries,
            max_in_flight: self.max_in_flight,
            slo: Slo {
                ttft: Some(self.slo_ttft.into()),
                tpot: Some(self.slo_tpot.into()),
                ..Slo::default()
            },
        }
    }

    fn modes(&self) -> anyhow::Result<Vec<Mode>> {
        if let Some(clients) = self.clients {
            anyhow::ensure!(clients > 0, "--clients must be 1 or more");
            return Ok(vec![Mode::Closed(clients)]);
        }
        for rate in &self.rate {
            anyhow::ensure!(*rate > 0.0 && *rate <= 1e6, "--rate must be over 0, not {rate}");
        }
        Ok(self.rate.iter().copied().map(Mode::Open).collect())
    }
}

/// Runs each rate in turn and prints a line for each. Exit code 3 when a run is void.
///
/// One thread on purpose: the generator is to leave the other cores to what it measures.
pub fn run(args: &LoadArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let modes = args.modes()?;
    let clock = Clock::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut reports: Vec<LoadReport> = Vec::new();
    writeln!(out, "{HEADING}")?;
    for mode in modes {
        let load = run_load(args.options(mode), clock, Arc::default(), pending());
        let report = runtime.block_on(load)?;
        writeln!(out, "{}", Row(&report))?;
        out.flush()?;
        reports.push(report);
    }
    runtime.shutdown_timeout(Duration::from_millis(100));
    if let Some(path) = &args.json {
        let json = serde_json::to_vec_pretty(&reports)?;
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let void = reports.iter().any(|report| report.void.is_some());
    Ok(if void { ExitCode::from(3) } else { ExitCode::SUCCESS })
}
