//! The rules that must hold at every instant, checked with each effect. The first violation is kept.

use crate::bounds::{Bounds, Scene};
use crate::runtime::{Container, Runtime};
use crate::world::S;
use k8s_openapi::api::core::v1::PodStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wherry::api::facts::ContainerState;
use wherry::api::names::Uid;
use wherry::api::pod::{Pod, is_sidecar};
use wherry::api::time::Wall;
use wherry::engine::effect::RuntimeCall;
use wherry::engine::event::Answer;
use wherry::engine::node::Engine;
use wherry::engine::op::OpError;
use wherry::engine::op::OpId;
use wherry::engine::pod::kill::TerminationSource;
use wherry::engine::pod::record;

/// The rule that was broken, and a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: &'static str,
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// Rules that hold whatever the runtime reports.
const HOLDS_ANYWAY: [&str; 6] = [
    "every call has a deadline",
    "one change of a pod at a time",
    "P6",
    "no operation is begun twice",
    "operations are bounded",
    "effects are bounded",
];

/// W4: the minimum timeout of a stop (ns), and the rounding to whole seconds.
const SHORTEST_STOP: u64 = 2_000_000_000;
const ROUNDING: u64 = 1_000_000_000;

#[derive(Default)]
pub struct Checks {
    pub violation: Option<Violation>,
    /// Dead containers were removed without the engine, so restart counts may be lost.
    pub tampered: bool,
    /// When another owner's pod last appeared under the UID of one of ours, in ns.
    pub twin_at: Option<u64>,
    /// A false rule for the tests of this test: no container restarts twice.
    pub planted: bool,
    /// No call comes late, so a futile call shows that the engine did not wait for a status (P5).
    pub strict: bool,
    /// Pods whose termination was requested, and their sandboxes at that time. Nothing may start in these sandboxes.
    asked_to_end: BTreeMap<Uid, BTreeSet<String>>,
    /// Edited pods whose termination has not been requested yet.
    outdated: BTreeSet<Uid>,
    /// The changing call in flight of each pod, without stops of containers.
    changing: BTreeMap<Uid, (OpId, String)>,
    /// The published restart counts and start time of each pod that has a container.
    counts: BTreeMap<Uid, (String, BTreeMap<String, i32>)>,
    /// Pods whose termination was requested once. Their leftovers may disappear before a new engine has read its first list.
    ending: BTreeSet<Uid>,
    /// W6: the causes that must end before the pods start again.
    waits_for: BTreeMap<Uid, BTreeSet<TerminationSource>>,
    /// Sandboxes of an earlier engine.
    known_since: BTreeSet<String>,
    /// A false answer was given. Its consequences are no fault of the engine.
    pub lied: bool,
    /// P6: the list in flight.
    list: Option<OpId>,
    /// The status reads in flight: the pod, and the turn in which the read began.
    reads: BTreeMap<OpId, (Uid, u64)>,
    /// P5: pods that must be read before anything of them starts, with the turn from which the read must date.
    due: BTreeMap<Uid, u64>,
    /// Pods that this engine has read once.
    known: BTreeSet<Uid>,
    turn: u64,
    /// W4: by container, the deadline for the stops of its pod's termination (ns).
    stops: BTreeMap<String, u64>,
    /// Writes of records in flight.
    puts: BTreeMap<OpId, Uid>,
    /// Pods whose last record could not be written.
    unrecorded: BTreeSet<Uid>,
    /// Pods for which a new engine has an outdated record, and no list yet that shows more.
    misrecorded: BTreeSet<Uid>,
    /// Pods whose record was written, or failed to be.
    tried: BTreeSet<Uid>,
    /// The wall clock was set, so the rest of a grace period is unknown after a restart.
    clock_set: bool,
    pub bounds: Bounds,
    /// The runtime may report implausible times, from which back-offs count.
    pub false_times: bool,
}

impl Checks {
    pub fn fail(&mut self, rule: &'static str, what: String) {
        if self.lied && !HOLDS_ANYWAY.contains(&rule) {
            return;
        }
        self.violation.get_or_insert(Violation { rule, what });
    }

    /// # Errors
    /// The first violation.
    pub fn so_far(&self) -> Result<(), Violation> {
        self.violation.clone().map_or(Ok(()), Err)
    }

