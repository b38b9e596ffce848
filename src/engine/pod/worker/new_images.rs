//! C2: a pod of the API server gets new images between two operations.

use super::Worker;
use super::container_start::Starting;
use super::ops::{ActiveOp, Operations};
use super::state::State;
use crate::api::cluster::in_place;
use crate::engine::context::Context;
use crate::engine::effect::Effect;
use std::rc::Rc;

impl Worker {
    /// Gives the pod the images that its object has now, unless an operation in flight depends on the old ones.
    pub(super) fn take_images(&mut self, ctx: &mut Context<'_>) {
        if self.ops.active().is_some_and(|active| !active.permits_new_images()) {
            return;
        }
        let (Some(wanted), Some(current)) = (self.in_place.replacing.take_wanted(), self.pod.clone()) else { return };
        let mut pod = (*current).clone();
        in_place::take_images(&mut pod, &wanted);
        let changed = |index: usize| current.at(index).image != pod.at(index).image;
        for index in (0..pod.first_ephemeral()).filter(|index| changed(*index)) {
            // The back-off belongs to the old image: the new one may correct the error, or the container ended with
            // the old one.
            self.containers.backoffs.forget(&pod.at(index).name);
            self.state.begin_start_again(index, &self.ops, ctx);
        }
        self.pod = Some(Rc::new(pod));
        self.record.wait_for_write();
        ctx.outbox.publish(&self.uid, &self.name);
    }
}

impl State {
    /// Begins the start of the container at `index` again, because it has another image.
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

impl ActiveOp {
    /// Returns true if the operation does not depend on the images of the spec, or it can be cancelled at once.
    fn permits_new_images(&self) -> bool {
        self.is_pull() || matches!(self, ActiveOp::PostStart { .. } | ActiveOp::MountVolumes)
    }
}
