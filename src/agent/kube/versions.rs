//! Follows the objects and gives each change a resource version. The agent notes what may have changed; the next drive
//! of the server compares it. Pods, events and the node are compared only while a client is connected or a change waits
//! for its answer. Manifests change rarely, and the first comparison of an object is its `creationTimestamp`, so they
//! are always compared.

use super::Kube;
use super::objects::{NAMESPACES, pod_object, shown_uid};
use crate::agent::content::View;
use crate::api::data_object::{DataKey, DataKind, DataObjects};
use crate::api::kube::pod_notes::PodNotes;
use crate::api::kube::resources::Kind;
use crate::api::kube::versions::{Key, Versions};
use crate::api::names::FullName;
use crate::api::ordered::{CollectOrdered, OrderSlice};
use crate::api::time::{Boot, Wall};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The minimum time between two comparisons of the node with its last state.
const NODE_PERIOD: Duration = Duration::from_secs(1);

pub(super) struct Objects {
    pub(super) versions: Versions,
    pub(super) namespaces: BTreeSet<String>,
    /// The addresses of the node, as they were last read.
    pub(super) addresses: Vec<String>,
    /// Which pods may have changed.
    pods: PodNotes,
    /// Whether ConfigMaps, Secrets or classes may have changed.
    stale_manifests: bool,
    stale_events: bool,
    /// The order of the last occurrence of each event.
    events: BTreeMap<Key, u64>,
    data: DataObjects,
    /// The PriorityClasses and RuntimeClasses, with their content.
    classes: BTreeMap<Key, Value>,
    node: Value,
    node_read: Option<Boot>,
    /// When an object without a time of its own was first seen.
    seen: BTreeMap<Key, Wall>,
}

impl Objects {
    pub(super) fn new(run: u64) -> Objects {
        Objects {
            versions: Versions::new(run),
            namespaces: BTreeSet::new(),
            addresses: Vec::new(),
            pods: PodNotes::default(),
            stale_manifests: true,
            stale_events: true,
            events: BTreeMap::new(),
            data: DataObjects::default(),
            classes: BTreeMap::new(),
            node: Value::Null,
            node_read: None,
            seen: BTreeMap::new(),
        }
    }

    pub(super) fn first_seen(&self, key: &Key) -> String {
        let at = self.seen.get(key).and_then(|at| at.timestamp());
        at.map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
    }

    fn changed(&mut self, key: &Key, uid: &str, now: Wall) {
        self.seen.entry(key.clone()).or_insert(now);
        self.versions.changed(key, uid, || bare(key));
    }

    fn removed(&mut self, key: &Key) {
        self.seen.remove(key);
        self.versions.removed(key, || bare(key));
    }
}

impl Kube {
    /// The pod was published. `view`: its state, if it still exists.
    pub(in crate::agent) fn pod_changed(&mut self, name: &FullName, view: Option<&crate::engine::node::PodView<'_>>) {
        let is_known = self.objects.versions.uid(&key(Kind::Pod, &name.namespace, &name.name)).is_some();
        self.objects.pods.note(name, is_known, || view.and_then(ending));
    }

    pub(in crate::agent) fn events_changed(&mut self) {
        self.objects.stale_events = true;
    }

    pub(in crate::agent) fn manifests_changed(&mut self) {
        self.objects.stale_manifests = true;
    }

    /// Gives versions to all changes. `has_clients`: a client is connected. Returns which kinds of objects have
    /// changed.
    pub(in crate::agent) fn follow(&mut self, view: &View<'_>, has_clients: bool) -> Option<impl Fn(Kind) -> bool> {
        let before = self.objects.versions.current();
        let manifests = std::mem::take(&mut self.objects.stale_manifests);
        if manifests {
            self.follow_data(view);
            self.follow_classes(view);
        }
        if has_clients || self.writes.are_pending() {
            let resumed = self.resume(view);
            let pods = self.objects.pods.take();
            for name in &pods {
                self.follow_pod(view, name);
            }
            // Events expire without a note.
            if std::mem::take(&mut self.objects.stale_events) || resumed {
                self.follow_events(view);
            }
            if manifests || resumed || !pods.is_empty() {
                self.follow_namespaces(view);
            }
            // The node depends on many things. It is not compared in each turn of a busy loop.
            let is_due = self.objects.node_read.is_none_or(|at| view.now.boot.since(at) >= NODE_PERIOD);
            if is_due || resumed {
                self.objects.node_read = Some(view.now.boot);
                self.follow_node(view);
            }
        } else {
            self.objects.pods.pause();
            self.encoded.clear();
            if manifests {
                self.follow_namespaces(view);
            }
        }
        let versions = &self.objects.versions;
        (versions.current() != before).then_some(move |kind| versions.has_changed(kind, before))
    }

    /// Begins to follow pods, events and the node again. Returns false if they were followed before.
    fn resume(&mut self, view: &View<'_>) -> bool {
        let Objects { pods, versions, .. } = &mut self.objects;
        let PodNotes::Paused { .. } = pods else { return false };
        let present = view.engine.pods();
        let present = present.iter().map(|pod| (pod.pod.name.clone(), ending(pod)));
        pods.resume(present, versions.keys(Kind::Pod).map(|key| FullName::new(&key.namespace, &key.name)));
        self.objects.addresses = crate::net::addresses::addresses();
        let lease = key(Kind::Lease, "kube-node-lease", &view.config.node_name);
        if self.objects.versions.uid(&lease).is_none() {
            self.objects.changed(&lease, "", view.now.wall);
        }
        true
    }

