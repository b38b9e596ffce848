//! Lower bounds for the engine's calls: the grace period of a stop (W4, W21), the wait before a restart and its level (W10),
//! the wait before a pull is retried (W10), and the age of the last list before a start (P6). Also checks that nothing is
//! stopped without a reason.
//!
//! Each method returns a description of the violation; `check` knows the rule.

use crate::runtime::{Container, Runtime, version_of};
use crate::world::api_server::ApiServer;
use crate::world::{MS, S};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wherry::api::facts::ContainerState;
use wherry::api::names::Uid;
use wherry::api::pod::{Pod, RestartPolicy};
use wherry::api::registry_credentials::Credential;
use wherry::api::time::Wall;
use wherry::engine::effect::{CreateContainer, RuntimeCall};
use wherry::engine::node::Engine;
use wherry::engine::op::OpId;

/// CRI timeouts are whole seconds.
const ROUNDING: u64 = S;
/// The engine begins a stop of its own when it decides so. It may have to wait for a status read or a connection first.
const LATE_STOP: u64 = 12 * S;
/// P6: PLEG is unhealthy when the last good list is this old.
const UNHEALTHY_AFTER: u64 = 180 * S;
/// The constants of W10.
const FIRST_BACKOFF: u64 = 10;
const RESET_AFTER: Duration = Duration::from_secs(600);

/// A termination that was requested.
#[derive(Clone, Copy)]
struct End {
    began: u64,
    /// The end of the shortest requested grace period; the pod's own may end sooner.
    cut: u64,
}

#[derive(Default)]
pub struct Bounds {
    /// By sandbox. None: the start is unknown, because an earlier engine or a shutdown may have begun the termination.
    ends: BTreeMap<String, Option<End>>,
    /// Containers for which a stop was requested.
    stop_requested: BTreeSet<String>,
    /// The list in flight and its start; then the start of the last good list.
    list: Option<(OpId, u64)>,
    last_list: Option<u64>,
    /// Pulls in flight; then the time of the last failure and the number of consecutive failures.
    pulling: BTreeMap<OpId, (Uid, String)>,
    pulls: BTreeMap<(Uid, String), (u64, u32)>,
    /// The credentials that the current attempt to pull has tried.
    tried: BTreeMap<(Uid, String), Vec<Option<Credential>>>,
    /// Pods for which the engine reported a reason of its own to stop them.
    victims: BTreeSet<Uid>,
    /// C2: containers whose image has changed at the server.
    reimaged: BTreeSet<(Uid, String)>,
}

fn sandboxes<'a>(runtime: &'a Runtime, uid: &'a Uid) -> impl Iterator<Item = &'a String> {
    runtime.ours().filter(move |s| s.uid == *uid).map(|s| &s.id)
}

fn own_grace(c: &Container) -> u64 {
    c.grace_seconds.unwrap_or(1).max(1).saturating_mul(S)
}

impl Bounds {
    /// A termination of the pod is requested, within `grace` if that is less than the pod's own period (W4).
    pub fn end_requested(&mut self, uid: &Uid, grace: Option<Duration>, now: u64, runtime: &Runtime) {
        for id in sandboxes(runtime, uid) {
            // A pod that is already being stopped began to end at an earlier, unknown time.
            let stopped = runtime.of(uid).any(|c| c.sandbox == *id && self.stop_requested.contains(&c.id));
            let new = (!stopped).then_some(End { began: now, cut: u64::MAX });
            let end = self.ends.entry(id.clone()).or_insert(new);
            if let (Some(end), Some(grace)) = (end, grace) {
                // The period counts from the first request.
                end.cut = end.cut.min(end.began.saturating_add((grace.as_nanos() as u64).max(S)));
            }
        }
    }

    /// The pod is already ending, since an unknown time.
    pub fn ends(&mut self, uid: &Uid, runtime: &Runtime) {
        for id in sandboxes(runtime, uid) {
            self.ends.entry(id.clone()).or_insert(None);
        }
    }

    /// The engine stops the pod for a reason of its own, or may do so from now on.
    pub fn has_a_reason(&mut self, uid: &Uid, runtime: &Runtime) {
        self.victims.insert(uid.clone());
        self.ends.extend(sandboxes(runtime, uid).map(|id| (id.clone(), None)));
    }

    /// The pod of this sandbox may be stopped from an unknown time on.
    pub fn may_end(&mut self, sandbox: &str) {
        self.ends.insert(sandbox.to_string(), None);
    }

    /// A new engine knows only recorded terminations.
    pub fn engine_killed(&mut self) {
        self.ends.values_mut().for_each(|end| *end = None);
        (self.list, self.last_list) = (None, None);
        self.pulling.clear();
        self.pulls.clear();
    }

