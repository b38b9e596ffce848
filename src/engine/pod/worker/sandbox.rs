//! The pod's sandbox (W13): the steps before its creation, the delay after a failure, and the calls whose outcome is
//! unknown.
//!
//! The plan decides whether a sandbox is created, replaced or stopped. This state machine keeps the facts that the
//! runtime does not show.

use super::state::State;
use crate::api::facts::{PodFacts, SandboxFact};
use crate::api::names::SandboxId;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::context::{Context, runtime_is_gone};
use crate::engine::effect::Measure;
use crate::engine::op::OpError;
use crate::engine::pod::plan::observed;
use serde::Serialize;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// The time for which a cancelled sandbox call may still take effect. The runtime completes its current step and then
/// removes everything that it created, except the pod's cgroup, which its OCI runtime created. Delays of 2 s were
/// observed on a busy machine.
pub const LATE: Duration = Duration::from_secs(30);

/// The minimum time between the starts of two sandboxes of a pod.
const SANDBOX_LIFE: Duration = Duration::from_secs(10);

#[derive(Debug, Default, Serialize)]
pub struct Sandbox {
    /// The first attempt number of this worker's own sandboxes. A sandbox with a lower number does not count as its
    /// own.
    pub first_attempt: u32,
    /// The last sandbox that this worker created, and the time of the call.
    own: Option<(SandboxId, Boot)>,
    /// No sandbox operation starts before this time, because one failed, or because the last sandbox died soon after
    /// its start.
    hold: Option<Boot>,
    /// Sandboxes whose stop succeeded. Their state in the runtime does not show that.
    stopped: BTreeSet<SandboxId>,
    /// The outcome of the call for this attempt is unknown (W2): the sandbox may appear later.
    pub lost: Option<u32>,
    /// Until this time a cancelled sandbox call of this or a previous run may create the pod's cgroup (W26).
    late: Option<Boot>,
    /// The dead sandbox that was last reported in an event.
    reported: Option<SandboxId>,
}

impl Sandbox {
    /// W26: notes that a cancelled call may create the pod's cgroup before `until`, even if the runtime shows nothing
    /// of the pod.
    pub fn may_be_late(&mut self, until: Boot) {
        self.late = self.late.max(Some(until));
    }

    /// W26: returns the time until which the pod's cgroup may still appear; None if that time has passed.
    pub fn late(&self, now: Boot) -> Option<Boot> {
        self.late.filter(|until| *until > now)
    }

    /// Returns the time before which no sandbox operation starts; None if that time has passed.
    pub fn hold(&self, now: Boot) -> Option<Boot> {
        self.hold.filter(|until| *until > now)
    }

    pub fn hold_until(&mut self, at: Boot) {
        self.hold = Some(at);
    }

    /// Extends the hold so that a sandbox that dies at once is not replaced at once.
    pub fn hold_for_its_life(&mut self) {
        self.hold = self.hold.max(self.own.as_ref().map(|(_, began)| *began + SANDBOX_LIFE));
    }

    pub fn is_stopped(&self, id: &SandboxId) -> bool {
        self.stopped.contains(id)
    }

    pub fn stopped(&mut self, id: SandboxId) {
        self.stopped.insert(id);
    }

    /// Lets a manifest's pod with a fixed UID replace an empty sandbox that this worker did not create. A cancelled
    /// call may have created it late for another version of the pod. For a pod of the API server, this cannot happen:
    /// the server uses each UID only once, and never changes the fields that concern the sandbox.
    pub fn replace_foreign(&mut self, pod: &Pod, facts: &PodFacts) {
        let Some(ready) = observed::ready_sandbox(facts) else { return };
        let own = self.own.as_ref().is_some_and(|(id, _)| *id == ready.id);
        let may_be_of_another = pod.has_own_uid() && !pod.is_from_api_server();
        if may_be_of_another && !own && !facts.containers.iter().any(|c| c.sandbox == ready.id) {
            self.first_attempt = self.first_attempt.max(ready.attempt.saturating_add(1));
        }
    }

    /// W13: reports each dead sandbox once.
    pub fn report_dead(&mut self, pod: &Rc<Pod>, facts: &PodFacts, ctx: &mut Context<'_>) {
        if self.note_dead(facts) {
            let message = "Pod sandbox changed, it will be killed and re-created.".to_string();
            ctx.emit_normal(Some(pod), None, Reason::SandboxChanged, message);
        }
    }

    /// Returns true the first time that a sandbox is found dead.
    fn note_dead(&mut self, facts: &PodFacts) -> bool {
        let Some(dead) = facts.sandboxes.first().filter(|s| !s.ready && self.reported.as_ref() != Some(&s.id)) else {
            return false;
        };
        self.reported = Some(dead.id.clone());
        true
    }

    /// Notes that the call that began at `began` created this sandbox. The hold ends, but the minimum time between
    /// two sandboxes still applies.
    pub fn created(&mut self, fact: &SandboxFact, began: Boot) {
        self.hold = None;
        self.own = Some((fact.id.clone(), began));
    }

    /// Notes that the call for this attempt failed. After an unknown outcome, the sandbox or its cgroup may appear
    /// later (W2).
    pub fn failed(&mut self, attempt: u32, e: &OpError, now: Boot) {
        match e {
            OpError::Unknown(_) => self.lost = Some(attempt),
            // A cancelled call holds the name and may still create a sandbox. Do not wait for it: take the next attempt
            // number.
            e if e.is_name_taken() => self.first_attempt = attempt.saturating_add(1),
            _ => return,
        }
        self.may_be_late(now + LATE);
    }

