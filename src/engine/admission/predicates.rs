use crate::api::node::NodeFacts;
use crate::api::pod::Pod;
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
}
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HostPort {
    pub protocol: String,
    pub ip: String,
    pub port: i32,
}
pub fn against(_pod: &Pod, _node: &NodeFacts) -> Vec<Refusal> {
    Vec::new()
}
pub fn host_ports(_pod: &Pod) -> Vec<HostPort> {
    Vec::new()
}
pub fn clash<'a>(_a: &'a [HostPort], _b: &[HostPort]) -> Option<&'a HostPort> {
    None
}
pub fn port_is_taken(_p: &HostPort) -> Refusal {
    Refusal { reason: "NodePorts".into(), message: String::new() }
}
