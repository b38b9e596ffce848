//! C2: the images of a pod of the API server can change. A running container with an old image is replaced.
//!
//! Before the first container is stopped, the record contains the new images and all containers that are replaced. So
//! a replaced container starts again whatever the restart policy is, even if Wherry is killed in between.

use super::pod_record::PodRecord;
use super::restart::Restart;
use super::restarting::Restarting;
use super::stops::{PlannedStop, Stops};
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::ContainerId;
use crate::api::pod::{Pod, is_sidecar};
use crate::api::time::Boot;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::plan::observed;
use serde::Serialize;
use std::rc::Rc;

#[derive(Debug, Default, Serialize)]
pub struct Replacing {
    /// The pod on the API server, if it has other images. They wait until an operation has ended.
    wanted: Option<Rc<Pod>>,
}

impl Replacing {
    /// Requests the images of `pod`. None withdraws an earlier request.
    pub fn want(&mut self, pod: Option<Rc<Pod>>) {
        self.wanted = pod;
    }

    /// Takes the pod with the new images.
    pub(super) fn take_wanted(&mut self) -> Option<Rc<Pod>> {
        self.wanted.take()
    }

    /// Returns the pod with the newest images: the requested ones, otherwise those of `pod`.
    pub fn newest<'p>(&'p self, pod: &'p Pod) -> &'p Pod {
        self.wanted.as_deref().unwrap_or(pod)
    }
}

impl Restarting {
    /// Stops the main containers and sidecars that run with an old image.
    pub(super) fn replace_old_images(
        &mut self,
        pod: &Rc<Pod>,
        stops: &mut Stops,
        record: &mut PodRecord,
        entry: &Entry,
        now: Boot,
    ) {
        if !pod.is_from_api_server() {
            return;
        }
        let is_replaceable = |c: &&ContainerFact| {
            let spec = pod.all_containers().position(|spec| spec.name == c.name);
            spec.is_some_and(|index| !pod.is_init(index) || is_sidecar(pod.at(index)))
        };
        let running = || entry.facts().containers.iter().filter(|c| c.state == ContainerState::Running);
        let old: Vec<&ContainerFact> =
            running().filter(is_replaceable).filter(|c| observed::has_old_image(pod, c)).collect();
        // The image was changed back, before the stop, to the one with which the container runs.
        let is_current = |id: &ContainerId| running().any(|c| c.id == *id && !observed::has_old_image(pod, c));
        let mut changed = self.drop_images(|id| !stops.has_planned_stop(id) && is_current(id));
        for c in &old {
            changed |= self.insert(&c.id, Restart::Image);
        }
        if changed {
            record.wait_for_write();
        }
        if !record.is_durable() {
            return;
        }
        for c in old {
            if !stops.has_planned_stop(&c.id) {
                let message = format!("Container {} definition changed, will be restarted", c.name);
                let grace_deadline = now + pod.grace_period();
                stops.plan_stop(c.id.clone(), PlannedStop { message, grace_deadline, then: Some(Restart::Image) });
            }
        }
    }
}
