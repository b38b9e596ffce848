//! What a pod asks of a node (A2): amounts by resource, and Kubernetes' sum over containers, sidecars and init containers.

use crate::api::pod::{Pod, is_sidecar};
use crate::api::quantity::Quantity;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use serde::Serialize;
use std::collections::BTreeMap;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// One for each pod.
pub const PODS: &str = "pods";

/// Amounts by resource: cpu in milli, memory and storage in bytes, the others in units. What is not there is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Resources(BTreeMap<String, u64>);

impl Resources {
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Zero takes it out.
    pub fn set(&mut self, name: &str, amount: u64) {
        if amount == 0 {
            self.0.remove(name);
        } else if let Some(known) = self.0.get_mut(name) {
            *known = amount;
        } else {
            self.0.insert(name.to_owned(), amount);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).saturating_add(amount));
        }
    }

    /// Never below zero.
    pub fn subtract(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).saturating_sub(amount));
        }
    }

    /// Of each resource the larger amount.
    pub fn raise_to(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).max(amount));
        }
    }

    /// Of a validated list. Amounts are rounded up.
    fn of(list: &BTreeMap<String, Written>) -> Resources {
        let mut all = Resources::default();
        for (name, written) in list {
            let Ok(quantity) = Quantity::parse(&written.0) else { continue };
            let amount = if name == CPU { quantity.milli_value() } else { quantity.value() };
            all.set(name, u64::try_from(amount).unwrap_or(0));
        }
        all
    }
}

impl<const N: usize> From<[(&str, u64); N]> for Resources {
    fn from(amounts: [(&str, u64); N]) -> Resources {
        let mut all = Resources::default();
        amounts.into_iter().for_each(|(name, amount)| all.set(name, amount));
        all
    }
}

/// A container's requests; a missing one takes the limit.
fn of_container(container: &Container) -> Resources {
    let Some(resources) = &container.resources else { return Resources::default() };
    let mut all = resources.limits.as_ref().map(Resources::of).unwrap_or_default();
    for (name, amount) in resources.requests.iter().flatten() {
        let one = Resources::of(&[(name.clone(), amount.clone())].into());
        all.set(name, one.get(name));
    }
    all
}

/// A2: what has to be free for the pod, one of `pods` included. Main containers and sidecars run side by side; while an init
/// container runs, the sidecars before it do; the larger of both counts. Overhead is on top.
pub fn requested_by(pod: &Pod) -> Resources {
    let mut running = Resources::default();
    pod.containers().iter().for_each(|c| running.add(&of_container(c)));
    let (mut sidecars, mut starting) = (Resources::default(), Resources::default());
    for container in pod.init_containers() {
        let mut now = of_container(container);
        now.add(&sidecars);
        if is_sidecar(container) {
            sidecars = now.clone();
        }
        starting.raise_to(&now);
    }
    running.add(&sidecars);
    running.raise_to(&starting);
    if let Some(overhead) = &pod.spec().overhead {
        running.add(&Resources::of(overhead));
    }
    running.set(PODS, 1);
    running
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::{FullName, Uid};
    use crate::api::pod::Source;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        Pod {
            uid: Uid::from("u"),
            name: FullName { namespace: "ns".into(), name: "p".into() },
            source: Source { path: String::new(), document: 1 },
            digest: String::new(),
            object: serde_json::from_value(json!({ "spec": spec })).unwrap(),
        }
    }

    fn asks(cpu: &str, memory: &str) -> serde_json::Value {
        json!({ "name": "c", "resources": { "requests": { "cpu": cpu, "memory": memory } } })
    }

    #[test]
    fn a2_containers_add_up_and_a_missing_request_takes_the_limit() {
        let limited = json!({ "name": "l", "resources": {
            "limits": { "cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi" }, "requests": { "cpu": "0" } } });
        let sum = requested_by(&pod(json!({ "containers": [asks("250m", "64Mi"), asks("0.5m", "1.5"), limited] })));
        // Fractions are rounded up, for each container.
        let wanted = [(CPU, 251), (MEMORY, (64 << 20) + 2 + (1 << 30)), ("hugepages-2Mi", 4 << 20), (PODS, 1)];
        assert_eq!(sum, Resources::from(wanted));
        assert_eq!(requested_by(&pod(json!({ "containers": [{ "name": "c" }] }))), Resources::from([(PODS, 1)]));
    }

    #[test]
    fn a2_init_containers_count_alone_with_the_sidecars_before_them() {
        let sidecar = |cpu: &str| {
            let mut c = asks(cpu, "0");
            c["restartPolicy"] = json!("Always");
            c
        };
        let cpu = |init: serde_json::Value, overhead: &str| {
            let containers = json!([asks("200m", "0"), asks("100m", "0")]);
            let spec = json!({ "initContainers": init, "containers": containers, "overhead": { "cpu": overhead } });
            requested_by(&pod(spec)).get(CPU)
        };
        for (init, sum) in [
            (json!([asks("250m", "0"), asks("299m", "0")]), 300),
            (json!([asks("250m", "0"), asks("301m", "0")]), 301),
            (json!([sidecar("50m")]), 350),
            (json!([sidecar("50m"), asks("301m", "0")]), 351),
            // The sidecar after it does not run yet.
            (json!([asks("340m", "0"), sidecar("50m")]), 350),
            (json!([sidecar("50m"), asks("400m", "0"), sidecar("70m")]), 450),
            (json!([sidecar("50m"), asks("300m", "0"), sidecar("70m")]), 420),
        ] {
            assert_eq!(cpu(init.clone(), "0"), sum, "{init}");
            assert_eq!(cpu(init, "10m"), sum + 10);
        }
    }
}
