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

/// A limits file; `None` where no rate passed, or none failed: then the knee lies higher.
fn limits(result: &SweepResult, from: &Origin<'_>) -> Option<String> {
    let knee = result.knee.as_ref()?;
    let high = knee.found.high?;
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
    let hardware = from.hardware.map(|hardware| format!("hardware = {hardware:?}\n"));
    write!(
        text,
        "{}slo = {{ {} }}\nsweep = \"{:.2} to {high:.2} requests/s, {:?} binds{quick}\"\n",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsFile;
    use crate::knee::{Binding, Found, Judgement, Shown, Verdict};
    use crate::load::{Figures, Knee, SweepLevel};

    fn result(high: Option<f64>) -> SweepResult {
        let shown = Shown { kv_usage: Some(0.5), ..Shown::default() };
        let judgement = Judgement {
            verdict: Verdict::Pass,
            why: "a < b & c".to_owned(),
            ttft_p95: None,
            itl_p99: None,
            in_flight: 80.0,
        };
        let level = SweepLevel {
            rate: 19.0,
            runs: 1,
            judgement,
            ttft_p50: Some(0.2),
            ttft_p99: None,
            goodput_per_second: 18.5,
            shown,
        };
        let found = Found { low: Some(19.0), high };
        let knee = Knee { found, in_flight: 80.0, binding: Binding::Compute, shown };
        SweepResult {
            knee: Some(knee),
            quick: true,
            finished: high.is_some(),
            idle: Figures::default(),
            levels: vec![level],
            vllm: Some(serde_json::json!({ "completed": 7 })),
        }
    }

    fn origin(slo: &Slo) -> Origin<'_> {
        let wall = SystemTime::UNIX_EPOCH;
        Origin { wall, model: "a \"tiny\" one", hardware: Some("2x CPU"), slo, replicas: 2 }
    }

    #[test]
    fn the_limits_are_a_limits_file_of_the_configuration() {
        let slo = Slo { ttft: Some(Duration::from_millis(1500)), ..Slo::default() };
        let text = limits(&result(Some(19.6)), &origin(&slo)).unwrap();
        let _read: LimitsFile = toml::from_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        // 80 in flight on two replicas, 1.08 x.
        assert!(text.contains("in_flight = 44\n") && text.contains("quick"), "{text}");
        assert_eq!(limits(&result(None), &origin(&slo)), None, "a bracket without a top");
    }

    #[test]
    fn a_folder_takes_up_its_own_sweep_alone() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            url: "http://a".to_owned(),
            model: "tiny".to_owned(),
            workload: String::new(),
            slo: String::new(),
            quick: true,
            window_seconds: None,
            seed: 1,
        };
        assert!(earlier(folder.path(), &settings).unwrap().is_empty());
        let run = SweepRun {
            rate: 0.1 + 0.2,
            replicate: 0,
            observed: crate::knee::Observed { ttft: vec![0.1], ..Default::default() },
            shown: Shown::default(),
            goodput_per_second: 1.0,
            tokens_per_second: 2.0,
            void: None,
            vllm: serde_json::Value::Null,
        };
        keep(folder.path(), 0, &run).unwrap();
        assert_eq!(earlier(folder.path(), &settings).unwrap(), [run]);
        let other = Settings { seed: 2, ..settings };
        assert!(earlier(folder.path(), &other).is_err());
    }

    #[test]
    fn every_file_is_written_and_the_page_needs_no_network() {
        let folder = tempfile::tempdir().unwrap();
        let slo = Slo { ttft: Some(Duration::from_secs(1)), ..Slo::default() };
        write(folder.path(), &result(Some(19.6)), &origin(&slo)).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&read("result.json")).unwrap();
        assert_eq!((&json["knee"]["binding"], &json["completed"]), (&"compute".into(), &7.into()));
        let card = read("scorecard.csv");
        let columns: Vec<usize> = card.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [15, 15]);
        let page = read("report.html");
        assert!(page.contains("<svg") && page.contains("a &lt; b &amp; c"));
        assert!(!page.contains("http") && !page.contains("<script"));
    }
}
