//! Container hooks: postStart is part of the start of a container (W11), preStop runs before its stop (W4).
//!
//! A preStop hook runs only once per container, even after a restart of Wherry: the start is recorded before the hook
//! runs.

use super::Worker;
use super::container_backoff::ContainerBackoffs;
use super::ops::{ActiveOp, BackgroundOp, Operations};
use super::restarting::after_failure;
use super::state::State;
use super::stops::{PlannedStop, Stops, Wait};
use crate::api::document;
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::k8s::LifecycleHandler;
use crate::api::names::ContainerId;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::{Effect, HookCall, HookKind};
use crate::engine::event::Answer;
use crate::engine::handler_result;
use crate::engine::op::OpError;
use crate::engine::pleg::cache::Entry;
use std::rc::Rc;
use std::time::Duration;

/// *(ours: a kubelet waits forever)* A postStart hook that takes longer than this has failed.
const POST_START_TIMEOUT: Duration = Duration::from_secs(1800);
/// How long a preStop hook waits until its start is recorded.
const RECORD_PATIENCE: Duration = Duration::from_secs(1);

impl Worker {
    /// Returns true while the container's preStop hook delays its stop.
    pub(super) fn pre_stop(
        &mut self,
        c: &ContainerFact,
        grace_deadline: Boot,
        entry: &Entry,
        ctx: &mut Context<'_>,
    ) -> bool {
        let now = ctx.now.boot;
        match self.stops.wait(&c.id) {
            Some(Wait::Hook(op)) => return self.ops.is_in_background(op),
            Some(Wait::Record(until)) => {
                if self.record.is_being_written(&self.ops) && now < until {
                    self.timer.wake_at(until);
                    return true;
                }
            }
            Some(Wait::Order) => return false,
            None => {
                if pre_stop_of(self.pod.as_ref(), c).is_none() || !self.history.note_pre_stop(&c.id) {
                    return false;
                }
                if self.record.exists() {
                    self.record.update();
                    self.stops.set_wait(&c.id, Wait::Record(now + RECORD_PATIENCE));
                    self.timer.wake_at(now + RECORD_PATIENCE);
                    return true;
                }
            }
        }
        let Some(handler) = pre_stop_of(self.pod.as_ref(), c) else { return false };
        let call = HookCall {
            kind: HookKind::PreStop,
            pod: self.pod.clone(),
            container: c.name.clone(),
            id: c.id.clone(),
            handler,
            address: entry.address(self.pod.as_deref()),
        };
        let op = ctx.hook(&self.uid, call, grace_deadline.since(now));
        self.ops.start_background(op, BackgroundOp::PreStop { container: c.name.clone() });
        self.stops.set_wait(&c.id, Wait::Hook(op));
        true
    }
}

/// Runs the postStart hook of a container that has just started. Nothing else of the pod starts before it ends.
pub fn begin_post_start(
    pod: &Rc<Pod>,
    index: usize,
    id: &ContainerId,
    ops: &mut Operations,
    entry: &Entry,
    ctx: &mut Context<'_>,
) {
    let spec = pod.at(index);
    let Some(handler) = spec.lifecycle.as_ref().and_then(|l| l.post_start.as_deref().cloned()) else { return };
    let call = HookCall {
        kind: HookKind::PostStart,
        pod: Some(pod.clone()),
        container: spec.name.clone(),
        id: id.clone(),
        handler,
        address: entry.address(Some(pod)),
    };
    let op = ctx.hook(&pod.uid, call, POST_START_TIMEOUT);
    ops.start(op, ActiveOp::PostStart { index, id: id.clone(), cancelled: false });
}

/// Cancels the postStart hook in flight if its container has ended.
pub fn give_up_post_start(ops: &mut Operations, entry: &Entry, ctx: &mut Context<'_>) {
    let runs =
        |id: &ContainerId| entry.facts().containers.iter().any(|c| c.id == *id && c.state == ContainerState::Running);
    if let Some(op) = ops.take_post_start(|id| !runs(id)) {
        ctx.outbox.push(Effect::Cancel { op });
    }
}

