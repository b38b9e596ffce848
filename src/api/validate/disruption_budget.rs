//! Validation of a PodDisruptionBudget, with the messages of Kubernetes.

use super::complaints::one_of;
use super::workload::{number_or_percentage, requirements};
use crate::api::k8s::PodDisruptionBudget;
use crate::api::problem::{At, Fault, Faults};

pub(crate) fn disruption_budget(budget: &PodDisruptionBudget) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    let (at, Some(spec)) = (root.field("spec"), &budget.spec) else { return faults.0 };
    if spec.min_available.is_some() && spec.max_unavailable.is_some() {
        faults.add(at, "Invalid value: minAvailable and maxUnavailable cannot be both set");
    }
    number_or_percentage(spec.min_available.as_ref(), Some(100), at.field("minAvailable"), &mut faults);
    number_or_percentage(spec.max_unavailable.as_ref(), Some(100), at.field("maxUnavailable"), &mut faults);
    if let Some(selector) = &spec.selector {
        requirements(selector, at.field("selector"), &mut faults);
    }
    if let Some(policy) = &spec.unhealthy_pod_eviction_policy {
        one_of(Some(policy), &["AlwaysAllow", "IfHealthyBudget"], at.field("unhealthyPodEvictionPolicy"), &mut faults);
    }
    faults.0
}
