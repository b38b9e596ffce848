//! The rules that must hold at every instant, checked with each effect. The first violation is kept.

mod calls;
mod ends;
mod pods;

use crate::bounds::Bounds;
use crate::runtime::{Runtime, version_of};
use crate::workload_lives::Sizes;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wherry::api::names::Uid;
use wherry::api::pod::Pod;
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
    end_requested: BTreeMap<Uid, BTreeSet<String>>,
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
    /// A10: pods that are new to a cordoned node.
    held: BTreeSet<Uid>,
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
    /// W29: the ephemeral containers that were started, by pod and name.
    pub ephemeral: BTreeSet<(Uid, String)>,
    ends: ends::Ends,
    pub bounds: Bounds,
    /// The runtime may report implausible times, from which back-offs count.
    pub false_times: bool,
    /// Pods that have lost a record at some time.
    pub lost_records: BTreeSet<Uid>,
    /// The UIDs of all pods that the API server has had.
    pub of_server: BTreeSet<String>,
    /// The UIDs of all pods that a workload has had.
    pub of_workloads: BTreeSet<Uid>,
    sizes: Sizes,
    /// Those whose deletion the node has confirmed.
    pub confirmed: BTreeSet<String>,
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
        let (of_server, of_workloads) = (std::mem::take(&mut self.of_server), std::mem::take(&mut self.of_workloads));
        let of_manifests = |uid: &Uid| !of_server.contains(uid.as_str()) && !of_workloads.contains(uid);
        self.waits_for.retain(|uid, _| !of_manifests(uid) || new.values().any(|p| p.uid == *uid));
        self.held.retain(|uid| !of_manifests(uid) || new.values().any(|p| p.uid == *uid));
        let read =
            engine.checks(Default::default()).iter().any(|check| check.name == "manifests" && check.result.is_ok());
        if engine.is_cordoned() && self.bounds.has_list() && read {
            // A new version of a pod continues in its place.
            let pods = engine.pods();
            let known = |p: &Pod| pods.iter().any(|v| v.pod.uid == p.uid || v.pod.name == p.name);
            let is_new =
                |p: &&Rc<Pod>| !known(p) && !self.tried.contains(&p.uid) && runtime.of(&p.uid).next().is_none();
            self.held.extend(new.values().filter(is_new).filter(|p| !p.has_own_uid()).map(|p| p.uid.clone()));
        }
        for (pod, desired) in engine.pods().iter().map(|v| (v.pod, v.desired)).filter(|(pod, _)| of_manifests(&pod.uid))
        {
            let stays = new.values().any(|p| p.uid == pod.uid && p.digest == pod.digest);
            self.outdated.remove(&pod.uid);
            // W8: an edited pod continues to run until its record is written.
            if !stays && new.values().any(|p| p.uid == pod.uid || p.name == pod.name) {
                self.waits_for.remove(&pod.uid);
                self.outdated.insert(pod.uid.clone());
            } else if !stays {
                self.waits_for.remove(&pod.uid);
                let has = runtime.ours().filter(|s| s.uid == pod.uid).map(|s| s.id.clone());
                self.end_requested.entry(pod.uid.clone()).or_default().extend(has);
                match desired {
                    true => self.bounds.end_requested(&pod.uid, None, now, runtime),
                    // The pod disappeared from the manifests while the engine was not running.
                    false => self.bounds.ends(&pod.uid, runtime),
                }
            }
        }
        // Before the first list, an engine without a record of a pod cannot know that its termination was requested.
        if !self.bounds.has_list() {
            let known = |uid: &Uid| engine.pod(uid).is_some() || self.tried.contains(uid);
            self.end_requested.retain(|uid, _| known(uid) || !new.values().any(|p| p.uid == *uid));
        }
        // An engine that has just started may know the pod only from its records.
        let gone = runtime.ours().map(|s| &s.uid).filter(|uid| !new.values().any(|p| p.uid == **uid));
        gone.filter(|uid| of_manifests(uid)).for_each(|uid| self.bounds.ends(uid, runtime));
        (self.of_server, self.of_workloads) = (of_server, of_workloads);
    }

    /// Called after a step: notes the pods of workloads, and checks their number.
    pub fn pods_of_workloads(&mut self, engine: &Engine) {
        if let Some(wrong) = self.sizes.exceeded(engine.workloads()) {
            self.fail("Y2, Y15, Y18: not too many pods", wrong);
        }
        self.of_workloads.extend(engine.workloads().pods().map(|pod| pod.uid.clone()));
    }

    /// Called after a step: notes the edited pods whose termination is requested by now.
    pub fn replaced(&mut self, engine: &Engine, now: u64, runtime: &Runtime) {
        let Checks { outdated, end_requested, bounds, .. } = self;
        outdated.retain(|uid| {
            let runs_on = engine
                .worker_status(uid, Default::default())
                .is_some_and(|worker_status| worker_status.state == "Sync");
            if !runs_on {
                let has = runtime.sandboxes.values().filter(|s| s.uid == *uid).map(|s| s.id.clone());
                end_requested.entry(uid.clone()).or_default().extend(has);
                bounds.end_requested(uid, None, now, runtime);
            }
            runs_on
        });
    }

    /// The termination of the pod with these sandboxes is requested.
    pub fn note_end(&mut self, uid: &Uid, sandboxes: BTreeSet<String>) {
        self.end_requested.entry(uid.clone()).or_default().extend(sandboxes);
    }

    /// Called before a pod is killed.
    pub fn killed(&mut self, uid: &Uid, by: TerminationSource, engine: &Engine, runtime: &Runtime) {
        let Some(view) = engine.pod(uid) else { return };
        if view.desired && !matches!(view.status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            let has = runtime.ours().filter(|s| s.uid == *uid).map(|s| s.id.clone());
            self.end_requested.entry(uid.clone()).or_default().extend(has);
            // E5: the engine itself ends an eviction (`World::evicted_pod_starts`).
            if by != TerminationSource::Eviction {
                self.waits_for.entry(uid.clone()).or_default().insert(by);
            }
        }
    }

    /// E4: the engine evicts the pod.
    pub fn evicted(&mut self, uid: &Uid, runtime: &Runtime) {
        let has = runtime.ours().filter(|s| s.uid == *uid).map(|s| s.id.clone());
        self.end_requested.entry(uid.clone()).or_default().extend(has);
        self.bounds.has_a_reason(uid, runtime);
    }

    /// The cause of the kills is over.
    pub fn released(&mut self, by: TerminationSource) {
        self.waits_for.retain(|_, waits| {
            waits.remove(&by);
            !waits.is_empty()
        });
    }

    /// A10, A11: the node is not cordoned.
    pub fn uncordoned(&mut self) {
        self.held.clear();
        self.released(TerminationSource::ApiEviction);
    }

    /// W27: these pods may run again.
    pub fn undrained(&mut self, uids: &BTreeSet<Uid>) {
        self.waits_for.retain(|uid, waits| {
            if uids.contains(uid) {
                waits.remove(&TerminationSource::Drain);
            }
            !waits.is_empty()
        });
    }

    /// An acknowledged record is gone, or an older version is back.
    pub fn record_lost(&mut self, key: &str) {
        if let Some(uid) = key.strip_prefix("pods/") {
            self.unrecorded.insert(Uid::from(uid));
            self.lost_records.insert(Uid::from(uid));
            self.counts.remove(&Uid::from(uid));
        }
    }

    pub fn engine_killed(&mut self, runtime: &Runtime, records: &BTreeMap<String, String>) {
        self.bounds.engine_killed();
        self.sizes.engine_killed();
        self.forget_ends();
        self.changing.clear();
        self.waits_for.retain(|uid, waits| {
            let record = records.get(&format!("pods/{uid}")).map(String::as_str).unwrap_or_default();
            waits.retain(|k| record.contains("waitsFor") && record.contains(&json!(k).to_string()));
            !waits.is_empty()
        });
        // Without its record, the engine may take it for a new version of a pod of which something is left.
        self.held.retain(|uid| records.contains_key(&format!("pods/{uid}")));
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
        self.ending.extend(self.end_requested.keys().cloned());
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
            let edited = files.values().any(|p| p.uid == s.uid && version_of(p) != s.version);
            if edited {
                self.ending.insert(s.uid.clone());
            }
            if edited || record.is_none_or(|r| version_of(&r.pod) != s.version) {
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
        let goes_on = |uid: &Uid| {
            self.of_server.contains(uid.as_str())
                || self.of_workloads.contains(uid)
                || files.values().any(|p| p.uid == *uid || name(uid).is_some_and(|name| name == p.name))
        };
        self.end_requested.retain(|uid, _| recorded(uid) || !goes_on(uid));
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
        // The record of the pod before it goes, because that of this pod could not be written.
        if self.unrecorded.contains(uid) {
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
        self.end_requested.entry(uid.clone()).or_default().extend(has);
        self.bounds.has_a_reason(uid, runtime);
    }
}