/// Handles the end of a postStart hook. If the hook failed (PostStartHookError), the container is killed and restarts
/// after its back-off (W10).
pub fn post_start_done(
    pod: &Rc<Pod>,
    index: usize,
    id: ContainerId,
    result: Result<Answer, OpError>,
    backoffs: &mut ContainerBackoffs,
    stops: &mut Stops,
    ctx: &mut Context<'_>,
) {
    let hook = pod.at(index).lifecycle.as_ref().and_then(|l| l.post_start.as_ref());
    let command = hook.and_then(|h| h.exec.as_ref()).map(|exec| exec.command.as_deref().unwrap_or_default());
    note_fallback(Some(pod), &pod.at(index).name, &result, ctx);
    if let Err(e) = handler_result::hooked(command, result) {
        let message = post_start_failed(pod, index, &e, ctx);
        backoffs.start_failed(id.clone(), (Reason::PostStartHookError, message));
        let grace_deadline = ctx.now.boot + pod.grace_period();
        let then = after_failure(pod, &pod.at(index).name);
        stops.plan_stop(id, PlannedStop { message: "FailedPostStartHook".into(), grace_deadline, then });
    }
}

/// Reports the failure. Returns the message for the status.
fn post_start_failed(pod: &Rc<Pod>, index: usize, e: &OpError, ctx: &mut Context<'_>) -> String {
    let spec = pod.at(index);
    // The hook's output goes only into the status, because events have more readers.
    let message = "PostStartHook failed".to_string();
    ctx.emit_warning(Some(pod), Some(&spec.name), Reason::FailedPostStartHook, message);
    let handler = spec.lifecycle.as_ref().and_then(|l| l.post_start.as_deref());
    let what = handler.map(describe).unwrap_or_default();
    let whose = format!("{}_{}({})", pod.name.name, pod.name.namespace, pod.uid);
    format!("{what} for Container \"{}\" in Pod \"{whose}\" failed - error: {}", spec.name, e.message())
}

/// Returns the preStop handler from the spec, or from the container's annotation if there is no spec (W21).
fn pre_stop_of(pod: Option<&Rc<Pod>>, c: &ContainerFact) -> Option<LifecycleHandler> {
    match pod {
        Some(pod) => pod.container(&c.name)?.lifecycle.as_ref()?.pre_stop.as_deref().cloned(),
        None => document::from_value(&serde_json::from_str(c.pre_stop.as_deref()?).ok()?).ok(),
    }
}

/// Reports an https hook that succeeded over http, because the server has no TLS. The manifest should use http.
fn note_fallback(pod: Option<&Rc<Pod>>, container: &str, result: &Result<Answer, OpError>, ctx: &mut Context<'_>) {
    if let Ok(Answer::WithoutTls(server)) = result {
        let message = format!("request to HTTPS lifecycle hook {server} got HTTP response, retry with HTTP succeeded");
        ctx.emit_warning(pod, Some(container), Reason::LifecycleHTTPFallback, message);
    }
}

pub fn pre_stop_done(
    pod: Option<&Rc<Pod>>,
    state: &State,
    container: &str,
    result: Result<Answer, OpError>,
    ctx: &mut Context<'_>,
) {
    note_fallback(pod, container, &result, ctx);
    let result = handler_result::hooked(Some(&[]), result);
    // A hook that was terminated early by a shorter grace period, or that ended with its container, is not reported as
    // a failure.
    let reported = matches!(state, State::Sync(_) | State::Terminating(_));
    if let (true, Err(OpError::Answered { .. })) = (reported, &result) {
        let message = "PreStopHook failed".to_string();
        ctx.emit_warning(pod, Some(container), Reason::FailedPreStopHook, message);
    }
}

/// Returns the hook's name in a kubelet's error message.
fn describe(handler: &LifecycleHandler) -> String {
    match handler {
        LifecycleHandler { exec: Some(exec), .. } => {
            format!("Exec lifecycle hook ([{}])", exec.command.iter().flatten().cloned().collect::<Vec<_>>().join(" "))
        }
        LifecycleHandler { http_get: Some(get), .. } => {
            format!("HTTP lifecycle hook ({})", get.path.as_deref().unwrap_or_default())
        }
        LifecycleHandler { sleep: Some(sleep), .. } => format!("Sleep lifecycle hook ({})", sleep.seconds),
        _ => "Lifecycle hook".into(),
    }
}
