//! The desired objects: which pods, workloads, ConfigMaps and Secrets the manifests define, the pods' priorities
//! (A5), which of two documents with the same name or UID is in force (D4), which pod may use a full name (W8), and
//! what was requested or recorded before the manifests were known (D1, W25). The node compares the result with its
//! workers. The pods of the API server are a second source: `engine/node/cluster` passes them to `choose`.

pub mod classes;
pub mod conflict;
pub mod in_force;
pub mod names;
pub mod precedence;
pub mod source;

use crate::api::claim::{self, Claim};
use crate::api::data_object::{DataKey, DataObjects};
use crate::api::manifest_report::ManifestReport;
use crate::api::names::{FullName, Uid};
use crate::api::network_object::{self, NetworkObject};
use crate::api::objects::Objects;
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::api::plain_object::{self, PlainObject};
use crate::api::pod::Pod;
use crate::api::priority::PriorityClass;
use crate::api::reason::Reason;
use crate::api::resize;
use crate::api::runtime_class::RuntimeClasses;
use crate::api::workload::{self, Workload};
use crate::engine::effect::{RecordChange, Severity};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::pod::kill::{Kill, KillId, TerminationSource};
use crate::engine::pod::record::{self, History, Record};
use classes::Resolution;
use conflict::{Common, Conflict};
use in_force::InForce;
use names::Names;
use precedence::{Choice, Known};
use serde::Serialize;
use source::{ManifestFiles, Setting};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A request that arrived before the sources were read. It has to wait, because recorded pods have no workers yet.
#[derive(Debug, Serialize)]
pub enum Early {
    Kill(KillId, Uid, Kill),
    Release(TerminationSource, Option<Vec<Uid>>),
}

#[derive(Debug, Serialize)]
enum Sources {
    /// D1: no pod is stopped or started before every manifest source has been read once.
    Unread {
        /// W25: the pods whose records were found at the start.
        recorded: BTreeMap<Uid, Record>,
        early: Vec<Early>,
    },
    Read,
}

#[derive(Debug, Serialize)]
pub struct Desired {
    sources: Sources,
    /// The documents of each file.
    #[serde(skip)]
    pub files: ManifestFiles,
    /// The pods of all documents in force, with their priorities.
    manifests: Vec<Rc<Pod>>,
    /// The ConfigMaps and Secrets in force. A dump must not contain their values.
    #[serde(skip)]
    data: DataObjects,
    #[serde(skip)]
    runtime_classes: RuntimeClasses,
    #[serde(skip)]
    priority_classes: Vec<PriorityClass>,
    #[serde(skip)]
    workloads: Vec<Workload>,
    #[serde(skip)]
    claims: Vec<Rc<Claim>>,
    #[serde(skip)]
    network: Vec<Rc<NetworkObject>>,
    #[serde(skip)]
    plain: Vec<Rc<PlainObject>>,
    /// The objects whose values have changed since the last call of `take_changed_data`.
    #[serde(skip)]
    changed_data: Vec<DataKey>,
    manifests_known: bool,
    pub in_force: InForce,
    /// The last update had problems in the relations between objects, for example a missing class.
    object_problems: bool,
    conflicts: Vec<Conflict>,
    names: Names,
    /// Edited pods that are replaced once their record has been written.
    outdated: BTreeSet<Uid>,
}

impl Default for Desired {
    fn default() -> Desired {
        Desired {
            sources: Sources::Unread { recorded: BTreeMap::new(), early: Vec::new() },
            files: ManifestFiles::default(),
            manifests: Vec::new(),
            data: DataObjects::default(),
            runtime_classes: RuntimeClasses::default(),
            priority_classes: Vec::new(),
            workloads: Vec::new(),
            claims: Vec::new(),
            network: Vec::new(),
            plain: Vec::new(),
            changed_data: Vec::new(),
            manifests_known: false,
            in_force: InForce::default(),
            object_problems: false,
            conflicts: Vec::new(),
            names: Names::default(),
            outdated: BTreeSet::new(),
        }
    }
}

impl Desired {
    /// D1: returns true if every manifest source has been read once.
    pub fn is_known(&self) -> bool {
        matches!(self.sources, Sources::Read)
    }

    /// Returns the ConfigMaps and Secrets in force.
    pub fn data(&self) -> &DataObjects {
        &self.data
    }

    /// Returns the RuntimeClasses in force.
    pub fn runtime_classes(&self) -> &RuntimeClasses {
        &self.runtime_classes
    }

