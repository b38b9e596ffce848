//! Follows the objects and gives each change a resource version. The agent notes what may have changed, and the next
//! drive of the server compares it with the last state. Pods, events and the node are compared only while a client is
//! connected or a change is pending. Manifests are always compared: they change rarely, and the time of the first
//! comparison becomes the object's `creationTimestamp`.

use super::followed::Objects;
use super::keys::{bare, key};
use super::namespaces;
use super::node;
use super::pod_object::{pod_object, shown_uid};
use super::snapshot::Snapshot;
use super::state::KubectlApi;
use crate::api::data_object::{DataKey, DataKind};
use crate::api::kube::pod_notes::PodNotes;
use crate::api::kube::resources::Kind;
use crate::api::kube::versions::Key;
use crate::api::names::FullName;
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::api::workload::key::WorkloadKind;
use crate::engine::node::PodView;
use crate::engine::services::shown;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Minimum time between two comparisons of the node with its last state.
const NODE_PERIOD: Duration = Duration::from_secs(1);

impl KubectlApi {
    /// Notes that a new state of the pod was published. `view` is the state, if the pod still exists.
    pub fn pod_changed(&mut self, name: &FullName, view: Option<&PodView<'_>>) {
        let is_known = self.objects.versions.uid(&key(Kind::Pod, &name.namespace, &name.name)).is_some();
        self.objects.pods.note(name, is_known, || view.and_then(ending));
    }

    pub fn events_changed(&mut self) {
        self.objects.stale_events = true;
    }

    pub fn manifests_changed(&mut self) {
        self.objects.stale_manifests = true;
    }

    pub fn workloads_changed(&mut self) {
        self.objects.stale_workloads = true;
    }

    pub fn claims_changed(&mut self) {
        self.objects.stale_claims = true;
    }

    pub fn services_changed(&mut self) {
        self.objects.stale_services = true;
    }

    /// Reports whether the next `follow` starts to follow the node again, in which case the node's addresses must be
    /// set first.
    pub fn needs_addresses(&self, has_clients: bool) -> bool {
        matches!(self.objects.pods, PodNotes::Paused { .. }) && (has_clients || !self.changes.is_empty())
    }

    /// Sets the addresses of the node.
    pub fn set_addresses(&mut self, addresses: Vec<String>) {
        self.objects.addresses = addresses;
    }

