//! The live search for the knee: a baseline, then a run for every rate that the search asks for.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use serde::{Deserialize, Serialize};

use super::client::{Client, TargetError};
use super::run::run_observed;
use super::watch::Watched;
use super::{Figures, LoadOptions, LoadReport, Mode};
use crate::domain::Slo;
use crate::knee::{
    Ask, Binding, Found, Judgement, Level, Observed, Search, SearchOptions, Shown, Targets,
    Verdict, binding,
};
use crate::lifecycle::Clock;

/// A sweep.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    /// What every run shares; its mode and duration are the sweep's.
    pub load: LoadOptions,
    /// What the knee is held to; a TTFT must be among it.
    pub slo: Slo,
    /// Minutes, not an hour: shorter runs, a wider answer.
    pub quick: bool,
    /// Shorter or longer runs than the sweep would take.
    pub window: Option<Duration>,
    /// Addresses of the replicas' `/metrics`.
    pub metrics: Vec<Uri>,
}

/// Why there is no sweep.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The URL cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No connection was made.
    #[error("{0} cannot be reached: no request got a connection")]
    Unreachable(Uri),
    /// 401 or 403.
    #[error("{0} refused the key ({1}): give one with --key")]
    Key(Uri, u16),
    /// 404.
    #[error("{0} does not serve the model {1:?} (404)")]
    Model(Uri, String),
    /// Nothing was answered whole.
    #[error("not one request was answered whole: {0}")]
    NoSuccess(String),
    /// Even one request at a time breaks the targets.
    #[error("even the idle server misses the target: {0}")]
    Idle(String),
    /// No TTFT.
    #[error("a sweep needs a target for TTFT above zero")]
    NoTarget,
}

/// One run of the sweep.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SweepRun {
    /// Calls a second.
    pub rate: f64,
    /// Runs of this rate before it.
    pub replicate: usize,
    /// What clients saw.
    pub observed: Observed,
    /// What the replicas said.
    pub shown: Shown,
    /// Answered whole and within every target, a second.
    pub goodput_per_second: f64,
    /// Output tokens a second.
    pub tokens_per_second: f64,
    /// Why it says nothing, if so; then it is not judged.
    pub void: Option<String>,
    /// Its figures in the keys of `vllm bench serve`.
    pub vllm: serde_json::Value,
}

/// All runs of one rate together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepLevel {
    /// Calls a second.
    pub rate: f64,
    /// Runs.
    pub runs: usize,
    /// Pass, fail, or neither.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// TTFT p50 and p99, seconds.
    pub ttft_p50: Option<f64>,
    /// TTFT p99, seconds.
    pub ttft_p99: Option<f64>,
    /// Good a second, mean over its runs.
    pub goodput_per_second: f64,
    /// What the replicas said in its last run.
    pub shown: Shown,
}

/// The knee.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Knee {
    /// Between a rate that passed and one that failed.
    #[serde(flatten)]
    pub found: Found,
    /// Calls in flight at the rate that passed, mean.
    pub in_flight: f64,
    /// What binds at the rate that failed.
    pub binding: Binding,
    /// What the replicas said at the rate that passed.
    #[serde(flatten)]
    pub shown: Shown,
}

/// What a sweep came to; of one that was stopped, what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepResult {
    /// The answer, where a rate passed.
    pub knee: Option<Knee>,
    /// Shortened: not figures to keep.
    pub quick: bool,
    /// Whether the search came to its end.
    pub finished: bool,
    /// One request at a time.
    pub idle: Figures,
    /// Every rate, lowest first.
    pub levels: Vec<SweepLevel>,
    /// The last run at the rate that passed, in the keys of `vllm bench serve`.
    #[serde(flatten)]
    pub vllm: Option<serde_json::Value>,
}

/// A sweep in progress.
pub struct Sweep {
    options: SweepOptions,
    targets: Targets,
    idle: LoadReport,
    search: Search,
    window: Duration,
    runs: Vec<SweepRun>,
    metrics: Vec<Client>,
    clock: Clock,
}

impl Sweep {
    /// Measures the idle server, one request at a time; `earlier` runs are taken as they are.
    pub async fn begin(
        options: SweepOptions,
        earlier: Vec<SweepRun>,
        clock: Clock,
    ) -> Result<Self, SweepError> {
        let targets = targets(&options.slo)?;
        let idle = LoadOptions {
            mode: Mode::Closed(1),
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(if options.quick { 5 } else { 20 }),
            grace: Duration::from_mins(1),
            ..options.load.clone()
        };
        let (idle, _) = run_observed(idle, clock, Arc::default(), std::future::pending()).await?;
        let e2e = check_idle(&options, &targets, &idle)?;
        let quick = SearchOptions { start: 2.0 / e2e, width: 0.1, most_runs: 2, budget: 16 };
        let whole = SearchOptions { start: 2.0 / e2e, ..SearchOptions::default() };
        let mut metrics = Vec::new();
        for url in &options.metrics {
            metrics.push(Client::resolve(url).await?);
        }
        let least = if options.quick { 45.0_f64.max(5.0 * e2e) } else { 120.0_f64.max(5.0 * e2e) };
        let mut sweep = Self {
            window: options.window.unwrap_or(Duration::from_secs_f64(least)),
            search: Search::new(if options.quick { quick } else { whole }),
            options,
            targets,
            idle,
            runs: Vec::new(),
            metrics,
            clock,
        };
        for run in earlier {
            sweep.take(run);
        }
        Ok(sweep)
    }

