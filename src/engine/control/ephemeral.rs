//! Requests for ephemeral containers (W29).

use crate::api::ephemeral_request::RequestedContainers;
use crate::api::names::Uid;

/// The interface that received the request. The clients of each interface have different rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The control socket. The members of its group are generally not root, so no container gets more privileges than
    /// its image and its pod give it.
    ControlSocket,
    /// The API for kubectl, with a role that is equivalent to root.
    Api,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EphemeralRequest {
    pub uid: Uid,
    pub origin: Origin,
    pub wanted: RequestedContainers,
    /// Only check the request.
    pub dry_run: bool,
}
