//! The rules for a call to the runtime, at the moment when the engine requests it.

use super::Checks;
use crate::bounds::Scene;
use crate::runtime::{Container, Runtime, version_of};
use std::time::Duration;
use wherry::api::facts::ContainerState;
use wherry::api::time::Wall;
use wherry::engine::effect::RuntimeCall;
use wherry::engine::op::OpId;

/// W4: the minimum timeout of a stop (ns), and the rounding to whole seconds.
const SHORTEST_STOP: u64 = 2_000_000_000;
const ROUNDING: u64 = 1_000_000_000;

impl Checks {
    /// The rules for a call in the current state: it stops nothing without a reason, does not shorten a grace period, restarts
    /// nothing too soon, and starts nothing while the lists are too old.
    pub fn within_bounds(&mut self, op: OpId, call: &RuntimeCall, now: (u64, Wall), max: Duration, scene: &Scene<'_>) {
        let (boot, wall) = now;
        let broken = match call {
            RuntimeCall::List => {
                self.bounds.list_begins(op, boot);
                None
            }
            RuntimeCall::StopContainer { id, grace } => {
                let c = scene.runtime.containers.get(id.as_str()).filter(|_| !scene.shutdown);
                c.and_then(|c| self.bounds.stop(c, *grace, boot, self.strict)).map(|what| ("W4", what))
            }
            RuntimeCall::CreateContainer(c) if !self.clock_set && !self.tampered && !self.false_times => {
                self.bounds.create(c, wall, max, scene.runtime).map(|what| ("W10", what))
            }
            RuntimeCall::PullImage { pod, image, credential } => {
                self.bounds.pull(op, pod, image, credential, boot).map(|what| ("W10", what))
            }
            _ => None,
        };
        if let Some((rule, what)) = broken {
            self.fail(rule, what);
        }
        let starts = matches!(
            call,
            RuntimeCall::RunSandbox { .. } | RuntimeCall::CreateContainer(_) | RuntimeCall::StartContainer { .. }
        );
        if starts && let Some(why) = self.bounds.starts(boot) {
            self.fail("P6", format!("something is started {why}"));
        }
        if scene.runtime.is_of_another(call) {
            self.fail("W21", format!("{call:?} is of another owner"));
        }
        if let Some(c) = self.bounds.healthy(call, scene) {
            let ends = self.end_requested.get(&c.uid).is_some_and(|old| old.contains(&c.sandbox));
            if !ends && !self.tampered {
                self.fail("a healthy container is left alone", format!("{} of {}: {call:?}", c.id, c.uid));
            }
        }
    }

    fn stop(&mut self, id: &str, grace: Duration, now: u64, runtime: &Runtime) {
        let Some(c) = runtime.containers.get(id) else { return };
        if !self.end_requested.get(&c.uid).is_some_and(|old| old.contains(&c.sandbox)) {
            return;
        }
        let by = now + grace.as_nanos() as u64;
        let before = self.stops.get(id).copied();
        if let Some(before) = before
            && by > before.max(now + SHORTEST_STOP) + ROUNDING
        {
            self.fail("W4", format!("{id} of {} has {} ms more to end than before", c.uid, (by - before) / 1_000_000));
        }
        self.stops.insert(id.into(), before.map_or(by, |b| b.min(by)));
    }

    pub fn deadline(&mut self, op: OpId, timeout: Duration) {
        if timeout.is_zero() || timeout > Duration::from_secs(4000) {
            self.fail("every call has a deadline", format!("{op} has a deadline of {timeout:?}"));
        }
    }