    /// Called before the desired pods change.
    pub fn desired(&mut self, engine: &Engine, new: &BTreeMap<String, Rc<Pod>>, now: u64, runtime: &Runtime) {
        self.waits_for.retain(|uid, _| new.values().any(|p| p.uid == *uid));
        for (pod, desired) in engine.pods().iter().map(|v| (v.pod, v.desired)) {
            let stays = new.values().any(|p| p.uid == pod.uid && p.digest == pod.digest);
            self.outdated.remove(&pod.uid);
            // W8: an edited pod continues to run until its record is written.
            if !stays && new.values().any(|p| p.uid == pod.uid || p.name == pod.name) {
                self.waits_for.remove(&pod.uid);
                self.outdated.insert(pod.uid.clone());
            } else if !stays {
                self.waits_for.remove(&pod.uid);
                let has = runtime.ours().filter(|s| s.uid == pod.uid).map(|s| s.id.clone());
                self.asked_to_end.entry(pod.uid.clone()).or_default().extend(has);
                match desired {
                    true => self.bounds.end_asked(&pod.uid, None, now, runtime),
                    // The pod disappeared from the manifests while the engine was not running.
                    false => self.bounds.ends(&pod.uid, runtime),
                }
            }
        }
        // Before the first list, an engine without a record of a pod cannot know that its termination was requested.
        if !self.bounds.has_list() {
            let known = |uid: &Uid| engine.pod(uid).is_some() || self.tried.contains(uid);
            self.asked_to_end.retain(|uid, _| known(uid) || !new.values().any(|p| p.uid == *uid));
        }
        // An engine that has just started may know the pod only from its records.
        let gone = runtime.ours().map(|s| &s.uid).filter(|uid| !new.values().any(|p| p.uid == **uid));
        gone.for_each(|uid| self.bounds.ends(uid, runtime));
    }

    /// Called after a step: notes the edited pods whose termination is requested by now.
    pub fn replaced(&mut self, engine: &Engine, now: u64, runtime: &Runtime) {
        let Checks { outdated, asked_to_end, bounds, .. } = self;
        outdated.retain(|uid| {
            let runs_on = engine
                .worker_status(uid, Default::default())
                .is_some_and(|worker_status| worker_status.state == "Sync");
            if !runs_on {
                let has = runtime.sandboxes.values().filter(|s| s.uid == *uid).map(|s| s.id.clone());
                asked_to_end.entry(uid.clone()).or_default().extend(has);
                bounds.end_asked(uid, None, now, runtime);
            }
            runs_on
        });
    }

    /// Called before a pod is killed.
    pub fn killed(&mut self, uid: &Uid, by: TerminationSource, engine: &Engine, runtime: &Runtime) {
        let Some(view) = engine.pod(uid) else { return };
        if view.desired && !matches!(view.status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            let has = runtime.ours().filter(|s| s.uid == *uid).map(|s| s.id.clone());
            self.asked_to_end.entry(uid.clone()).or_default().extend(has);
            self.waits_for.entry(uid.clone()).or_default().insert(by);
        }
    }

    /// The cause of the kills is over.
    pub fn released(&mut self, by: TerminationSource) {
        self.waits_for.retain(|_, waits| {
            waits.remove(&by);
            !waits.is_empty()
        });
    }

    /// An acknowledged record is gone, or an older version is back.
    pub fn record_lost(&mut self, key: &str) {
        if let Some(uid) = key.strip_prefix("pods/") {
            self.unrecorded.insert(Uid::from(uid));
            self.counts.remove(&Uid::from(uid));
        }
    }