    /// Reports that a sandbox could not be stopped, and schedules a retry.
    pub fn not_stopped(
        &mut self,
        id: &SandboxId,
        e: &OpError,
        pod: Option<&Rc<Pod>>,
        state: &mut State,
        ctx: &mut Context<'_>,
    ) {
        let message = format!("error killing pod: failed to stop sandbox {id}: {e}");
        ctx.emit_warning(pod, None, Reason::FailedKillPod, message);
        // A lost connection does not count as an attempt (W2).
        if let State::Terminating(t) = state
            && !matches!(e, OpError::NotSent(_))
        {
            t.sandbox.failed(ctx);
        }
        self.hold_until(ctx.now.boot + ctx.after_error());
    }

    /// Handles the failure of a step towards the sandbox.
    pub fn step_failed(&mut self, e: &OpError, pod: Option<&Rc<Pod>>, ctx: &mut Context<'_>) {
        ctx.outbox.measure(Measure::StartedPodError);
        if runtime_is_gone(e, ctx) {
            self.hold_until(ctx.now.boot + ctx.rng.jitter(Duration::from_secs(1)));
            return;
        }
        self.not_possible(e, pod, ctx);
    }

    /// Reports why the sandbox cannot be created, and schedules a retry.
    pub fn not_possible(&mut self, why: impl std::fmt::Display, pod: Option<&Rc<Pod>>, ctx: &mut Context<'_>) {
        self.hold_until(ctx.now.boot + ctx.after_error());
        let message = format!("Failed to create pod sandbox: {why}");
        ctx.emit_warning(pod, None, Reason::FailedCreatePodSandBox, message);
    }

    /// Drops the notes about sandboxes that no longer exist. `known` says whether the facts were read in this run.
    pub fn forget_gone(&mut self, facts: &PodFacts, known: bool) {
        // The ready sandbox is the first attempt, so no other sandbox call was made, and no cgroup can appear late.
        if known && observed::ready_sandbox(facts).is_some_and(|s| s.attempt == 0) {
            self.late = None;
        }
        self.stopped.retain(|id| facts.sandboxes.iter().any(|s| s.id == *id));
        self.lost = self.lost.filter(|lost| facts.sandboxes.iter().all(|s| s.attempt < *lost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::time::Wall;
    use crate::engine::op::Code;

    const S: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Boot {
        Boot(0) + S * seconds
    }

    fn fact(attempt: u32, ready: bool) -> SandboxFact {
        let id = format!("s{attempt}").into();
        SandboxFact {
            user_namespace: None,
            id,
            attempt,
            ready,
            created_at: Wall(1),
            ips: Vec::new(),
            host_network: false,
            owner: None,
            pid: None,
        }
    }

    fn facts(sandboxes: Vec<SandboxFact>) -> PodFacts {
        PodFacts { sandboxes, containers: Vec::new() }
    }

    #[test]
    fn w13_a_sandbox_that_dies_at_once_is_replaced_after_ten_seconds() {
        let mut sandbox = Sandbox::default();
        sandbox.hold_until(at(7));
        sandbox.created(&fact(0, true), at(5));
        assert_eq!(sandbox.hold(at(6)), None);
        sandbox.hold_for_its_life();
        assert_eq!((sandbox.hold(at(14)), sandbox.hold(at(15))), (Some(at(15)), None));
        sandbox.hold_until(at(30));
        sandbox.hold_for_its_life();
        assert_eq!(sandbox.hold(at(20)), Some(at(30)), "the longer hold counts");
    }

    #[test]
    fn w2_a_lost_call_is_remembered_until_a_sandbox_of_its_attempt_appears() {
        let mut sandbox = Sandbox::default();
        sandbox.failed(1, &OpError::Unknown("deadline".into()), at(1));
        assert_eq!((sandbox.lost, sandbox.late(at(30)), sandbox.late(at(31))), (Some(1), Some(at(31)), None));
        sandbox.forget_gone(&facts(vec![fact(0, false)]), true);
        assert_eq!(sandbox.lost, Some(1));
        sandbox.forget_gone(&facts(vec![fact(1, true)]), true);
        assert_eq!((sandbox.lost, sandbox.late(at(2))), (None, Some(at(31))));
        sandbox.forget_gone(&facts(vec![fact(0, true)]), true);
        assert_eq!(sandbox.late(at(2)), None, "the first attempt succeeded");
    }

    #[test]
    fn w2_a_taken_name_leads_to_the_next_attempt() {
        let mut sandbox = Sandbox::default();
        sandbox.failed(0, &OpError::Answered { code: Code::AlreadyExists, message: String::new() }, at(1));
        assert_eq!((sandbox.first_attempt, sandbox.lost), (1, None));
        assert!(sandbox.late(at(2)).is_some());
        sandbox.failed(1, &OpError::NotSent("no connection".into()), at(1));
        assert_eq!(sandbox.first_attempt, 1);
    }

    #[test]
    fn w13_a_dead_sandbox_is_reported_once() {
        let mut sandbox = Sandbox::default();
        let reports = |s: &mut Sandbox, attempt, ready| s.note_dead(&facts(vec![fact(attempt, ready)]));
        assert!(!reports(&mut sandbox, 0, true));
        assert!(reports(&mut sandbox, 0, false) && !reports(&mut sandbox, 0, false));
        assert!(reports(&mut sandbox, 1, false));
    }
}
