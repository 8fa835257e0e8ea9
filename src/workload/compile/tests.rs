use std::time::Duration;

use proptest::prelude::*;

use super::super::{ClientModel, Flow, Flows, Offered, Pause, Process, Seeds};
use super::*;
use crate::domain::{Slo, Span, Timestamp};

/// Every key that there is.
const WHOLE: &str = r#"
[[classes]]
name = "chat"
weight = 0.6
prompt_tokens = { lognormal = { mean = 300, sigma = 0.6, min = 16, max = 4000 } }
output_tokens = { lognormal = { mean = 64, sigma = 0.5, max = 512 } }
prefix = { count = 8, tokens = 128, zipf = 1.1 }
session = { turns = { uniform = { from = 2, to = 5 } }, new_tokens = { fixed = 80 }, think = { exponential = { mean = "4s", max = "30s" } }, max_prompt_tokens = 6000 }
slo = { ttft = "1s", tpot = "50ms", itl = "200ms", e2e = "8s" }
headers = { X-Trace = "chat" }

[[classes]]
name = "agent"
weight = 0.25
prompt_tokens = { fixed = 900 }
output_tokens = { list = [16, 32, 48] }
workflow = { stages = { fixed = 3 }, width = { uniform = { from = 1, to = 3 } }, new_tokens = { fixed = 200 }, pause = { fixed = "250ms" }, max_prompt_tokens = 8000, e2e = "20s" }
tenant = "b"

[[tenants]]
name = "a"
weight = 0.3
key = "sk-a"
headers = { x-team = "a" }

[[tenants]]
name = "b"

[arrivals]
process = { mmpp = { states = [{ rate = 1.0, hold = "20s" }, { rate = 4.0, hold = "5s" }] } }
bursts = { rate = 3.0, length = "2.5s", every = "10s" }

[client]
openai-python = { retries = 3 }
"#;

fn compile(text: &str, trace: Option<&str>) -> Result<Workload, Faults> {
    Workload::new(&WorkloadFile::read(text)?, trace)
}

fn paths(text: &str) -> Vec<String> {
    let faults = compile(text, None).unwrap_err();
    faults.all().iter().map(|fault| fault.path.clone()).collect()
}

#[test]
fn every_key_arrives() {
    let workload = compile(WHOLE, None).unwrap();
    let [chat, agent] = workload.classes.as_slice() else { panic!("two classes") };
    assert_eq!((&*chat.name, chat.id, chat.weight), ("chat", ClassId(0), 0.6));
    assert_eq!(chat.prefix, Some(Prefix { count: 8, tokens: 128, zipf: 1.1 }));
    let second = Duration::from_secs(1);
    let slo = Slo {
        ttft: Some(second),
        tpot: Some(second / 20),
        itl: Some(second / 5),
        e2e: Some(8 * second),
    };
    assert_eq!((chat.slo, agent.slo), (slo, Slo::default()));
    assert_eq!((&*chat.headers[0].name, &*chat.headers[0].value), ("x-trace", "chat"));
    let turns = chat.follow_up.clone().unwrap();
    assert_eq!(turns.stages, Lengths::Uniform { from: 2, to: 5 });
    assert_eq!((turns.max_prompt_tokens, turns.e2e), (6000, None));
    let pause = Pause::Exponential { mean: Span(4 * second), max: Span(30 * second) };
    assert_eq!((turns.width, turns.pause), (Lengths::Fixed(1), pause));
    let calls = agent.follow_up.clone().unwrap();
    assert_eq!((calls.stages, calls.e2e), (Lengths::Fixed(3), Some(20 * second)));
    assert_eq!((agent.tenant, chat.tenant), (Some(TenantId(1)), None));
    assert_eq!(workload.tenants[0].key.as_deref(), Some("sk-a"));
    assert!(!format!("{workload:?}").contains("sk-a"), "a key in a log");
    assert_eq!(workload.client, ClientModel::OpenAiPython { retries: 3 });
    let Pacing::Open(model) = &workload.pacing else { panic!("an open loop") };
    assert!(matches!(&model.process, Process::Mmpp { states } if states.len() == 2));
    assert!(model.bursts.is_some());
}

const CHAT: &str = "[[classes]]\nname = \"chat\"\nprompt_tokens = { fixed = 10 }\n\
                    output_tokens = { fixed = 5 }\n";

#[test]
fn the_smallest_file_is_a_poisson_load_of_one_class_from_anyone() {
    let workload = compile(CHAT, None).unwrap();
    assert_eq!(workload.tenants, [Tenant::anyone()]);
    assert_eq!(workload.client, ClientModel::None);
    assert_eq!(workload.pacing, Pacing::Open(ArrivalModel::default()));
}