    /// What is run next; `None` when the search has ended.
    pub fn next(&self) -> Option<Ask> {
        self.search.next()
    }

    /// Runs so far and the most that there may be.
    pub fn progress(&self) -> (usize, usize) {
        self.search.progress()
    }

    /// How long the next run takes, without its drain.
    pub fn duration(&self, ask: &Ask) -> Duration {
        let requests = if self.options.quick { 300.0 } else { 1000.0 };
        let most = if self.options.quick { 60.0 } else { 1800.0 };
        if self.options.window.is_some() {
            return self.window;
        }
        self.window.max(Duration::from_secs_f64((requests / ask.rate).min(most)))
    }

    /// Offers `ask`; `None` when stopped meanwhile. What is seen still has to be taken.
    pub async fn offer(
        &self,
        ask: Ask,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<SweepRun>, SweepError> {
        let e2e = self.idle.all.e2e_seconds.map_or(1.0, |e2e| e2e.p95);
        let number = u64::try_from(self.runs.len()).unwrap_or(0);
        let load = LoadOptions {
            mode: Mode::Open(ask.rate),
            seed: self.options.load.seed + u64::try_from(ask.replicate).unwrap_or(0),
            texts: self.options.load.texts.wrapping_add(1 + number),
            // From empty to full takes some answers' time; a run that begins empty flatters.
            warm_up: Duration::from_secs_f64(3.0 * e2e),
            duration: self.duration(&ask),
            grace: Duration::from_secs_f64(2.0 * self.targets.ttft + 5.0 * e2e + 2.0),
            ..self.options.load.clone()
        };
        let mut watched = Watched::default();
        let running = run_observed(load, self.clock, Arc::default(), std::future::pending());
        let (report, observed) = {
            let mut running = pin!(running);
            let mut watching = pin!(watched.watch(&self.metrics, self.clock));
            tokio::select! {
                done = &mut running => done?,
                () = &mut watching => return Ok(None),
                () = stop.as_mut() => return Ok(None),
            }
        };
        Ok(Some(SweepRun {
            rate: ask.rate,
            replicate: ask.replicate,
            observed,
            shown: watched.shown(),
            goodput_per_second: report.all.goodput_per_second,
            tokens_per_second: report.all.tokens_per_second,
            vllm: serde_json::to_value(&report.vllm).unwrap_or_default(),
            void: report.void,
        }))
    }

    /// Takes in a run and judges its rate.
    pub fn take(&mut self, run: SweepRun) {
        let rate = run.rate;
        let void = run.void.is_some();
        self.runs.push(run);
        let verdict = match self.level(rate) {
            Some(level) => level.judge(&self.targets).verdict,
            // Only void runs: more load than the generator has is no place for a knee to be seen.
            None if void => Verdict::Replicate,
            None => return,
        };
        self.search.tell(rate, verdict);
    }

    /// The runs of `rate` that are not void.
    fn level(&self, rate: f64) -> Option<Level> {
        let mut level = Level::default();
        let same = |run: &&SweepRun| run.rate.total_cmp(&rate).is_eq() && run.void.is_none();
        self.runs.iter().filter(same).for_each(|run| level.add(run.observed.clone()));
        (level.runs() > 0).then_some(level)
    }

    /// The answer so far.
    pub fn result(&self) -> SweepResult {
        let mut rates: Vec<f64> = self.runs.iter().map(|run| run.rate).collect();
        rates.sort_unstable_by(f64::total_cmp);
        rates.dedup();
        let levels: Vec<SweepLevel> =
            rates.into_iter().filter_map(|rate| self.level_report(rate)).collect();
        let passed = |run: &&SweepRun| {
            self.search.found().low.is_some_and(|low| low.total_cmp(&run.rate).is_eq())
        };
        let vllm = self.runs.iter().rev().find(passed).map(|run| run.vllm.clone());
        SweepResult {
            vllm,
            knee: self.knee(&levels),
            quick: self.options.quick || self.options.window.is_some(),
            finished: self.next().is_none(),
            idle: self.idle.all.clone(),
            levels,
        }
    }

    fn level_report(&self, rate: f64) -> Option<SweepLevel> {
        let level = self.level(rate)?;
        let runs: Vec<&SweepRun> =
            self.runs.iter().filter(|run| run.rate.total_cmp(&rate).is_eq()).collect();
        let mut ttft: Vec<f64> = runs.iter().flat_map(|run| &run.observed.ttft).copied().collect();
        crate::stats::sort(&mut ttft);
        let goodput: Vec<f64> = runs.iter().map(|run| run.goodput_per_second).collect();
        Some(SweepLevel {
            rate,
            runs: runs.len(),
            judgement: level.judge(&self.targets),
            ttft_p50: crate::stats::quantile(&ttft, 0.5),
            ttft_p99: crate::stats::quantile(&ttft, 0.99),
            goodput_per_second: crate::stats::mean(&goodput).unwrap_or(0.0),
            shown: runs.last()?.shown,
        })
    }

    fn knee(&self, levels: &[SweepLevel]) -> Option<Knee> {
        let found = self.search.found();
        let at = |rate: f64| levels.iter().find(|level| level.rate.total_cmp(&rate).is_eq());
        let passed = at(found.low?)?;
        let failed = found.high.and_then(at);
        let binding = failed.map_or(Binding::Unknown, |failed| {
            let refused = failed.judgement.why.contains("not answered");
            let itl =
                failed.judgement.why.starts_with("ITL") || failed.judgement.why.starts_with("TPOT");
            binding(&failed.shown, refused && failed.shown.waiting.is_none_or(|w| w < 1.0), itl)
        });
        Some(Knee { found, in_flight: passed.judgement.in_flight, binding, shown: passed.shown })
    }
}

fn targets(slo: &Slo) -> Result<Targets, SweepError> {
    let seconds = |span: Duration| span.as_secs_f64();
    let ttft = slo.ttft.filter(|ttft| !ttft.is_zero()).ok_or(SweepError::NoTarget)?;
    Ok(Targets {
        ttft: seconds(ttft),
        itl: slo.itl.map(seconds),
        tpot: slo.tpot.map(seconds),
        e2e: slo.e2e.map(seconds),
    })
}

/// Says what is wrong with a server that does not answer well even when idle; else its mean E2E.
fn check_idle(
    options: &SweepOptions,
    targets: &Targets,
    idle: &LoadReport,
) -> Result<f64, SweepError> {
    let url = options.load.url.clone();
    let all = &idle.all;
    let had = |status: u16| all.statuses.contains_key(&status);
    let (Some(ttft), Some(e2e)) = (all.ttft_seconds, all.e2e_seconds) else {
        return Err(match () {
            () if had(401) => SweepError::Key(url, 401),
            () if had(403) => SweepError::Key(url, 403),
            () if had(404) => SweepError::Model(url, options.load.model.clone()),
            () if !all.statuses.keys().any(|status| *status > 0) => SweepError::Unreachable(url),
            () => SweepError::NoSuccess(format!(
                "statuses {:?}, errors {:?}",
                all.statuses, all.error_kinds
            )),
        });
    };
    let held = [
        ("TTFT p50", Some(ttft.p50), Some(targets.ttft)),
        ("ITL p99", all.itl_seconds.map(|itl| itl.p99), targets.itl),
        ("TPOT p50", all.tpot_seconds.map(|tpot| tpot.p50), targets.tpot),
        ("E2E p50", Some(e2e.p50), targets.e2e),
    ];
    for (name, seen, target) in held {
        if let (Some(seen), Some(target)) = (seen, target)
            && seen > target
        {
            let why =
                format!("{name} is {seen:.3} s with one request at a time, target {target} s");
            return Err(SweepError::Idle(why));
        }
    }
    Ok(e2e.mean.max(1e-3))
}

#[cfg(test)]
mod tests {
    use super::super::Ratio;
    use super::super::attempt::{End, Seen, Who};
    use super::super::record::Record;
    use super::*;

