//! From what a file says to a workload that can be drawn from, with every fault at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::{Header, Prefix};
use super::file::{ArrivalsFile, ClassFile, PrefixFile, TenantFile, TraceFile, WorkloadFile};
use super::{
    ArrivalModel, Class, Faults, FollowUp, Lengths, Pacing, Replay, Tenant, Trace, Workload,
};
use crate::domain::{ClassId, TenantId};

/// More than anyone means, and what a [`ClassId`] counts.
const MOST_CLASSES: usize = 1000;

/// Headers that the generator itself sets, or that frame a message.
const OURS: [&str; 6] =
    ["authorization", "connection", "content-length", "content-type", "host", "transfer-encoding"];

impl Workload {
    /// Compiles `file`; `trace` is the text of [`WorkloadFile::trace_file`], where it names one.
    pub fn new(file: &WorkloadFile, trace: Option<&str>) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let tenants = tenants(&file.tenants, &mut faults);
        let pacing = pacing(&file.arrivals, trace, &mut faults);
        let replays = matches!(pacing, Pacing::Trace(_));
        let mut classes = Vec::new();
        for (at, class) in file.classes.iter().enumerate().take(MOST_CLASSES) {
            let path = format!("classes[{at}]");
            if file.classes.iter().take(at).any(|other| other.name == class.name) {
                faults.add(&format!("{path}.name"), format!("\"{}\" stands twice", class.name));
            }
            let id = ClassId(u16::try_from(at).unwrap_or(u16::MAX));
            classes.push(one_class(id, class, &tenants, replays, &path, &mut faults));
        }
        if classes.is_empty() && replays {
            classes.push(Class { name: "trace".into(), ..Class::fixed(1, 1) });
        } else if classes.is_empty() || file.classes.len() > MOST_CLASSES {
            faults.add("classes", format!("there must be 1 to {MOST_CLASSES}"));
        } else if classes.iter().all(|class| class.weight <= 0.0) {
            faults.add("classes", "none has a weight above 0");
        }
        if let Pacing::Trace(replay) = &pacing {
            unknown_classes(replay, &classes, &mut faults);
        }
        file.client.check("client", &mut faults);
        faults.or(Self { classes, tenants, pacing, client: file.client })
    }
}

fn one_class(
    id: ClassId,
    class: &ClassFile,
    tenants: &[Tenant],
    replays: bool,
    path: &str,
    faults: &mut Faults,
) -> Class {
    name(&class.name, path, faults);
    weight(class.weight, path, faults);
    let mut lengths = |key: &str, written: Option<&Lengths>| {
        let path = format!("{path}.{key}");
        match written {
            Some(_) if replays => faults.add(&path, "stands beside a trace, which has its own"),
            Some(lengths) => lengths.check(&path, faults),
            None if !replays => faults.add(&path, "is missing"),
            None => {}
        }
        written.cloned().unwrap_or(Lengths::Fixed(1))
    };
    let prompt = lengths("prompt_tokens", class.prompt_tokens.as_ref());
    let output = lengths("output_tokens", class.output_tokens.as_ref());
    let slo = class.slo;
    let targets = [("ttft", slo.ttft), ("tpot", slo.tpot), ("itl", slo.itl), ("e2e", slo.e2e)];
    for (key, target) in targets {
        if target.is_some_and(|target| target.is_zero()) {
            faults.add(&format!("{path}.slo.{key}"), "is zero");
        }
    }
    let tenant = class.tenant.as_ref().and_then(|name| {
        let found = tenants.iter().find(|tenant| *tenant.name == **name).map(|one| one.id);
        if found.is_none() {
            faults.add(&format!("{path}.tenant"), format!("\"{name}\" is none of the tenants"));
        }
        found
    });
    Class {
        id,
        name: class.name.as_str().into(),
        weight: class.weight,
        prompt,
        output,
        prefix: class.prefix.map(|prefix| one_prefix(prefix, path, faults)),
        follow_up: follow_up(class, replays, path, faults),
        slo,
        headers: headers(&class.headers, path, faults),
        tenant,
    }
}

fn one_prefix(prefix: PrefixFile, path: &str, faults: &mut Faults) -> Prefix {
    let PrefixFile { count, tokens, zipf } = prefix;
    if !(1..=1_000_000).contains(&count) {
        faults.add(&format!("{path}.prefix.count"), format!("is {count}, not 1 to 1000000"));
    }
    Lengths::Fixed(tokens).check(&format!("{path}.prefix.tokens"), faults);
    if !(0.0..=10.0).contains(&zipf) {
        faults.add(&format!("{path}.prefix.zipf"), format!("is {zipf}, not 0 to 10"));
    }
    Prefix { count, tokens, zipf }
}

fn follow_up(
    class: &ClassFile,
    replays: bool,
    path: &str,
    faults: &mut Faults,
) -> Option<FollowUp> {
    let (key, follow_up) = match (&class.session, &class.workflow) {
        (None, None) => return None,
        (Some(_), Some(_)) => {
            faults.add(path, "is both a session and a workflow");
            return None;
        }
        (Some(session), None) => (
            "session",
            FollowUp {
                stages: session.turns.clone(),
                width: Lengths::Fixed(1),
                new_tokens: session.new_tokens.clone(),
                pause: session.think,
                max_prompt_tokens: session.max_prompt_tokens.unwrap_or(u32::MAX),
                e2e: None,
            },
        ),
        (None, Some(workflow)) => (
            "workflow",
            FollowUp {
                stages: workflow.stages.clone(),
                width: workflow.width.clone(),
                new_tokens: workflow.new_tokens.clone(),
                pause: workflow.pause,
                max_prompt_tokens: workflow.max_prompt_tokens.unwrap_or(u32::MAX),
                e2e: workflow.e2e.map(|e2e| e2e.0),
            },
        ),
    };
    let path = format!("{path}.{key}");
    if replays {
        faults.add(&path, "stands beside a trace, which has its own calls");
    }
    let stages = if key == "session" { "turns" } else { "stages" };
    let pause = if key == "session" { "think" } else { "pause" };
    follow_up.stages.check(&format!("{path}.{stages}"), faults);
    follow_up.width.check(&format!("{path}.width"), faults);
    follow_up.new_tokens.check(&format!("{path}.new_tokens"), faults);
    follow_up.pause.check(&format!("{path}.{pause}"), faults);
    Some(follow_up)
}