#[test]
fn short_forms_are_understood() {
    let more = "[arrivals]\nprocess = \"poisson\"\n";
    assert!(compile(&format!("client = \"none\"\n{CHAT}{more}"), None).is_ok());
    let closed = "[arrivals]\nclosed = { clients = 128 }\n";
    let workload = compile(&format!("{CHAT}{closed}"), None).unwrap();
    assert_eq!(workload.pacing, Pacing::Closed { clients: 128, think: Pause::default() });
    let node = "[client]\nopenai-node = {}\n";
    let workload = compile(&format!("{CHAT}{node}"), None).unwrap();
    assert_eq!(workload.client, ClientModel::OpenAiNode { retries: 2 });
}

#[test]
fn a_wrong_shape_is_told_with_its_key_and_line() {
    for (text, path, line, word) in [
        ("[[classes]]\ntitle = \"x\"\n", "classes[0].title", Some(2), "unknown field"),
        (
            "[[classes]]\nname = \"x\"\nweight = \"y\"\n",
            "classes[0].weight",
            Some(3),
            "invalid type",
        ),
        ("a = \n", "", Some(1), "string"),
        ("[arrivals]\nprocess = \"posson\"\n", "arrivals.process", Some(2), "unknown variant"),
        (
            "[[classes]]\nname = \"x\"\nprompt_tokens = { fixd = 3 }\n",
            "classes[0].prompt_tokens",
            Some(3),
            "unknown variant",
        ),
        (
            "[[classes]]\nname = \"x\"\nprompt_tokens = { uniform = { from = 1, to = 2, by = 1 } }\n",
            "classes[0].prompt_tokens",
            Some(3),
            "unexpected keys in table: by",
        ),
        (
            "[[classes]]\nname = \"x\"\nslo = { ttft = 1 }\n",
            "classes[0].slo.ttft",
            Some(3),
            "a duration with its unit",
        ),
        ("[client]\nfixed = { retries = 1 }\n", "client", None, "missing field"),
    ] {
        let faults = compile(text, None).unwrap_err();
        let fault = &faults.all()[0];
        assert!(fault.path.starts_with(path), "{text}: {fault}");
        assert!(line.is_none() || fault.line == line, "{text}: {fault}");
        assert!(fault.message.contains(word), "{text}: {fault}");
    }
}

