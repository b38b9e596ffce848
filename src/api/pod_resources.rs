//! `spec.resources`: the resources of the pod as a whole (KEP-2837). Each amount takes the place of the sum over the
//! containers.

use crate::api::k8s::PodSpec;
use crate::api::k8s::Quantity as Written;
use crate::api::quantity::Quantities;
use crate::api::resources::{CPU, Resources, of_containers};

/// True for the resources that a pod can have as a whole.
pub fn is_supported(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

pub fn requests(spec: &PodSpec) -> Option<&Quantities> {
    spec.resources.as_ref()?.requests.as_ref().filter(|list| !list.is_empty())
}

pub fn limits(spec: &PodSpec) -> Option<&Quantities> {
    spec.resources.as_ref()?.limits.as_ref().filter(|list| !list.is_empty())
}

/// True if the pod has resources of its own.
pub fn is_set(spec: &PodSpec) -> bool {
    requests(spec).is_some() || limits(spec).is_some()
}

/// If there are limits: a missing request is the sum of the containers' requests, or else the limit.
pub fn complete(spec: &mut PodSpec) {
    let Some(limits) = limits(spec).cloned() else { return };
    let of_containers = of_containers(spec);
    let Some(resources) = &mut spec.resources else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, amount) in of_containers.iter().filter(|(name, _)| is_supported(name)) {
        requests.entry(name.to_owned()).or_insert_with(|| written(name, amount));
    }
    for (name, limit) in limits.into_iter().filter(|(name, _)| is_supported(name)) {
        requests.entry(name).or_insert(limit);
    }
}

/// Replaces the amounts of the containers by those of the pod.
pub fn replace(spec: &PodSpec, of_containers: &mut Resources) {
    for (name, amount) in requests(spec).map(Resources::of).iter().flat_map(Resources::iter) {
        of_containers.set(name, amount);
    }
}

/// The shortest text without a fraction. cpu is in millicores, others in bytes.
pub fn written(resource: &str, amount: u64) -> Written {
    let text = match resource {
        CPU if amount.is_multiple_of(1000) => (amount / 1000).to_string(),
        CPU => format!("{amount}m"),
        _ => {
            let units = ["", "Ki", "Mi", "Gi", "Ti"];
            let fits = |power: &usize| amount != 0 && amount.is_multiple_of(1 << (10 * power));
            let power = (0..units.len()).rev().find(fits).unwrap_or(0);
            format!("{}{}", amount >> (10 * power), units[power])
        }
    };
    Written(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn completed(resources: Value, containers: Value) -> Value {
        let mut spec: PodSpec =
            serde_json::from_value(json!({"resources": resources, "containers": containers})).expect("a spec");
        complete(&mut spec);
        serde_json::to_value(spec.resources.expect("resources")).expect("JSON")["requests"].clone()
    }

    #[test]
    fn a_missing_request_is_that_of_the_containers_or_the_limit() {
        let one = json!([{"name": "a", "resources": {"requests": {"cpu": "1500m", "memory": "64Mi",
            "ephemeral-storage": "1Gi"}}}]);
        let none = json!([{"name": "a"}]);
        for (resources, containers, requests) in [
            (json!({"limits": {"cpu": "2"}}), &one, json!({"cpu": "1500m", "memory": "64Mi"})),
            (json!({"limits": {"cpu": "2", "memory": "1Gi"}}), &none, json!({"cpu": "2", "memory": "1Gi"})),
            (json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}), &none, json!({"cpu": "1"})),
            (json!({"requests": {"cpu": "2"}}), &one, json!({"cpu": "2"})),
        ] {
            assert_eq!(completed(resources.clone(), containers.clone()), requests, "{resources}");
        }
    }

    #[test]
    fn amounts_are_short() {
        for (resource, amount, text) in [
            ("cpu", 1500, "1500m"),
            ("cpu", 2000, "2"),
            ("cpu", 0, "0"),
            ("memory", 0, "0"),
            ("memory", 1 << 30, "1Gi"),
            ("memory", 3 << 19, "1536Ki"),
            ("memory", 1001, "1001"),
        ] {
            assert_eq!(written(resource, amount).0, text);
        }
    }
}
