//! `weir simulate`: scenarios in virtual time, their seeds side by side, as a table and as JSON.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use parking_lot::Mutex;

use super::check::INVALID;
use crate::sim::scenario::{Cell, Contender, Scenario, ScenarioFile, Verdict, judge};
use crate::sim::{Figures, Spread, spread};
use crate::workload::Faults;

/// Arguments of `weir simulate`.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulateArgs {
    /// Scenarios, as docs/ADMISSION.md describes them
    #[arg(required = true)]
    pub scenarios: Vec<PathBuf>,
    /// Seeds of each instead of the scenario's own count
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: Option<u64>,
    /// Policies to try instead of the scenario's own
    #[arg(long, value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Multiples of the scenario's rate instead of its own
    #[arg(long, value_delimiter = ',')]
    pub load: Vec<f64>,
    /// Threads; as many as the machine has CPUs where not said
    #[arg(long)]
    pub threads: Option<usize>,
    /// Further figures to show, such as `class.chat.ttft_p95`
    #[arg(long, value_delimiter = ',')]
    pub show: Vec<String>,
    /// Write every figure of every run here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// What is always shown, and how wide.
const COLUMNS: [&str; 7] =
    ["goodput", "answered", "shed", "ttft_p95", "tpot_p95", "attempts", "standing"];

