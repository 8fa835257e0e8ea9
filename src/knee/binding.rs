//! Which limit of a server binds at a level, from what its metrics showed there.

use serde::Serialize;

/// What the replicas' metrics showed through a run. `None` is "not known", never zero.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, serde::Deserialize)]
pub struct Shown {
    /// Sequences running, mean of the sum over replicas.
    pub running: Option<f64>,
    /// Sequences waiting inside the engines, mean of the sum.
    pub waiting: Option<f64>,
    /// Share of KV blocks in use, highest seen.
    pub kv_usage: Option<f64>,
    /// Preemptions in the run, all replicas.
    pub preemptions: Option<u64>,
}

/// What binds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// The KV cache is full, or sequences are preempted for want of it.
    Memory,
    /// Sequences wait though there is memory: the cap on running ones.
    SequenceCap,
    /// Gaps between frames break their target while nothing waits: prompts in decode steps.
    PrefillInDecode,
    /// Something between refused calls.
    Refused,
    /// None of these: the engine's speed.
    Compute,
    /// No metrics were seen.
    Unknown,
}

/// Names what binds at the lowest rate that failed. `refused`: calls were not answered; `itl`:
/// the target of gaps was broken.
pub fn binding(shown: &Shown, refused: bool, itl: bool) -> Binding {
    let waits = shown.waiting.is_some_and(|waiting| waiting >= 1.0);
    match shown {
        _ if refused => Binding::Refused,
        Shown { running: None, waiting: None, kv_usage: None, preemptions: None } => {
            Binding::Unknown
        }
        Shown { preemptions: Some(1..), .. } => Binding::Memory,
        Shown { kv_usage: Some(usage), .. } if *usage > 0.95 => Binding::Memory,
        _ if itl && !waits => Binding::PrefillInDecode,
        _ if waits => Binding::SequenceCap,
        _ => Binding::Compute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_sign() {
        let seen = Shown {
            running: Some(60.0),
            waiting: Some(0.0),
            kv_usage: Some(0.4),
            preemptions: Some(0),
        };
        assert_eq!(binding(&Shown::default(), false, false), Binding::Unknown);
        assert_eq!(binding(&seen, true, false), Binding::Refused);
        assert_eq!(binding(&seen, false, false), Binding::Compute);
        assert_eq!(binding(&seen, false, true), Binding::PrefillInDecode);
        let waits = Shown { waiting: Some(12.0), ..seen };
        assert_eq!(binding(&waits, false, true), Binding::SequenceCap);
        let full = Shown { kv_usage: Some(0.99), ..waits };
        assert_eq!(binding(&full, false, true), Binding::Memory);
        let thrashes = Shown { preemptions: Some(3), ..seen };
        assert_eq!(binding(&thrashes, false, false), Binding::Memory);
    }
}
