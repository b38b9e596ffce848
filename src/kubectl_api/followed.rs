//! The objects as they were last compared, and their resource versions.

use super::keys::bare;
use super::namespaces;
use crate::api::data_object::DataObjects;
use crate::api::kube::pod_notes::PodNotes;
use crate::api::kube::versions::{Key, Versions};
use crate::api::names::Uid;
use crate::api::time::{Boot, Wall};
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) struct Objects {
    pub(super) versions: Versions,
    /// The namespaces, each with the digest of its document if it has one.
    pub(super) namespaces: BTreeMap<String, Option<String>>,
    /// The addresses of the node when they were last read.
    pub(super) addresses: Vec<String>,
    /// Which pods may have changed.
    pub(super) pods: PodNotes,
    /// Whether ConfigMaps, Secrets or classes may have changed.
    pub(super) stale_manifests: bool,
    pub(super) stale_events: bool,
    /// Whether Deployments may have changed.
    pub(super) stale_workloads: bool,
    /// Whether claims may have changed.
    pub(super) stale_claims: bool,
    /// Whether services may have changed.
    pub(super) stale_services: bool,
    /// The order of the last occurrence of each event.
    pub(super) events: BTreeMap<Key, u64>,
    pub(super) data: DataObjects,
    /// The PriorityClasses and RuntimeClasses, with their content.
    pub(super) classes: BTreeMap<Key, Value>,
    /// The Deployments and ReplicaSets: their UIDs, and the numbers of changes of their Deployments.
    pub(super) workloads: BTreeMap<Key, (Uid, u64)>,
    /// The claims and their directories: the UIDs of the claims, and the numbers of changes.
    pub(super) claims: BTreeMap<Key, (Uid, u64)>,
    /// The services and their endpoints, and what identifies their present versions.
    pub(super) services: BTreeMap<Key, String>,
    /// The objects that are only kept and shown, except for namespaces, and the digests of their documents.
    pub(super) plain: BTreeMap<Key, String>,
    pub(super) node: Value,
    pub(super) node_read: Option<Boot>,
    /// When each object was first seen, for objects without a creation time of their own.
    pub(super) seen: BTreeMap<Key, Wall>,
}

impl Objects {
    pub(super) fn new(run: u64) -> Objects {
        Objects {
            versions: Versions::new(run),
            namespaces: BTreeMap::new(),
            addresses: Vec::new(),
            pods: PodNotes::default(),
            stale_manifests: true,
            stale_events: true,
            stale_workloads: true,
            stale_claims: true,
            stale_services: true,
            events: BTreeMap::new(),
            data: DataObjects::default(),
            classes: BTreeMap::new(),
            workloads: BTreeMap::new(),
            claims: BTreeMap::new(),
            services: BTreeMap::new(),
            plain: BTreeMap::new(),
            node: Value::Null,
            node_read: None,
            seen: BTreeMap::new(),
        }
    }

    pub(super) fn first_seen(&self, key: &Key) -> String {
        let at = self.seen.get(key).and_then(|at| at.timestamp());
        at.map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
    }

    pub(super) fn changed(&mut self, key: &Key, uid: &str, now: Wall) {
        self.seen.entry(key.clone()).or_insert(now);
        self.versions.changed(key, uid, || bare(key));
    }

    /// Notes which objects were removed, added or changed. `before`, `now`: for each object, a value that changes with
    /// it. `uid`: the UID of such an object.
    pub(super) fn replaced<T: PartialEq>(
        &mut self,
        before: &BTreeMap<Key, T>,
        now: &BTreeMap<Key, T>,
        uid: impl Fn(&T) -> &str,
        at: Wall,
    ) {
        for old in before.keys().filter(|old| !now.contains_key(old)) {
            self.removed(old);
        }
        for (key, value) in now.iter().filter(|(key, value)| before.get(*key) != Some(*value)) {
            self.changed(key, uid(value), at);
        }
    }

    /// Notes that a namespace was added or changed. If it gets or loses its document, it becomes another object.
    pub(super) fn namespace_changed(&mut self, key: &Key, has_document: bool, now: Wall) {
        self.seen.entry(key.clone()).or_insert(now);
        let uid = namespaces::uid(&key.name, has_document);
        self.versions.changed(key, &uid, || bare_namespace(key, !has_document));
    }

    pub(super) fn namespace_removed(&mut self, key: &Key, had_document: bool) {
        self.seen.remove(key);
        self.versions.removed(key, || bare_namespace(key, had_document));
    }

    pub(super) fn removed(&mut self, key: &Key) {
        self.seen.remove(key);
        self.versions.removed(key, || bare(key));
    }
}

fn bare_namespace(key: &Key, has_document: bool) -> Value {
    let mut namespace = bare(key);
    namespace["metadata"]["uid"] = namespaces::uid(&key.name, has_document).into();
    namespace
}
