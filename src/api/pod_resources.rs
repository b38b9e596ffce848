//! `spec.resources`: the resources of the pod as a whole (KEP-2837), which replace the sums over the containers. Also
//! calculates the total requests of a pod (A2).

use crate::api::k8s::PodSpec;
use crate::api::k8s::Quantity as Written;
use crate::api::pod::Pod;
use crate::api::quantity::Quantities;
use crate::api::resources::{CPU, PODS, Resources, of_containers};

/// Reports whether the resource can be set for the pod as a whole.
pub fn is_supported(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

pub fn requests(spec: &PodSpec) -> Option<&Quantities> {
    spec.resources.as_ref()?.requests.as_ref().filter(|list| !list.is_empty())
}

pub fn limits(spec: &PodSpec) -> Option<&Quantities> {
    spec.resources.as_ref()?.limits.as_ref().filter(|list| !list.is_empty())
}

/// Reports whether the pod has pod-level resources.
pub fn is_set(spec: &PodSpec) -> bool {
    requests(spec).is_some() || limits(spec).is_some()
}

/// Sets missing pod-level requests if there are pod-level limits: to the sum of the containers' requests, or else to
/// the limit.
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

/// Replaces the amounts of the containers with those of the pod.
pub fn replace(spec: &PodSpec, of_containers: &mut Resources) {
    for (name, amount) in requests(spec).map(Resources::of).iter().flat_map(Resources::iter) {
        of_containers.set(name, amount);
    }
}

/// A2: returns the amounts that must be free for the pod, including one of `pods`: the requests of the pod as a
/// whole, or else those of its containers, plus overhead.
pub fn requested_by(pod: &Pod) -> Resources {
    let spec = pod.spec();
    let mut all = of_containers(spec);
    replace(spec, &mut all);
    if let Some(overhead) = &spec.overhead {
        all.add(&Resources::of(overhead));
    }
    all.set(PODS, 1);
    all
}

/// Formats an amount as the shortest text without a fraction. `amount` is in millicores for cpu, in bytes for others.
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
    use crate::api::resources::{EPHEMERAL_STORAGE, MEMORY};
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

    fn pod(spec: serde_json::Value) -> Pod {
        Pod::of_spec("p", serde_json::from_value(spec).unwrap())
    }

    fn container(cpu: &str, memory: &str) -> serde_json::Value {
        json!({ "name": "c", "resources": { "requests": { "cpu": cpu, "memory": memory } } })
    }

    #[test]
    fn a2_containers_add_up_and_a_missing_request_takes_the_limit() {
        let limited = json!({ "name": "l", "resources": {
            "limits": { "cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi" }, "requests": { "cpu": "0" } } });
        let sum =
            requested_by(&pod(json!({ "containers": [container("250m", "64Mi"), container("0.5m", "1.5"), limited] })));
        // Fractions are rounded up for each container separately.
        let wanted = [(CPU, 251), (MEMORY, (64 << 20) + 2 + (1 << 30)), ("hugepages-2Mi", 4 << 20), (PODS, 1)];
        assert_eq!(sum, Resources::from(wanted));
        assert_eq!(requested_by(&pod(json!({ "containers": [{ "name": "c" }] }))), Resources::from([(PODS, 1)]));
    }

    #[test]
    fn a2_init_containers_count_alone_with_the_sidecars_before_them() {
        let sidecar = |cpu: &str| {
            let mut c = container(cpu, "0");
            c["restartPolicy"] = json!("Always");
            c
        };
        let cpu = |init: serde_json::Value, overhead: &str| {
            let containers = json!([container("200m", "0"), container("100m", "0")]);
            let spec = json!({ "initContainers": init, "containers": containers, "overhead": { "cpu": overhead } });
            requested_by(&pod(spec)).get(CPU)
        };
        for (init, sum) in [
            (json!([container("250m", "0"), container("299m", "0")]), 300),
            (json!([container("250m", "0"), container("301m", "0")]), 301),
            (json!([sidecar("50m")]), 350),
            (json!([sidecar("50m"), container("301m", "0")]), 351),
            // A later sidecar does not run yet.
            (json!([container("340m", "0"), sidecar("50m")]), 350),
            (json!([sidecar("50m"), container("400m", "0"), sidecar("70m")]), 450),
            (json!([sidecar("50m"), container("300m", "0"), sidecar("70m")]), 420),
        ] {
            assert_eq!(cpu(init.clone(), "0"), sum, "{init}");
            assert_eq!(cpu(init, "10m"), sum + 10);
        }
    }

    #[test]
    fn a2_of_each_resource_the_larger_of_starting_and_running_counts() {
        let sidecar = |cpu: &str, memory: &str| {
            let mut c = container(cpu, memory);
            c["restartPolicy"] = json!("Always");
            c
        };
        let sum = |spec: serde_json::Value| {
            let all = requested_by(&pod(spec));
            assert_eq!(all.get(PODS), 1);
            (all.get(CPU), all.get(MEMORY))
        };
        let main = || json!([container("100m", "100"), container("100m", "100")]);
        for (init, wanted) in [
            (json!([]), (200, 200)),
            // The first is larger in cpu, the second in memory, and neither in both.
            (json!([container("300m", "1"), container("1m", "300")]), (300, 300)),
            (json!([container("300m", "1"), container("1m", "3")]), (300, 200)),
            // Two sidecars run alongside the later init containers and alongside the main containers.
            (json!([sidecar("10m", "20"), sidecar("30m", "40")]), (240, 260)),
            (
                json!([sidecar("10m", "20"), sidecar("30m", "40"), container("190m", "0"), container("0", "201")]),
                (240, 261),
            ),
            (json!([container("500m", "0"), sidecar("10m", "20")]), (500, 220)),
            (json!([sidecar("500m", "0"), container("1m", "1")]), (700, 200)),
        ] {
            let spec = |overhead: serde_json::Value| {
                sum(json!({ "initContainers": init, "containers": main(), "overhead": overhead }))
            };
            assert_eq!(spec(json!({})), wanted, "{init}");
            assert_eq!(spec(json!({ "cpu": "5m", "memory": "7" })), (wanted.0 + 5, wanted.1 + 7), "{init}");
        }
    }

    #[test]
    fn a2_limits_stand_in_for_the_requests_of_init_containers_and_sidecars_too() {
        let limited = |policy: serde_json::Value| {
            json!({ "name": "l", "restartPolicy": policy, "resources": {
                "limits": { "cpu": "1", "x.io/gpu": "2", "ephemeral-storage": "1Ki" },
                    "requests": { "cpu": "500m" } } })
        };
        let main = json!([{ "name": "c", "resources": { "requests": { "cpu": "100m", "x.io/gpu": "1" } } }]);
        let of = |policy| requested_by(&pod(json!({ "initContainers": [limited(policy)], "containers": main })));
        let init = [(CPU, 500), ("x.io/gpu", 2), (EPHEMERAL_STORAGE, 1024), (PODS, 1)];
        assert_eq!(of(json!(null)), Resources::from(init));
        let sidecar = [(CPU, 600), ("x.io/gpu", 3), (EPHEMERAL_STORAGE, 1024), (PODS, 1)];
        assert_eq!(of(json!("Always")), Resources::from(sidecar));
        // Overhead of a resource that no container requests.
        let spec = json!({ "containers": [{ "name": "c" }], "overhead": { "memory": "120Mi" } });
        assert_eq!(requested_by(&pod(spec)), Resources::from([(MEMORY, 120 << 20), (PODS, 1)]));
    }
}