    /// Assigns versions to all changes. `has_clients` tells whether a client is connected. Returns a function that
    /// reports whether objects of a kind have changed, or None if nothing has changed.
    pub fn follow<'a>(
        &'a mut self,
        snapshot: &Snapshot<'_>,
        has_clients: bool,
    ) -> Option<impl Fn(Kind) -> bool + use<'a>> {
        let before = self.objects.versions.current();
        let manifests = std::mem::take(&mut self.objects.stale_manifests);
        if manifests {
            self.follow_data(snapshot);
            self.follow_classes(snapshot);
            self.follow_plain(snapshot);
        }
        if std::mem::take(&mut self.objects.stale_workloads) || manifests {
            self.follow_workloads(snapshot);
        }
        if std::mem::take(&mut self.objects.stale_claims) || manifests {
            self.follow_claims(snapshot);
        }
        if std::mem::take(&mut self.objects.stale_services) || manifests {
            self.follow_services(snapshot);
        }
        if has_clients || !self.changes.is_empty() {
            let resumed = self.resume(snapshot);
            let pods = self.objects.pods.take();
            for name in &pods {
                self.follow_pod(snapshot, name);
            }
            // Events that expire are not noted as a change.
            if std::mem::take(&mut self.objects.stale_events) || resumed {
                self.follow_events(snapshot);
            }
            if manifests || resumed || !pods.is_empty() {
                self.follow_namespaces(snapshot);
            }
            // The node depends on many values, so it is not compared in each turn of a busy loop.
            let is_due = self.objects.node_read.is_none_or(|at| snapshot.now.boot.since(at) >= NODE_PERIOD);
            if is_due || resumed {
                self.objects.node_read = Some(snapshot.now.boot);
                self.follow_node(snapshot);
            }
        } else {
            self.objects.pods.pause();
            self.encoded.clear();
            if manifests {
                self.follow_namespaces(snapshot);
            }
        }
        let versions = &self.objects.versions;
        (versions.current() != before).then_some(move |kind| versions.has_changed(kind, before))
    }

    /// Starts to follow pods, events and the node again. Returns false if they are already followed.
    fn resume(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let Objects { pods, versions, .. } = &mut self.objects;
        let PodNotes::Paused { .. } = pods else { return false };
        let present = snapshot.engine.pods();
        let present = present.iter().map(|pod| (pod.pod.name.clone(), ending(pod)));
        pods.resume(present, versions.keys(Kind::Pod).map(|key| FullName::new(&key.namespace, &key.name)));
        let lease = key(Kind::Lease, "kube-node-lease", snapshot.node_name);
        if self.objects.versions.uid(&lease).is_none() {
            self.objects.changed(&lease, "", snapshot.now.wall);
        }
        true
    }

    fn follow_pod(&mut self, snapshot: &Snapshot<'_>, name: &FullName) {
        let key = key(Kind::Pod, &name.namespace, &name.name);
        let Objects { pods, versions, .. } = &mut self.objects;
        match snapshot.engine.pod_named(name) {
            Some(pod) => {
                let uid = versions.uid(&key);
                let last = || last_state(&key, pods.last_state(name), uid.as_deref());
                versions.changed(&key, &shown_uid(&pod), last);
            }
            None => {
                let uid = versions.uid(&key);
                let last = pods.last_state(name);
                versions.removed(&key, || last_state(&key, last, uid.as_deref()));
            }
        }
    }

    fn follow_data(&mut self, snapshot: &Snapshot<'_>) {
        let data = snapshot.engine.data_objects();
        let changes = data.changes(&self.objects.data);
        self.objects.data = data.clone();
        for DataKey { kind, name } in changes {
            let of = match kind {
                DataKind::ConfigMap => Kind::ConfigMap,
                DataKind::Secret => Kind::Secret,
            };
            let key = key(of, &name.namespace, &name.name);
            if data.get(&DataKey { kind, name }).is_some() {
                self.objects.changed(&key, "", snapshot.now.wall);
            } else {
                self.objects.removed(&key);
            }
        }
    }

    fn follow_classes(&mut self, snapshot: &Snapshot<'_>) {
        let mut names: Vec<(Kind, &str)> =
            vec![(Kind::PriorityClass, "system-cluster-critical"), (Kind::PriorityClass, "system-node-critical")];
        names.extend(snapshot.engine.priority_classes().iter().map(|class| (Kind::PriorityClass, class.name.as_str())));
        let storage = snapshot.engine.storage_classes().iter();
        names.extend(storage.map(|class| (Kind::StorageClass, class.name.as_str())));
        names.extend(snapshot.engine.runtime_classes().iter().map(|class| (Kind::RuntimeClass, class.name.as_str())));
        let keys: BTreeSet<Key> = names.into_iter().map(|(kind, name)| key(kind, "", name)).collect_set();
        for old in self.objects.classes.keys().filter(|old| !keys.contains(old)).cloned().collect::<Vec<_>>() {
            self.objects.classes.remove(&old);
            self.objects.removed(&old);
        }
        for key in keys {
            let mut content = self.object(snapshot, &key).unwrap_or_default();
            content["metadata"] = Value::Null;
            if self.objects.classes.get(&key) != Some(&content) {
                self.objects.changed(&key, "", snapshot.now.wall);
                self.objects.classes.insert(key, content);
            }
        }
    }

    fn follow_workloads(&mut self, snapshot: &Snapshot<'_>) {
        let mut workloads = BTreeMap::new();
        for (workload, controller) in snapshot.engine.workloads().iter() {
            let kind = Kind::of_workload(workload.kind);
            let of_revision = match workload.kind {
                WorkloadKind::Deployment | WorkloadKind::ReplicaSet => Kind::ReplicaSet,
                WorkloadKind::CronJob | WorkloadKind::Job => Kind::Job,
                WorkloadKind::DaemonSet | WorkloadKind::StatefulSet => Kind::ControllerRevision,
            };
            let state = controller.get().state();
            let revisions = state.history.revisions.iter();
            let revisions = revisions.map(|revision| (of_revision, &revision.name, revision.uid.clone()));
            for (kind, name, uid) in [(kind, &workload.name, workload.uid())].into_iter().chain(revisions) {
                workloads.insert(key(kind, &name.namespace, &name.name), (uid, state.version()));
            }
        }
        let before = std::mem::take(&mut self.objects.workloads);
        self.objects.replaced(&before, &workloads, |(uid, _)| uid.as_str(), snapshot.now.wall);
        self.objects.workloads = workloads;
    }

    fn follow_claims(&mut self, snapshot: &Snapshot<'_>) {
        let mut claims = BTreeMap::new();
        for (claim, entry) in snapshot.engine.claims().iter() {
            let (name, uid) = (&claim.0, claim.uid());
            if entry.has_claim() {
                claims.insert(key(Kind::Claim, &name.namespace, &name.name), (uid.clone(), entry.version()));
            }
            if entry.volume().is_some() {
                claims.insert(key(Kind::Volume, "", &claim.volume_name()), (uid, entry.version()));
            }
        }
        let before = std::mem::take(&mut self.objects.claims);
        self.objects.replaced(&before, &claims, |_| "", snapshot.now.wall);
        self.objects.claims = claims;
    }

    fn follow_services(&mut self, snapshot: &Snapshot<'_>) {
        let mut services = BTreeMap::new();
        for (name, entry) in snapshot.engine.services().iter() {
            let of = |kind, own: &str| key(kind, &name.namespace, own);
            let version = entry.version.to_string();
            services.insert(of(Kind::Service, &name.name), version.clone());
            if entry.has_selector() {
                services.insert(of(Kind::Endpoints, &name.name), version.clone());
                let slices = shown::slices(name, entry, snapshot.node_name).into_keys();
                services.extend(slices.map(|own: String| (of(Kind::EndpointSlice, &own), version.clone())));
            }
        }
        for object in snapshot.engine.network_objects().iter().filter(|object| object.slice().is_some()) {
            let name = &object.name;
            services.insert(key(Kind::EndpointSlice, &name.namespace, &name.name), object.digest.clone());
        }
        let before = std::mem::take(&mut self.objects.services);
        self.objects.replaced(&before, &services, |_| "", snapshot.now.wall);
        self.objects.services = services;
    }

    fn follow_events(&mut self, snapshot: &Snapshot<'_>) {
        let mut events = BTreeMap::new();
        snapshot.events.each(snapshot.now.boot, &mut |namespace, name, order| {
            events.insert(key(Kind::Event, namespace, &name), order);
        });
        let before = std::mem::take(&mut self.objects.events);
        for old in before.keys().filter(|old| !events.contains_key(old)) {
            self.objects.removed(old);
        }
        let mut changed: Vec<_> = events.iter().filter(|(key, order)| before.get(key) != Some(order)).collect();
        // Watches must report the events in order.
        changed.order_by_key(|(_, order)| **order);
        for (key, _) in changed {
            self.objects.changed(key, "", snapshot.now.wall);
        }
        self.objects.events = events;
    }

    fn follow_plain(&mut self, snapshot: &Snapshot<'_>) {
        let mut plain = BTreeMap::new();
        for object in snapshot.engine.plain_objects() {
            let (kind, FullName { namespace, name }) = (object.key.kind, &object.key.name);
            for kind in Kind::of_plain(kind).iter().filter(|kind| **kind != Kind::Namespace) {
                // Of several documents, the first is in force.
                plain.entry(key(*kind, namespace, name)).or_insert_with(|| object.digest.clone());
            }
        }
        let before = std::mem::take(&mut self.objects.plain);
        self.objects.replaced(&before, &plain, |_| "", snapshot.now.wall);
        self.objects.plain = plain;
    }

    fn follow_namespaces(&mut self, snapshot: &Snapshot<'_>) {
        let all = namespaces::all(snapshot.engine);
        let before = std::mem::take(&mut self.objects.namespaces);
        for (name, document) in before.iter().filter(|(name, _)| !all.contains_key(*name)) {
            self.objects.namespace_removed(&key(Kind::Namespace, "", name), document.is_some());
        }
        for (name, document) in all.iter().filter(|(name, document)| before.get(*name) != Some(*document)) {
            let key = key(Kind::Namespace, "", name);
            self.objects.namespace_changed(&key, document.is_some(), snapshot.now.wall);
        }
        self.objects.namespaces = all;
    }

    /// Assigns a version to a change that a request has made to the node.
    pub(super) fn follow_changed_node(&mut self, snapshot: &Snapshot<'_>) {
        self.objects.node_read = Some(snapshot.now.boot);
        self.follow_node(snapshot);
    }

    fn follow_node(&mut self, snapshot: &Snapshot<'_>) {
        let node = node::object(snapshot, &self.machine, &self.objects.addresses);
        if node != self.objects.node {
            let key = key(Kind::Node, "", snapshot.node_name);
            self.objects.changed(&key, "", snapshot.now.wall);
            self.objects.node = node;
        }
    }
}

/// Returns the state of the pod if it is terminating.
fn ending(pod: &PodView<'_>) -> Option<Value> {
    pod.deletion.is_some().then(|| pod_object(pod))
}

/// Returns the last state of a pod that is gone.
fn last_state(key: &Key, last: Option<Value>, uid: Option<&str>) -> Value {
    let mut object = last.unwrap_or_else(|| bare(key));
    object["metadata"]["uid"] = uid.unwrap_or_default().into();
    object
}
