//! PodDisruptionBudgets: how many pods an eviction or a drain has to leave (Y32). The numbers are those of the
//! disruption controller of Kubernetes.

use crate::api::k8s::{self, IntOrString, PodDisruptionBudgetSpec};
use crate::api::names::FullName;
use crate::api::plain_object::{PlainKind, PlainObject};
use crate::api::pod::Pod;
use crate::api::workload::label_selector;
use crate::api::workload::portion::{self, Rounding};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A budget of a manifest.
pub struct DisruptionBudget {
    pub name: FullName,
    spec: PodDisruptionBudgetSpec,
}

/// The status of a budget, as the API shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetStatus {
    pub current_healthy: u32,
    pub desired_healthy: u32,
    pub disruptions_allowed: u32,
    pub expected_pods: u32,
}

/// The pods that a budget selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetPods {
    pub all: u32,
    /// The pods that are ready and not about to end.
    pub healthy: u32,
    /// The number of replicas of their workloads. None: a pod has no workload with a number of replicas.
    pub replicas: Option<u32>,
}

/// Why a pod cannot be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetRefusal {
    /// Several budgets select the pod. Kubernetes does not support this either.
    Several,
    Violated {
        budget: FullName,
        status: BudgetStatus,
    },
}

impl fmt::Display for BudgetRefusal {
    /// Formats as the message of an API server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BudgetRefusal::Several => {
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            }
            BudgetRefusal::Violated { .. } => "Cannot evict pod as it would violate the pod's disruption budget.",
        })
    }
}

impl DisruptionBudget {
    /// Returns the budget that an object defines. None: it is of another kind.
    pub fn of(object: &PlainObject) -> Option<DisruptionBudget> {
        if object.key.kind != PlainKind::PodDisruptionBudget {
            return None;
        }
        let (typed, _) = k8s::from_value::<k8s::PodDisruptionBudget>(&object.content());
        let spec = typed.ok()?.spec.unwrap_or_default();
        Some(DisruptionBudget { name: object.key.name.clone(), spec })
    }

    /// Reports whether the budget applies to the pod. An empty selector selects all pods of the namespace, and no
    /// selector selects none.
    pub fn selects(&self, pod: &Pod) -> bool {
        let none = BTreeMap::new();
        let labels = pod.object.metadata.labels.as_ref().unwrap_or(&none);
        pod.name.namespace == self.name.namespace
            && self.spec.selector.as_ref().is_some_and(|selector| label_selector::matches(selector, labels))
    }

    /// Reports whether pods that are not ready can always be evicted.
    pub fn ignores_unhealthy(&self) -> bool {
        self.spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow")
    }

    pub fn status(&self, pods: BudgetPods) -> BudgetStatus {
        let of_replicas = |value: &IntOrString| {
            let replicas = pods.replicas?;
            Some((replicas, portion::of(value, replicas, Rounding::Up)?))
        };
        let numbers = match (&self.spec.max_unavailable, &self.spec.min_available) {
            (Some(most), _) => of_replicas(most).map(|(replicas, most)| (replicas, replicas.saturating_sub(most))),
            (None, Some(least @ IntOrString::Int(_))) => {
                portion::of(least, pods.all, Rounding::Up).map(|least| (pods.all, least))
            }
            (None, Some(least)) => of_replicas(least),
            (None, None) => Some((0, 0)),
        };
        // Without the number of replicas, nothing may be disrupted.
        let (expected_pods, desired_healthy) = numbers.unwrap_or((0, pods.all));
        let allowed = pods.healthy.saturating_sub(desired_healthy);
        BudgetStatus {
            current_healthy: pods.healthy,
            desired_healthy,
            disruptions_allowed: if expected_pods == 0 { 0 } else { allowed },
            expected_pods,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::context::Context;
    use crate::api::document::{self, Object};

    fn read(spec: &str) -> Result<DisruptionBudget, String> {
        let text =
            format!("{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: web}}, spec: {{{spec}}}}}");
        let (objects, problems) = document::read_objects(text.as_bytes(), "/m/a.yaml", Context::new("lab", ""));
        match objects.first() {
            Some(Object::Plain(object)) => Ok(DisruptionBudget::of(object).expect("a budget")),
            _ => Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
        }
    }

    #[test]
    fn y32_the_numbers_are_those_of_a_disruption_controller() {
        let status = |spec: &str, all: u32, healthy: u32, replicas: Option<u32>| {
            let status = read(spec).unwrap_or_else(|why| panic!("{why}")).status(BudgetPods { all, healthy, replicas });
            (status.expected_pods, status.desired_healthy, status.disruptions_allowed)
        };
        for (spec, all, healthy, replicas, expected) in [
            ("minAvailable: 2", 3, 3, Some(3), (3, 2, 1)),
            ("minAvailable: 2", 3, 1, None, (3, 2, 0)),
            ("minAvailable: 50%", 3, 3, Some(3), (3, 2, 1)),
            ("minAvailable: 50%", 3, 3, None, (0, 3, 0)),
            ("maxUnavailable: 1", 2, 3, Some(3), (3, 2, 1)),
            ("maxUnavailable: 5", 3, 3, Some(3), (3, 0, 3)),
            ("maxUnavailable: 30%", 3, 3, Some(3), (3, 2, 1)),
            ("maxUnavailable: 0", 3, 3, Some(3), (3, 3, 0)),
            ("", 3, 3, Some(3), (0, 0, 0)),
        ] {
            assert_eq!(status(spec, all, healthy, replicas), expected, "{spec}");
        }
    }

    #[test]
    fn y32_a_selector_selects_pods_of_its_namespace() {
        let pod = |namespace: &str, label: &str| {
            let text = format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: a, namespace: {namespace}, labels: {{app: {label}}}}}, \
                 spec: {{containers: [{{name: m, image: 'i:1'}}]}}}}"
            );
            document::read(text.as_bytes(), "/m/b.yaml", Context::new("lab", "")).0.remove(0)
        };
        let selects = |spec: &str, pod: &Pod| read(spec).is_ok_and(|budget| budget.selects(pod));
        let web = "selector: {matchLabels: {app: web}}";
        assert!(selects(web, &pod("default", "web")));
        assert!(!selects(web, &pod("default", "db")) && !selects(web, &pod("shop", "web")));
        assert!(selects("selector: {}", &pod("default", "db")) && !selects("", &pod("default", "db")));
    }

    #[test]
    fn y32_a_budget_is_validated_as_in_kubernetes() {
        for (spec, expected) in [
            ("minAvailable: 1, maxUnavailable: 1", "minAvailable and maxUnavailable cannot be both set"),
            ("minAvailable: -1", "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"),
            ("maxUnavailable: 1.5", "must be an integer or a string"),
            ("maxUnavailable: 101%", "must not be greater than 100%"),
            ("maxUnavailable: a lot", "must be an integer or a percentage"),
            ("selector: {matchLabels: {'a b': c}}", "spec.selector.matchLabels[a b]"),
            ("unhealthyPodEvictionPolicy: Never", "supported values: \"AlwaysAllow\", \"IfHealthyBudget\""),
            ("minAvaliable: 1", "unknown field; did you mean minAvailable?"),
        ] {
            let found = read(spec).err().unwrap_or_default();
            assert!(found.contains(expected), "{spec}: {found}");
        }
        assert!(read("minAvailable: 1, unhealthyPodEvictionPolicy: AlwaysAllow").is_ok_and(|b| b.ignores_unhealthy()));
    }
}
