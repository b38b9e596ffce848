//! Changes of objects: computes the new manifest from the manifest in force and the client's request. A manifest
//! contains only the fields that its author wrote; the fields that a server adds are removed from requests.

use super::path::ObjectPath;
use super::pod_row::text;
use super::resources::{Kind, Resource};
use super::status::Failure;
use super::{json_patch, strategic, string_data};
use crate::api::names::annotation;
use crate::api::problem::Problem;
use serde_json::{Map, Value};

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectChange {
    /// A new object.
    Create(Value),
    /// The whole object: `kubectl replace`.
    Replace(Value),
    /// Server-side apply: the whole manifest, of a new or an existing object.
    Apply(Value),
    Merge(Value),
    Strategic(Value),
    JsonPatch(Value),
}

impl ObjectChange {
    fn is_patch(&self) -> bool {
        matches!(self, ObjectChange::Merge(_) | ObjectChange::Strategic(_) | ObjectChange::JsonPatch(_))
    }
}

/// The media types of patches.
pub const PATCHES: &str = "application/json-patch+json, application/merge-patch+json, \
                           application/strategic-merge-patch+json, application/apply-patch+yaml";

/// The fields of `metadata` that belong to the server.
const SERVER_METADATA: [&str; 8] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];
/// The annotation with the revision that the agent adds to each Deployment.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// The annotations that the agent adds.
const SERVER_ANNOTATIONS: [&str; 4] =
    ["kubernetes.io/config.hash", "kubernetes.io/config.seen", "kubernetes.io/config.source", REVISION];

/// Removes the fields that the server owns.
pub fn manifest(mut object: Value) -> Value {
    let Some(fields) = object.as_object_mut() else { return object };
    fields.remove("status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in SERVER_METADATA {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| !SERVER_ANNOTATIONS.contains(&key.as_str()));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

/// Returns the new manifest. `current`: the manifest in force.
///
/// # Errors
/// The patch cannot be applied, or the result is another object.
pub fn changed(path: &ObjectPath, current: Option<&Value>, change: &ObjectChange) -> Result<Value, Failure> {
    // A patch may contain fields of the server, just as a whole object may.
    let without = match change {
        ObjectChange::Merge(patch) => Some(ObjectChange::Merge(manifest(patch.clone()))),
        ObjectChange::Strategic(patch) => Some(ObjectChange::Strategic(manifest(patch.clone()))),
        ObjectChange::Create(_) | ObjectChange::Replace(_) | ObjectChange::Apply(_) | ObjectChange::JsonPatch(_) => {
            None
        }
    };
    let change = without.as_ref().unwrap_or(change);
    // A patch applies to the object that the API shows. A patch that changes nothing leaves the manifest as its
    // author wrote it.
    let stored = current.map(string_data::folded).map(|object| with_annotations(path, object));
    let after = applied(path, stored.as_ref(), change)?;
    let after = match current {
        Some(current) if change.is_patch() && Some(string_data::folded(&after)) == stored => current.clone(),
        _ => after,
    };
    identified(path, manifest(after))
}

/// Gives a Deployment the annotations that the API shows. The JSON patch of `kubectl rollout undo` replaces them, and a
/// patch cannot replace a field that does not exist.
fn with_annotations(path: &ObjectPath, mut object: Value) -> Value {
    if path.resource.kind == Kind::Deployment
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.entry(REVISION).or_insert_with(|| "".into());
        }
    }
    object
}

/// Returns the controller that owns an object, as the API shows the object.
pub fn controller(live: &Value) -> Option<&Value> {
    let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().find(|owner| owner["controller"] == true)
}

