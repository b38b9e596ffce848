//! Probes of a worker's running containers: requests the due probes and applies their verdicts (a restart, `ready`).

use super::ops::BackgroundOp;
use super::restarting::after_failure;
use super::stops::Doomed;
use super::{State, Worker};
use crate::api::facts::ContainerState;
use crate::api::pod::{Pod, RestartPolicy};
use crate::api::reason::Reason;
use crate::engine::context::Context;
use crate::engine::effect::{Measure, ProbeCall};
use crate::engine::event::{Answer, ProbeResult};
use crate::engine::handler;
use crate::engine::op::{OpError, OpId};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::plan;
use crate::engine::probe::{Judged, Kind, Verdict};
use std::rc::Rc;
use std::time::Duration;

impl Worker {
    /// Like a kubelet, still runs the readiness probes of a pod that is being stopped, so that clients see its state.
    pub(super) fn probe(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        let all = match self.state {
            State::Sync(_) => true,
            State::Terminating(_) => false,
            _ => return,
        };
        if !self.extras.probes || !entry.known() {
            return;
        }
        let Some(pod) = self.pod.clone() else { return };
        let wanted = |kind| all || kind == Kind::Readiness;
        // A container is not probed before its postStart hook has ended.
        let hooked = self.post_start().cloned();
        let running = |name: &str| {
            let c = plan::newest(entry.facts(), name)?;
            (c.state == ContainerState::Running && Some(&c.id) != hooked.as_ref()).then_some(c)
        };
        self.probes.follow(&pod, running, ctx.now, ctx.rng);
        for due in self.probes.due(ctx.now.boot, wanted) {
            let call = ProbeCall {
                kind: due.kind,
                pod: pod.clone(),
                container: pod.at(due.index).name.clone(),
                id: due.id.clone(),
                address: entry.address(Some(&pod)),
            };
            let op = ctx.probe(&self.uid, call, due.timeout);
            self.probes.requested(&due, op, ctx.now.boot);
            self.ops.start_background(op, BackgroundOp::Probe);
        }
        if let Some(at) = self.probes.next(ctx.now.boot, wanted) {
            self.timer.wake_at(at);
        }
    }

    pub(super) fn probed(&mut self, op: OpId, result: Result<Answer, OpError>, ctx: &mut Context<'_>) {
        let (Some(pod), Some((index, kind))) = (self.pod.clone(), self.probes.of_op(op)) else { return };
        let exec = kind.spec(pod.at(index)).and_then(|probe| probe.exec.as_ref());
        let result = handler::probed(exec.map(|exec| exec.command.as_deref().unwrap_or_default()), result);
        let passed = match &result {
            Ok(ProbeResult::Failed(_)) => Some(false),
            Ok(ProbeResult::Passed | ProbeResult::Warning(_)) => Some(true),
            Err(_) => None,
        };
        let Some(judged) = self.probes.judge(op, passed) else { return };
        let Judged { id, index, kind, verdict } = judged;
        let spec = pod.at(index);
        ctx.outbox.measure(Measure::Probe { kind, passed, pod: pod.clone(), container: spec.name.clone() });
        let title = kind.title();
        let event = match result {
            Ok(ProbeResult::Failed(output)) => Some((Reason::Unhealthy, format!("{title} probe failed: {output}"))),
            Ok(ProbeResult::Warning(output)) => {
                Some((Reason::ProbeWarning, format!("{title} probe warning: {output}")))
            }
            // A lost connection to the runtime is reported elsewhere.
            Ok(ProbeResult::Passed) | Err(OpError::NotSent(_)) => None,
            Err(e) => Some((Reason::Unhealthy, format!("{title} probe errored and resulted in unknown state: {e}"))),
        };
        if let Some((reason, message)) = event {
            ctx.emit_warning(Some(&pod), Some(&spec.name), reason, message);
        }
        if kind != Kind::Readiness && verdict == Some(Verdict::Failed) && self.state.is_sync() {
            let grace = kind.spec(spec).and_then(|p| p.termination_grace_period_seconds);
            let grace = grace.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0).map(Duration::from_secs);
            let message = last_words(&pod, index, kind);
            let grace_deadline = ctx.now.boot + grace.unwrap_or_else(|| pod.grace_period());
            let then = after_failure(&pod, &spec.name);
            self.stops.doom(id, Doomed { message, grace_deadline, then });
        }
    }
}

fn last_words(pod: &Rc<Pod>, index: usize, kind: Kind) -> String {
    let (name, kind) = (&pod.at(index).name, kind.word());
    match (pod.is_init(index), pod.restart_policy()) {
        (true, _) => format!("Init container {name} failed {kind} probe"),
        (false, RestartPolicy::Never) => format!("Container {name} failed {kind} probe"),
        (false, _) => format!("Container {name} failed {kind} probe, will be restarted"),
    }
}
