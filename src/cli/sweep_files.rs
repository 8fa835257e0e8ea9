//! A sweep's folder: its settings, its runs, and what they came to.
//!
//! Runs are kept as they end, so that a sweep which was stopped is taken up where it was. Files are
//! written beside and moved into place, so that a reader never sees half of one.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::domain::Slo;
use crate::load::{SweepResult, SweepRun};

/// What makes two sweeps the same one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) url: String,
    pub(super) model: String,
    pub(super) workload: String,
    pub(super) slo: String,
    pub(super) quick: bool,
    pub(super) window_seconds: Option<f64>,
    pub(super) seed: u64,
}

/// Where the limits come from.
pub(super) struct Origin<'a> {
    pub(super) wall: SystemTime,
    pub(super) model: &'a str,
    pub(super) hardware: Option<&'a str>,
    pub(super) slo: &'a Slo,
    pub(super) replicas: u32,
}

/// The runs that lie in `folder`; an error when they are another sweep's.
pub(super) fn earlier(folder: &Path, settings: &Settings) -> anyhow::Result<Vec<SweepRun>> {
    let runs = folder.join("runs");
    fs::create_dir_all(&runs).with_context(|| format!("cannot make {}", runs.display()))?;
    let known = folder.join("sweep.json");
    match fs::read(&known) {
        Ok(text) => {
            let there: Settings =
                serde_json::from_slice(&text).with_context(|| known.display().to_string())?;
            if there != *settings {
                bail!("{} holds another sweep: name another folder", folder.display());
            }
        }
        Err(_) => place(&known, &serde_json::to_vec_pretty(settings)?)?,
    }
    let mut found = Vec::new();
    for number in 0.. {
        let Ok(text) = fs::read(run_file(folder, number)) else { break };
        let run = serde_json::from_slice(&text);
        found.push(run.with_context(|| run_file(folder, number).display().to_string())?);
    }
    Ok(found)
}

fn run_file(folder: &Path, number: usize) -> std::path::PathBuf {
    folder.join(format!("runs/{number:04}.json"))
}

/// Keeps a run.
pub(super) fn keep(folder: &Path, number: usize, run: &SweepRun) -> anyhow::Result<()> {
    place(&run_file(folder, number), &serde_json::to_vec(run)?)
}

/// Writes what the runs came to.
pub(super) fn write(folder: &Path, result: &SweepResult, from: &Origin<'_>) -> anyhow::Result<()> {
    place(&folder.join("result.json"), &serde_json::to_vec_pretty(result)?)?;
    place(&folder.join("scorecard.csv"), scorecard(result).as_bytes())?;
    let html = super::sweep_html::report(result, from.slo, from.model);
    place(&folder.join("report.html"), html.as_bytes())?;
    if let Some(limits) = limits(result, from) {
        place(&folder.join("limits.toml"), limits.as_bytes())?;
    }
    Ok(())
}

fn place(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let beside = path.with_extension("part");
    fs::write(&beside, bytes).with_context(|| format!("cannot write {}", beside.display()))?;
    fs::rename(&beside, path).with_context(|| format!("cannot write {}", path.display()))
}

/// A row a rate; an empty cell is "not known".
fn scorecard(result: &SweepResult) -> String {
    let mut text = "rate,runs,verdict,ttft_p50,ttft_p95,ttft_p95_low,ttft_p95_high,ttft_p99,\
        itl_p99,in_flight,goodput_per_second,running,waiting,kv_usage,preemptions\n"
        .to_owned();
    for level in &result.levels {
        let cell = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.4}"));
        let ttft = level.judgement.ttft_p95;
        let cells = [
            cell(Some(level.rate)),
            level.runs.to_string(),
            format!("{:?}", level.judgement.verdict).to_lowercase(),
            cell(level.ttft_p50),
            cell(ttft.map(|ttft| ttft.value)),
            cell(ttft.map(|ttft| ttft.interval.low)),
            cell(ttft.map(|ttft| ttft.interval.high)),
            cell(level.ttft_p99),
            cell(level.judgement.itl_p99.map(|itl| itl.value)),
            cell(Some(level.judgement.in_flight)),
            cell(Some(level.goodput_per_second)),
            cell(level.shown.running),
            cell(level.shown.waiting),
            cell(level.shown.kv_usage),
            level.shown.preemptions.map_or(String::new(), |count| count.to_string()),
        ];
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

/// A limits file; `None` where no rate passed.
fn limits(result: &SweepResult, from: &Origin<'_>) -> Option<String> {
    let knee = result.knee.as_ref()?;
    let each = knee.in_flight / f64::from(from.replicas);
    let mut text = format!(
        "# Written by `weir sweep`. The limit stands a little above the calls in flight at the knee.\n\
         [limits]\nin_flight = {:.0}\n\n[provenance]\nwhen = {:?}\nmodel = {:?}\n",
        (each * 1.08).ceil().max(1.0),
        humantime::format_rfc3339_seconds(from.wall).to_string(),
        from.model,
    );
    let targets = [
        ("ttft", from.slo.ttft),
        ("tpot", from.slo.tpot),
        ("itl", from.slo.itl),
        ("e2e", from.slo.e2e),
    ];
    let targets: Vec<String> = targets
        .into_iter()
        .filter_map(|(name, target)| Some(format!("{name} = {:?}", span(target?))))
        .collect();
    let quick = if result.quick { ", quick" } else { "" };
    let high = knee.found.high.map_or("?".to_owned(), |high| format!("{high:.2}"));
    let hardware = from.hardware.map(|hardware| format!("hardware = {hardware:?}\n"));
    write!(
        text,
        "{}slo = {{ {} }}\nsweep = \"{:.2} to {high} requests/s, {:?} binds{quick}\"\n",
        hardware.unwrap_or_default(),
        targets.join(", "),
        knee.found.low.unwrap_or(0.0),
        knee.binding,
    )
    .ok()?;
    Some(text)
}

fn span(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}