/// Returns the object after the change, as the client wants it.
///
/// # Errors
/// There is no object to change, or the patch cannot be applied.
pub(super) fn applied(path: &ObjectPath, current: Option<&Value>, change: &ObjectChange) -> Result<Value, Failure> {
    let name = path.name.as_deref().unwrap_or_default();
    let existing = || current.cloned().ok_or_else(|| Failure::not_found(path.resource, name));
    let patched =
        |result: Result<Value, String>| result.map_err(|why| Failure::invalid_patch(path.resource, name, why));
    Ok(match change {
        ObjectChange::Create(object) | ObjectChange::Apply(object) => object.clone(),
        ObjectChange::Replace(object) => {
            existing()?;
            object.clone()
        }
        ObjectChange::Merge(patch) => {
            let mut object = existing()?;
            json_patch::merge(&mut object, patch.clone());
            object
        }
        ObjectChange::Strategic(patch) => patched(strategic::merge(existing()?, patch.clone()))?,
        ObjectChange::JsonPatch(patch) => patched(json_patch::apply(&existing()?, patch))?,
    })
}

/// Checks that the object is the one that the path names, and completes its identity.
fn identified(path: &ObjectPath, mut object: Value) -> Result<Value, Failure> {
    let resource = path.resource;
    let Some(fields) = object.as_object_mut() else { return Err(Failure::bad_request("the object is not a map")) };
    complete(fields, "kind", resource.kind_name)?;
    complete(fields, "apiVersion", &resource.api_version())?;
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(Failure::bad_request("metadata is not a map"));
    };
    if let Some(name) = &path.name {
        complete(metadata, "name", name)?;
    }
    match &path.namespace {
        Some(namespace) => complete(metadata, "namespace", namespace)?,
        None => drop(metadata.remove("namespace")),
    }
    Ok(object)
}

/// Sets a field, which must not have another value.
fn complete(fields: &mut Map<String, Value>, field: &str, value: &str) -> Result<(), Failure> {
    match fields.get(field) {
        Some(Value::String(own)) if !own.is_empty() && own != value => {
            Err(Failure::bad_request(format!("{field} of the object is {own:?}, but the request is for {value:?}")))
        }
        None | Some(Value::String(_) | Value::Null) => {
            fields.insert(field.to_owned(), value.into());
            Ok(())
        }
        Some(_) => Err(Failure::bad_request(format!("{field} of the object is not a string"))),
    }
}

/// Returns the name of a new object: its own, or the prefix in `generateName` with this suffix.
///
/// # Errors
/// The object has neither.
pub fn new_name(resource: &Resource, object: &mut Value, suffix: &str) -> Result<String, Failure> {
    let own = text(object, "/metadata/name").to_owned();
    if !own.is_empty() {
        return Ok(own);
    }
    let prefix = text(object, "/metadata/generateName").to_owned();
    if prefix.is_empty() {
        let (field, why) = ("metadata.name", "Required value: name or generateName is required");
        let causes = vec![(field.to_owned(), why.to_owned())];
        return Err(Failure::invalid(resource, "", &format!("{field}: {why}"), causes));
    }
    let name = format!("{prefix}{suffix}");
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("generateName");
        metadata.insert("name".to_owned(), name.as_str().into());
    }
    Ok(name)
}

/// Removes ephemeral containers from a replacement if they are those of the running pod. `kubectl replace` sends back
/// what the API shows: the ephemeral containers, which no manifest has.
pub fn without_ephemeral(change: &mut ObjectChange, live: &Value) {
    let at = "/spec/ephemeralContainers";
    if let ObjectChange::Replace(object) = change
        && object.pointer(at).is_some_and(|list| live.pointer(at) == Some(list))
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove("ephemeralContainers");
    }
}

/// Returns the UID and the resource version that a change names, or empty strings.
pub fn preconditions(change: &ObjectChange) -> (&str, &str) {
    match change {
        ObjectChange::Create(_) | ObjectChange::JsonPatch(_) => ("", ""),
        ObjectChange::Replace(o) | ObjectChange::Apply(o) | ObjectChange::Merge(o) | ObjectChange::Strategic(o) => {
            (text(o, "/metadata/uid"), text(o, "/metadata/resourceVersion"))
        }
    }
}

