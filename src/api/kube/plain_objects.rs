//! The forms in which the API shows objects that are only kept (Y30). Their content is plain JSON.

use super::path::ObjectPath;
use super::resources::Kind;
use crate::api::plain_object::PlainKind;
use serde_json::{Value, json};

/// The field that `autoscaling/v1` has instead of metrics.
const CPU_TARGET: &str = "targetCPUUtilizationPercentage";

/// Returns the manifest that a client can change although there is no document: that of a namespace, which exists
/// without one if it contains an object.
pub fn built_in(path: &ObjectPath) -> Option<Value> {
    let name = path.name.as_deref().filter(|_| path.resource.kind == Kind::Namespace)?;
    Some(json!({ "apiVersion": "v1", "kind": PlainKind::Namespace.name(), "metadata": { "name": name } }))
}

/// Returns an object in this version of its group. Only autoscalers have several versions; the older one has no
/// metrics besides the usage of the CPU, and no behaviour.
pub fn in_version(content: &Value, version: &str) -> Value {
    let mut content = content.clone();
    if content["kind"] != PlainKind::HorizontalPodAutoscaler.name() || !content["spec"].is_object() {
        return content;
    }
    content["apiVersion"] = format!("autoscaling/{version}").into();
    let Some(spec) = content["spec"].as_object_mut() else { return content };
    if version == "v1" {
        spec.remove("behavior");
        let metrics = spec.remove("metrics").unwrap_or_default();
        let cpu = |metric: &&Value| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
        let metric = metrics.as_array().into_iter().flatten().find(cpu);
        let target = metric.map(|metric| &metric["resource"]["target"]["averageUtilization"]);
        if let Some(target) = target.filter(|target| target.is_number()) {
            spec.insert(CPU_TARGET.to_owned(), target.clone());
        }
    } else if let Some(target) = spec.remove(CPU_TARGET).filter(Value::is_number) {
        let target = json!({ "type": "Utilization", "averageUtilization": target });
        let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
        spec.insert("metrics".to_owned(), json!([metric]));
    }
    content
}

/// Completes an autoscaler with the defaults and the status that the API shows. `replicas`: the number of pods of its
/// target. `why`: why the autoscaler does nothing.
pub fn complete_autoscaler(object: &mut Value, replicas: i64, why: &str) {
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.entry("minReplicas").or_insert(json!(1));
    }
    object["status"] = json!({ "currentReplicas": replicas, "desiredReplicas": replicas });
    if object["apiVersion"] != "autoscaling/v1" {
        let condition = json!({ "type": "ScalingActive", "status": "False", "reason": "NotSupported", "message": why });
        object["status"]["conditions"] = json!([condition]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn autoscaler(version: &str, spec: Value) -> Value {
        json!({ "apiVersion": version, "kind": "HorizontalPodAutoscaler", "spec": spec })
    }

    #[test]
    fn y30_an_autoscaler_has_the_form_of_each_version() {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        let cpu = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
        let old = autoscaler("autoscaling/v1", json!({ "maxReplicas": 3, CPU_TARGET: 80 }));
        let new = autoscaler("autoscaling/v2", json!({ "maxReplicas": 3, "metrics": [cpu] }));
        assert_eq!(in_version(&old, "v2"), new);
        assert_eq!(in_version(&new, "v1"), old);
        assert_eq!((in_version(&old, "v1"), in_version(&new, "v2")), (old.clone(), new));
        let other = json!({ "maxReplicas": 3, "behavior": {}, "metrics": [{ "type": "External" }] });
        let none = autoscaler("autoscaling/v1", json!({ "maxReplicas": 3 }));
        assert_eq!(in_version(&autoscaler("autoscaling/v2", other), "v1"), none);
        for odd in [json!(1), json!({ "kind": "Role", "spec": {} }), autoscaler("autoscaling/v1", json!([]))] {
            assert_eq!(in_version(&odd, "v2"), odd);
        }
    }

    #[test]
    fn y30_an_autoscaler_shows_the_replicas_of_its_target() {
        let mut object = autoscaler("autoscaling/v2", json!({ "maxReplicas": 3 }));
        complete_autoscaler(&mut object, 2, "why");
        assert_eq!((&object["spec"]["minReplicas"], &object["status"]["currentReplicas"]), (&json!(1), &json!(2)));
        assert_eq!(object["status"]["conditions"][0]["message"], "why");
    }
}
