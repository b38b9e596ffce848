//! C2: the worker applies changes of its pod's object on the API server.

use super::Worker;
use super::deadline::ActiveDeadline;
use super::state::State;
use crate::api::cluster::in_place;
use crate::api::pod::Pod;
use crate::api::resize;
use crate::engine::admission::pod_requests::PodRequests;
use crate::engine::context::Context;
use std::rc::Rc;

impl Worker {
    /// Returns true if the object on the API server has a change that the pod can take over now.
    pub fn differs_in_place(&self, wanted: &Pod) -> bool {
        let Some(pod) = self.pod.as_ref().filter(|_| self.demand.desired) else { return false };
        let (ours, theirs) = (&pod.object.metadata, &wanted.object.metadata);
        ours.labels != theirs.labels
            || ours.annotations != theirs.annotations
            || !in_place::has_tolerations_and_deadline(pod, wanted)
            || !in_place::has_images(self.in_place.replacing.newest(pod), wanted)
            || !self.state.is_sync() && resize::with_amounts(pod, wanted).is_some()
            || self.takes_ephemeral() && self.history.new_ephemeral(pod, wanted).next().is_some()
    }

    pub fn follow_in_place(&mut self, wanted: &Rc<Pod>, ctx: &mut Context<'_>) {
        let Some(pod) = self.pod.clone() else { return };
        let mut followed = (*pod).clone();
        followed.object.metadata.labels.clone_from(&wanted.object.metadata.labels);
        followed.object.metadata.annotations.clone_from(&wanted.object.metadata.annotations);
        in_place::take_tolerations_and_deadline(&mut followed, wanted);
        if self.state.is_sync() {
            self.in_place.replacing.want(Some(wanted.clone()).filter(|wanted| !in_place::has_images(&pod, wanted)));
        } else {
            self.in_place.replacing.want(None);
            in_place::take_images(&mut followed, wanted);
            followed = resize::with_amounts(&followed, wanted).unwrap_or(followed);
        }
        if matches!(self.state, State::Waiting) {
            self.admission.requests = Rc::new(PodRequests::of(&followed));
        }
        if followed.active_deadline() != pod.active_deadline() {
            self.deadline = ActiveDeadline::changed(self.deadline, &followed, ctx.now.boot);
        }
        // The ephemeral containers that a user of this machine has added stay, in the same order.
        let new: Vec<_> = self.history.new_ephemeral(&pod, wanted).cloned().collect();
        let list = [pod.ephemeral_specs(), &new].concat();
        let is_new = self.takes_ephemeral() && !new.is_empty();
        if followed.object == pod.object && !is_new {
            return;
        }
        self.pod = Some(Rc::new(followed));
        // Files of the downward API may show the change.
        self.volumes.outdated();
        if is_new {
            return self.set_ephemeral(list, ctx);
        }
        self.record.rewrite();
        ctx.outbox.publish(&self.uid, &self.name);
    }
}
