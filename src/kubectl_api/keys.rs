//! Keys and UIDs of objects.

use crate::api::kube::path::ObjectPath;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::kube::versions::Key;
use crate::api::uid;
use serde_json::{Value, json};

pub(super) fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key { kind, namespace: namespace.into(), name: name.into() }
}

/// Returns the key of the object that a path names.
pub(super) fn key_of(path: &ObjectPath) -> Option<Key> {
    Some(key(path.resource.kind, path.namespace.as_deref().unwrap_or_default(), path.name.as_deref()?))
}

/// Returns an object for which only the name is known.
pub(super) fn bare(key: &Key) -> Value {
    let resource = Resource::of(key.kind);
    let mut metadata = json!({ "name": *key.name });
    if !key.namespace.is_empty() {
        metadata["namespace"] = (*key.namespace).into();
    }
    metadata["uid"] = uid::of_name(resource.kind_name, &key.namespace, &key.name).into();
    json!({ "kind": resource.kind_name, "apiVersion": resource.api_version(), "metadata": metadata })
}