#[test]
fn all_wrong_values_are_told_at_once() {
    let text = r#"
[[classes]]
name = "a b"
weight = -1
prompt_tokens = { fixed = 0 }
output_tokens = { uniform = { from = 5, to = 2 } }
prefix = { count = 0, tokens = 0, zipf = -1.0 }
slo = { ttft = "0s" }
headers = { host = "x", "b d" = "x", ok = "é" }
tenant = "nobody"

[[classes]]
name = "a b"
output_tokens = { lognormal = { mean = 0, sigma = 9, min = 3, max = 2 } }
session = { turns = { list = [] }, new_tokens = { fixed = 1 }, think = { exponential = { mean = "2s", max = "1s" } } }

[[tenants]]
name = ""
weight = nan
key = ""

[arrivals]
process = { gamma = { burstiness = 0 } }
bursts = { rate = 0, length = "3s", every = "2s" }
"#;
    let mut found = paths(text);
    found.sort_unstable();
    let expected = [
        "arrivals.bursts.length",
        "arrivals.bursts.rate",
        "arrivals.process.gamma.burstiness",
        "classes[0].headers.b d",
        "classes[0].headers.host",
        "classes[0].headers.ok",
        "classes[0].name",
        "classes[0].output_tokens.uniform",
        "classes[0].prefix.count",
        "classes[0].prefix.tokens.fixed",
        "classes[0].prefix.zipf",
        "classes[0].prompt_tokens.fixed",
        "classes[0].slo.ttft",
        "classes[0].tenant",
        "classes[0].weight",
        "classes[1].name",
        "classes[1].name",
        "classes[1].output_tokens.lognormal",
        "classes[1].output_tokens.lognormal.mean",
        "classes[1].output_tokens.lognormal.sigma",
        "classes[1].prompt_tokens",
        "classes[1].session.think.exponential",
        "classes[1].session.turns.list",
        "tenants[0].key",
        "tenants[0].name",
        "tenants[0].weight",
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_excludes_one_another_does_not_stand_together() {
    let both = "session = { turns = { fixed = 2 }, new_tokens = { fixed = 1 } }\n\
                workflow = { new_tokens = { fixed = 1 } }\n";
    assert_eq!(paths(&format!("{CHAT}{both}")), ["classes[0]"]);
    let ways = "[arrivals]\nprocess = \"poisson\"\nclosed = { clients = 0 }\n";
    assert_eq!(paths(&format!("{CHAT}{ways}")), ["arrivals", "arrivals.closed.clients"]);
    let states = "[arrivals]\nprocess = { mmpp = { states = [{ rate = 0.0, hold = \"0s\" }] } }\n";
    let path = "arrivals.process.mmpp.states";
    assert_eq!(paths(&format!("{CHAT}{states}")), [format!("{path}[0].hold"), path.to_owned()]);
    assert_eq!(paths(""), ["classes"]);
}

const TRACE: &str = "[arrivals]\ntrace = { file = \"t.csv\", speed = 2.0 }\n";

#[test]
fn a_trace_is_replayed_at_its_own_rate_or_at_another() {
    let csv = "timestamp,input,output\n10,100,5\n12,200,6\n14,300,7\n";
    let file = WorkloadFile::read(TRACE).unwrap();
    assert_eq!(file.trace_file(), Some("t.csv"));
    let workload = Arc::new(Workload::new(&file, Some(csv)).unwrap());
    assert_eq!(workload.own_rate(), Some(1.0));
    let due = |rate| {
        let offered = Offered::new(&workload, rate, Timestamp::ZERO, Seeds::default());
        offered.map(|(due, flow)| (due.as_secs_f64(), flow)).collect::<Vec<_>>()
    };
    let (own, asked) = (due(None), due(Some(2.0)));
    let times = |all: &[(f64, Flow)]| all.iter().map(|one| one.0).collect::<Vec<_>>();
    assert_eq!((times(&own), times(&asked)), (vec![0.0, 1.0, 2.0], vec![0.0, 0.5, 1.0]));
    let sizes: Vec<u32> =
        own.iter().flat_map(|one| one.1.calls()).map(super::super::Call::prompt_tokens).collect();
    assert_eq!(sizes, [100, 200, 300]);
    assert!(own.iter().zip(&asked).all(|(own, asked)| own.1 == asked.1));
}

#[test]
fn a_trace_names_only_classes_that_are_there() {
    let csv = "timestamp,input,output,class\n0,1,1,rag\n1,1,1,chat\n2,1,1,\n";
    let with = |classes: &str| compile(&format!("{classes}{TRACE}"), Some(csv));
    let one = "[[classes]]\nname = \"chat\"\n";
    let faults = with(one).unwrap_err();
    assert_eq!(faults.all().len(), 1);
    assert!(faults.to_string().contains("\"rag\""));
    let workload = with(&format!("{one}[[classes]]\nname = \"rag\"\n")).unwrap();
    let flows = Flows::new(Arc::new(workload), Seeds::default());
    assert_eq!(flows.map(|flow| flow.class.0).collect::<Vec<_>>(), [1, 0, 0]);
    let faults = with(CHAT).unwrap_err().to_string();
    assert!(faults.contains("stands beside a trace"), "{faults}");
    let faults = compile(TRACE, Some("timestamp,input,output\n1,1,1\n0,1,1\n")).unwrap_err();
    assert_eq!(
        faults.to_string(),
        "t.csv: line 3: the time 0 lies before the 1 of an earlier line"
    );
    assert!(compile(TRACE, None).is_err(), "nobody read it");
}

#[test]
fn every_rate_offers_the_same_flows_in_the_same_order() {
    let workload = Arc::new(compile(WHOLE, None).unwrap());
    let flows = |rate| {
        let seeds = Seeds { requests: 4, texts: 4 };
        let offered = Offered::new(&workload, Some(rate), Timestamp::ZERO, seeds);
        offered.take(300).collect::<Vec<_>>()
    };
    let (slow, fast) = (flows(2.0), flows(40.0));
    assert!(slow.iter().zip(&fast).all(|(slow, fast)| slow.1 == fast.1));
    assert!(slow.iter().zip(&fast).all(|(slow, fast)| slow.0 >= fast.0));
}

#[test]
fn the_rate_is_that_of_all_calls() {
    let agent = "workflow = { stages = { fixed = 4 }, width = { fixed = 2 }, \
                 new_tokens = { fixed = 1 } }\n";
    let workload = Arc::new(compile(&format!("{CHAT}{agent}"), None).unwrap());
    let offered = Offered::new(&workload, Some(80.0), Timestamp::ZERO, Seeds::default());
    let until = Timestamp::ZERO + Duration::from_secs(100);
    let calls: usize =
        offered.take_while(|one| one.0 < until).map(|one| one.1.calls().count()).sum();
    assert!((7_400..8_600).contains(&calls), "{calls}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\[\\[classes\\]\\]\n|name = |\"a\"|\n|prompt_tokens|=|\\{|\\}|fixed|[0-9]|,)*") {
        let _read = WorkloadFile::read(&text).and_then(|file| Workload::new(&file, None));
    }
}