    fn follow_pod(&mut self, view: &View<'_>, name: &FullName) {
        let key = key(Kind::Pod, &name.namespace, &name.name);
        let Objects { pods, versions, .. } = &mut self.objects;
        match view.engine.pod_named(name) {
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

    fn follow_data(&mut self, view: &View<'_>) {
        let data = view.engine.data_objects();
        let changes = data.changes(&self.objects.data);
        self.objects.data = data.clone();
        for DataKey { kind, name } in changes {
            let of = match kind {
                DataKind::ConfigMap => Kind::ConfigMap,
                DataKind::Secret => Kind::Secret,
            };
            let key = key(of, &name.namespace, &name.name);
            if data.get(&DataKey { kind, name }).is_some() {
                self.objects.changed(&key, "", view.now.wall);
            } else {
                self.objects.removed(&key);
            }
        }
    }

    fn follow_classes(&mut self, view: &View<'_>) {
        let mut names: Vec<(Kind, &str)> =
            vec![(Kind::PriorityClass, "system-cluster-critical"), (Kind::PriorityClass, "system-node-critical")];
        names.extend(view.engine.priority_classes().iter().map(|class| (Kind::PriorityClass, class.name.as_str())));
        names.extend(view.engine.runtime_classes().iter().map(|class| (Kind::RuntimeClass, class.name.as_str())));
        let keys: BTreeSet<Key> = names.into_iter().map(|(kind, name)| key(kind, "", name)).collect_set();
        for old in self.objects.classes.keys().filter(|old| !keys.contains(old)).cloned().collect::<Vec<_>>() {
            self.objects.classes.remove(&old);
            self.objects.removed(&old);
        }
        for key in keys {
            let mut content = self.object(view, &key).unwrap_or_default();
            content["metadata"] = Value::Null;
            if self.objects.classes.get(&key) != Some(&content) {
                self.objects.changed(&key, "", view.now.wall);
                self.objects.classes.insert(key, content);
            }
        }
    }

    fn follow_events(&mut self, view: &View<'_>) {
        let mut events = BTreeMap::new();
        view.event_cache.each(view.now.boot, &mut |namespace, name, order| {
            events.insert(key(Kind::Event, namespace, &name), order);
        });
        let before = std::mem::take(&mut self.objects.events);
        for old in before.keys().filter(|old| !events.contains_key(old)) {
            self.objects.removed(old);
        }
        let mut changed: Vec<_> = events.iter().filter(|(key, order)| before.get(key) != Some(order)).collect();
        // Watches report the events in their order.
        changed.order_by_key(|(_, order)| **order);
        for (key, _) in changed {
            self.objects.changed(key, "", view.now.wall);
        }
        self.objects.events = events;
    }

    fn follow_namespaces(&mut self, view: &View<'_>) {
        let mut all: BTreeSet<String> = NAMESPACES.map(str::to_owned).into();
        all.extend(view.engine.pods().iter().map(|pod| pod.pod.name.namespace.to_string()));
        all.extend(view.engine.data_objects().iter().map(|object| object.key.name.namespace.to_string()));
        let before = std::mem::replace(&mut self.objects.namespaces, all.clone());
        for name in before.difference(&all) {
            self.objects.removed(&key(Kind::Namespace, "", name));
        }
        for name in all.difference(&before) {
            self.objects.changed(&key(Kind::Namespace, "", name), "", view.now.wall);
        }
    }

    /// The node has changed by a request.
    pub(super) fn follow_changed_node(&mut self, view: &View<'_>) {
        self.objects.node_read = Some(view.now.boot);
        self.follow_node(view);
    }

    fn follow_node(&mut self, view: &View<'_>) {
        let node = super::node::object(view, &self.machine, &self.objects.addresses);
        if node != self.objects.node {
            let key = key(Kind::Node, "", &view.config.node_name);
            self.objects.changed(&key, "", view.now.wall);
            self.objects.node = node;
        }
    }
}

/// The state of a pod that terminates.
fn ending(pod: &crate::engine::node::PodView<'_>) -> Option<Value> {
    pod.deletion.is_some().then(|| pod_object(pod))
}

pub(super) fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key { kind, namespace: namespace.into(), name: name.into() }
}

/// The last state of a pod that is gone.
fn last_state(key: &Key, last: Option<Value>, uid: Option<&str>) -> Value {
    let mut object = last.unwrap_or_else(|| bare(key));
    object["metadata"]["uid"] = uid.unwrap_or_default().into();
    object
}

/// An object of which only the name is known.
fn bare(key: &Key) -> Value {
    let resource = crate::api::kube::resources::Resource::of(key.kind);
    let mut metadata = json!({ "name": *key.name });
    if !key.namespace.is_empty() {
        metadata["namespace"] = (*key.namespace).into();
    }
    metadata["uid"] = super::objects::uid(resource.kind_name, &key.namespace, &key.name).into();
    json!({ "kind": resource.kind_name, "apiVersion": resource.api_version(), "metadata": metadata })
}