    /// W4: the timeout of StopContainer is at least the rest of the grace period.
    pub fn stop(&mut self, c: &Container, grace: Duration, now: u64, strict: bool) -> Option<String> {
        let first = self.stop_requested.insert(c.id.clone());
        let main = c.pod.containers().iter().find(|m| m.name == c.name)?;
        let given = now + grace.as_nanos() as u64 + ROUNDING;
        let bound = match self.ends.get(&c.sandbox) {
            Some(None) => return None,
            Some(Some(end)) => end.cut.min(end.began.saturating_add(own_grace(c))),
            // A preStop hook uses part of the period.
            None if first && strict && main.lifecycle.is_none() => {
                now.saturating_add(own_grace(c)).saturating_sub(LATE_STOP)
            }
            None => return None,
        };
        (given < bound).then(|| {
            let less = (bound - given + ROUNDING) / MS;
            format!("{} of {} is stopped with {grace:?}, {less} ms less than it has", c.id, c.uid)
        })
    }

    /// W10: a container restarts only after its back-off, and its level follows from the previous instance.
    pub fn create(&self, call: &CreateContainer, now: Wall, max: Duration, runtime: &Runtime) -> Option<String> {
        if !call.pod.containers().iter().any(|m| m.name == call.container) {
            return None;
        }
        let before = runtime.of(&call.pod.uid).filter(|c| c.name == call.container);
        let dead = before.max_by_key(|c| c.attempt).filter(|c| c.attempt < call.attempt)?;
        if dead.state != ContainerState::Exited {
            return None;
        }
        let ran = if dead.started_at.0 == 0 { Duration::ZERO } else { dead.finished_at.since(dead.started_at) };
        let of_earlier_boot = dead.boot.is_some() && call.boot.is_some() && dead.boot != call.boot;
        let level = if ran >= RESET_AFTER || of_earlier_boot { 0 } else { dead.backoff_level };
        // C2: a new image has no back-off. A container that was stopped for one can follow with the old image again.
        let of_api = call.pod.is_from_api_server();
        let image = call.pod.container(&call.container).and_then(|spec| spec.image.as_deref());
        if of_api && (image != Some(dead.spec_image()) || dead.terminating) {
            if call.backoff_level == 0 {
                return None;
            }
            if !dead.terminating {
                return Some(format!("{} has a new image and level {}", call.container, call.backoff_level));
            }
        }
        // R3: nor has one that was stopped for other resources, also if it ended by itself just before.
        let stopped = dead.terminating || self.stop_requested.contains(&dead.id);
        let can_resize = |pod: &Pod| pod.container(&call.container).is_some_and(|spec| spec.resize_policy.is_some());
        if stopped && can_resize(&call.pod) && call.backoff_level == 0 {
            return None;
        }
        if call.backoff_level != level + 1 {
            return Some(format!("{} follows one of level {level} with level {}", call.container, call.backoff_level));
        }
        // Under this policy it is not a restart: the container was created for a replaced sandbox.
        if call.pod.restart_policy() == RestartPolicy::Never {
            return None;
        }
        let delay = match level {
            0 => Duration::ZERO,
            n => Duration::from_secs(FIRST_BACKOFF << (n - 1).min(16)).min(max),
        };
        let waited = now.since(dead.finished_at);
        (waited < delay).then(|| {
            format!(
                "{}#{} of {} is made {waited:?} after the end of the one before, not {delay:?}",
                call.container, call.attempt, call.pod.uid
            )
        })
    }

    pub fn pull(
        &mut self,
        op: OpId,
        pod: &Pod,
        image: &str,
        credential: &Option<Credential>,
        now: u64,
    ) -> Option<String> {
        let key = (pod.uid.clone(), image.to_string());
        self.pulling.insert(op, key.clone());
        let tried = self.tried.entry(key.clone()).or_default();
        let (failed, times) = self.pulls.get_mut(&key)?;
        // W12: the next credential is tried at once. Together these calls are one attempt.
        if now == *failed && *times > 0 && !tried.contains(credential) {
            tried.push(credential.clone());
            *times -= 1;
            return None;
        }
        *tried = vec![credential.clone()];
        let wait = (FIRST_BACKOFF << times.saturating_sub(1).min(5)).min(300) * S;
        (*times > 0 && now < *failed + wait).then(|| {
            format!("{image} is pulled again for {} {} ms after it failed {times} times", pod.uid, (now - *failed) / MS)
        })
    }

    /// W12: failed pulls may be retried at once.
    pub fn secret_changed(&mut self) {
        self.pulls.clear();
        self.tried.clear();
    }