    /// Returns the PriorityClasses of the manifests. If several have the same name, the first of them is in force.
    pub fn priority_classes(&self) -> &[PriorityClass] {
        &self.priority_classes
    }

    /// Returns the workloads of the manifests. If several have the same kind and name, the first of
    /// them is in force.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// Returns the claims of the manifests. If several have the same name, the first of them is in force.
    pub fn claims(&self) -> &[Rc<Claim>] {
        &self.claims
    }

    /// Returns the Services and EndpointSlices of the manifests. If several have the same kind and name, the first of
    /// them is in force.
    pub fn network(&self) -> &[Rc<NetworkObject>] {
        &self.network
    }

    /// Returns the objects of the manifests that are only kept and shown (Y30). If several have the same kind and name,
    /// the first of them is in force.
    pub fn plain(&self) -> &[Rc<PlainObject>] {
        &self.plain
    }

    /// Returns the ConfigMaps and Secrets that have changed, appeared or disappeared since the last call.
    pub fn take_changed_data(&mut self) -> Vec<DataKey> {
        std::mem::take(&mut self.changed_data)
    }

    /// Returns the pods of all documents in force, including pods that wait behind another one.
    pub fn manifests(&self) -> &[Rc<Pod>] {
        &self.manifests
    }

    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    pub fn names_mut(&mut self) -> &mut Names {
        &mut self.names
    }

    /// Takes the records that were found at the start. An unusable record is moved aside.
    pub fn records_found(&mut self, records: Vec<(String, String)>, outbox: &mut Outbox) {
        let Sources::Unread { recorded, .. } = &mut self.sources else { return };
        for (key, value) in records {
            if key == in_force::KEY {
                self.in_force.record_found(&value, outbox);
            }
            if !record::is_pod(&key) {
                continue;
            }
            match record::read(&key, &value) {
                Ok(record) => {
                    recorded.insert(record.pod.uid.clone(), record);
                }
                Err(why) => {
                    let message = format!("record {key} is unusable: {why}; moving it aside");
                    outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
                    outbox.record(Owner::Worker(Uid::from("")), RecordChange::SetAside { key });
                }
            }
        }
    }

    /// Returns the list in which requests wait for the sources, or None once the sources have been read.
    pub fn early(&mut self) -> Option<&mut Vec<Early>> {
        match &mut self.sources {
            Sources::Unread { early, .. } => Some(early),
            Sources::Read => None,
        }
    }

