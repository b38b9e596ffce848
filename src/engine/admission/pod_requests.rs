//! The properties of a pod that admission needs repeatedly (A2, A5, A6), derived from its spec once.

use super::predicates::{HostPort, host_ports};
use crate::api::pod::Pod;
use crate::api::pod_resources::requested_by;
use crate::api::priority::{self, CRITICAL};
use crate::api::qos::Qos;
use crate::api::resources::{PODS, Resources};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodRequests {
    /// The requests, including 1 for `pods`.
    pub resources: Resources,
    pub ports: Vec<HostPort>,
    pub qos: Qos,
    pub priority: i32,
    /// True if the pod may preempt other pods (A6). False with `preemptionPolicy: Never`.
    pub preempts: bool,
}

impl PodRequests {
    /// Derives the properties of a defaulted and validated pod.
    pub fn of(pod: &Pod) -> PodRequests {
        let spec = pod.spec();
        PodRequests {
            resources: requested_by(pod),
            ports: host_ports(pod),
            qos: Qos::of(spec),
            priority: priority::of(spec),
            preempts: may_preempt_any(pod),
        }
    }
}

/// A6: for pods of the API server, the scheduler decides about preemption and respects disruption budgets. Here, only
/// critical ones of them preempt others.
fn may_preempt_any(pod: &Pod) -> bool {
    let spec = pod.spec();
    let is_permitted = spec.preemption_policy.as_deref() != Some("Never");
    is_permitted && (!pod.is_from_api_server() || priority::of(spec) >= CRITICAL)
}

/// For a pod that only the runtime knows: it counts as one pod, and its requests are unknown.
impl Default for PodRequests {
    fn default() -> PodRequests {
        let resources = Resources::from([(PODS, 1)]);
        PodRequests { resources, ports: Vec::new(), qos: Qos::BestEffort, priority: 0, preempts: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::priority::CRITICAL;
    use crate::api::resources::{CPU, MEMORY};
    use crate::engine::admission::predicates::tests::pod;
    use serde_json::json;

    #[test]
    fn a2_the_requests_of_a_pod_are_those_of_its_spec() {
        let bare = PodRequests::of(&pod(json!({ "containers": [{ "name": "c" }] })));
        let resources = Resources::from([(PODS, 1)]);
        assert_eq!(bare, PodRequests { resources, ports: vec![], qos: Qos::BestEffort, priority: 0, preempts: true });

        let requests = PodRequests::of(&pod(json!({
            "priorityClassName": "system-cluster-critical", "preemptionPolicy": "Never",
            "containers": [{
                "name": "c", "ports": [{ "containerPort": 80, "hostPort": 8080 }],
                "resources": { "limits": { "cpu": "2", "memory": "1Gi" } }
            }]
        })));
        assert_eq!(requests.resources, Resources::from([(CPU, 2000), (MEMORY, 1 << 30), (PODS, 1)]));
        assert_eq!(requests.ports.len(), 1);
        assert_eq!((requests.qos, requests.priority, requests.preempts), (Qos::Guaranteed, CRITICAL, false));
    }

    #[test]
    fn a6_only_never_keeps_a_class_from_preempting() {
        for (policy, preempts) in [(json!(null), true), (json!("PreemptLowerPriority"), true), (json!("Never"), false)]
        {
            let requests =
                PodRequests::of(&pod(json!({ "preemptionPolicy": policy, "containers": [{ "name": "c" }] })));
            assert_eq!(requests.preempts, preempts, "{policy}");
        }
    }

    #[test]
    fn the_dump_shows_the_requests_of_a_pod() {
        let spec = json!({ "containers": [{ "name": "c", "ports": [
            { "containerPort": 53, "hostPort": 53, "hostIP": "10.0.0.1", "protocol": "UDP" },
            { "containerPort": 80, "hostPort": 80 },
        ] }] });
        let shown = serde_json::to_value(PodRequests::of(&pod(spec))).unwrap();
        let ports =
            json!([{ "protocol": "UDP", "ip": "10.0.0.1", "port": 53 }, { "protocol": "TCP", "ip": null, "port": 80 }]);
        let wanted =
            json!({ "resources": { "pods": 1 }, "ports": ports, "qos": "BestEffort", "priority": 0, "preempts": true });
        assert_eq!(shown, wanted);
    }
}
