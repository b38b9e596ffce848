//! The status of ephemeral containers (W29). They affect neither the phase nor the conditions of the pod.

use super::container::{View, container};
use crate::api::k8s;
use crate::engine::pod::worker::earlier::lost;

/// Returns the statuses of the ephemeral containers; None if the pod has none.
pub(super) fn statuses(view: &View<'_>) -> Option<Vec<k8s::ContainerStatus>> {
    let all = view.pod.ephemeral.iter().map(|e| status(view, &e.container));
    Some(all.collect()).filter(|all: &Vec<_>| !all.is_empty())
}

/// Returns the status of an ephemeral container. As in a kubelet, it is never ready, and its status has no `started`
/// and no resources.
fn status(view: &View<'_>, spec: &k8s::Container) -> k8s::ContainerStatus {
    let mut status = container(view, spec, false);
    (status.ready, status.started, status.resources, status.allocated_resources) = (false, None, None, None);
    let is_gone = !view.facts.containers.iter().any(|c| c.name == spec.name);
    let shows_end = status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    if is_gone && view.begun_ephemeral.contains(&spec.name) && !shows_end {
        let last = status.last_state.take().filter(|state| state.terminated.is_some());
        (status.state, status.last_state) = (Some(last.unwrap_or_else(lost)), Some(k8s::ContainerState::default()));
    }
    status
}
