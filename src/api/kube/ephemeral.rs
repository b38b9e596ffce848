//! `pods/ephemeralcontainers`: reads the list of ephemeral containers from a request. As in an API server, the
//! request contains the whole pod, and everything except this list is ignored.

use super::path::ObjectPath;
use super::pod_row::text;
use super::status::Failure;
use super::write::{self, ObjectChange};
use crate::api::ephemeral_request::RequestedContainers;
use serde_json::Value;

/// The media types of patches.
pub const PATCHES: &str =
    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json";

/// Returns the ephemeral containers that the request asks for. `live`: the pod as the API shows it.
///
/// # Errors
/// The patch cannot be applied, or the request is for another object.
pub fn wanted(path: &ObjectPath, live: &Value, change: &ObjectChange) -> Result<RequestedContainers, Failure> {
    // kubectl before 1.22 sends only new containers in this list, because it has not received the existing ones.
    if let ObjectChange::Replace(object) = change
        && text(object, "/kind") == "EphemeralContainers"
    {
        let name = text(object, "/metadata/name");
        if !name.is_empty() && Some(name) != path.name.as_deref() {
            let wanted = path.name.as_deref().unwrap_or_default();
            return Err(Failure::bad_request(format!(
                "the object has the name {name:?}, but the request is for {wanted:?}"
            )));
        }
        return list(object.get("ephemeralContainers")).map(RequestedContainers::More);
    }
    if matches!(change, ObjectChange::Create(_) | ObjectChange::Apply(_)) {
        return Err(Failure::unsupported_media_type(PATCHES));
    }
    let object = write::changed(path, Some(live), change)?;
    list(object.pointer("/spec/ephemeralContainers")).map(RequestedContainers::All)
}

fn list(value: Option<&Value>) -> Result<Vec<Value>, Failure> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items.clone()),
        Some(_) => Err(Failure::bad_request("ephemeralContainers is not a list")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::{Target, parse};
    use super::*;
    use serde_json::json;

    fn path() -> ObjectPath {
        match parse("/api/v1/namespaces/shop/pods/web/ephemeralcontainers") {
            Ok(Target::Object(path)) => path,
            other => panic!("{other:?}"),
        }
    }

    fn live() -> Value {
        json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "web", "namespace": "shop", "uid": "u" },
            "spec": { "containers": [{ "name": "m" }], "ephemeralContainers": [{ "name": "d", "image": "b" }] },
        })
    }

    #[test]
    fn each_kind_of_change_makes_the_whole_list() {
        let both =
            RequestedContainers::All(vec![json!({ "name": "d", "image": "b" }), json!({ "name": "e", "image": "c" })]);
        let new = json!({ "name": "e", "image": "c" });
        let kubectl = json!({ "spec": {
            "$setElementOrder/ephemeralContainers": [{ "name": "d" }, { "name": "e" }],
            "ephemeralContainers": [new],
        }});
        let mut whole = live();
        whole["spec"]["ephemeralContainers"].as_array_mut().unwrap().push(new.clone());
        whole["spec"]["containers"] = json!([]);
        for change in [
            ObjectChange::Strategic(kubectl),
            ObjectChange::Merge(json!({ "spec": { "ephemeralContainers": [{ "name": "d", "image": "b" }, new] } })),
            ObjectChange::JsonPatch(json!([{ "op": "add", "path": "/spec/ephemeralContainers/-", "value": new }])),
            ObjectChange::Replace(whole),
        ] {
            assert_eq!(wanted(&path(), &live(), &change).unwrap(), both, "{change:?}");
        }
        let old = json!({ "kind": "EphemeralContainers", "metadata": { "name": "" }, "ephemeralContainers": [new] });
        assert_eq!(
            wanted(&path(), &live(), &ObjectChange::Replace(old)).unwrap(),
            RequestedContainers::More(vec![new])
        );
    }

    #[test]
    fn a_wrong_request_is_refused() {
        for (change, code) in [
            (ObjectChange::Replace(json!({ "kind": "EphemeralContainers", "metadata": { "name": "other" } })), 400),
            (ObjectChange::Replace(json!({ "kind": "EphemeralContainers", "ephemeralContainers": "x" })), 400),
            (ObjectChange::Replace(json!({ "kind": "Secret" })), 400),
            (ObjectChange::Replace(json!([])), 400),
            (ObjectChange::Merge(json!({ "spec": { "ephemeralContainers": {} } })), 400),
            (ObjectChange::Merge(json!({ "metadata": { "name": "other" } })), 400),
            (ObjectChange::Strategic(json!({ "spec": { "ephemeralContainers": [{ "image": "x" }] } })), 422),
            (ObjectChange::JsonPatch(json!([{ "op": "remove", "path": "/spec/none" }])), 422),
            (ObjectChange::Apply(json!({})), 415),
        ] {
            assert_eq!(wanted(&path(), &live(), &change).unwrap_err().code, code, "{change:?}");
        }
    }
}
