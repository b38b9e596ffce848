//! The QoS class of a pod, from the cpu and memory of its containers.
//!
//! Guaranteed: every container has limits for both, and requests equal to them. BestEffort: no container has a request
//! or a limit. Burstable: all other pods. Zero amounts count as absent.

use crate::api::k8s::{Container, PodSpec};
use crate::api::pod_resources;
use crate::api::quantity::{Quantities, Quantity, amount};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Qos {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Qos {
    /// Returns the class of a defaulted and validated spec.
    pub fn of(spec: &PodSpec) -> Qos {
        if pod_resources::is_set(spec) {
            return Qos::of_lists(pod_resources::requests(spec), pod_resources::limits(spec));
        }
        let all = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
        if all().all(requests_nothing) {
            Qos::BestEffort
        } else if all().all(is_guaranteed) {
            Qos::Guaranteed
        } else {
            Qos::Burstable
        }
    }

    /// Returns the class of a pod with pod-level resources. The resources of its containers do not matter.
    fn of_lists(requests: Option<&Quantities>, limits: Option<&Quantities>) -> Qos {
        let positive = |list: Option<&Quantities>, resource: &str| amount(list, resource).filter(|q| !q.is_zero());
        let some = |list: Option<&Quantities>| DECIDING.iter().any(|r| positive(list, r).is_some());
        let equal = |r: &str| positive(limits, r).is_some_and(|limit| positive(requests, r) == Some(limit));
        if !some(requests) && !some(limits) {
            Qos::BestEffort
        } else if DECIDING.iter().all(|r| equal(r)) {
            Qos::Guaranteed
        } else {
            Qos::Burstable
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Qos::Guaranteed => "Guaranteed",
            Qos::Burstable => "Burstable",
            Qos::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The resources that determine the class.
const DECIDING: [&str; 2] = ["cpu", "memory"];

fn request(container: &Container, resource: &str) -> Option<Quantity> {
    let list = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    amount(list, resource).filter(|q| !q.is_zero())
}

fn limit(container: &Container, resource: &str) -> Option<Quantity> {
    let list = container.resources.as_ref().and_then(|r| r.limits.as_ref());
    amount(list, resource).filter(|q| !q.is_zero())
}

fn requests_nothing(container: &Container) -> bool {
    DECIDING.iter().all(|r| request(container, r).is_none() && limit(container, r).is_none())
}

/// Reports whether the container meets the requirements of Guaranteed. A missing request defaults to the limit. An
/// explicit request of zero does not equal the limit.
fn is_guaranteed(container: &Container) -> bool {
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    DECIDING
        .iter()
        .all(|r| limit(container, r).is_some_and(|limit| amount(requests, r).is_none_or(|request| request == limit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::k8s::Quantity as Written;
    use crate::api::k8s::ResourceRequirements;

    fn container(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Container {
        let list = |from: &[(&str, &str)]| {
            Some(from.iter().map(|(k, v)| ((*k).to_owned(), Written((*v).to_owned()))).collect())
        };
        Container {
            resources: Some(Box::new(ResourceRequirements {
                requests: list(requests),
                limits: list(limits),
                claims: None,
            })),
            ..Container::default()
        }
    }

    #[test]
    fn the_class_follows_requests_and_limits() {
        let both = [("cpu", "250m"), ("memory", "32Mi")];
        let none = || container(&[], &[]);
        for (containers, class) in [
            (vec![Container::default()], Qos::BestEffort),
            (vec![none(), none()], Qos::BestEffort),
            (vec![container(&[("cpu", "0")], &[])], Qos::BestEffort),
            (vec![container(&[("ephemeral-storage", "1Gi")], &[])], Qos::BestEffort),
            (vec![container(&both, &both)], Qos::Guaranteed),
            (vec![container(&[("cpu", "0.25"), ("memory", "32768Ki")], &both)], Qos::Guaranteed),
            (vec![container(&both, &both), none()], Qos::Burstable),
            (vec![container(&[("cpu", "100m"), ("memory", "32Mi")], &both)], Qos::Burstable),
            (vec![container(&[("cpu", "1")], &[("cpu", "1")])], Qos::Burstable),
            (vec![container(&both, &[])], Qos::Burstable),
            (vec![container(&[], &both)], Qos::Guaranteed),
            (vec![container(&[], &[("cpu", "0"), ("memory", "0")])], Qos::BestEffort),
            (vec![container(&[("cpu", "0"), ("memory", "32Mi")], &both)], Qos::Burstable),
            (vec![container(&[("memory", "1")], &[])], Qos::Burstable),
            (vec![container(&[], &[("memory", "1")])], Qos::Burstable),
            (vec![container(&[], &[("cpu", "1"), ("memory", "0")])], Qos::Burstable),
            (vec![container(&[], &[("x.io/gpu", "1"), ("hugepages-2Mi", "2Mi")])], Qos::BestEffort),
            // Other resources do not affect the class.
            (vec![container(&[("ephemeral-storage", "1")], &[("cpu", "1"), ("memory", "1")])], Qos::Guaranteed),
            // Each container is considered separately.
            (vec![container(&both, &both), container(&[], &[("cpu", "1"), ("memory", "1Gi")])], Qos::Guaranteed),
            (vec![container(&both, &both), container(&[], &[("cpu", "1")])], Qos::Burstable),
        ] {
            let spec = PodSpec { containers, ..PodSpec::default() };
            assert_eq!(Qos::of(&spec), class, "{:?}", spec.containers);
        }
    }

    #[test]
    fn the_resources_of_the_pod_as_a_whole_precede_those_of_its_containers() {
        for (requests, limits, class) in [
            (&[("cpu", "1"), ("memory", "1Gi")][..], &[("cpu", "1"), ("memory", "1Gi")][..], Qos::Guaranteed),
            (&[("cpu", "1")], &[("cpu", "1"), ("memory", "1Gi")], Qos::Burstable),
            (&[("cpu", "1")], &[], Qos::Burstable),
            (&[("cpu", "0")], &[], Qos::BestEffort),
        ] {
            let resources = container(requests, limits).resources;
            let full = [("cpu", "250m"), ("memory", "32Mi")];
            for containers in [vec![Container::default()], vec![container(&full, &full)]] {
                let spec = PodSpec { containers, resources: resources.clone(), ..PodSpec::default() };
                assert_eq!(Qos::of(&spec), class, "{resources:?}");
            }
        }
    }

    #[test]
    fn init_containers_and_sidecars_count_like_main_ones() {
        let both = [("cpu", "250m"), ("memory", "32Mi")];
        let sidecar = |c: Container| Container { restart_policy: Some("Always".to_owned()), ..c };
        let (full, bare) = (|| container(&both, &both), || container(&[], &[]));
        for (init, main, class) in [
            (bare(), bare(), Qos::BestEffort),
            (full(), full(), Qos::Guaranteed),
            (bare(), full(), Qos::Burstable),
            (full(), bare(), Qos::Burstable),
            (container(&both, &[]), full(), Qos::Burstable),
        ] {
            for init in [init.clone(), sidecar(init)] {
                let spec =
                    PodSpec { containers: vec![main.clone()], init_containers: Some(vec![init]), ..PodSpec::default() };
                assert_eq!(Qos::of(&spec), class, "{spec:?}");
            }
        }
    }
}
