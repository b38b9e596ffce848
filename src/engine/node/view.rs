//! The data for the API and the commands: the pods and their status, health, and a summary.

use super::Engine;
use super::shown::{Check, PodView, Summary};
use crate::api::data_object::DataObjects;
use crate::api::document::context::NetworkPolicies;
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::{FullName, Uid};
use crate::api::ordered::OrderSlice;
use crate::api::plain_object::PlainObject;
use crate::api::pod::Pod;
use crate::api::priority::PriorityClass;
use crate::api::runtime_class::RuntimeClasses;
use crate::api::time::{Boot, Wall};
use crate::api::workload::key::WorkloadKey;
use crate::engine::admission::Admission;
use crate::engine::desired::conflict::Conflict;
use crate::engine::desired::source::OpenProblem;
use crate::engine::pod::worker::{State, Worker};
use std::rc::Rc;

impl Engine {
    /// Returns all pods that a manifest or the API server defines or defined and that are not gone, by namespace and
    /// name.
    pub fn pods(&self) -> Vec<PodView<'_>> {
        let mut pods: Vec<PodView<'_>> = self.workers.values().filter_map(|w| self.view_of(w)).collect();
        pods.order_by(|a, b| (&a.pod.name, &a.pod.uid).cmp(&(&b.pod.name, &b.pod.uid)));
        pods
    }

    pub fn pod(&self, uid: &Uid) -> Option<PodView<'_>> {
        self.workers.get(uid).and_then(|w| self.view_of(w))
    }

    /// Returns the pods of a workload and of the Jobs that it has created, also those that are being deleted.
    pub fn pods_of_workload(&self, key: &WorkloadKey) -> Vec<Uid> {
        let all = self.workloads();
        self.workers.keys().filter(|uid| all.owns(key, uid)).cloned().collect()
    }

    fn view_of<'a>(&'a self, worker: &'a Worker) -> Option<PodView<'a>> {
        let pod = worker.pod.as_ref()?;
        if !worker.is_shown() {
            return None;
        }
        let deletion = match &worker.state {
            State::Terminating(t) if !worker.demand.desired || worker.demand.is_evicted_through_api() => {
                let ago = self.now.boot.since(t.began);
                let at = Wall(self.now.wall.0.saturating_sub(i64::try_from(ago.as_nanos()).unwrap_or(0)));
                Some((at, i64::try_from(t.grace_deadline.since(t.began).as_secs()).unwrap_or(i64::MAX)))
            }
            _ => None,
        };
        Some(PodView {
            pod,
            status: &worker.shown.status,
            desired: worker.demand.desired,
            admission: &worker.admission.decision,
            deletion,
            placement: worker.placement(self.cordon.is_on()),
        })
    }

    /// A1: returns true if the pod has a share of the node, or waits for one.
    fn is_active(&self, worker: &Worker) -> bool {
        match worker.state {
            State::Waiting | State::Sync(_) => worker.admission.rejection().is_none(),
            State::Terminating(_) => true,
            // A container of the pod may have been found running again.
            State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => {
                self.pleg.cache.get(&worker.uid).is_some_and(|e| e.running().next().is_some())
            }
        }
    }

    /// Returns the containers of a pod according to the runtime, newest first.
    pub fn containers(&self, uid: &Uid) -> &[ContainerFact] {
        self.pleg.cache.get(uid).map_or(&[], |entry| &entry.facts().containers)
    }

    pub fn pleg_healthy(&self, now: Boot) -> bool {
        self.pleg.schedule.is_healthy(now)
    }

    /// Returns the ConfigMaps and Secrets in force.
    pub fn data_objects(&self) -> &DataObjects {
        self.desired.data()
    }

    /// Returns the runtime's name, or `unknown` before its first answer.
    pub fn runtime_name(&self) -> &str {
        self.runtime.name()
    }

    pub fn runtime_classes(&self) -> &RuntimeClasses {
        self.desired.runtime_classes()
    }

    /// Returns the objects of the manifests that are only kept and shown (Y30).
    pub fn plain_objects(&self) -> &[Rc<PlainObject>] {
        self.desired.plain()
    }

    /// Returns what happens to a NetworkPolicy (Y31).
    pub fn network_policies(&self) -> NetworkPolicies {
        self.config.fixed.network_policies
    }

    /// Returns the PriorityClasses of the manifests, in order of precedence, highest first.
    pub fn priority_classes(&self) -> &[PriorityClass] {
        self.desired.priority_classes()
    }

    /// Returns the pod that the API shows under this name. While a pod terminates, its successor waits and is not
    /// shown (W8).
    pub fn pod_named(&self, name: &FullName) -> Option<PodView<'_>> {
        let mut named: Vec<&Worker> =
            self.workers.values().map(|w| &**w).filter(|w| w.name == *name && w.is_shown()).collect();
        named.order_by_key(|w| (w.demand.desired, matches!(w.state, State::Waiting)));
        named.into_iter().find_map(|w| self.view_of(w))
    }

    /// Returns the pod with this name as the manifests define it now: the version that runs or will run.
    pub fn manifest_of(&self, name: &FullName) -> Option<&Rc<Pod>> {
        self.desired.manifests().iter().find(|pod| pod.name == *name)
    }

    /// Returns the problems of manifests, without the conflicts between them.
    pub fn manifest_problems(&self) -> impl Iterator<Item = &OpenProblem> {
        self.desired.files.problems()
    }

    /// Returns the number of manifest files, including broken ones.
    pub fn manifest_files(&self) -> usize {
        self.desired.files.count()
    }

    /// Returns true if files can be added to the manifest directory: it is readable, and its manifests are those in
    /// force (D2).
    pub fn manifests_are_writable(&self) -> bool {
        self.desired.files.are_writable()
    }

    pub fn conflicts(&self) -> &[Conflict] {
        self.desired.conflicts()
    }

    /// Returns the results of the health checks that the engine performs.
    pub fn checks(&self, now: Boot) -> Vec<Check> {
        let manifests = if self.desired.is_known() { Ok("read".into()) } else { Err("not read yet".into()) };
        vec![
            Check { name: "runtime", result: self.runtime.check() },
            Check { name: "pleg", result: self.pleg.schedule.check(now) },
            Check { name: "manifests", result: manifests },
        ]
    }

    pub fn summary(&self, now: Boot) -> Summary {
        let mut s = Summary {
            runtime: self.runtime.fact.clone(),
            runtime_up: self.runtime.is_up(),
            runtime_answered: self.runtime.has_answered(),
            runtime_error: self.runtime.error().map(str::to_owned),
            cordoned: self.cordon.is_on(),
            pleg_age: self.pleg.schedule.last_ok.map(|at| now.since(at)),
            ..Summary::default()
        };
        for w in self.workers.values() {
            s.desired += usize::from(w.demand.desired);
            s.active += usize::from(self.is_active(w));
            s.drained += usize::from(w.demand.desired && w.demand.is_drained());
            let waits = w.admission.is_held_by_cordon(&w.state) || w.demand.is_evicted_through_api();
            s.waiting_for_uncordon += usize::from(w.demand.desired && waits);
            match (&w.state, &w.admission.decision) {
                (State::Waiting | State::Sync(_), Admission::Rejected(_)) => {
                    s.rejected += 1;
                    continue;
                }
                (State::Waiting | State::Sync(_), Admission::Waits(_)) => s.waiting_for_room += 1,
                _ => {}
            }
            let lifecycle = match w.state {
                State::Waiting | State::Sync(_) => "sync",
                State::Terminating(_) => "terminating",
                State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => "terminated",
            };
            let config = match (&w.pod, w.demand.desired) {
                (None, _) => "runtime_only",
                (Some(_), true) => "desired",
                (Some(_), false) => "orphan",
            };
            *s.working.entry((lifecycle, config)).or_default() += 1;
        }
        for entry in self.pleg.cache.values() {
            s.running_pods += usize::from(entry.facts().sandboxes.iter().any(|x| x.ready));
            for c in &entry.facts().containers {
                let state = match c.state {
                    ContainerState::Created => "created",
                    ContainerState::Running => "running",
                    ContainerState::Exited => "exited",
                    ContainerState::Unknown => "unknown",
                };
                *s.containers.entry(state).or_default() += 1;
            }
        }
        s
    }
}