    /// What the baseline says of a server that answers so.
    fn idle(ttft: Option<u64>, status: u16, end: End) -> Result<f64, SweepError> {
        let url: Uri = "http://replica:8000".parse().unwrap();
        let load = LoadOptions::new(url, "tiny", Mode::Closed(1));
        let slo = Slo { ttft: Some(Duration::from_secs(1)), ..Slo::default() };
        let seen = Seen {
            ttft: ttft.map(Duration::from_millis),
            e2e: Duration::from_secs(3),
            statuses: [(status, 1)].into(),
            ..Seen::new(Duration::ZERO, Who::default(), end)
        };
        let record = Record { seen: vec![seen], ..Record::default() };
        let until = load.end();
        let report = LoadReport::of(&load, &record, until, None, Ratio::default());
        let options = SweepOptions { load, slo, quick: true, window: None, metrics: Vec::new() };
        check_idle(&options, &targets(&slo)?, &report)
    }

    #[test]
    fn what_is_wrong_with_a_target_is_told_apart() {
        let refused = |status| idle(None, status, End::Error("status_4xx"));
        assert!(matches!(refused(401), Err(SweepError::Key(_, 401))));
        assert!(matches!(refused(404), Err(SweepError::Model(_, model)) if model == "tiny"));
        assert!(matches!(refused(0), Err(SweepError::Unreachable(_))));
        assert!(matches!(refused(500), Err(SweepError::NoSuccess(_))));
        let slow = idle(Some(1500), 200, End::Ok).unwrap_err().to_string();
        assert!(slow.contains("idle server misses") && slow.contains("1.500 s"), "{slow}");
        assert!((idle(Some(300), 200, End::Ok).unwrap() - 3.0).abs() < 1e-9);
        assert!(matches!(targets(&Slo::default()), Err(SweepError::NoTarget)));
    }
}
