//! `weir workload`: what a recorded load is like. Workload files are read here too.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::load::Character;
use crate::stats::Quantiles;
use crate::workload::{Trace, Workload, WorkloadFile};

/// Arguments of `weir workload`.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadArgs {
    /// A trace, CSV or JSON lines, as docs/WORKLOADS.md describes it
    pub trace: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Characterises a trace.
pub fn run(args: &WorkloadArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let path = &args.trace;
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let trace = Trace::read(&text, None).with_context(|| path.display().to_string())?;
    let character = Character::of(&trace);
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &character)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    writeln!(
        out,
        "{} requests in {:.1} s, {} a second",
        character.requests,
        character.seconds,
        number(character.rate)
    )?;
    for (name, of) in [("input", character.input_tokens), ("output", character.output_tokens)] {
        if let Some(Quantiles { mean, p50, p95, p99, max, .. }) = of {
            writeln!(
                out,
                "{name:<6} tokens: mean {mean:.1}, p50 {p50}, p95 {p95}, p99 {p99}, max {max}"
            )?;
        }
    }
    let [second, ten, minute] = character.dispersion.map(number);
    writeln!(out, "dispersion of arrivals at 1, 10, 60 s (Poisson: 1): {second}, {ten}, {minute}")?;
    let repeated = character.repeated_prefix.map(|share| share * 100.0);
    writeln!(out, "prompt blocks that repeat from their beginning: {} %", number(repeated))?;
    Ok(ExitCode::SUCCESS)
}

/// The workload of the file at `path`; a trace's path counts from the file's folder.
pub fn read(path: &Path) -> anyhow::Result<Workload> {
    let said = |path: &Path| format!("cannot read {}", path.display());
    let text = std::fs::read_to_string(path).with_context(|| said(path))?;
    let file = WorkloadFile::read(&text).with_context(|| path.display().to_string())?;
    let trace = match file.trace_file() {
        None => None,
        Some(named) => {
            let beside = path.parent().unwrap_or(Path::new("")).join(named);
            Some(std::fs::read_to_string(&beside).with_context(|| said(&beside))?)
        }
    };
    Workload::new(&file, trace.as_deref()).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_are_workloads_and_a_trace_lies_beside_its_file() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/workloads");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let workload = read(&path).unwrap_or_else(|error| panic!("{error:#}"));
                assert_eq!(
                    workload.own_rate().is_some(),
                    path.file_stem().is_some_and(|stem| stem == "trace")
                );
                seen += 1;
            }
        }
        assert!(seen >= 8, "{seen}");
    }

    #[test]
    fn a_trace_is_characterised_and_a_bad_one_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace.csv");
        let said = |text: &str| {
            std::fs::write(&trace, text).unwrap();
            let mut out = Vec::new();
            let ended = run(&WorkloadArgs { trace: trace.clone(), json: false }, &mut out);
            ended.map(|_| String::from_utf8(out).unwrap()).map_err(|error| format!("{error:#}"))
        };
        let text = said("timestamp,input,output\n0,10,5\n2,30,5\n").unwrap();
        assert!(text.starts_with("2 requests in 2.0 s") && text.contains("max 30"), "{text}");
        assert!(said("timestamp,input,output\n3,10,5\n2,30,5\n").unwrap_err().contains("line 3"));
    }

    #[test]
    fn a_fault_is_told_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.toml");
        std::fs::write(&path, "[[classes]]\nname = \"x\"\n").unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("bad.toml") && error.contains("prompt_tokens"), "{error}");
    }
}
