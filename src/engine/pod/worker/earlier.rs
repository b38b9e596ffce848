//! C5: a pod of the API server runs again after a shutdown, under the same UID. Its earlier containers are gone from
//! the runtime. Their restart counts continue, and their ends are shown as the last states.

use crate::api::k8s::{self, Time};
use crate::api::ordered::CollectOrdered;
use crate::api::reason::Reason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The earlier containers that have run, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Earlier(BTreeMap<String, Container>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Container {
    restarts: u32,
    end: k8s::ContainerState,
}

impl Earlier {
    /// Returns the containers that this status shows. A pod that starts again has no ephemeral containers (W29).
    pub fn of(status: &k8s::PodStatus) -> Earlier {
        let all = [&status.init_container_statuses, &status.container_statuses].into_iter().flatten().flatten();
        let container = |shown: &k8s::ContainerStatus| {
            let restarts = u32::try_from(shown.restart_count).unwrap_or_default();
            Some((shown.name.clone(), Container { restarts, end: last_end(shown)? }))
        };
        Earlier(all.filter_map(container).collect_map())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn restarts(&self, name: &str) -> u32 {
        self.0.get(name).map_or(0, |container| container.restarts)
    }

    /// Returns the attempt number of the first container of that name after the earlier ones.
    pub fn first_free(&self, name: &str) -> u32 {
        self.0.get(name).map_or(0, |container| container.restarts.saturating_add(1))
    }

    pub fn end(&self, name: &str) -> Option<k8s::ContainerState> {
        self.0.get(name).map(|container| container.end.clone())
    }
}

/// Returns how the container of this status ended; None if it never ran. The container itself is gone now.
pub fn last_end(shown: &k8s::ContainerStatus) -> Option<k8s::ContainerState> {
    let ended = [&shown.state, &shown.last_state].into_iter().flatten().find(|s| s.terminated.is_some());
    let runs = shown.state.as_ref().is_some_and(|s| s.running.is_some());
    if runs { Some(lost()) } else { ended.cloned() }
}

/// Returns the state of a container that ran and whose end is unknown.
pub fn lost() -> k8s::ContainerState {
    k8s::ContainerState {
        terminated: Some(Box::new(k8s::ContainerStateTerminated {
            exit_code: 137,
            reason: Some(Reason::ContainerStatusUnknown.to_string()),
            message: Some("The container could not be located when the pod was terminated".into()),
            started_at: unknown_time(),
            finished_at: unknown_time(),
            ..Default::default()
        })),
        ..Default::default()
    }
}

/// Returns the beginning of 1970, which stands for an unknown time, as in a kubelet.
fn unknown_time() -> Option<Time> {
    Some(Time(jiff::Timestamp::UNIX_EPOCH))
}