    pub fn engine_killed(&mut self, runtime: &Runtime, records: &BTreeMap<String, String>) {
        self.bounds.engine_killed();
        self.changing.clear();
        self.waits_for.retain(|uid, waits| {
            let record = records.get(&format!("pods/{uid}")).map(String::as_str).unwrap_or_default();
            waits.retain(|k| record.contains("waitsFor") && record.contains(k.name()));
            !waits.is_empty()
        });
        self.list = None;
        self.reads.clear();
        self.due.clear();
        self.known.clear();
        let recorded = |uid: &Uid| records.get(&format!("pods/{uid}")).is_some_and(|r| r.contains("\"termination\":"));
        let lost: BTreeSet<Uid> = self.puts.values().chain(&self.unrecorded).cloned().collect();
        let known = |id: &str| runtime.containers.get(id).is_some_and(|c| recorded(&c.uid) && !lost.contains(&c.uid));
        self.stops.retain(|id, _| known(id));
        // Without a record, a new engine takes an old version under the same UID for the current one.
        self.outdated.retain(|uid| records.contains_key(&format!("pods/{uid}")));
        self.misrecorded = lost;
        self.puts.clear();
        self.unrecorded.clear();
        self.tried.retain(|uid| records.contains_key(&format!("pods/{uid}")));
        self.tried.extend(records.keys().filter_map(|k| k.strip_prefix("pods/")).map(Uid::from));
        self.counts.retain(|uid, _| records.contains_key(&format!("pods/{uid}")));
        self.known_since = runtime.sandboxes.keys().cloned().collect();
        self.ending.extend(self.asked_to_end.keys().cloned());
    }

    /// A new engine knows of a termination only if it was recorded in time.
    pub fn engine_starts(
        &mut self,
        files: &BTreeMap<String, Rc<Pod>>,
        records: &BTreeMap<String, String>,
        runtime: &Runtime,
    ) {
        // A pod whose record is lost or has another version is replaced, or ends as its current manifest requires (D3). So is a
        // pod that was edited meanwhile.
        for s in runtime.ours() {
            let key = format!("pods/{}", s.uid);
            let record = records.get(&key).and_then(|value| record::read(&key, value).ok());
            let edited = files.values().any(|p| p.uid == s.uid && p.digest != s.digest);
            if edited {
                self.ending.insert(s.uid.clone());
            }
            if edited || record.is_none_or(|r| r.pod.digest != s.digest) {
                self.bounds.may_end(&s.id);
            }
        }
        let recorded = |uid: &Uid| records.get(&format!("pods/{uid}")).is_some_and(|r| r.contains("\"termination\":"));
        if self.clock_set {
            self.stops.clear();
        }
        // W8: if a name is in use, the new engine knows the edited pod, which runs until its record can be written.
        let name = |uid: &Uid| {
            let key = format!("pods/{uid}");
            records.get(&key).and_then(|value| record::read(&key, value).ok()).map(|r| r.pod.name.clone())
        };
        let goes_on = |uid: &Uid| files.values().any(|p| p.uid == *uid || name(uid).is_some_and(|name| name == p.name));
        self.asked_to_end.retain(|uid, _| recorded(uid) || !goes_on(uid));
    }

    pub fn clock_was_set(&mut self) {
        self.clock_set = true;
        // An engine that has just started may not have read the records yet.
        self.stops.clear();
    }

    pub fn cancelled(&mut self, op: OpId) {
        self.bounds.cancelled(op);
        self.changing.retain(|_, (o, _)| *o != op);
    }

    pub fn done(&mut self, op: OpId, result: &Result<Answer, OpError>, now: u64) {
        self.turn += 1;
        self.bounds.done(op, result.is_ok(), now);
        if self.bounds.has_list() {
            self.misrecorded.clear();
        }
        if self.list == Some(op) {
            self.list = None;
        }
        if let Some(uid) = self.puts.remove(&op) {
            if result.is_err() {
                self.unrecorded.insert(uid.clone());
            } else {
                self.unrecorded.remove(&uid);
            }
            self.tried.insert(uid);
        }
        if let Some((uid, began)) = self.reads.remove(&op) {
            if result.is_err() {
                self.due.insert(uid.clone(), self.turn);
            } else if self.due.get(&uid).is_some_and(|due| *due < began) {
                self.due.remove(&uid);
            }
            self.known.insert(uid);
        }
        let failed = matches!(result, Err(OpError::Unknown(_) | OpError::Answered { .. }));
        let of = self.changing.iter().find(|(_, (o, _))| *o == op).map(|(uid, _)| uid.clone());
        if let Some(uid) = of {
            self.changing.remove(&uid);
            if failed {
                self.due.insert(uid, self.turn);
            }
        }
    }