    pub fn call(&mut self, op: OpId, call: &RuntimeCall, timeout: Duration, now: u64, runtime: &Runtime) {
        // A stop has its grace period in addition.
        let grace = if let RuntimeCall::StopContainer { grace, .. } = call { *grace } else { Duration::ZERO };
        self.deadline(op, timeout.saturating_sub(grace));
        self.turn += 1;
        match call {
            RuntimeCall::List => {
                if let Some(other) = self.list.replace(op) {
                    self.fail("P6", format!("{op} lists while {other} does"));
                }
            }
            RuntimeCall::ReadPod { uid } => drop(self.reads.insert(op, (uid.clone(), self.turn))),
            RuntimeCall::StopContainer { id, grace } => self.stop(id.as_str(), *grace, now, runtime),
            RuntimeCall::StartContainer { id } => {
                if let Some(c) = runtime.containers.get(id.as_str()) {
                    self.acts_on_status(&c.uid, "StartContainer");
                }
            }
            RuntimeCall::CreateContainer(c) if !self.tried.contains(&c.pod.uid) => {
                self.fail("W25", format!("a container of {} is created without a record", c.pod.uid));
            }
            _ => {}
        }
        self.only_ours(call, runtime);
        let of_container = |id: &str| runtime.containers.get(id).map(|c| c.uid.clone());
        let (uid, kind, starts) = match call {
            RuntimeCall::RunSandbox { pod, .. } => (Some(pod.uid.clone()), "RunSandbox", true),
            RuntimeCall::CreateContainer(c) => (Some(c.pod.uid.clone()), "CreateContainer", true),
            RuntimeCall::StartContainer { id } => (of_container(id.as_str()), "StartContainer", true),
            RuntimeCall::StopSandbox { id } | RuntimeCall::RemoveSandbox { id } => {
                (runtime.sandboxes.get(id.as_str()).map(|s| s.uid.clone()), "StopSandbox", false)
            }
            RuntimeCall::RemoveContainer { id } => (of_container(id.as_str()), "RemoveContainer", false),
            // DeleteTask runs in addition to these: it can only affect containers that are shown as ended.
            _ => return,
        };
        if let RuntimeCall::CreateContainer(c) = call
            && self.planted
            && c.attempt >= 2
        {
            self.fail("planted", format!("{} is restarted twice", c.container));
        }
        let Some(uid) = uid else { return };
        if let Some((before, what)) = self.changing.insert(uid.clone(), (op, kind.to_string())) {
            self.fail(
                "one change of a pod at a time",
                format!("{uid}: {kind} ({op}) while {what} ({before}) is in flight"),
            );
        }
        if starts {
            let sandbox = match call {
                RuntimeCall::CreateContainer(c) => Some(c.sandbox.to_string()),
                RuntimeCall::StartContainer { id } => runtime.containers.get(id.as_str()).map(|c| c.sandbox.clone()),
                _ => None,
            };
            if self.strict
                && let Some(why) = in_vain(call, runtime)
            {
                self.fail("P5", format!("{kind} of {uid}: {why}"));
            }
            if self.held.contains(&uid) {
                self.fail("A10", format!("{kind} of {uid}, which is new to the cordoned node"));
            }
            if let Some(waits) = self.waits_for.get(&uid) {
                self.fail("W6", format!("{kind} of {uid}, which waits for the end of {waits:?}"));
            }
            let old = self.end_requested.get(&uid).is_some_and(|old| sandbox.is_some_and(|s| old.contains(&s)));
            let runs = self.end_requested.contains_key(&uid) && runtime.of(&uid).any(Container::runs);
            if old || runs && kind == "RunSandbox" {
                self.fail("no start after the end was asked for", format!("{uid}: {kind} after its end was asked for"));
            }
            if let RuntimeCall::CreateContainer(c) = call
                && let Some(s) = runtime.sandboxes.get(c.sandbox.as_str())
                && s.version != version_of(&c.pod)
                && !self.known_since.contains(&s.id)
            {
                self.fail(
                    "a container is of its sandbox's version",
                    format!("{uid}: {kind} in the sandbox {} of another version of the pod", s.id),
                );
            }
            let name = match call {
                RuntimeCall::RunSandbox { pod, .. } => Some(pod.name.clone()),
                RuntimeCall::CreateContainer(c) => Some(c.pod.name.clone()),
                RuntimeCall::StartContainer { id } => runtime.containers.get(id.as_str()).map(|c| c.pod_name.clone()),
                _ => None,
            };
            let other = runtime.containers.values().find(|c| {
                c.runs()
                    && c.uid != uid
                    && Some(&c.pod_name) == name.as_ref()
                    && c.owner.as_ref() == Some(&runtime.owner)
            });
            if let Some(other) = other {
                self.fail("W8", format!("{kind} of {uid} while {} of {} runs under its name", other.id, other.uid));
            }
        }
    }

    /// W21: objects of other owners are not touched.
    fn only_ours(&mut self, call: &RuntimeCall, runtime: &Runtime) {
        let owner = match call {
            RuntimeCall::StopSandbox { id } | RuntimeCall::RemoveSandbox { id } => {
                runtime.sandboxes.get(id.as_str()).map(|s| &s.owner)
            }
            RuntimeCall::StartContainer { id }
            | RuntimeCall::StopContainer { id, .. }
            | RuntimeCall::RemoveContainer { id }
            | RuntimeCall::DeleteTask { id } => runtime.containers.get(id.as_str()).map(|c| &c.owner),
            RuntimeCall::CreateContainer(c) => runtime.sandboxes.get(c.sandbox.as_str()).map(|s| &s.owner),
            _ => None,
        };
        if let Some(owner) = owner.filter(|o| o.as_ref() != Some(&runtime.owner)) {
            self.fail("W21", format!("{call:?} is of what {owner:?} owns"));
        }
    }
}

/// Why the runtime will refuse the call in its current state.
fn in_vain(call: &RuntimeCall, runtime: &Runtime) -> Option<String> {
    match call {
        RuntimeCall::RunSandbox { pod, attempt, .. } => {
            let taken = runtime.ours().any(|s| s.uid == pod.uid && s.attempt == *attempt);
            taken.then(|| format!("there is one of attempt {attempt}"))
        }
        RuntimeCall::CreateContainer(c) => {
            let taken = runtime.of(&c.pod.uid).any(|o| o.name == c.container && o.attempt == c.attempt);
            taken.then(|| format!("there is {}#{}", c.container, c.attempt))
        }
        RuntimeCall::StartContainer { id } => {
            let c = runtime.containers.get(id.as_str())?;
            (c.state != ContainerState::Created).then(|| format!("{id} is {:?}", c.state))
        }
        _ => None,
    }
}