    /// Takes a report about the manifest directory. Returns false if the objects have not changed. `resized` returns
    /// the worker's pod that this document continues under another UID.
    pub fn update<'w>(
        &mut self,
        report: ManifestReport,
        setting: &Setting<'_>,
        resized: impl Fn(&Pod) -> Option<&'w Rc<Pod>>,
        outbox: &mut Outbox,
    ) -> bool {
        self.files.take_report(report, setting, outbox);
        let Some(objects) = self.files.take_objects() else { return false };
        self.replace_objects(objects, setting, outbox);
        self.continue_resized(resized);
        true
    }

    fn replace_objects(&mut self, objects: Objects, setting: &Setting<'_>, outbox: &mut Outbox) {
        self.manifests = self.resolve(objects, setting, outbox);
        self.manifests_known = true;
    }

    /// Returns true if the manifests have been read once.
    pub fn has_manifests(&self) -> bool {
        self.manifests_known
    }

    /// Returns the records of pods until the sources have been read, and nothing after that.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        let recorded = match &self.sources {
            Sources::Unread { recorded, .. } => Some(recorded),
            Sources::Read => None,
        };
        recorded.into_iter().flat_map(BTreeMap::values)
    }

    /// Returns the pods that are desired now, and reports each new conflict. `others`: the pods of workloads and of
    /// the API server.
    /// `of_workers`: the pods that the desired workers run or will run next, by the worker's UID. `is_listed`: the
    /// runtime shows one of our pods with this UID that has no worker.
    pub fn choose(
        &mut self,
        others: &[Rc<Pod>],
        of_workers: &BTreeMap<&Uid, &Rc<Pod>>,
        is_listed: impl Fn(&Uid) -> bool,
        outbox: &mut Outbox,
    ) -> BTreeMap<Uid, Rc<Pod>> {
        let recorded = match &self.sources {
            Sources::Unread { recorded, .. } => Some(recorded),
            Sources::Read => None,
        };
        let files: BTreeSet<(&FullName, &str)> = {
            let desired = recorded.into_iter().flat_map(BTreeMap::values).filter(|record| !record.is_undesired());
            let all = of_workers.values().copied().chain(desired.map(|record| &record.pod));
            all.filter(|pod| !pod.is_from_api_server()).map(|pod| (&pod.name, pod.source.path.as_str())).collect_set()
        };
        let of_uid = |uid: &Uid| {
            let recorded = recorded.and_then(|all| all.get(uid)).map(|record| &record.pod);
            of_workers.get(uid).copied().or(recorded)
        };
        let known = |pod: &Pod| match of_uid(&pod.uid) {
            Some(own) if own.source == pod.source => Known::From(&own.source),
            _ if files.contains(&(&pod.name, pod.source.path.as_str())) => Known::Edited,
            Some(other) => Known::From(&other.source),
            None if is_listed(&pod.uid) => Known::Listed,
            None => Known::No,
        };
        let Choice { chosen, conflicts } = precedence::choose(self.manifests.iter().chain(others), known);
        self.report_conflicts(&chosen, &conflicts, outbox);
        self.conflicts = conflicts;
        chosen
    }

    /// Reports each new conflict, and each pod that now comes from another file because the previous file no longer
    /// defines it.
    fn report_conflicts(&self, chosen: &BTreeMap<Uid, Rc<Pod>>, conflicts: &[Conflict], outbox: &mut Outbox) {
        for conflict in conflicts.iter().filter(|c| !self.conflicts.contains(c)) {
            outbox.emit_node_event(Severity::Warning, Reason::Conflict, conflict.to_string());
        }
        for before in self.conflicts.iter().filter(|before| !before.with.is_api()) {
            let Common::Name(name) = &before.common else { continue };
            let takes_over = |pod: &&Rc<Pod>| pod.name == *name && pod.source == before.source;
            if chosen.values().find(takes_over).is_some() {
                let message = in_force::takes_over(&before.source, &format!("pod {name}"), &before.with.path);
                outbox.emit_node_event(Severity::Normal, Reason::ConflictEnded, message);
            }
        }
    }

    /// R1: lets a document keep the UID of the pod that it continues: either the pod is the same version under
    /// another UID, or it is running and can be changed to the new version in place.
    fn continue_resized<'w>(&mut self, resized: impl Fn(&Pod) -> Option<&'w Rc<Pod>>) {
        for pod in self.manifests.iter_mut().filter(|pod| !pod.has_own_uid()) {
            let current = match &self.sources {
                Sources::Unread { recorded, .. } if recorded.contains_key(&pod.uid) => None,
                Sources::Unread { recorded, .. } => {
                    let of_manifests = recorded.values().filter(|r| !r.pod.is_from_api_server());
                    let mut all = of_manifests.filter(|r| resize::continues(&r.pod, pod, r.goes_on()));
                    all.next().map(|r| &r.pod)
                }
                Sources::Read => resized(pod),
            };
            if let Some(current) = current {
                *pod = Rc::new(resize::continued(current, pod));
            }
        }
    }

    /// A5: returns the pods in force. The records of new pods get the values of their classes, so that they keep their
    /// priority after a restart.
    fn resolve(&mut self, mut objects: Objects, setting: &Setting<'_>, outbox: &mut Outbox) -> Vec<Rc<Pod>> {
        self.in_force.choose(&mut objects, outbox);
        let (data, of_data) = DataObjects::collect(std::mem::take(&mut objects.data));
        self.changed_data.extend(data.changes(&self.data));
        self.data = data;
        self.priority_classes.clone_from(&objects.classes);
        self.workloads = std::mem::take(&mut objects.workloads);
        self.claims = std::mem::take(&mut objects.claims);
        self.network = std::mem::take(&mut objects.network);
        self.plain = std::mem::take(&mut objects.plain);
        let of_workloads = workload::duplicates(&self.workloads);
        let of_claims = claim::duplicates(&self.claims);
        let of_network = network_object::duplicates(&self.network);
        let of_plain = plain_object::duplicates(&self.plain);
        let Resolution { in_force, accepted, mut problems, runtime_classes } = classes::resolve(objects);
        problems.extend(of_data);
        problems.extend(of_workloads);
        problems.extend(of_claims);
        problems.extend(of_network);
        problems.extend(of_plain);
        self.runtime_classes = runtime_classes;
        self.files.accept(&accepted);
        let problematic = !problems.is_empty();
        if std::mem::replace(&mut self.object_problems, problematic) || problematic {
            self.files.object_problems(problems, setting, outbox);
        }
        in_force
    }

    /// Notes that every source has been read. Returns the recorded pods in the order in which they get their names,
    /// and the requests that waited; both are empty after the first call.
    pub fn sources_read(&mut self, chosen: &BTreeMap<Uid, Rc<Pod>>) -> (Vec<Record>, Vec<Early>) {
        match std::mem::replace(&mut self.sources, Sources::Read) {
            Sources::Read => (Vec::new(), Vec::new()),
            Sources::Unread { recorded, early } => {
                let mut recorded: Vec<Record> = recorded.into_values().collect();
                // W25: a desired pod that had started precedes others of its name, because they had finished before it
                // started (W8). Pods that were waiting keep their order.
                recorded.order_by_key(|r| {
                    let History { waiting, start_time, .. } = r.history;
                    (waiting, !waiting && !chosen.contains_key(&r.pod.uid), start_time)
                });
                (recorded, early)
            }
        }
    }

    /// Notes that the pod was edited. It keeps running until its record has been written.
    pub fn outdated(&mut self, uid: &Uid) {
        self.outdated.insert(uid.clone());
    }

    /// Notes that the pod has been replaced or is gone, or that the edit was undone.
    pub fn not_outdated(&mut self, uid: &Uid) {
        self.outdated.remove(uid);
    }

    /// Takes the edited pods that may be replaced now.
    pub fn take_replaced(&mut self, may_be_replaced: impl Fn(&Uid) -> bool) -> Vec<Uid> {
        let ready: Vec<Uid> = self.outdated.iter().filter(|uid| may_be_replaced(uid)).cloned().collect();
        for uid in &ready {
            self.outdated.remove(uid);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::objects::{AcceptedPod, Given, PodDocument};
    use crate::engine::desired::precedence::pod;

    fn update(desired: &mut Desired, pods: &[&Rc<Pod>]) -> (BTreeMap<Uid, Rc<Pod>>, usize) {
        let mut outbox = Outbox::default();
        let accepted =
            |pod: &&Rc<Pod>| PodDocument::Accepted(AcceptedPod { pod: (*pod).clone(), given: Given::default() });
        let objects = Objects { pods: pods.iter().map(accepted).collect(), ..Objects::default() };
        let setting = Setting { directory: "/m", node_name: "lab", ..Setting::default() };
        desired.replace_objects(objects, &setting, &mut outbox);
        let chosen = desired.choose(&[], &BTreeMap::new(), |_| false, &mut outbox);
        (chosen, outbox.take().len())
    }

    #[test]
    fn d1_requests_wait_until_every_source_was_read() {
        let mut desired = Desired::default();
        assert!(!desired.is_known());
        desired.early().unwrap().push(Early::Release(TerminationSource::Drain, None));
        let (chosen, _) = update(&mut desired, &[]);
        assert_eq!(desired.sources_read(&chosen).1.len(), 1);
        assert!(desired.is_known() && desired.early().is_none());
        assert_eq!(desired.sources_read(&chosen).1.len(), 0);
    }

    #[test]
    fn d4_a_conflict_is_reported_once() {
        let (a, b) = (pod("web", "/m/a.yaml", 1), pod("web", "/m/b.yaml", 2));
        let mut desired = Desired::default();
        let reports = [&[&a, &b][..], &[&a, &b], &[&a], &[&a, &b]].map(|pods| update(&mut desired, pods).1);
        assert_eq!(reports, [1, 0, 0, 1], "the end of the second file is no event");
        assert_eq!(desired.conflicts().len(), 1);
    }

    #[test]
    fn an_unusable_record_is_moved_aside() {
        let (mut desired, mut outbox) = (Desired::default(), Outbox::default());
        desired.records_found(vec![("pods/x".into(), "{".into()), ("shutdown/last".into(), "{".into())], &mut outbox);
        assert_eq!(outbox.take().len(), 2, "an event, and the change of the record");
    }

    #[test]
    fn an_edited_pod_is_replaced_once() {
        let mut desired = Desired::default();
        for uid in ["a", "b", "c"] {
            desired.outdated(&uid.into());
        }
        desired.not_outdated(&"c".into());
        assert_eq!(desired.take_replaced(|uid| uid.as_str() != "a"), [Uid::from("b")]);
        assert_eq!(desired.take_replaced(|_| true), [Uid::from("a")]);
    }
}