    /// P8: a runtime event makes the engine read a pod.
    pub fn hinted(&mut self, uid: &Uid) {
        self.turn += 1;
        if self.known.contains(uid) {
            self.due.insert(uid.clone(), self.turn);
        }
    }

    /// A pod starts, perhaps with a new worker, which knows nothing of earlier reads.
    pub fn prepares_pod(&mut self, uid: &Uid) {
        self.bounds.pod_begins(uid);
        self.due.remove(uid);
        self.reads.retain(|_, (u, _)| u != uid);
    }

    /// P5: the engine acts only on a status that is no older than the last change reported to it.
    pub fn acts_on_status(&mut self, uid: &Uid, what: &str) {
        if self.due.contains_key(uid) {
            self.fail("P5", format!("{what} of {uid} before the reading that is due"));
        }
        if self.reads.values().any(|(u, _)| u == uid) {
            self.fail("P5", format!("{what} of {uid} while it is read"));
        }
    }

    pub fn record(&mut self, op: OpId, uid: &Uid, put: bool, runtime: &Runtime) {
        if put {
            self.puts.insert(op, uid.clone());
            return;
        }
        self.tried.remove(uid);
        if let Some(c) = runtime.of(uid).find(|c| self.strict || c.runs()) {
            self.fail("W25", format!("the record of {uid} goes before {}", c.id));
        }
    }

    /// The pod has exceeded its deadline: its current sandboxes end.
    pub fn deadline_exceeded(&mut self, uid: &Uid, runtime: &Runtime) {
        let has = runtime.ours().filter(|s| s.uid == *uid).map(|s| s.id.clone());
        self.asked_to_end.entry(uid.clone()).or_default().extend(has);
        self.bounds.has_a_reason(uid, runtime);
    }

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
            RuntimeCall::PullImage { pod, image } => self.bounds.pull(op, pod, image, boot).map(|what| ("W10", what)),
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
            let ends = self.asked_to_end.get(&c.uid).is_some_and(|old| old.contains(&c.sandbox));
            if !ends && !self.tampered {
                self.fail("a healthy container is left alone", format!("{} of {}: {call:?}", c.id, c.uid));
            }
        }
    }

    fn stop(&mut self, id: &str, grace: Duration, now: u64, runtime: &Runtime) {
        let Some(c) = runtime.containers.get(id) else { return };
        if !self.asked_to_end.get(&c.uid).is_some_and(|old| old.contains(&c.sandbox)) {
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
            if let Some(waits) = self.waits_for.get(&uid) {
                self.fail("W6", format!("{kind} of {uid}, which waits for the end of {waits:?}"));
            }
            let old = self.asked_to_end.get(&uid).is_some_and(|old| sandbox.is_some_and(|s| old.contains(&s)));
            let runs = self.asked_to_end.contains_key(&uid) && runtime.of(&uid).any(Container::runs);
            if old || runs && kind == "RunSandbox" {
                self.fail("no start after the end was asked for", format!("{uid}: {kind} after its end was asked for"));
            }
            if let RuntimeCall::CreateContainer(c) = call
                && let Some(s) = runtime.sandboxes.get(c.sandbox.as_str())
                && s.digest != c.pod.digest
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
        // The engine takes an earlier version's containers under the same UID for the pod's own if no record shows otherwise.
        if runtime.sandboxes.get(&started.sandbox).is_some_and(|s| s.digest != pod.digest) {
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

    /// W11, W2: a sidecar is stopped after the main containers have ended, unless its time is over or the sandbox has died.
    pub fn stopped(&mut self, id: &str, grace: Duration, runtime: &Runtime) {
        let Some(c) = runtime.containers.get(id) else { return };
        let sidecar = c.pod.init_containers().iter().any(|s| s.name == c.name && is_sidecar(s));
        let alive = runtime.sandboxes.get(&c.sandbox).is_some_and(|s| s.ready);
        // A sidecar whose startup probe failed is stopped alone.
        let ends = self.asked_to_end.get(&c.uid).is_some_and(|old| old.contains(&c.sandbox));
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
            || self.asked_to_end.contains_key(uid)
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

/// Why the runtime will refuse the call in its current state.
fn in_vain(call: &RuntimeCall, runtime: &Runtime) -> Option<String> {
    match call {
        RuntimeCall::RunSandbox { pod, attempt } => {
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