/// Runs each scenario. 1 when an expectation does not hold, 2 when a file is wrong.
pub fn run(args: &SimulateArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let mut scenarios = Vec::new();
    let mut wrong = false;
    for path in &args.scenarios {
        match read(path)? {
            Ok(scenario) => scenarios.push((path, scenario)),
            Err(faults) => {
                wrong = true;
                for fault in faults.all() {
                    writeln!(out, "{}: {fault}", path.display())?;
                }
            }
        }
    }
    let chosen: Result<Vec<Contender>, String> =
        args.policy.iter().map(|name| name.parse()).collect();
    let chosen = match chosen {
        Ok(chosen) => chosen,
        Err(why) => {
            writeln!(out, "--policy: {why}")?;
            return Ok(ExitCode::from(INVALID));
        }
    };
    if let Some(load) = args.load.iter().find(|load| !(1e-3..=1e3).contains(*load)) {
        writeln!(out, "--load: {load} is not 0.001 to 1000")?;
        wrong = true;
    }
    if wrong {
        return Ok(ExitCode::from(INVALID));
    }
    let (mut hold, mut reports) = (true, Vec::new());
    for (path, mut scenario) in scenarios {
        scenario.seeds.1 = args.seeds.unwrap_or(scenario.seeds.1);
        if !chosen.is_empty() {
            scenario.contenders.clone_from(&chosen);
        }
        if !args.load.is_empty() {
            scenario.loads.clone_from(&args.load);
        }
        let cells = cells(&scenario, threads(args.threads));
        let verdicts = judge(&scenario.expectations, &cells);
        hold &= verdicts.iter().all(|verdict| verdict.holds);
        show(path, &scenario, &cells, &verdicts, &args.show, out)?;
        reports.push(Report::new(path, &scenario, cells, verdicts));
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_vec_pretty(&reports)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a scenario with what it names beside it: paths count from the file's own folder.
pub fn read(path: &Path) -> anyhow::Result<Result<Scenario, Faults>> {
    let text_of = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let mut file = match ScenarioFile::read(&text_of(path)?) {
        Ok(file) => file,
        Err(faults) => return Ok(Err(faults)),
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut beside = folder.to_owned();
    if let Some(name) = file.workload_file() {
        let workload = folder.join(name);
        workload.parent().unwrap_or(folder).clone_into(&mut beside);
        file = match file.with_workload(&text_of(&workload)?) {
            Ok(file) => file,
            Err(faults) => return Ok(Err(faults)),
        };
    }
    let trace = file.trace_file().map(|name| text_of(&beside.join(name))).transpose()?;
    Ok(Scenario::new(&file, trace.as_deref()))
}

fn threads(asked: Option<usize>) -> usize {
    asked
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1)
        .clamp(1, 64)
}

/// Every contender at every load, with every seed; the runs are shared among threads, and do not
/// hang on how.
pub fn cells(scenario: &Scenario, threads: usize) -> Vec<Cell> {
    let (first, count) = scenario.seeds;
    let seeds = first..first + count;
    let mut jobs = Vec::new();
    for contender in &scenario.contenders {
        for load in &scenario.loads {
            jobs.extend(seeds.clone().map(|seed| (contender, *load, seed)));
        }
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Figures)>> = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some((at, (contender, load, seed))) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(at).map(|job| (at, *job))
                } {
                    let figures = scenario.run(contender, load, seed);
                    done.lock().push((at, figures));
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(at, _)| *at);
    let mut runs = done.into_iter().map(|(_, figures)| figures);
    let mut cells = Vec::new();
    for contender in &scenario.contenders {
        for load in &scenario.loads {
            let runs = seeds.clone().filter_map(|_| runs.next()).collect();
            cells.push(Cell { policy: contender.name(), load: *load, runs });
        }
    }
    cells
}

fn show(
    path: &Path,
    scenario: &Scenario,
    cells: &[Cell],
    verdicts: &[Verdict],
    more: &[String],
    out: &mut impl Write,
) -> std::io::Result<()> {
    let name = path.file_stem().map(std::ffi::OsStr::to_string_lossy).unwrap_or_default();
    writeln!(out, "{name}: {} ({} seeds)", scenario.about, scenario.seeds.1)?;
    write!(out, "  {:<18} {:>5}", "policy", "load")?;
    for column in COLUMNS.iter().copied().chain(more.iter().map(String::as_str)) {
        let width = width(column);
        write!(out, " {column:>width$}")?;
    }
    writeln!(out)?;
    for cell in cells {
        let all = spread(&cell.runs);
        write!(out, "  {:<18} {:>5}", cell.policy, cell.load)?;
        for column in COLUMNS.iter().copied().chain(more.iter().map(String::as_str)) {
            let (width, value) = (width(column), all.get(column));
            write!(out, " {:>width$}", value.map_or("-".to_owned(), |of| shown(column, *of)))?;
        }
        writeln!(out)?;
    }
    for verdict in verdicts {
        let value =
            verdict.value.map_or("no such figure".to_owned(), |value| format!("{value:.4}"));
        let end = |end: Option<f64>| end.map_or("-".to_owned(), |end| format!("{end}"));
        writeln!(
            out,
            "  {} {} of {} at {}: {value}, expected {} to {}",
            if verdict.holds { "ok  " } else { "FAIL" },
            verdict.metric,
            verdict.policy,
            verdict.load,
            end(verdict.min),
            end(verdict.max),
        )?;
    }
    Ok(())
}

fn width(column: &str) -> usize {
    if column == "goodput" { 12 } else { column.len().max(8) }
}

/// Shares in %, the rest as it is; goodput with its interval.
fn shown(column: &str, of: Spread) -> String {
    let last = column.rsplit('.').next().unwrap_or(column);
    let is_share = column.starts_with("refused.")
        || matches!(
            last,
            "goodput"
                | "goodput_from_due"
                | "answered"
                | "shed"
                | "failed"
                | "given_up"
                | "class_gap"
                | "hit_ratio"
        );
    match (is_share, last) {
        (true, "goodput") => format!("{:.1} ±{:.1}", of.mean * 100.0, of.half * 100.0),
        (true, _) => format!("{:.1}", of.mean * 100.0),
        (false, "standing" | "preemptions" | "offered") => format!("{:.0}", of.mean),
        (false, "tpot_p95") => format!("{:.4}", of.mean),
        (false, _) => format!("{:.3}", of.mean),
    }
}

/// A scenario's runs, for machines.
#[derive(serde::Serialize)]
struct Report {
    scenario: String,
    about: String,
    first_seed: u64,
    seeds: u64,
    cells: Vec<ReportCell>,
    expectations: Vec<Verdict>,
}

#[derive(serde::Serialize)]
struct ReportCell {
    policy: String,
    load: f64,
    figures: std::collections::BTreeMap<String, Spread>,
    runs: Vec<Figures>,
}

impl Report {
    fn new(path: &Path, scenario: &Scenario, cells: Vec<Cell>, expectations: Vec<Verdict>) -> Self {
        let cell = |cell: Cell| ReportCell {
            policy: cell.policy,
            load: cell.load,
            figures: spread(&cell.runs),
            runs: cell.runs,
        };
        Self {
            scenario: path.display().to_string(),
            about: scenario.about.clone(),
            first_seed: scenario.seeds.0,
            seeds: scenario.seeds.1,
            cells: cells.into_iter().map(cell).collect(),
            expectations,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "about = \"small\"\nrate = 40.0\nseeds = 3\nwarm_up = \"1s\"\n\
                        window = \"2s\"\npolicies = [\"weir\", \"none\"]\n\
                        [fleet]\nreplicas = 1\n[policy]\nin_flight = 48\n\
                        [[workload.classes]]\nname = \"chat\"\nprompt_tokens = { fixed = 300 }\n\
                        output_tokens = { fixed = 20 }\nslo = { ttft = \"1s\" }\n\
                        [[expect]]\nmetric = \"goodput\"\nmin = MIN\n";

    fn args(path: &Path) -> SimulateArgs {
        SimulateArgs {
            scenarios: vec![path.to_owned()],
            seeds: None,
            policy: Vec::new(),
            load: Vec::new(),
            threads: Some(3),
            show: vec!["jain".into()],
            json: None,
        }
    }

    fn said(args: &SimulateArgs) -> (String, String) {
        let mut out = Vec::new();
        let code = run(args, &mut out).unwrap();
        (format!("{code:?}"), String::from_utf8(out).unwrap())
    }

    #[test]
    fn expectations_decide_the_exit_code_and_json_holds_every_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("small.toml");
        std::fs::write(&path, TEXT.replace("MIN", "0.9")).unwrap();
        let json = folder.path().join("out.json");
        let args = SimulateArgs { json: Some(json.clone()), ..args(&path) };
        let (code, text) = said(&args);
        assert_eq!(code, format!("{:?}", ExitCode::SUCCESS), "{text}");
        assert!(text.contains("ok   goodput of weir at 1"), "{text}");
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        assert_eq!(report[0]["cells"][1]["runs"].as_array().unwrap().len(), 3);
        std::fs::write(&path, TEXT.replace("MIN", "1.1")).unwrap();
        let (code, text) = said(&SimulateArgs { seeds: Some(1), ..args });
        assert_eq!(code, format!("{:?}", ExitCode::FAILURE));
        assert!(text.contains("FAIL goodput of weir"), "{text}");
    }

    #[test]
    fn threads_do_not_change_what_comes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("small.toml");
        std::fs::write(&path, TEXT.replace("MIN", "0.0")).unwrap();
        let scenario = read(&path).unwrap().unwrap();
        assert_eq!(cells(&scenario, 1), cells(&scenario, 3));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.toml");
        std::fs::write(&path, "rate = 1.0\nseedz = 3\n[fleet]\nreplicas = \"two\"\n").unwrap();
        let (code, text) = said(&args(&path));
        assert_eq!(code, format!("{:?}", ExitCode::from(INVALID)));
        assert!(text.contains("seedz") && text.contains("fleet.replicas"), "{text}");
    }
}
