//! x
use crate::api::problem::Fault;
use k8s_openapi::api::core::v1::Pod;
pub(crate) fn pod(_pod: &Pod, _node_name: &str) -> Vec<Fault> {
    Vec::new()
}
