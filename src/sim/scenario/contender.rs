//! Who decides in a run: our dispatcher, or a rival.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::Scenario;
use crate::dispatch::Dispatcher;
use crate::sim::Gate;
use crate::sim::fleet::Setup;
use crate::sim::rivals::{
    Advice, Cap, Envoy, Front, Gradient2, Law, Queueing, Reading, Retold, Vegas,
};

/// A policy that can be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    /// Our own.
    Weir,
    /// Our own, with other advice to whom it refuses.
    Told(Advice),
    /// No admission: the least loaded replica takes everything.
    None,
    /// A cap at each replica, the rest refused; the scenario's where none is said.
    Cap(Option<u32>),
    /// A cap at each replica before a queue; likewise.
    CapQueue(Option<u32>),
    /// By the replicas' own metrics, read every 0.2 s.
    Reading,
    /// Netflix's `Gradient2`, on the time to the whole answer.
    Gradient2,
    /// The same on the time to the first token.
    Gradient2Ttft,
    /// Netflix's Vegas.
    Vegas,
    /// Envoy's gradient.
    Envoy,
}

/// What a scenario may name, for messages.
const NAMES: &str = "weir, weir:told=never, weir:told=nothing, weir:told=5s (or any time), none, \
                     cap, cap:48, cap-queue, cap-queue:48, reading, gradient2, gradient2-ttft, \
                     vegas, envoy";

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, more) = text.split_once(':').map_or((text, None), |(a, b)| (a, Some(b)));
        let cap = || match more {
            None => Ok(None),
            Some(more) => more
                .parse::<u32>()
                .ok()
                .filter(|cap| *cap > 0)
                .map(Some)
                .ok_or_else(|| format!("\"{more}\" is no cap")),
        };
        let plain = match name {
            "cap" => return cap().map(Self::Cap),
            "cap-queue" => return cap().map(Self::CapQueue),
            "weir" => more.map_or(Ok(Self::Weir), |more| advice(more).map(Self::Told)),
            "none" => Ok(Self::None),
            "reading" => Ok(Self::Reading),
            "gradient2" => Ok(Self::Gradient2),
            "gradient2-ttft" => Ok(Self::Gradient2Ttft),
            "vegas" => Ok(Self::Vegas),
            "envoy" => Ok(Self::Envoy),
            _ => Err(format!("\"{text}\" is no policy (allowed: {NAMES})")),
        };
        if name != "weir" && more.is_some() {
            return Err(format!("\"{text}\" is no policy (allowed: {NAMES})"));
        }
        plain
    }
}

fn advice(text: &str) -> Result<Advice, String> {
    match text.strip_prefix("told=") {
        Some("never") => Ok(Advice::Never),
        Some("nothing") => Ok(Advice::Nothing),
        Some(span) => humantime::parse_duration(span)
            .map(Advice::After)
            .map_err(|error| format!("\"{span}\": {error}")),
        None => Err(format!("\"{text}\" is not told=never, told=nothing or told=5s")),
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weir => f.pad("weir"),
            Self::Told(Advice::Never) => f.pad("weir:told=never"),
            Self::Told(Advice::Nothing) => f.pad("weir:told=nothing"),
            Self::Told(Advice::After(wait)) => {
                f.pad(&format!("weir:told={}", humantime::format_duration(*wait)))
            }
            Self::None => f.pad("none"),
            Self::Cap(None) => f.pad("cap"),
            Self::Cap(Some(cap)) => f.pad(&format!("cap:{cap}")),
            Self::CapQueue(None) => f.pad("cap-queue"),
            Self::CapQueue(Some(cap)) => f.pad(&format!("cap-queue:{cap}")),
            Self::Reading => f.pad("reading"),
            Self::Gradient2 => f.pad("gradient2"),
            Self::Gradient2Ttft => f.pad("gradient2-ttft"),
            Self::Vegas => f.pad("vegas"),
            Self::Envoy => f.pad("envoy"),
        }
    }
}

impl Contender {
    /// Its name, as a scenario writes it.
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// The fleet as it needs it.
    pub(super) fn setup(&self, setup: &Setup) -> Setup {
        match self {
            Self::Reading => Setup { scrape: Duration::from_millis(200), ..setup.clone() },
            _ => setup.clone(),
        }
    }

    /// A gate for each gateway of the scenario.
    pub(super) fn gates(&self, scenario: &Scenario, seed: u64) -> Vec<Box<dyn Gate>> {
        let count = scenario.policy.gateways.max(1);
        (0..count).map(|at| self.gate(scenario, seed * 1_000 + u64::from(at))).collect()
    }

    fn gate(&self, scenario: &Scenario, seed: u64) -> Box<dyn Gate> {
        let gateways = scenario.policy.gateways.max(1);
        let caps = scenario.caps;
        let ours = || Box::new(Dispatcher::new(Arc::clone(&scenario.policy), seed));
        let front = |law: Box<dyn Law>, queueing| Box::new(Front::new(law, queueing, seed));
        let cap = |cap: u32| Box::new(Cap(Some(cap.div_ceil(gateways))));
        match *self {
            Self::Weir => ours(),
            Self::Told(advice) => Box::new(Retold::new(ours(), advice)),
            Self::None => front(Box::new(Cap(None)), Queueing::Refuse),
            Self::Cap(own) => front(cap(own.unwrap_or(caps.alone)), Queueing::Refuse),
            Self::CapQueue(own) => {
                let queueing = Queueing::Queue { count: caps.queue, wait: caps.wait };
                front(cap(own.unwrap_or(caps.queued)), queueing)
            }
            Self::Reading => front(Box::<Reading>::default(), Queueing::Refuse),
            Self::Gradient2 => front(Box::new(Gradient2::new(false)), Queueing::Refuse),
            Self::Gradient2Ttft => front(Box::new(Gradient2::new(true)), Queueing::Refuse),
            Self::Vegas => front(Box::<Vegas>::default(), Queueing::Refuse),
            Self::Envoy => front(Box::<Envoy>::default(), Queueing::Refuse),
        }
    }
}
