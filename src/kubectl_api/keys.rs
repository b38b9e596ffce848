//! Keys and UIDs of objects.

use crate::api::kube::path::ObjectPath;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::versions::Key;
use crate::api::uid::digest_of_bytes;
use serde_json::{Value, json};

pub(super) fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key { kind, namespace: namespace.into(), name: name.into() }
}

/// Returns the key of the object that a path names.
pub(super) fn key_of(path: &ObjectPath) -> Option<Key> {
    Some(key(path.resource.kind, path.namespace.as_deref().unwrap_or_default(), path.name.as_deref()?))
}

/// Returns the UID of an object that has none of its own. The UID stays the same after a restart.
pub(super) fn uid(kind: &str, namespace: &str, name: &str) -> String {
    let digest = digest_of_bytes(format!("{kind}/{namespace}/{name}").as_bytes());
    let part = |range: std::ops::Range<usize>| digest.get(range).unwrap_or_default().to_owned();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

/// Returns an object for which only the name is known.
pub(super) fn bare(key: &Key) -> Value {
    let resource = Resource::of(key.kind);
    let mut metadata = json!({ "name": *key.name });
    if !key.namespace.is_empty() {
        metadata["namespace"] = (*key.namespace).into();
    }
    metadata["uid"] = uid(resource.kind_name, &key.namespace, &key.name).into();
    json!({ "kind": resource.kind_name, "apiVersion": resource.api_version(), "metadata": metadata })
}