fn tenants(written: &[TenantFile], faults: &mut Faults) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (at, tenant) in written.iter().enumerate() {
        let path = format!("tenants[{at}]");
        name(&tenant.name, &path, faults);
        weight(tenant.weight, &path, faults);
        if written.iter().take(at).any(|other| other.name == tenant.name) {
            faults.add(&format!("{path}.name"), format!("\"{}\" stands twice", tenant.name));
        }
        if tenant.key.as_ref().is_some_and(|key| key.is_empty() || !printable(key)) {
            faults.add(&format!("{path}.key"), "is no printable ASCII on one line");
        }
        tenants.push(Tenant {
            id: TenantId(u32::try_from(at).unwrap_or(u32::MAX)),
            name: tenant.name.as_str().into(),
            weight: tenant.weight,
            key: tenant.key.as_deref().map(Into::into),
            headers: headers(&tenant.headers, &path, faults),
        });
    }
    if tenants.is_empty() {
        tenants.push(Tenant::anyone());
    } else if tenants.iter().all(|tenant| tenant.weight <= 0.0) {
        faults.add("tenants", "none has a weight above 0");
    }
    tenants
}

fn pacing(written: &ArrivalsFile, trace: Option<&str>, faults: &mut Faults) -> Pacing {
    let open = written.process.is_some() || written.bursts.is_some();
    let ways = [open, written.closed.is_some(), written.trace.is_some()];
    if ways.into_iter().filter(|way| *way).count() > 1 {
        let message = "may have process and bursts, or closed, or trace";
        faults.add("arrivals", message);
    }
    if let Some(closed) = written.closed {
        if !(1..=100_000).contains(&closed.clients) {
            let message = format!("is {}, not 1 to 100000", closed.clients);
            faults.add("arrivals.closed.clients", message);
        }
        closed.think.check("arrivals.closed.think", faults);
        return Pacing::Closed { clients: closed.clients, think: closed.think };
    }
    if let Some(written) = &written.trace {
        return Pacing::Trace(replay(written, trace, faults));
    }
    let process = written.process.clone().unwrap_or_default();
    let model = ArrivalModel { process, bursts: written.bursts };
    model.check("arrivals", faults);
    Pacing::Open(model)
}

fn replay(written: &TraceFile, text: Option<&str>, faults: &mut Faults) -> Replay {
    if !(written.speed > 0.0 && written.speed <= 1e6) {
        let message = format!("is {}, not above 0 and at most 1000000", written.speed);
        faults.add("arrivals.trace.speed", message);
    }
    Lengths::Fixed(written.block_tokens).check("arrivals.trace.block_tokens", faults);
    let trace = match text.map(|text| Trace::read(text, written.unit)) {
        Some(Ok(trace)) => trace,
        Some(Err(found)) => {
            for fault in found.all() {
                faults.push(super::Fault { path: written.file.clone(), ..fault.clone() });
            }
            Trace::default()
        }
        None => {
            faults.add("arrivals.trace.file", "was not read");
            Trace::default()
        }
    };
    Replay { trace, speed: written.speed, block_tokens: written.block_tokens }
}

/// A trace may name classes only where the file has them.
fn unknown_classes(replay: &Replay, classes: &[Class], faults: &mut Faults) {
    let mut unknown: Vec<&str> = replay
        .trace
        .rows()
        .iter()
        .filter_map(|row| row.class.as_deref())
        .filter(|name| !classes.iter().any(|class| *class.name == **name))
        .collect();
    unknown.sort_unstable();
    unknown.dedup();
    for name in unknown {
        faults.add("arrivals.trace", format!("names the class \"{name}\", which is not there"));
    }
}

fn name(name: &str, path: &str, faults: &mut Faults) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        faults.add(&format!("{path}.name"), "is not 1 to 64 of a-z, A-Z, 0-9, -, _ and .");
    }
}

fn weight(weight: f64, path: &str, faults: &mut Faults) {
    if !(0.0..=1e9).contains(&weight) {
        faults.add(&format!("{path}.weight"), format!("is {weight}, not 0 to 1000000000"));
    }
}

fn printable(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

fn headers(written: &BTreeMap<String, String>, path: &str, faults: &mut Faults) -> Vec<Header> {
    let mut headers = Vec::new();
    for (name, value) in written {
        let path = format!("{path}.headers.{name}");
        let lower = name.to_ascii_lowercase();
        let token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || !name.bytes().all(token) {
            faults.add(&path, "is no name of a header");
        } else if OURS.contains(&lower.as_str()) {
            faults.add(&path, "is set by the generator");
        } else if !printable(value) {
            faults.add(&path, "has a value that is no printable ASCII on one line");
        }
        headers.push(Header { name: Arc::from(lower), value: value.as_str().into() });
    }
    headers
}

#[cfg(test)]
mod tests;
