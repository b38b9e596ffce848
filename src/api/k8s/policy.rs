//! Disruption budgets: `policy/v1`.

use super::definition::kubernetes_types;
use super::field::IntOrString;
use super::metadata::{LabelSelector, ObjectMeta};
use serde_json::Value;

kubernetes_types! {
    PodDisruptionBudget of "policy/v1" {
        metadata: ObjectMeta = "metadata",
        spec: Option<PodDisruptionBudgetSpec> = "spec",
        status: Option<Value> = "status",
    }

    PodDisruptionBudgetSpec {
        max_unavailable: Option<IntOrString> = "maxUnavailable",
        min_available: Option<IntOrString> = "minAvailable",
        selector: Option<LabelSelector> = "selector",
        unhealthy_pod_eviction_policy: Option<String> = "unhealthyPodEvictionPolicy",
    }
}
