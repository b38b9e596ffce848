//! What must hold at every instant, checked with each effect; the first violation is kept.

use crate::runtime::{Container, Runtime};
use k8s_openapi::api::core::v1::PodStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wherry::api::names::Uid;
use wherry::api::pod::Pod;
use wherry::engine::effect::RuntimeCall;
use wherry::engine::node::Engine;
use wherry::engine::op::OpId;

#[derive(Default)]
pub struct Checks {
    pub violation: Option<String>,
    /// Dead containers were removed behind our back: counts may be lost.
    pub tampered: bool,
    /// Pods whose end was asked for, and the sandboxes that they had then: nothing may be started in these.
    asked_to_end: BTreeMap<Uid, BTreeSet<String>>,
    /// The changing call in flight of each pod, stops of containers left out.
    changing: BTreeMap<Uid, (OpId, String)>,
    /// The restart counts and start time shown of each pod that has a container.
    counts: BTreeMap<Uid, (String, BTreeMap<String, i32>)>,
    /// Of these the end was asked for once: what is left of them may go while a new engine looks.
    ending: BTreeSet<Uid>,
    /// Sandboxes of an engine before this one.
    known_since: BTreeSet<String>,
}

impl Checks {
    pub fn fail(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// The desired set is about to change.
    pub fn desired(&mut self, engine: &Engine, new: &BTreeMap<String, Rc<Pod>>, runtime: &Runtime) {
        for pod in engine.pods().iter().map(|v| v.pod) {
            let stays = new.values().any(|p| p.uid == pod.uid && p.digest == pod.digest);
            if !stays {
                let has = runtime.sandboxes.values().filter(|s| s.uid == pod.uid).map(|s| s.id.clone());
                self.asked_to_end.entry(pod.uid.clone()).or_default().extend(has);
            }
        }
    }

    /// A new engine knows of a termination only what was recorded in time.
    pub fn engine_restarted(
        &mut self,
        files: &BTreeMap<String, Rc<Pod>>,
        runtime: &Runtime,
        records: &BTreeMap<String, String>,
    ) {
        self.changing.clear();
        self.counts.retain(|uid, _| records.contains_key(&format!("pods/{uid}")));
        self.known_since = runtime.sandboxes.keys().cloned().collect();
        self.ending.extend(self.asked_to_end.keys().cloned());
        self.asked_to_end.retain(|uid, _| !files.values().any(|p| p.uid == *uid));
    }

    pub fn cancelled(&mut self, op: OpId) {
        self.changing.retain(|_, (o, _)| *o != op);
    }

    pub fn done(&mut self, op: OpId) {
        self.changing.retain(|_, (o, _)| *o != op);
    }

    pub fn call(&mut self, op: OpId, call: &RuntimeCall, timeout: Duration, runtime: &Runtime) {
        if timeout.is_zero() || timeout > Duration::from_secs(4000) {
            self.fail(format!("{op} has a deadline of {timeout:?}"));
        }
        let of_container = |id: &str| runtime.containers.get(id).map(|c| c.uid.clone());
        let (uid, kind, starts) = match call {
            RuntimeCall::RunSandbox { pod, .. } => (Some(pod.uid.clone()), "RunSandbox", true),
            RuntimeCall::CreateContainer(c) => (Some(c.pod.uid.clone()), "CreateContainer", true),
            RuntimeCall::StartContainer { id } => (of_container(id.as_str()), "StartContainer", true),
            RuntimeCall::StopSandbox { id } | RuntimeCall::RemoveSandbox { id } => {
                (runtime.sandboxes.get(id.as_str()).map(|s| s.uid.clone()), "StopSandbox", false)
            }
            RuntimeCall::RemoveContainer { id } => (of_container(id.as_str()), "RemoveContainer", false),
            _ => return,
        };
        let Some(uid) = uid else { return };
        if let Some((before, what)) = self.changing.insert(uid.clone(), (op, kind.to_string())) {
            self.fail(format!("{uid}: {kind} ({op}) while {what} ({before}) is in flight"));
        }
        if starts {
            let sandbox = match call {
                RuntimeCall::CreateContainer(c) => Some(c.sandbox.to_string()),
                RuntimeCall::StartContainer { id } => runtime.containers.get(id.as_str()).map(|c| c.sandbox.clone()),
                _ => None,
            };
            let old = self.asked_to_end.get(&uid).is_some_and(|old| sandbox.is_some_and(|s| old.contains(&s)));
            let runs = self.asked_to_end.contains_key(&uid) && runtime.of(&uid).any(Container::runs);
            if old || runs && kind == "RunSandbox" {
                self.fail(format!("{uid}: {kind} after its end was asked for"));
            }
            if let RuntimeCall::CreateContainer(c) = call
                && let Some(s) = runtime.sandboxes.get(c.sandbox.as_str())
                && s.digest != c.pod.digest
                && !self.known_since.contains(&s.id)
            {
                self.fail(format!("{uid}: {kind} in the sandbox {} of another version of the pod", s.id));
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
                self.fail(format!("W8: {kind} of {uid} while {} of {} runs under its name", other.id, other.uid));
            }
        }
    }

    /// Something was started: at most one instance of a container runs, whatever happened.
    pub fn after_start(&mut self, runtime: &Runtime) {
        let mut seen: BTreeMap<(&Uid, &str), &Container> = BTreeMap::new();
        let mut twice = None;
        for c in runtime.containers.values().filter(|c| c.runs()) {
            if let Some(other) = seen.insert((&c.uid, &c.name), c) {
                twice = Some(format!("{} and {} are both {} of {}", other.id, c.id, c.name, c.uid));
            }
        }
        if let Some(twice) = twice {
            self.fail(twice);
        }
    }

    /// W25: restart counts never go back, nor does a start time change, while a pod goes on.
    pub fn count(&mut self, uid: &Uid, status: &PodStatus, runtime: &Runtime) {
        if runtime.of(uid).next().is_none()
            || self.asked_to_end.contains_key(uid)
            || self.ending.contains(uid)
            || self.tampered
        {
            self.counts.remove(uid);
            return;
        }
        let start = format!("{:?}", status.start_time);
        let (since, before) = self.counts.entry(uid.clone()).or_insert_with(|| (start.clone(), BTreeMap::new()));
        let mut wrong = None;
        if *since != start {
            wrong = Some(format!("W25: the start of {uid} was {since} and is {start}"));
        }
        for c in status.container_statuses.iter().flatten() {
            // One that never ran is no restart yet.
            let ran =
                runtime.of(uid).any(|r| r.name == c.name && r.attempt as i32 == c.restart_count && r.started_at.0 > 0);
            if !ran {
                continue;
            }
            let old = before.insert(c.name.clone(), c.restart_count).unwrap_or(0);
            if c.restart_count < old {
                wrong = Some(format!("W25: {} of {uid} had {old} restarts and has {}", c.name, c.restart_count));
            }
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }

    /// W3.
    pub fn published(&mut self, uid: &Uid, phase: &str, runtime: &Runtime) {
        if matches!(phase, "Succeeded" | "Failed")
            && let Some(c) = runtime.of(uid).find(|c| c.runs())
        {
            self.fail(format!("W3: {uid} is shown as {phase} while {} runs", c.id));
        }
    }
}
