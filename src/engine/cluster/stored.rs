//! The status of a pod, as the API server has it.

use crate::api::cluster::final_ends::FinalEnds;
use crate::api::k8s;

/// The status on the server.
#[derive(Debug, PartialEq)]
pub struct Stored {
    pub status: k8s::PodStatus,
    pub final_ends: FinalEnds,
    pub resource_version: String,
}
