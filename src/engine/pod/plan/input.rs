//! The input of the planner.

use super::next_step::Next;
use super::observed::{has_old_image, newest, restarts};
use crate::api::facts::{ContainerFact, ContainerState, PodFacts, SandboxFact};
use crate::api::names::SandboxId;
use crate::api::pod::{Pod, RestartPolicy};
use crate::engine::pleg::foreign_objects::ForeignObjects;
use crate::engine::pod::worker::restarting::Restarting;
use std::collections::BTreeSet;

/// The input of a plan.
pub struct PlanInput<'a> {
    pub pod: &'a Pod,
    pub facts: &'a PodFacts,
    /// Sandboxes with a lower attempt belong to an earlier pod.
    pub first_attempt: u32,
    /// Objects of other owners under the pod's UID; their attempt numbers are taken (W21).
    pub foreign: &'a ForeignObjects,
    /// By container name: the first attempt number that the runtime has not refused as taken.
    pub first_free: &'a dyn Fn(&str) -> u32,
    /// Whether the container of that name has to wait, for a back-off or after an error.
    pub held: &'a dyn Fn(&str) -> bool,
    /// Whether the dead sandbox has been stopped, so that its network is released. The sandbox state does not show
    /// this.
    pub stopped: &'a dyn Fn(&SandboxId) -> bool,
    /// A cancelled call may still take effect.
    pub in_doubt: bool,
    /// Whether a running container has started: its startup probe succeeded, or it has none.
    pub started: &'a dyn Fn(&ContainerFact) -> bool,
    /// W29: the ephemeral containers that were started.
    pub begun_ephemeral: &'a BTreeSet<String>,
    /// W10: containers that were stopped for a restart. They restart whatever the restart policy is.
    pub restarting: &'a Restarting,
}

impl PlanInput<'_> {
    /// Returns true if the container has ended and does not restart.
    pub(super) fn has_ended(&self, name: &str) -> bool {
        let policy = self.pod.restart_policy();
        newest(self.facts, name).is_some_and(|c| c.state == ContainerState::Exited && !self.restarts(policy, c))
    }

    pub(super) fn restarts(&self, policy: RestartPolicy, c: &ContainerFact) -> bool {
        restarts(policy, c) || self.restarting.contains(&c.id)
    }

    /// Returns true if a container that was stopped for a restart has ended, and its successor does not exist yet.
    pub(super) fn is_restarting(&self) -> bool {
        let mut newest = self.pod.all_containers().filter_map(|spec| newest(self.facts, &spec.name));
        newest.any(|c| c.state == ContainerState::Exited && self.restarting.contains(&c.id))
    }

    /// Returns true if the container was created in this sandbox for the spec, and has not started.
    pub(super) fn may_start(&self, c: &ContainerFact, current: &SandboxFact) -> bool {
        c.state == ContainerState::Created && c.sandbox == current.id && !has_old_image(self.pod, c)
    }

    /// Returns the step that creates the next instance of a container, under a free attempt number.
    pub(super) fn create(&self, index: usize, last: Option<&ContainerFact>) -> Next {
        let name = &self.pod.at(index).name;
        let attempt = last.map_or(0, |c| c.attempt.saturating_add(1));
        Next::Create { index, attempt: attempt.max(self.foreign.next_container(name)).max((self.first_free)(name)) }
    }
}
