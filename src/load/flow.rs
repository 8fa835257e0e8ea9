//! One flow: a single call, a session turn by turn, or an agent's workflow stage by stage.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;

use super::attempt::{Run, Sending, Who};
use super::record::FlowSeen;
use crate::workload::{Flow, Stage};

impl Run {
    /// Sends the calls of `flow`, whose first stage is due at `due`. Each later stage is due when
    /// the one before has ended and its pause is over. It ends early when a call was not answered
    /// well, and stops, uncounted, before a stage that is due after the run's last arrival.
    pub(super) async fn follow(self: Arc<Self>, due: Duration, flow: Arc<Flow>) {
        let who = Who { class: flow.class, tenant: flow.tenant };
        let (mut answers, mut stage_due, mut calls) = (Vec::new(), due, 0);
        let mut whole = true;
        for (number, stage) in flow.stages.iter().enumerate() {
            if number > 0 {
                stage_due = self.elapsed().saturating_add(stage.pause);
                if stage_due >= self.sends_until() {
                    return;
                }
                self.clock.sleep_until(self.origin.saturating_add(stage_due)).await;
            }
            let quoted = number + 1 < flow.stages.len();
            calls += u32::try_from(stage.calls.len()).unwrap_or(u32::MAX);
            whole &= self.stage(stage_due, &flow, stage, number, who, quoted, &mut answers).await;
            if !whole {
                break;
            }
        }
        if flow.stages.len() > 1 || calls > 1 {
            let took = self.elapsed().saturating_sub(due);
            self.record.lock().flows.push(FlowSeen { who, due, took, whole, calls });
        }
    }

    pub(super) fn sends_until(&self) -> Duration {
        Duration::from_nanos(self.until.load(Ordering::Relaxed))
    }

    /// Sends the calls of a stage at once; whether all were answered well.
    #[expect(clippy::too_many_arguments, reason = "one caller, just above")]
    async fn stage(
        self: &Arc<Self>,
        due: Duration,
        flow: &Arc<Flow>,
        stage: &Stage,
        number: usize,
        who: Who,
        quoted: bool,
        answers: &mut Vec<Option<String>>,
    ) -> bool {
        if let [call] = stage.calls.as_slice() {
            let answer = self.call(due, Sending { who, call, answers, quoted }).await;
            let well = answer.is_some();
            answers.push(answer);
            return well;
        }
        let said: Arc<[Option<String>]> = answers.as_slice().into();
        let mut together = JoinSet::new();
        for at in 0..stage.calls.len() {
            let (run, flow, said) = (Arc::clone(self), Arc::clone(flow), Arc::clone(&said));
            together.spawn(async move {
                let call = flow.stages.get(number).and_then(|stage| stage.calls.get(at));
                let Some(call) = call else { return (at, None) };
                let sending = Sending { who, call, answers: &said, quoted };
                (at, run.call(due, sending).await)
            });
        }
        let first = answers.len();
        answers.resize(first + stage.calls.len(), None);
        while let Some(Ok((at, answer))) = together.join_next().await {
            if let Some(slot) = answers.get_mut(first + at) {
                *slot = answer;
            }
        }
        answers.iter().skip(first).all(Option::is_some)
    }
}
