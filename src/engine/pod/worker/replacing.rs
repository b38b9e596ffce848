//! C2: the images of a pod of the API server can change. A running container with an old image is replaced.
//!
//! The record contains the new images and the containers that are replaced before the first of them is stopped. So a
//! replaced container starts again whatever the restart policy is, also after a kill of Wherry.

use super::container_start::Starting;
use super::ops::{ActiveOp, Operations};
use super::pod_record::PodRecord;
use super::restarting::{Restart, Restarting};
use super::stops::{PlannedStop, Stops};
use super::{State, Worker};
use crate::api::cluster::in_place;
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::ContainerId;
use crate::api::pod::{Pod, is_sidecar};
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::Effect;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::plan;
use serde::Serialize;
use std::rc::Rc;

#[derive(Debug, Default, Serialize)]
pub struct Replacing {
    /// The pod at the API server has other images. They wait for the end of an operation.
    wanted: Option<Rc<Pod>>,
}

impl Replacing {
    /// The pod gets the images of `pod`.
    pub fn want(&mut self, pod: Option<Rc<Pod>>) {
        self.wanted = pod;
    }

    /// The pod whose images the worker has, or gets.
    pub fn newest<'p>(&'p self, pod: &'p Pod) -> &'p Pod {
        self.wanted.as_deref().unwrap_or(pod)
    }
}

impl Worker {
    /// The pod gets the images that its object has now, unless an operation in flight depends on the old ones.
    pub(super) fn take_images(&mut self, ctx: &mut Context<'_>) {
        if self.ops.active().is_some_and(|active| !active.permits_new_images()) {
            return;
        }
        let (Some(wanted), Some(current)) = (self.in_place.replacing.wanted.take(), self.pod.clone()) else { return };
        let mut pod = (*current).clone();
        in_place::take_images(&mut pod, &wanted);
        let changed = |index: usize| current.at(index).image != pod.at(index).image;
        for index in (0..pod.first_ephemeral()).filter(|index| changed(*index)) {
            // Corrected by the new image, or the end of a container with the old one.
            self.containers.backoffs.forget(&pod.at(index).name);
            self.state.begin_start_again(index, &self.ops, ctx);
        }
        self.pod = Some(Rc::new(pod));
        self.record.wait_for_write();
        ctx.outbox.publish(&self.uid, &self.name);
    }
}

impl State {
    /// The container at `index` has another image: its start begins again.
    fn begin_start_again(&mut self, index: usize, ops: &Operations, ctx: &mut Context<'_>) {
        let Some(sync) = self.sync_mut() else { return };
        if !sync.starting.depends_on_image_of(index) {
            return;
        }
        sync.starting = Starting::Nothing;
        if let Some(op) = ops.pull() {
            ctx.outbox.push(Effect::Cancel { op });
        }
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
            running().filter(is_replaceable).filter(|c| plan::has_old_image(pod, c)).collect();
        // The image is again the one with which the container runs, before its stop.
        let is_current = |id: &ContainerId| running().any(|c| c.id == *id && !plan::has_old_image(pod, c));
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

impl ActiveOp {
    /// The operation does not depend on the images of the spec, or it can be cancelled at once.
    fn permits_new_images(&self) -> bool {
        self.is_pull() || matches!(self, ActiveOp::PostStart { .. } | ActiveOp::MountVolumes)
    }
}
