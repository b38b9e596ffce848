//! Probes of a worker's running containers: requests the due probes and applies their verdicts (a restart, `ready`).

use super::ops::{BackgroundOp, Operations};
use super::restarting::after_failure;
use super::state::State;
use super::stops::PlannedStop;
use super::timer::Timer;
use crate::api::facts::ContainerState;
use crate::api::names::ContainerId;
use crate::api::pod::{Pod, RestartPolicy};
use crate::api::reason::Reason;
use crate::engine::context::Context;
use crate::engine::effect::{Measure, ProbeCall};
use crate::engine::event::{Answer, ProbeResult};
use crate::engine::handler_result;
use crate::engine::op::{OpError, OpId};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::plan::observed;
use crate::engine::probe::{Judged, Kind, Probes, Verdict};
use std::rc::Rc;
use std::time::Duration;

/// Requests the due probes. As in a kubelet, the readiness probes of a pod that is being stopped still run, so that
/// clients see its state.
pub fn request(
    probes: &mut Probes,
    pod: &Rc<Pod>,
    state: &State,
    ops: &mut Operations,
    timer: &mut Timer,
    entry: &Entry,
    ctx: &mut Context<'_>,
) {
    let all = match state {
        State::Sync(_) => true,
        State::Terminating(_) => false,
        _ => return,
    };
    if !crate::engine::probe::any(pod) || !entry.known() {
        return;
    }
    let wanted = |kind| all || kind == Kind::Readiness;
    // A container is not probed before its postStart hook has ended.
    let hooked = ops.post_start().cloned();
    let running = |name: &str| {
        let c = observed::newest(entry.facts(), name)?;
        (c.state == ContainerState::Running && Some(&c.id) != hooked.as_ref()).then_some(c)
    };
    probes.follow(pod, running, ctx.now, ctx.rng);
    for due in probes.due(ctx.now.boot, wanted) {
        let call = ProbeCall {
            kind: due.kind,
            pod: pod.clone(),
            container: pod.at(due.index).name.clone(),
            id: due.id.clone(),
            address: entry.address(Some(pod)),
        };
        let op = ctx.probe(&pod.uid, call, due.timeout);
        probes.requested(&due, op, ctx.now.boot);
        ops.start_background(op, BackgroundOp::Probe);
    }
    if let Some(at) = probes.next(ctx.now.boot, wanted) {
        timer.wake_at(at);
    }
}

/// Handles the end of a probe. Returns the container that has to be stopped because of it, and how.
pub fn judge(
    probes: &mut Probes,
    pod: &Rc<Pod>,
    op: OpId,
    result: Result<Answer, OpError>,
    ctx: &mut Context<'_>,
) -> Option<(ContainerId, PlannedStop)> {
    let (index, kind) = probes.of_op(op)?;
    let exec = kind.spec(pod.at(index)).and_then(|probe| probe.exec.as_ref());
    let result = handler_result::probed(exec.map(|exec| exec.command.as_deref().unwrap_or_default()), result);
    let passed = match &result {
        Ok(ProbeResult::Failed(_)) => Some(false),
        Ok(ProbeResult::Passed | ProbeResult::Warning(_)) => Some(true),
        Err(_) => None,
    };
    let Judged { id, index, kind, verdict } = probes.judge(op, passed)?;
    let spec = pod.at(index);
    ctx.outbox.measure(Measure::Probe { kind, passed, pod: pod.clone(), container: spec.name.clone() });
    let title = kind.title();
    let event = match result {
        Ok(ProbeResult::Failed(output)) => Some((Reason::Unhealthy, format!("{title} probe failed: {output}"))),
        Ok(ProbeResult::Warning(output)) => Some((Reason::ProbeWarning, format!("{title} probe warning: {output}"))),
        // A lost connection to the runtime is reported elsewhere.
        Ok(ProbeResult::Passed) | Err(OpError::NotSent(_)) => None,
        Err(e) => Some((Reason::Unhealthy, format!("{title} probe errored and resulted in unknown state: {e}"))),
    };
    if let Some((reason, message)) = event {
        ctx.emit_warning(Some(pod), Some(&spec.name), reason, message);
    }
    if kind == Kind::Readiness || verdict != Some(Verdict::Failed) {
        return None;
    }
    let grace = kind.spec(spec).and_then(|p| p.termination_grace_period_seconds);
    let grace = grace.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0).map(Duration::from_secs);
    let message = last_words(pod, index, kind);
    let grace_deadline = ctx.now.boot + grace.unwrap_or_else(|| pod.grace_period());
    let then = after_failure(pod, &spec.name);
    Some((id, PlannedStop { message, grace_deadline, then }))
}

fn last_words(pod: &Rc<Pod>, index: usize, kind: Kind) -> String {
    let (name, kind) = (&pod.at(index).name, kind.word());
    match (pod.is_init(index), pod.restart_policy()) {
        (true, _) => format!("Init container {name} failed {kind} probe"),
        (false, RestartPolicy::Never) => format!("Container {name} failed {kind} probe"),
        (false, _) => format!("Container {name} failed {kind} probe, will be restarted"),
    }
}
