//! Changes of the node: a client can only cordon and uncordon it.

use super::path::ObjectPath;
use super::status::Failure;
use super::write::{self, ObjectChange};
use serde_json::{Value, json};

/// The taint of a cordoned node.
pub const TAINT: &str = "node.kubernetes.io/unschedulable";

/// Shows on the node whether it is cordoned.
pub fn show(node: &mut Value, cordoned: bool) {
    node["spec"] = match cordoned {
        false => json!({}),
        true => json!({ "unschedulable": true, "taints": [{ "key": TAINT, "effect": "NoSchedule" }] }),
    };
}

/// Reports whether the node is cordoned after the change. `current`: the node before the change.
///
/// # Errors
/// The patch cannot be applied, or it changes anything else.
pub fn cordons(path: &ObjectPath, current: &Value, change: &ObjectChange) -> Result<bool, Failure> {
    if matches!(change, ObjectChange::Create(_) | ObjectChange::Apply(_)) {
        return Err(Failure::method_not_allowed());
    }
    let new = write::applied(path, Some(current), change)?;
    let on = match new.pointer("/spec/unschedulable") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(on)) => *on,
        Some(other) => {
            return Err(Failure::bad_request(format!("spec.unschedulable is {other}; it must be true or false")));
        }
    };
    let (old, new) = (rest(current), rest(&new));
    let fields = ["metadata", "spec", "status"];
    let Some(field) = fields.into_iter().find(|field| old.get(field) != new.get(field)) else { return Ok(on) };
    let why = format!(
        "only spec.unschedulable of the node can be changed (kubectl cordon, uncordon), but the request changes \
         {field}; labels and taints come from the configuration of the node"
    );
    let name = path.name.as_deref().unwrap_or_default();
    Err(Failure::invalid(path.resource, name, &why, vec![(field.to_owned(), why.clone())]))
}

/// Returns the node without the fields that belong to the cordon or to the server.
fn rest(node: &Value) -> Value {
    let mut node = node.clone();
    if let Some(metadata) = node.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["resourceVersion", "managedFields", "generation"] {
            metadata.remove(field);
        }
        // A client may add empty fields, which make no difference.
        metadata.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
    }
    if let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("unschedulable");
        if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
            taints.retain(|taint| taint.get("key").and_then(Value::as_str) != Some(TAINT));
        }
        spec.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
    }
    node
}

#[cfg(test)]
mod tests {
    use super::super::path::{Target, parse};
    use super::*;

    fn node() -> Value {
        json!({
            "metadata": { "name": "n", "resourceVersion": "7", "labels": { "a": "b" } },
            "spec": {},
            "status": { "phase": "x" },
        })
    }

    fn cordoned() -> Value {
        let mut node = node();
        show(&mut node, true);
        node
    }

    fn after(current: &Value, change: ObjectChange) -> Result<bool, u16> {
        let Ok(Target::Object(path)) = parse("/api/v1/nodes/n") else { panic!() };
        cordons(&path, current, &change).map_err(|failure| failure.code)
    }

    #[test]
    fn a10_each_form_of_a_patch_can_cordon() {
        let patch = json!({ "spec": { "unschedulable": true } });
        assert_eq!(after(&node(), ObjectChange::Strategic(patch.clone())), Ok(true));
        assert_eq!(after(&node(), ObjectChange::Merge(patch)), Ok(true));
        let add = json!([{ "op": "add", "path": "/spec/unschedulable", "value": true }]);
        assert_eq!(after(&node(), ObjectChange::JsonPatch(add)), Ok(true));
        let mut replaced = node();
        replaced["spec"]["unschedulable"] = true.into();
        replaced["metadata"]["annotations"] = json!({});
        assert_eq!(after(&node(), ObjectChange::Replace(replaced)), Ok(true));
        for end in [Value::Null, json!(false)] {
            let patch = json!({ "spec": { "unschedulable": end } });
            assert_eq!(after(&cordoned(), ObjectChange::Strategic(patch.clone())), Ok(false));
            assert_eq!(after(&cordoned(), ObjectChange::Merge(patch)), Ok(false));
        }
        let remove = json!([{ "op": "remove", "path": "/spec/unschedulable" }]);
        assert_eq!(after(&cordoned(), ObjectChange::JsonPatch(remove)), Ok(false));
        assert_eq!(after(&cordoned(), ObjectChange::Merge(json!({}))), Ok(true));
    }

    #[test]
    fn a10_nothing_else_of_the_node_can_be_changed() {
        for (patch, code) in [
            (json!({ "spec": { "unschedulable": true, "taints": [{ "key": "x", "effect": "NoSchedule" }] } }), 422),
            (json!({ "metadata": { "labels": { "x": "y" } } }), 422),
            (json!({ "metadata": { "annotations": { "x": "y" } } }), 422),
            (json!({ "status": { "phase": "y" } }), 422),
            (json!({ "spec": { "podCIDR": "10.0.0.0/8" } }), 422),
            (json!({ "spec": { "unschedulable": "yes" } }), 400),
            (json!({ "spec": 1 }), 422),
            (json!([]), 422),
        ] {
            assert_eq!(after(&node(), ObjectChange::Merge(patch.clone())), Err(code), "{patch}");
        }
        assert_eq!(after(&node(), ObjectChange::JsonPatch(json!([{ "op": "remove", "path": "/x" }]))), Err(422));
        assert_eq!(after(&node(), ObjectChange::Apply(node())), Err(405));
    }
}