    /// A cancelled pull did not fail.
    pub fn cancelled(&mut self, op: OpId) {
        self.pulling.remove(&op);
    }

    /// C2: the container has another image at the server.
    pub fn reimaged(&mut self, uid: Uid, name: String) {
        self.reimaged.insert((uid, name));
    }

    /// The pod starts for the first time, or again.
    pub fn pod_begins(&mut self, uid: &Uid) {
        self.pulls.retain(|(of, _), _| of != uid);
    }

    pub fn list_begins(&mut self, op: OpId, now: u64) {
        self.list = Some((op, now));
    }

    pub fn done(&mut self, op: OpId, ok: bool, now: u64) {
        if let Some((_, began)) = self.list.take_if(|(o, _)| *o == op)
            && ok
        {
            self.last_list = Some(began);
        }
        if let Some(key) = self.pulling.remove(&op) {
            match ok {
                true => drop(self.pulls.remove(&key)),
                false => {
                    let times = self.pulls.get(&key).map_or(0, |(_, times)| *times);
                    self.pulls.insert(key, (now, times + 1));
                }
            }
        }
    }

    /// This engine has received a good list.
    pub fn has_list(&self) -> bool {
        self.last_list.is_some()
    }

    /// P6: nothing starts before the first good list, or long after the last one.
    pub fn starts(&self, now: u64) -> Option<String> {
        match self.last_list {
            None => Some("before the first list".into()),
            Some(at) if now > at + UNHEALTHY_AFTER => Some(format!("{} s after the last list", (now - at) / S)),
            Some(_) => None,
        }
    }

    /// A running container that this call stops although there is no reason to stop it.
    pub fn healthy<'a>(&self, call: &RuntimeCall, scene: &Scene<'a>) -> Option<&'a Container> {
        match call {
            RuntimeCall::StopContainer { id, .. } | RuntimeCall::RemoveContainer { id } => {
                scene.runtime.containers.get(id.as_str()).filter(|c| self.is_healthy(c, scene))
            }
            // The containers of a sandbox that is due to end need no check.
            RuntimeCall::StopSandbox { id } | RuntimeCall::RemoveSandbox { id }
                if !self.ends.contains_key(id.as_str()) =>
            {
                let of_it = |c: &&Container| c.sandbox == id.as_str() && self.is_healthy(c, scene);
                scene.runtime.containers.values().find(of_it)
            }
            _ => None,
        }
    }

    fn is_healthy(&self, c: &Container, scene: &Scene<'_>) -> bool {
        let Some(main) = c.pod.containers().iter().find(|m| m.name == c.name) else { return false };
        // A failing probe or hook is a reason.
        let can_fail = main.liveness_probe.is_some() || main.startup_probe.is_some() || main.lifecycle.is_some();
        if self.reimaged.contains(&(c.uid.clone(), c.name.clone())) {
            return false;
        }
        let ready =
            |id: &str| scene.runtime.sandboxes.get(id).is_some_and(|s| s.ready && s.version == version_of(&c.pod));
        // The remaining checks are slow.
        if !c.runs() || can_fail || self.ends.contains_key(&c.sandbox) || !ready(&c.sandbox) {
            return false;
        }
        let same = scene.runtime.of(&c.uid).filter(|o| o.name == c.name && o.runs()).count();
        let ready_ones = scene.runtime.ours().filter(|s| s.uid == c.uid && s.ready).count();
        let wanted = scene.files.values().filter(|p| p.uid == c.uid || p.name == c.pod_name);
        let wanted: Vec<&Rc<Pod>> = wanted.collect();
        let of_file = || {
            matches!(wanted.as_slice(), [one] if one.uid == c.uid && one.digest == c.pod.digest)
                && scene.engine.pod(&c.uid).is_some_and(|v| v.desired)
        };
        !c.dead
            && !c.unknown
            && c.owner.as_ref() == Some(&scene.runtime.owner)
            && (same, ready_ones) == (1, 1)
            && !self.victims.contains(&c.uid)
            && !scene.shutdown
            // C3: the answer of the engine does not count here, because it may have believed a false list.
            && (scene.api.is_some_and(|api| api.wants(c.uid.as_str())) || of_file())
    }
}

/// The state when a call is made.
pub struct Scene<'a> {
    pub runtime: &'a Runtime,
    pub engine: &'a Engine,
    pub files: &'a BTreeMap<String, Rc<Pod>>,
    /// Of the cluster of the node.
    pub api: Option<&'a ApiServer>,
    /// The node is being shut down.
    pub shutdown: bool,
}
