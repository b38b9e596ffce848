//! The rules for the containers of a pod, and for its published status.

use super::Checks;
use crate::runtime::{Container, Runtime, version_of};
use crate::world::S;
use std::collections::BTreeMap;
use std::time::Duration;
use wherry::api::names::Uid;
use wherry::api::pod::is_sidecar;
use wherry_engine::api::k8s::PodStatus;

impl Checks {
    /// W21: the logs and the cgroup of a UID are removed only if no other owner uses the UID. A status read is valid for 2 s,
    /// and a removal may take some time.
    pub fn nothing_of_others(&mut self, runtime: &Runtime, uid: &Uid, now: u64) {
        if self.twin_at.is_some_and(|at| now < at + 12 * S) {
            return;
        }
        let other = |o: &Option<String>| o.as_ref() != Some(&runtime.owner);
        let sandbox = runtime.sandboxes.values().find(|s| s.uid == *uid && other(&s.owner)).map(|s| &s.id);
        if let Some(id) = sandbox {
            self.fail("W21", format!("what {id} shares with {uid} is removed"));
        }
    }

    /// Called after a start: at most one instance of a container runs, whatever happened before.
    pub fn after_start(&mut self, runtime: &Runtime) {
        let ours = |c: &&Container| c.runs() && c.owner.as_ref() == Some(&runtime.owner);
        let mut by_name: BTreeMap<_, &Container> = BTreeMap::new();
        let mut overlap = None;
        for c in runtime.containers.values().filter(ours) {
            let other = by_name.insert(&c.pod_name, c).filter(|other| other.uid != c.uid);
            overlap =
                overlap.or(other.map(|o| format!("{} of {} and {} of {} run at one time", o.id, o.uid, c.id, c.uid)));
        }
        // An overlap from a cancelled call that takes effect late is not a fault.
        if let Some(overlap) = overlap.filter(|_| self.strict) {
            self.fail("W8", overlap);
        }
        let mut seen: BTreeMap<(&Uid, &str), &Container> = BTreeMap::new();
        let mut twice = None;
        for c in runtime.containers.values().filter(ours) {
            if let Some(other) = seen.insert((&c.uid, &c.name), c) {
                twice = Some(format!("{} and {} are both {} of {}", other.id, c.id, c.name, c.uid));
            }
        }
        if let Some(twice) = twice {
            self.fail("at most one of a container runs", twice);
        }
    }

    /// W11, for a started container: the containers before it succeeded in its sandbox, and no init container runs next to it.
    pub fn started(&mut self, started: &Container, runtime: &Runtime) {
        let pod = &started.pod;
        if pod.ephemeral(&started.name).is_some() {
            return self.ephemeral_started(started);
        }
        // The engine takes an earlier version's containers under the same UID for the pod's own if no record shows otherwise.
        if runtime.sandboxes.get(&started.sandbox).is_some_and(|s| s.version != version_of(pod)) {
            return;
        }
        // With a fixed UID only the dead containers show a new engine which steps are completed, and a start that an earlier
        // engine requested may come late.
        if self.tampered && pod.has_own_uid() {
            return;
        }
        let init = pod.init_containers();
        let own = init.iter().position(|c| c.name == started.name).unwrap_or(init.len());
        for (i, c) in init.iter().enumerate().filter(|(_, c)| !is_sidecar(c)) {
            let runs = runtime.of(&started.uid).any(|o| o.name == c.name && o.runs() && o.sandbox == started.sandbox);
            let restarts = own < init.len() && is_sidecar(&init[own]) && own < i;
            if i != own && runs && !restarts {
                self.fail("W11", format!("{} is started while the init container {} runs", started.id, c.name));
            }
            if i < own && !runtime.has_succeeded(&started.sandbox, &c.name) {
                self.fail("W11", format!("{} is started before {} has succeeded", started.id, c.name));
            }
        }
    }

    /// W29: an ephemeral container starts at most once, as long as its pod continues.
    fn ephemeral_started(&mut self, started: &Container) {
        let uid = &started.uid;
        if self.tampered || self.end_requested.contains_key(uid) || self.ending.contains(uid) {
            self.ephemeral.retain(|(of, _)| of != uid);
        } else if !self.ephemeral.insert((uid.clone(), started.name.clone())) {
            self.fail("W29", format!("{} is the second start of {} of {uid}", started.id, started.name));
        }
    }

    /// W11, W2: a sidecar is stopped after the main containers have ended, unless its time is over or the sandbox has died.
    pub fn stopped(&mut self, id: &str, grace: Duration, runtime: &Runtime) {
        let Some(c) = runtime.containers.get(id) else { return };
        let sidecar = c.pod.init_containers().iter().any(|s| s.name == c.name && is_sidecar(s));
        let alive = runtime.sandboxes.get(&c.sandbox).is_some_and(|s| s.ready);
        // A sidecar whose startup probe failed is stopped alone.
        let ends = self.end_requested.get(&c.uid).is_some_and(|old| old.contains(&c.sandbox));
        if !self.strict || !ends || !sidecar || !alive || grace <= Duration::from_secs(2) {
            return;
        }
        let main = runtime.of(&c.uid).find(|o| o.runs() && c.pod.containers().iter().any(|m| m.name == o.name));
        if let Some(main) = main {
            self.fail("W11", format!("the sidecar {id} is stopped while {} runs", main.id));
        }
    }

    /// W25: as long as a pod continues, its restart counts never decrease and its start time does not change.
    pub fn count(&mut self, uid: &Uid, status: &PodStatus, runtime: &Runtime) {
        if runtime.of(uid).next().is_none()
            || self.end_requested.contains_key(uid)
            || self.ending.contains(uid)
            || self.tampered
        {
            self.counts.remove(uid);
            return;
        }
        // Kubernetes times are whole seconds.
        let start = status.start_time.as_ref().map_or_else(String::new, |t| t.0.as_second().to_string());
        let (since, before) = self.counts.entry(uid.clone()).or_insert_with(|| (start.clone(), BTreeMap::new()));
        let mut wrong = None;
        if *since != start {
            wrong = Some(format!("the start of {uid} was {since} and is {start}"));
        }
        for c in status.container_statuses.iter().flatten() {
            // A container that never ran does not count as a restart.
            let ran =
                runtime.of(uid).any(|r| r.name == c.name && r.attempt as i32 == c.restart_count && r.started_at.0 > 0);
            if !ran {
                continue;
            }
            let old = before.insert(c.name.clone(), c.restart_count).unwrap_or(0);
            if c.restart_count < old {
                wrong = Some(format!("{} of {uid} had {old} restarts and has {}", c.name, c.restart_count));
            }
        }
        if let Some(wrong) = wrong {
            self.fail("W25", wrong);
        }
    }

    /// W3: no terminal phase is published while something of the pod runs.
    pub fn published(&mut self, uid: &Uid, phase: &str, runtime: &Runtime) {
        if matches!(phase, "Succeeded" | "Failed")
            && !self.misrecorded.contains(uid)
            && let Some(c) = runtime.of(uid).find(|c| c.runs())
        {
            self.fail("W3", format!("{uid} is shown as {phase} while {} runs", c.id));
        }
    }
}
