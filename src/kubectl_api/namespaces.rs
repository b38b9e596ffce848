//! Namespaces. One exists if it has a document, if an object is in it, or always. A namespace with a document is
//! another object than one without: `kubectl delete` waits until the UID changes, and must not wait for the objects.

use crate::api::plain_object::{PlainKind, PlainObject};
use crate::api::uid;
use crate::engine::node::Engine;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The namespaces that always exist.
const ALWAYS: [&str; 3] = ["default", "kube-node-lease", "kube-system"];
/// The label that an API server gives every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The warning of a deletion.
pub(super) const STILL_USED: &str = "only the document of the namespace is deleted; the objects in the namespace stay \
                                     until they are deleted";

/// Returns all namespaces, each with the digest of its document if it has one.
pub(super) fn all(engine: &Engine) -> BTreeMap<String, Option<String>> {
    let mut all = BTreeMap::new();
    for name in ALWAYS.into_iter().map(str::to_owned).chain(with_objects(engine)) {
        all.insert(name, None);
    }
    let documents = engine.plain_objects().iter().filter(|object| object.key.kind == PlainKind::Namespace);
    for document in documents {
        let digest = all.entry(document.key.name.name.to_string()).or_default();
        // Of several documents, the first is in force.
        digest.get_or_insert_with(|| document.digest.clone());
    }
    all
}

pub(super) fn contains_objects(engine: &Engine, name: &str) -> bool {
    with_objects(engine).contains(name)
}

/// Returns the namespaces that contain objects.
fn with_objects(engine: &Engine) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = BTreeSet::new();
    all.extend(engine.pods().iter().map(|pod| pod.pod.name.namespace.to_string()));
    all.extend(engine.data_objects().iter().map(|object| object.key.name.namespace.to_string()));
    all.extend(engine.claims().iter().map(|(claim, _)| claim.0.namespace.to_string()));
    all.extend(engine.network_objects().iter().map(|object| object.name.namespace.to_string()));
    all.extend(engine.workloads().iter().map(|(workload, _)| workload.name.namespace.to_string()));
    let plain = engine.plain_objects().iter().filter(|object| object.key.kind.is_namespaced());
    all.extend(plain.map(|object| object.key.name.namespace.to_string()));
    all
}

/// Returns the UID of a namespace.
pub(super) fn uid(name: &str, has_document: bool) -> String {
    uid::of_name(if has_document { PlainKind::Namespace.name() } else { "Namespace without a document" }, "", name)
}

/// Returns a namespace as the API shows it. `exists`: it exists also without a document.
pub(super) fn shown(document: Option<&Rc<PlainObject>>, name: &str, exists: bool) -> Option<Value> {
    let mut shown = match document {
        Some(document) => document.content(),
        None if exists => json!({ "metadata": { "name": name } }),
        None => return None,
    };
    let metadata = &mut shown["metadata"];
    metadata["uid"] = uid(name, document.is_some()).into();
    metadata["labels"][NAME_LABEL] = name.into();
    shown["spec"] = json!({ "finalizers": ["kubernetes"] });
    shown["status"] = json!({ "phase": "Active" });
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::context::Context;
    use crate::api::document::{self, Object};

    #[test]
    fn y30_a_namespace_has_the_labels_of_its_document() {
        let text = b"{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {a: b}, annotations: {c: d}}}";
        let Some(Object::Plain(object)) = document::read_objects(text, "/m/a.yaml", Context::new("lab", "")).0.pop()
        else {
            panic!()
        };
        let with = shown(Some(&Rc::new(*object)), "shop", true).unwrap();
        assert_eq!(with["metadata"]["labels"], json!({ "a": "b", NAME_LABEL: "shop" }));
        assert_eq!((&with["metadata"]["annotations"]["c"], &with["status"]["phase"]), (&"d".into(), &"Active".into()));
        let without = shown(None, "shop", true).unwrap();
        assert_eq!(without["metadata"]["labels"], json!({ NAME_LABEL: "shop" }));
        assert_ne!(with["metadata"]["uid"], without["metadata"]["uid"], "kubectl delete waits until it changes");
        assert_eq!(shown(None, "shop", false), None);
    }
}
