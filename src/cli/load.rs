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
use crate::load::{
    HEADING, LoadOptions, LoadReport, Mode, PARTS_HEADING, Part, Row, run as run_load,
};
use crate::workload::{Class, ClientModel, Lengths, Pacing, Prefix, Workload};

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
    /// What to send, as docs/WORKLOADS.md describes it, instead of the flags for one class
    #[arg(long, value_name = "FILE", conflicts_with_all =
        ["input", "output", "spread", "shared_prefix", "retries", "slo_ttft", "slo_tpot"])]
    pub workload: Option<PathBuf>,
    /// Calls a second; several are run in turn, with the same requests at each. Not needed for a
    /// workload that is a trace or a closed loop
    #[arg(long, value_delimiter = ',', required_unless_present_any = ["clients", "workload"])]
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
    /// Seeds arrivals and lengths
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seeds texts, so that one run does not find another's prompts in a prefix cache; the same
    /// as the last run's asks for a warm one. Each rate adds one [default: the seed]
    #[arg(long)]
    pub texts: Option<u64>,
    /// Measure first how the server counts tokens, and write prompts of the asked length
    #[arg(long)]
    pub calibrate: bool,
    /// Requests open at once; what is due beyond is not sent and voids the run
    #[arg(long, default_value_t = 16_384)]
    pub max_in_flight: usize,
    /// Write the reports here, as a JSON array
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl LoadArgs {
    fn options(&self, mode: Mode, workload: &Arc<Workload>, number: u64) -> LoadOptions {
        LoadOptions {
            url: self.url.clone(),
            model: self.model.clone(),
            key: self.key.clone(),
            mode,
            workload: Arc::clone(workload),
            seed: self.seed,
            texts: self.texts.unwrap_or(self.seed).wrapping_add(number),
            calibrate: self.calibrate,
            warm_up: self.warm_up.into(),
            duration: self.duration.into(),
            grace: self.grace.into(),
            max_in_flight: self.max_in_flight,
        }
    }

    /// The file's workload, or one class made of the flags.
    fn workload(&self) -> anyhow::Result<Workload> {
        if let Some(path) = &self.workload {
            return super::workload::read(path);
        }
        let prefix = Prefix { count: 1, tokens: self.shared_prefix, zipf: 0.0 };
        let class = Class {
            prompt: Lengths::around(self.input, self.spread),
            output: Lengths::around(self.output, self.spread),
            prefix: (self.shared_prefix > 0).then_some(prefix),
            slo: Slo {
                ttft: Some(self.slo_ttft.into()),
                tpot: Some(self.slo_tpot.into()),
                ..Slo::default()
            },
            ..Class::fixed(1, 1)
        };
        let client = match self.retries {
            0 => ClientModel::None,
            retries => ClientModel::OpenAiPython { retries },
        };
        Ok(Workload { client, ..Workload::of(class) })
    }

    fn modes(&self, workload: &Workload) -> anyhow::Result<Vec<Mode>> {
        if let Some(clients) = self.clients {
            anyhow::ensure!(clients > 0, "--clients must be 1 or more");
            return Ok(vec![Mode::Closed(clients)]);
        }
        for rate in &self.rate {
            anyhow::ensure!(*rate > 0.0 && *rate <= 1e6, "--rate must be over 0, not {rate}");
        }
        if !self.rate.is_empty() {
            return Ok(self.rate.iter().copied().map(Mode::Open).collect());
        }
        match &workload.pacing {
            Pacing::Closed { clients, .. } => Ok(vec![Mode::Closed(*clients)]),
            Pacing::Trace(_) => Ok(vec![Mode::Recorded]),
            Pacing::Open(_) => anyhow::bail!("an open loop needs --rate"),
        }
    }
}

/// Runs each rate in turn and prints a line for each. Exit code 3 when a run is void.
///
/// One thread on purpose: the generator is to leave the other cores to what it measures.
pub fn run(args: &LoadArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let workload = Arc::new(args.workload()?);
    let modes = args.modes(&workload)?;
    let clock = Clock::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut reports: Vec<LoadReport> = Vec::new();
    writeln!(out, "{HEADING}")?;
    for (number, mode) in (0..).zip(modes) {
        let options = args.options(mode, &workload, number);
        let report = runtime.block_on(run_load(options, clock, Arc::default(), pending()))?;
        writeln!(out, "{}", Row(&report))?;
        parts(&report, out)?;
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

/// A line for each class and tenant, and one for each kind of workflow.
fn parts(report: &LoadReport, out: &mut impl Write) -> std::io::Result<()> {
    if !report.classes.is_empty() || !report.tenants.is_empty() {
        writeln!(out, "  {PARTS_HEADING}")?;
    }
    for (name, part) in report.classes.iter().chain(&report.tenants) {
        writeln!(out, "  {}", Part(name, part))?;
    }
    for (name, flows) in &report.workflows {
        let p95 = flows.e2e_seconds.map_or("-".to_owned(), |e2e| format!("{:.2} s", e2e.p95));
        writeln!(
            out,
            "  {name}: {} whole of {} flows with {} calls, {} in time, e2e p95 {p95}",
            flows.whole, flows.ended, flows.calls, flows.good
        )?;
    }
    Ok(())
}
