use super::*;
use crate::workload::Faults;

const SMALL: &str = r#"
about = "one replica beyond what it can do"
rate = 30.0
loads = [0.5, 4.0]
policies = ["weir", "cap:40"]
seeds = 2
warm_up = "1s"
window = "4s"
[fleet]
replicas = 1
max_num_seqs = 64
[policy]
in_flight = 48
[[workload.classes]]
name = "chat"
prompt_tokens = { fixed = 300 }
output_tokens = { fixed = 40 }
slo = { ttft = "1s", tpot = "50ms" }
[[expect]]
metric = "shed"
load = 0.5
max = 0.0
[[expect]]
metric = "lead"
min = -1.0
"#;

fn scenario(text: &str) -> Result<Scenario, Faults> {
    Scenario::new(&ScenarioFile::read(text)?, None)
}

#[test]
fn a_scenario_runs_and_is_judged() {
    let scenario = scenario(SMALL).unwrap();
    let mut cells = Vec::new();
    for contender in &scenario.contenders {
        for load in &scenario.loads {
            let runs = (1..=2).map(|seed| scenario.run(contender, *load, seed)).collect();
            cells.push(Cell { policy: contender.name(), load: *load, runs });
        }
    }
    assert_eq!(cells[0].runs[0], scenario.run(&scenario.contenders[0], 0.5, 1));
    assert!(cells[1].mean("shed").unwrap() > 0.1);
    let verdicts = judge(&scenario.expectations, &cells);
    assert_eq!(verdicts.len(), 3, "one at one load, one at both");
    assert!(verdicts.iter().all(|verdict| verdict.holds), "{verdicts:?}");
    let hard = Expectation { min: 0.9, max: 1.0, ..scenario.expectations[0].clone() };
    let unknown = Expectation { metric: "nonsense".into(), ..hard.clone() };
    let verdicts = judge(&[hard, unknown], &cells);
    assert!(verdicts.iter().all(|verdict| !verdict.holds), "{verdicts:?}");
}

#[test]
fn every_fault_is_told_with_its_path() {
    let text = r#"
rat = 3.0
loads = [0.0]
policies = ["weir", "nginx"]
seeds = "many"
window = "5 parsecs"
[fleet]
replicas = 2
[policy.shares]
nobody = 1.0
[[workload.classes]]
name = "chat"
output_tokens = { fixed = 40 }
[[faults]]
trouble = { slow = -1.0 }
replicas = [7]
[[faults]]
trouble = "fire"
[[expect]]
metric = "goodput"
policy = "vegas"
load = 9.0
"#;
    let shape = ScenarioFile::read(text).unwrap_err();
    let paths: Vec<_> = shape.all().iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths.len(), 4, "{shape}");
    for path in ["rat", "seeds", "window", "faults[1].trouble"] {
        assert!(paths.iter().any(|found| found.starts_with(path)), "{path} in {paths:?}");
    }
    let text = text.replace("rat = 3.0", "").replace("\"many\"", "2").replace("5 parsecs", "5s");
    let text = text.replace("[[faults]]\ntrouble = \"fire\"\n", "");
    let sense = scenario(&text).unwrap_err();
    let paths: Vec<_> = sense.all().iter().map(|fault| fault.path.as_str()).collect();
    for path in [
        "rate",
        "loads[0]",
        "policies[1]",
        "policy.shares.nobody",
        "workload.classes[0].prompt_tokens",
        "faults[0].replicas[0]",
        "faults[0].trouble.slow",
        "expect[0].policy",
        "expect[0].load",
        "expect[0]",
    ] {
        assert!(paths.contains(&path), "{path} in {paths:?}");
    }
}

#[test]
fn a_workload_may_stand_in_a_file_of_its_own() {
    let text = "rate = 1.0\nworkload_file = \"base.toml\"";
    let file = ScenarioFile::read(text).unwrap();
    assert_eq!(file.workload_file(), Some("base.toml"));
    assert!(Scenario::new(&file, None).is_err(), "its text was not brought");
    let base = "[[classes]]\nname = \"x\"\nprompt_tokens = { fixed = 9 }\n\
                output_tokens = { fixed = 9 }";
    let scenario = Scenario::new(&file.clone().with_workload(base).unwrap(), None).unwrap();
    assert_eq!(&*scenario.workload.classes[0].name, "x");
    let faults = file.with_workload("[[classes]]\nnam = 1").unwrap_err();
    assert!(faults.all()[0].path.starts_with("workload_file"), "{faults}");
}

#[test]
fn contenders_are_called_by_their_names() {
    for name in
        ["weir", "weir:told=5s", "weir:told=never", "cap", "cap:40", "cap-queue:9", "reading"]
    {
        assert_eq!(name.parse::<Contender>().unwrap().name(), name);
    }
    for wrong in ["", "nginx", "cap:0", "cap:x", "none:3", "weir:told", "weir:told=soon"] {
        assert!(wrong.parse::<Contender>().is_err(), "{wrong}");
    }
}
