//! W10: the containers that Wherry itself stops in order to restart them: after a failed probe or postStart hook,
//! because the sandbox died, or for a resize or a new image.
//!
//! The exit code of such a container says nothing about its work: many programs exit with 0 on SIGTERM. So the
//! restart is decided at the time of the stop, and recorded before the stop.

use super::pod_record::PodRecord;
use super::restart::Restart;
use super::stops::{PlannedStop, Stops};
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::ContainerId;
use crate::api::pod::{Pod, RestartPolicy};
use crate::api::time::Boot;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::plan::observed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The containers that were stopped for a restart, until they are gone from the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Restarting(BTreeMap<ContainerId, Restart>);

impl Restarting {
    pub fn contains(&self, id: &ContainerId) -> bool {
        self.0.contains_key(id)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a container. Returns true if it is new; otherwise its first reason stays.
    pub fn insert(&mut self, id: &ContainerId, why: Restart) -> bool {
        let new = !self.contains(id);
        self.0.entry(id.clone()).or_insert(why);
        new
    }

    /// Returns true if the successor of this container has another image or other resources, so that no back-off
    /// delays it.
    pub fn starts_at_once(&self, pod: &Pod, c: &ContainerFact) -> bool {
        self.0.get(&c.id).is_some_and(|why| *why != Restart::Failure) || observed::has_old_image(pod, c)
    }

    /// Drops the containers that restart for a new image and for which `is_over` returns true. Returns true if there
    /// was one.
    pub fn drop_images(&mut self, is_over: impl Fn(&ContainerId) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|id, why| *why != Restart::Image || !is_over(id));
        self.0.len() < before
    }

    /// Continues the stops of a previous run, which was killed after it had recorded the restart of a container and
    /// before the container ended.
    pub(super) fn continue_stops(&self, pod: &Pod, stops: &mut Stops, entry: &Entry, now: Boot) {
        let grace_deadline = now + pod.grace_period();
        for c in entry.facts().containers.iter().filter(|c| c.state == ContainerState::Running) {
            // An image can change back before the stop, so `replacing` decides about these containers.
            let then = self.0.get(&c.id).copied().filter(|why| *why != Restart::Image);
            if then.is_some() && !stops.has_planned_stop(&c.id) {
                let message = format!("Stopping container {}", c.name);
                stops.plan_stop(c.id.clone(), PlannedStop { message, grace_deadline, then });
            }
        }
    }

    /// Returns true once the record contains the containers that are stopped for a restart. While the disk cannot be
    /// written, the stops do not wait.
    pub(super) fn are_recorded(&mut self, stops: &Stops, record: &mut PodRecord) -> bool {
        let (mut any, mut new) = (false, false);
        for (id, why) in stops.restarts() {
            any = true;
            new |= self.insert(id, why);
        }
        if new {
            record.wait_for_write();
        }
        !any || !record.is_writing()
    }

    /// Drops the notes about containers that no longer exist.
    pub fn forget_gone(&mut self, containers: &[ContainerFact]) {
        self.0.retain(|id, _| containers.iter().any(|c| c.id == *id));
    }
}

impl Extend<(ContainerId, Restart)> for Restarting {
    fn extend<T: IntoIterator<Item = (ContainerId, Restart)>>(&mut self, iter: T) {
        for (id, why) in iter {
            self.insert(&id, why);
        }
    }
}

/// Returns what follows if this container is stopped because something failed. None if its restart does not depend on
/// the exit code: only OnFailure looks at it.
pub(super) fn after_failure(pod: &Pod, container: &str) -> Option<Restart> {
    let index = pod.all_containers().position(|spec| spec.name == container)?;
    (pod.restart_policy_of(index) == RestartPolicy::OnFailure).then_some(Restart::Failure)
}