/// Checks the preconditions of a change, or of the options of a deletion.
///
/// # Errors
/// The object has changed since the client read it, or it is another object with the same name.
pub fn check_preconditions(
    resource: &Resource,
    name: &str,
    wanted: (Option<&str>, Option<&str>),
    current: (&str, &str),
) -> Result<(), Failure> {
    let (uid, version) = wanted;
    if let Some(uid) = uid.filter(|uid| !uid.is_empty() && *uid != current.0) {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", current.0);
        return Err(Failure::conflict(resource, name, why));
    }
    if version.is_some_and(|version| !version.is_empty() && version != current.1) {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(Failure::conflict(resource, name, why));
    }
    Ok(())
}

/// Checks a change against the object that it changes. `change`: None for a deletion, which has these `options`.
/// `live`: the object as the API shows it.
///
/// # Errors
/// The object exists already or does not exist, it has no manifest, or a precondition is not met.
pub fn check(
    resource: &'static Resource,
    name: &str,
    change: Option<&ObjectChange>,
    options: &Value,
    has_manifest: bool,
    live: Option<&Value>,
) -> Result<(), Failure> {
    match (change, has_manifest || live.is_some()) {
        (Some(ObjectChange::Create(_)), true) => return Err(Failure::already_exists(resource, name)),
        (Some(ObjectChange::Create(_) | ObjectChange::Apply(_)), false) | (_, true) => {}
        (_, false) => return Err(Failure::not_found(resource, name)),
    }
    let Some(live) = live else { return Ok(()) };
    // A manifest with the name of a pod of the API server waits for that pod to end. The client sees only the pod.
    if !has_manifest || is_from_api_server(live) {
        check_without_manifest(resource, name, live, change)?;
    }
    let (uid, version) = match change {
        None => (text(options, "/preconditions/uid"), text(options, "/preconditions/resourceVersion")),
        Some(change) => preconditions(change),
    };
    let current = (text(live, "/metadata/uid"), text(live, "/metadata/resourceVersion"));
    check_preconditions(resource, name, (Some(uid), Some(version)), current)
}

fn is_from_api_server(live: &Value) -> bool {
    let source = live.pointer("/metadata/annotations").and_then(|all| all.get(annotation::CONFIG_SOURCE));
    source.is_some_and(|source| source == "api")
}

/// W4: checks a change of an object that has no manifest. A pod that terminates can be deleted again, to shorten its
/// grace period. `live`: the object as the API shows it.
///
/// # Errors
/// Everything else is refused.
fn check_without_manifest(
    resource: &Resource,
    name: &str,
    live: &Value,
    change: Option<&ObjectChange>,
) -> Result<(), Failure> {
    let (is_pod, is_namespace) = (resource.kind == Kind::Pod, resource.kind == Kind::Namespace);
    let ends = !text(live, "/metadata/deletionTimestamp").is_empty();
    let why = match change {
        _ if is_pod && is_from_api_server(live) => {
            "it is a pod of the API server; change it there, with the kubeconfig of the cluster"
        }
        None if is_pod && ends => return Ok(()),
        _ if is_pod && ends => {
            return Err(Failure::conflict(resource, name, "it is being deleted; wait until it is gone"));
        }
        None if (is_pod || resource.kind == Kind::Job) && controller(live).is_some() => return Ok(()),
        None if matches!(resource.kind, Kind::Claim | Kind::Volume) => return Ok(()),
        // The change creates a document for the namespace.
        Some(_) if is_namespace => return Ok(()),
        None if is_namespace => {
            "it has no manifest: it is shown because it always exists, or because it contains objects; delete those"
        }
        _ if resource.kind == Kind::Claim => "a StatefulSet or a pod has created it; change its template",
        _ if controller(live).is_some() => {
            "it was created by a controller (metadata.ownerReferences); change the object that it names"
        }
        _ => "it has no manifest, because it is built in, so it cannot be changed",
    };
    // (Not a conflict: `kubectl scale` would try again until its timeout.)
    Err(Failure::forbidden(resource, name, why))
}

