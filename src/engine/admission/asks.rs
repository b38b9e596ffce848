use super::predicates::{HostPort, host_ports};
use crate::api::pod::Pod;
use crate::api::priority;
use crate::api::qos::Qos;
use crate::api::resources::{Resources, requested_by};

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Asks {
    pub requests: Resources,
    pub ports: Vec<HostPort>,
    pub qos: Qos,
    pub priority: i32,
    pub preempts: bool,
}

impl Asks {
    pub fn of(pod: &Pod) -> Asks {
        Asks {
            requests: requested_by(pod),
            ports: host_ports(pod),
            qos: Qos::of(pod.spec()),
            priority: priority::of(pod.spec()),
            preempts: pod.spec().preemption_policy.as_deref() != Some("Never"),
        }
    }
}

impl Default for Asks {
    fn default() -> Asks {
        let requests = Resources::from([(crate::api::resources::PODS, 1)]);
        Asks { requests, ports: Vec::new(), qos: Qos::BestEffort, priority: 0, preempts: false }
    }
}
