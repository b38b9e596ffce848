//! The reasons against a pod on this node that do not depend on free resources (A2, A3): operating system, node
//! affinity, node name, host ports, taints, sysctls and AppArmor. The messages are those of a kubelet, followed by the
//! detail that a kubelet omits (which label or port).

mod affinity;
#[cfg(test)]
pub(super) mod tests;

use crate::api::apparmor;
use crate::api::k8s::{PodSpec, Toleration};
use crate::api::node_facts::NodeFacts;
use crate::api::ordered::OrderSlice;
use crate::api::pod::{Pod, is_sidecar};
use crate::api::reason::Reason;
use crate::api::sysctls;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

/// One reason against a pod, other than a short resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status reason, as listed in A3.
    pub reason: Reason,
    /// The message for users.
    pub message: String,
}

impl Refusal {
    fn new(reason: Reason, message: String) -> Refusal {
        Refusal { reason, message }
    }

    /// Returns a refusal in the format of a kubelet's failed predicates.
    fn predicate(name: Reason, what: &str, detail: fmt::Arguments<'_>) -> Refusal {
        let message = format!("Predicate {name} failed: {what}: {detail}");
        Refusal::new(name, message)
    }
}

/// The order of the reasons (A3).
const ORDER: [Reason; 7] = [
    Reason::PodOSNotSupported,
    Reason::NodeAffinity,
    Reason::NodeName,
    Reason::NodePorts,
    Reason::TaintToleration,
    Reason::SysctlForbidden,
    Reason::AppArmor,
];

/// Sorts refusals of several sources (`against`, `port_is_taken`, `untolerated`) in the order of A3.
pub fn in_order(refusals: &mut [Refusal]) {
    refusals.order_by_key(|refusal| ORDER.iter().position(|reason| *reason == refusal.reason));
}

/// Returns all reasons against the pod that do not depend on other pods, in the order of A3. Resources and host ports
/// are not included.
pub fn against(pod: &Pod, node: &NodeFacts) -> Vec<Refusal> {
    [
        operating_system(pod),
        node_affinity(pod.spec(), node),
        node_name(pod.spec(), node),
        unsafe_sysctls(pod, node),
        no_apparmor(pod, node),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn operating_system(pod: &Pod) -> Option<Refusal> {
    let name = &pod.spec().os.as_ref().filter(|os| os.name != "linux")?.name;
    let what = "Failed to admit pod as the OS field doesn't match node OS";
    Some(Refusal::new(Reason::PodOSNotSupported, format!("{what}: spec.os.name is {name:?}, this node runs linux")))
}

pub(super) fn node_affinity(spec: &PodSpec, node: &NodeFacts) -> Option<Refusal> {
    let required = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = required.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let mut mismatches = affinity::of_selector(spec.node_selector.iter().flatten(), node);
    mismatches.extend(required.and_then(|terms| affinity::of_terms(&terms.node_selector_terms, node)));
    let what = "node(s) didn't match Pod's node affinity/selector";
    let detail = mismatches.join("; ");
    (!mismatches.is_empty()).then(|| Refusal::predicate(Reason::NodeAffinity, what, format_args!("{detail}")))
}

pub(super) fn node_name(spec: &PodSpec, node: &NodeFacts) -> Option<Refusal> {
    let name = spec.node_name.as_deref().filter(|name| !name.is_empty() && *name != node.name)?;
    let what = "node(s) didn't match the requested node name";
    let detail = format_args!("spec.nodeName is {name:?}, this node is {:?}", node.name);
    Some(Refusal::predicate(Reason::NodeName, what, detail))
}

/// Returns the refusal for a port in use, as found by `clash`.
pub fn port_is_taken(port: &HostPort) -> Refusal {
    let what = "node(s) didn't have free ports for the requested pod ports";
    Refusal::predicate(Reason::NodePorts, what, format_args!("{port} is taken"))
}

/// Returns the refusal if a taint of the node keeps out a new pod of the API server. Pods that a scheduler binds
/// tolerate the taints; a pod that a user binds to the node may not.
pub fn untolerated(pod: &Pod, node: &NodeFacts) -> Option<Refusal> {
    untolerated_taint(pod.spec().tolerations.as_ref(), node).filter(|_| pod.is_from_api_server())
}

/// Returns the refusal for the first taint of the node that these tolerations do not tolerate.
pub(super) fn untolerated_taint(tolerations: Option<&Vec<Toleration>>, node: &NodeFacts) -> Option<Refusal> {
    let taint = node.taints.iter().find(|taint| !taint.is_tolerated(tolerations))?;
    let what = "node(s) had untolerated taint(s)";
    Some(Refusal::predicate(Reason::TaintToleration, what, format_args!("{taint}")))
}

fn unsafe_sysctls(pod: &Pod, node: &NodeFacts) -> Option<Refusal> {
    let set = pod.spec().security_context.as_ref().and_then(|context| context.sysctls.as_ref());
    let forbidden: Vec<String> = set
        .into_iter()
        .flatten()
        .filter(|sysctl| !sysctls::is_allowed(&sysctl.name, &node.allowed_unsafe_sysctls))
        .map(|sysctl| format!("{:?} not allowlisted", sysctl.name))
        .collect();
    (!forbidden.is_empty())
        .then(|| Refusal::new(Reason::SysctlForbidden, format!("forbidden sysctl: {}", forbidden.join(", "))))
}

fn no_apparmor(pod: &Pod, node: &NodeFacts) -> Option<Refusal> {
    let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned();
    (!node.apparmor && apparmor::is_required(&pod.object)).then(|| Refusal::new(Reason::AppArmor, message))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// A port of the node that a pod requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HostPort {
    pub protocol: Protocol,
    /// None: all addresses of the node.
    pub ip: Option<IpAddr>,
    pub port: u16,
}

impl HostPort {
    /// Returns true if the two ports cannot be bound at the same time. A wildcard address, also `::`, clashes with
    /// every address (*ours*: a kubelet compares `::` like other addresses, and the second pod fails when its sandbox
    /// starts).
    fn excludes(&self, other: &HostPort) -> bool {
        let same_address = self.ip.is_none() || other.ip.is_none() || self.ip == other.ip;
        self.port == other.port && self.protocol == other.protocol && same_address
    }
}

/// Formats as `TCP 8080` or `UDP 10.0.0.1:53`.
impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.protocol {
            Protocol::Tcp => "TCP ",
            Protocol::Udp => "UDP ",
            Protocol::Sctp => "SCTP ",
        })?;
        match self.ip {
            Some(ip) => std::net::SocketAddr::new(ip, self.port).fmt(f),
            None => self.port.fmt(f),
        }
    }
}

/// Returns the host ports of a defaulted and validated pod (with `hostNetwork`, the defaults have made every
/// container port a host port). Init containers do not count, because they end before their ports matter.
pub fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let sidecars = pod.init_containers().iter().filter(|container| is_sidecar(container));
    let ports = sidecars.chain(pod.containers()).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.and_then(|number| u16::try_from(number).ok()).filter(|number| *number != 0)?;
            let protocol = match port.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                _ => Protocol::Tcp,
            };
            let ip = port.host_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok()).map(|ip| ip.to_canonical());
            Some(HostPort { protocol, ip: ip.filter(|ip| !ip.is_unspecified()), port: number })
        })
        .collect()
}

/// Returns the first port of `a` that cannot be bound in addition to those of `b`.
pub fn clash<'a>(a: &'a [HostPort], b: &[HostPort]) -> Option<&'a HostPort> {
    a.iter().find(|port| b.iter().any(|other| port.excludes(other)))
}