/// Returns the errors of a manifest in the form of an API server: an unknown field is a bad request, everything else
/// is invalid.
pub fn invalid(resource: &Resource, name: &str, problems: &[Problem]) -> Failure {
    let shown = |p: &Problem| match &p.field {
        Some(field) => format!("{field}: {}", p.message),
        None => p.message.clone(),
    };
    let all: Vec<String> = problems.iter().map(shown).collect();
    if problems.iter().any(|p| p.message.contains("unknown field")) {
        let why = format!(
            "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
            resource.kind_name,
            resource.version,
            resource.kind_name,
            all.join(", ")
        );
        return Failure::bad_request(why);
    }
    let causes = problems.iter().map(|p| (p.field.clone().unwrap_or_default(), p.message.clone())).collect();
    Failure::invalid(resource, name, &all.join(", "), causes)
}

#[cfg(test)]
mod tests {
    use super::super::path::{Target, parse};
    use super::*;
    use serde_json::json;

    fn path(text: &str) -> ObjectPath {
        match parse(text) {
            Ok(Target::Object(path)) => path,
            other => panic!("{other:?}"),
        }
    }

    const WEB: &str = "/api/v1/namespaces/shop/pods/web";

    #[test]
    fn the_fields_of_the_server_are_removed() {
        let object = json!({
            "kind": "Pod", "apiVersion": "v1", "status": { "phase": "Running" },
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "creationTimestamp": "now",
                "annotations": { "kubernetes.io/config.hash": "x", "own": "y" },
            },
            "spec": {},
        });
        let expected = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": { "name": "web", "namespace": "shop", "annotations": { "own": "y" } },
            "spec": {},
        });
        assert_eq!(changed(&path(WEB), Some(&json!({})), &ObjectChange::Replace(object)), Ok(expected));
    }

    #[test]
    fn a_change_concerns_the_object_of_the_path() {
        let current = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "web" }, "spec": { "a": 1 } });
        let merged = changed(&path(WEB), Some(&current), &ObjectChange::Merge(json!({ "spec": { "b": 2 } }))).unwrap();
        assert_eq!(merged["spec"], json!({ "a": 1, "b": 2 }));
        assert_eq!(merged["metadata"]["namespace"], "shop");
        for (change, code) in [
            (ObjectChange::Merge(json!({ "metadata": { "name": "other" } })), 400),
            (ObjectChange::Merge(json!({ "kind": "Secret" })), 400),
            (ObjectChange::Create(json!({ "metadata": { "namespace": "other" } })), 400),
            (ObjectChange::Create(json!([])), 400),
            (ObjectChange::Create(json!({ "metadata": 1 })), 400),
            (ObjectChange::JsonPatch(json!([{ "op": "remove", "path": "/x" }])), 422),
        ] {
            assert_eq!(changed(&path(WEB), Some(&current), &change).unwrap_err().code, code, "{change:?}");
        }
        assert_eq!(changed(&path(WEB), None, &ObjectChange::Merge(json!({}))).unwrap_err().code, 404);
    }

    #[test]
    fn a_patch_of_data_changes_a_value_of_string_data() {
        let path = path("/api/v1/namespaces/shop/secrets/login");
        let current = json!({ "kind": "Secret", "apiVersion": "v1",
            "metadata": { "name": "login", "namespace": "shop" },
            "data": { "b": "Yg==" }, "stringData": { "a": "one" } });
        let data = |change: &ObjectChange| {
            let after = changed(&path, Some(&current), change).unwrap();
            (after["data"].clone(), after["stringData"].clone())
        };
        let new = json!({ "data": { "a": "dHdv" } });
        let expected = (json!({ "a": "dHdv", "b": "Yg==" }), Value::Null);
        assert_eq!(data(&ObjectChange::Merge(new.clone())), expected);
        assert_eq!(data(&ObjectChange::Strategic(new)), expected);
        let put = json!([{ "op": "test", "path": "/data/a", "value": "b25l" },
            { "op": "replace", "path": "/data/a", "value": "dHdv" }]);
        assert_eq!(data(&ObjectChange::JsonPatch(put)), expected);
        // A key can be removed.
        let remove = ObjectChange::Strategic(json!({ "data": { "a": null } }));
        assert_eq!(data(&remove), (json!({ "b": "Yg==" }), Value::Null));
        // Plain values in a patch stay plain.
        let plain = ObjectChange::Merge(json!({ "stringData": { "a": "two" } }));
        assert_eq!(data(&plain), (json!({ "a": "b25l", "b": "Yg==" }), json!({ "a": "two" })));
        // Nothing changes: the manifest stays as it is.
        for same in [json!({}), json!({ "data": { "a": "b25l" } }), json!({ "stringData": { "a": "one" } })] {
            assert_eq!(changed(&path, Some(&current), &ObjectChange::Merge(same)), Ok(current.clone()));
        }
    }

    #[test]
    fn w4_of_the_objects_without_a_manifest_only_a_pod_that_ends_can_be_deleted() {
        let (pods, namespaces) = (Resource::of(Kind::Pod), Resource::of(Kind::Namespace));
        let object = |deleted: bool, source: &str| {
            let at = if deleted { json!("2026-11-20T15:00:00Z") } else { Value::Null };
            json!({ "metadata": { "deletionTimestamp": at, "annotations": { "kubernetes.io/config.source": source } } })
        };
        let why = |resource, live: &Value, change: Option<&ObjectChange>| {
            check_without_manifest(resource, "web", live, change).map_err(|failure| failure.message)
        };
        let patch = ObjectChange::Merge(json!({}));
        assert_eq!(why(pods, &object(true, "file"), None), Ok(()));
        for (resource, live, change, expected) in [
            (pods, object(true, "file"), Some(&patch), "it is being deleted"),
            (pods, object(true, "api"), None, "it is a pod of the API server"),
            (pods, object(false, "api"), Some(&patch), "it is a pod of the API server"),
            (pods, object(false, "file"), None, "it has no manifest"),
            (namespaces, object(true, "file"), None, "it has no manifest"),
        ] {
            let found = why(resource, &live, change).unwrap_err();
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn the_ephemeral_containers_of_the_running_pod_are_not_a_change() {
        let live = json!({ "spec": { "a": 1, "ephemeralContainers": [{ "name": "d" }] } });
        let mut same = ObjectChange::Replace(live.clone());
        without_ephemeral(&mut same, &live);
        assert_eq!(same, ObjectChange::Replace(json!({ "spec": { "a": 1 } })));
        let other = ObjectChange::Replace(json!({ "spec": { "ephemeralContainers": [{ "name": "e" }] } }));
        let mut changed = other.clone();
        without_ephemeral(&mut changed, &live);
        assert_eq!(changed, other, "validation refuses it");
    }

    #[test]
    fn a_name_is_generated_from_its_prefix() {
        let pods = Resource::find("", "v1", "pods").unwrap();
        let mut object = json!({ "metadata": { "generateName": "job-" } });
        assert_eq!(new_name(pods, &mut object, "x7k2p").as_deref(), Ok("job-x7k2p"));
        assert_eq!(object["metadata"], json!({ "name": "job-x7k2p" }));
        assert_eq!(new_name(pods, &mut json!({}), "x").unwrap_err().code, 422);
    }

    #[test]
    fn a_manifest_behind_a_pod_of_the_api_server_is_not_what_the_client_changes() {
        let pods = Resource::find("", "v1", "pods").unwrap();
        let shown = |source: &str| json!({ "metadata": { "annotations": { (annotation::CONFIG_SOURCE): source } } });
        for change in [None, Some(ObjectChange::Merge(json!({})))] {
            let check = |source: &str| check(pods, "web", change.as_ref(), &Value::Null, true, Some(&shown(source)));
            assert_eq!(check("file"), Ok(()));
            let refused = check("api").unwrap_err();
            assert!(refused.code == 403 && refused.message.contains("pod of the API server"), "{}", refused.message);
        }
    }

    #[test]
    fn preconditions_name_the_object_that_the_client_has_read() {
        let pods = Resource::find("", "v1", "pods").unwrap();
        let check = |uid, version| check_preconditions(pods, "web", (uid, version), ("u", "7"));
        assert_eq!(check(None, None), Ok(()));
        assert_eq!(check(Some("u"), Some("7")), Ok(()));
        assert_eq!((check(Some("x"), None).unwrap_err().code, check(None, Some("6")).unwrap_err().code), (409, 409));
    }
}
