//! Amounts by resource (A2), and their sum over containers, sidecars and init containers.

use crate::api::k8s::Quantity as Written;
use crate::api::k8s::{Container, PodSpec};
use crate::api::ordered::CollectOrdered;
use crate::api::pod::is_sidecar;
use crate::api::quantity::Quantity;
use serde::Serialize;
use std::collections::BTreeMap;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Each pod requests one unit of this resource.
pub const PODS: &str = "pods";

/// Amounts by resource: cpu in millicores, memory and storage in bytes, others in units. Missing resources are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Resources(BTreeMap<String, u64>);

impl Resources {
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Sets an amount. Zero removes the entry.
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

    /// Subtracts the amounts of `other`. An amount does not go below zero.
    pub fn subtract(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).saturating_sub(amount));
        }
    }

    /// Sets each resource to the larger of the two amounts.
    pub fn raise_to(&mut self, other: &Resources) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).max(amount));
        }
    }

    /// Formats the amounts as a kubelet does: cpu in cores if it is a whole number, memory in Ki.
    pub fn quantities(&self) -> BTreeMap<String, String> {
        let text = |(name, amount): (&str, u64)| {
            let text = match name {
                CPU if amount % 1000 == 0 => (amount / 1000).to_string(),
                CPU => format!("{amount}m"),
                MEMORY if amount % 1024 == 0 => format!("{}Ki", amount / 1024),
                _ => amount.to_string(),
            };
            (name.to_owned(), text)
        };
        self.iter().map(text).collect_map()
    }

    /// Converts a validated list. Amounts are rounded up.
    pub fn of<'l>(list: impl IntoIterator<Item = (&'l String, &'l Written)>) -> Resources {
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

/// Returns the requests of a container. A missing request defaults to the limit.
fn of_container(container: &Container) -> Resources {
    let Some(resources) = &container.resources else { return Resources::default() };
    let mut all = resources.limits.as_ref().map(Resources::of).unwrap_or_default();
    for (name, amount) in resources.requests.iter().flatten() {
        let one = Resources::of([(name, amount)]);
        all.set(name, one.get(name));
    }
    all
}

/// Returns the requests of all containers.
pub fn of_containers(spec: &PodSpec) -> Resources {
    together(spec, of_container)
}

/// Returns the sum of the limits of all containers that have one. Overhead is added to each resource with a limit.
pub fn limits_of(spec: &PodSpec) -> Resources {
    let limits = |c: &Container| c.resources.as_ref().and_then(|r| r.limits.as_ref()).map(Resources::of);
    let mut all = together(spec, |c| limits(c).unwrap_or_default());
    for (name, amount) in spec.overhead.as_ref().map(Resources::of).iter().flat_map(Resources::iter) {
        if all.get(name) > 0 {
            all.set(name, all.get(name).saturating_add(amount));
        }
    }
    all
}

/// Returns the amounts of all containers together. Main containers and sidecars run at the same time. While an init
/// container runs, only the sidecars before it run. The result is the larger of the two amounts.
fn together(spec: &PodSpec, of: impl Fn(&Container) -> Resources) -> Resources {
    let mut running = Resources::default();
    spec.containers.iter().for_each(|c| running.add(&of(c)));
    let (mut sidecars, mut starting) = (Resources::default(), Resources::default());
    for container in spec.init_containers.iter().flatten() {
        let mut now = of(container);
        now.add(&sidecars);
        if is_sidecar(container) {
            sidecars = now.clone();
        }
        starting.raise_to(&now);
    }
    running.add(&sidecars);
    running.raise_to(&starting);
    running
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn e7_the_limits_of_a_pod_are_combined_like_its_requests() {
        let limited = |amount: &str| {
            let resources =
                json!({ "limits": { "ephemeral-storage": amount }, "requests": { "ephemeral-storage": "1" } });
            json!({ "name": "c", "resources": resources })
        };
        let sidecar = |amount: &str| {
            let mut c = limited(amount);
            c["restartPolicy"] = json!("Always");
            c
        };
        let of = |init: serde_json::Value, containers: serde_json::Value, overhead: &str| {
            let overhead = json!({ "ephemeral-storage": overhead, "cpu": "1" });
            let spec = json!({ "initContainers": init, "containers": containers, "overhead": overhead });
            let all = limits_of(&serde_json::from_value(spec).unwrap());
            assert_eq!(all.get(CPU), 0, "overhead alone is no limit");
            all.get(EPHEMERAL_STORAGE)
        };
        let main = || json!([limited("100"), limited("50"), { "name": "unlimited" }]);
        assert_eq!(of(json!([]), main(), "0"), 150);
        assert_eq!(of(json!([limited("120")]), main(), "0"), 150);
        assert_eq!(of(json!([limited("151"), limited("152")]), main(), "7"), 159);
        assert_eq!(of(json!([sidecar("20"), limited("120")]), main(), "0"), 170);
        assert_eq!(of(json!([sidecar("20"), limited("160")]), main(), "0"), 180);
        assert_eq!(of(json!([]), json!([{ "name": "unlimited" }]), "7"), 0);
    }

    #[test]
    fn amounts_add_up_without_overflow_and_never_go_below_zero() {
        let a = || Resources::from([(CPU, 5), (MEMORY, u64::MAX - 1), ("x.io/gpu", 0)]);
        let b = Resources::from([(CPU, 7), (MEMORY, 3), (PODS, 1)]);
        assert_eq!(a().iter().count(), 2, "zero amounts have no entry");
        let after = |change: fn(&mut Resources, &Resources)| {
            let mut all = a();
            change(&mut all, &b);
            all
        };
        assert_eq!(after(Resources::add), Resources::from([(CPU, 12), (MEMORY, u64::MAX), (PODS, 1)]));
        assert_eq!(after(Resources::subtract), Resources::from([(MEMORY, u64::MAX - 4)]));
        assert_eq!(after(Resources::raise_to), Resources::from([(CPU, 7), (MEMORY, u64::MAX - 1), (PODS, 1)]));
        assert!(after(|all, _| *all = Resources::from([(CPU, 0)])).is_empty());
    }
}
