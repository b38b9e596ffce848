//! The subresource `scale` of a Deployment (autoscaling/v1 Scale), which `kubectl scale` reads and changes.

use super::path::ObjectPath;
use super::status::Failure;
use super::write::{self, ObjectChange};
use serde_json::{Value, json};

/// Returns the Scale of a Deployment, as the API shows it.
pub fn of(deployment: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = deployment["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let count = |path: &str| deployment.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": { "replicas": count("/spec/replicas") },
        "status": { "replicas": count("/status/replicas"), "selector": selector(&deployment["spec"]["selector"]) },
    })
}

/// Returns a label selector as text: `app=web,tier in (a,b)`.
pub fn selector(selector: &Value) -> String {
    let mut parts = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for requirement in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = requirement["key"].as_str().unwrap_or_default();
        let values: Vec<&str> =
            requirement["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        parts.push(match requirement["operator"].as_str() {
            Some("Exists") => key.to_owned(),
            Some("DoesNotExist") => format!("!{key}"),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            _ => format!("{key} in ({})", values.join(",")),
        });
    }
    parts.join(",")
}

/// Returns the change of the Deployment to which a change of its Scale amounts. `current`: the Scale.
///
/// # Errors
/// The change cannot be applied, or its result has no valid number of replicas.
pub fn change(path: &ObjectPath, current: &Value, change: &ObjectChange) -> Result<ObjectChange, Failure> {
    let name = path.name.as_deref().unwrap_or_default();
    if matches!(change, ObjectChange::Create(_) | ObjectChange::Apply(_)) {
        return Err(Failure::method_not_allowed());
    }
    let (uid, version) = write::preconditions(change);
    let text = |field: &str| current["metadata"][field].as_str().unwrap_or_default();
    write::check_preconditions(
        path.resource,
        name,
        (Some(uid), Some(version)),
        (text("uid"), text("resourceVersion")),
    )?;
    let scale = write::applied(path, Some(current), change)?;
    // An absent number is zero, as in an API server.
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null => json!(0),
        replicas if replicas.as_i64().is_some_and(|n| n >= 0) => replicas.clone(),
        replicas => {
            let why = format!("Invalid value: {replicas}: must be greater than or equal to 0");
            return Err(Failure::invalid(path.resource, name, &why, vec![("spec.replicas".to_owned(), why.clone())]));
        }
    };
    Ok(ObjectChange::Merge(json!({ "spec": { "replicas": replicas } })))
}

#[cfg(test)]
mod tests {
    use super::super::path::{Target, parse};
    use super::*;

    fn deployment() -> Value {
        json!({
            "metadata": { "name": "web", "namespace": "a", "uid": "u", "resourceVersion": "7", "labels": { "x": "y" } },
            "spec": {
                "replicas": 2,
                "selector": {
                    "matchLabels": { "app": "web" },
                    "matchExpressions": [
                        { "key": "tier", "operator": "In", "values": ["a", "b"] },
                        { "key": "old", "operator": "DoesNotExist" },
                    ],
                },
            },
            "status": { "replicas": 1 },
        })
    }

    #[test]
    fn a_scale_has_the_selector_as_text() {
        let scale = of(&deployment());
        assert_eq!(scale["status"], json!({ "replicas": 1, "selector": "app=web,tier in (a,b),!old" }));
        assert_eq!(scale["metadata"], json!({ "name": "web", "namespace": "a", "uid": "u", "resourceVersion": "7" }));
    }

    #[test]
    fn a_change_of_the_scale_changes_the_replicas_alone() {
        let Ok(Target::Object(path)) = parse("/apis/apps/v1/namespaces/a/deployments/web/scale") else { panic!() };
        let current = of(&deployment());
        let replicas = |of: ObjectChange| match change(&path, &current, &of) {
            Ok(ObjectChange::Merge(patch)) => Ok(patch),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => Err(failure.code),
        };
        let five = json!({ "spec": { "replicas": 5 } });
        assert_eq!(replicas(ObjectChange::Merge(five.clone())), Ok(five.clone()));
        let mut whole = current.clone();
        whole["spec"]["replicas"] = 5.into();
        assert_eq!(replicas(ObjectChange::Replace(whole.clone())), Ok(five));
        whole["metadata"]["resourceVersion"] = "6".into();
        assert_eq!(replicas(ObjectChange::Replace(whole)), Err(409));
        assert_eq!(replicas(ObjectChange::Merge(json!({ "spec": { "replicas": -1 } }))), Err(422));
        assert_eq!(replicas(ObjectChange::Apply(json!({}))), Err(405));
    }
}
