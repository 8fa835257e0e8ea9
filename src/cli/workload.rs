//! Reads workload files, and the traces that they name.

use std::path::Path;

use anyhow::Context as _;

use crate::workload::{Workload, WorkloadFile};

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
    fn a_fault_is_told_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.toml");
        std::fs::write(&path, "[[classes]]\nname = \"x\"\n").unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("bad.toml") && error.contains("prompt_tokens"), "{error}");
    }
}
