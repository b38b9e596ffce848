//! R: the worker begins, follows and ends in-place resizes of its pod.

use super::Worker;
use super::ops::ActiveOp;
use super::resize::{Applying, Before, Verdict, Wanted, may_run};
use super::state::State;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::resize;
use crate::engine::admission::pod_requests::PodRequests;
use crate::engine::context::Context;
use crate::engine::pleg::cache::Entry;
use std::rc::Rc;

impl Worker {
    /// Returns true if the pod can continue when its cpu or memory changes: it is desired, and nothing else ends it.
    pub fn can_be_resized(&self) -> bool {
        let demand = &self.demand;
        matches!(&self.state, State::Sync(sync) if sync.outdated.is_none())
            && demand.desired
            && !demand.replaced
            && demand.successor.is_none()
    }

    /// R1: compares the running pod with `pod`, its newest version. If that version resizes the running pod, the
    /// resize waits for the node's decision from now on. Any other resize that waited is dropped.
    pub fn want_resize(&mut self, pod: &Rc<Pod>) {
        // For a pod of the API server, only changes of the amounts need a decision of the node, so only the amounts
        // are compared.
        let of_api = pod.is_from_api_server();
        let same = |wanted: &Pod| match of_api {
            true => !resize::changes_amounts(wanted, pod),
            false => wanted.digest == pod.digest,
        };
        if self.in_place.resize.wanted.as_ref().is_some_and(|wanted| same(&wanted.pod)) {
            return;
        }
        let is_in_place = |current: &Rc<Pod>| match of_api {
            true => resize::with_amounts(current, pod).is_some(),
            false => resize::is_in_place(current, pod),
        };
        let resizes = self.can_be_resized() && self.pod.as_ref().is_some_and(is_in_place);
        self.in_place.resize.wanted = resizes.then(|| Wanted {
            pod: pod.clone(),
            requests: Rc::new(PodRequests::of(pod)),
            verdict: Verdict::Open,
        });
    }

    /// Returns true if the manifest has resources that the pod does not have yet.
    pub fn is_resize_wanted(&self) -> bool {
        self.in_place.resize.wanted.is_some() && self.can_be_resized()
    }

    /// Returns the new resources that wait for room. None while a container is being created: it gets the old
    /// resources, so its creation has to end first.
    pub fn wanted_resize(&self) -> Option<&Wanted> {
        let creating = matches!(self.ops.active(), Some(ActiveOp::Create { .. }));
        self.in_place
            .resize
            .wanted
            .as_ref()
            .filter(|_| self.can_be_resized() && self.admission.is_admitted() && !creating)
    }

    /// R3: begins the resize, because the new resources fit. The pod's spec has them from now on.
    pub fn begin_resize(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        let (Some(Wanted { pod, requests, .. }), Some(current)) =
            (self.in_place.resize.wanted.take(), self.pod.clone())
        else {
            return;
        };
        let pod = with_amounts(&current, pod);
        // Files with values from labels, annotations or `resourceFieldRef` change too.
        self.volumes.outdated();
        if !resize::changes_amounts(&current, &pod) {
            // R5: only labels and annotations have changed. A resize in progress continues.
            self.continue_as(pod);
            self.record.wait_for_write();
            return ctx.outbox.publish(&self.uid, &self.name);
        }
        let mut outdated = self.in_place.resize.applying.take().map(|applying| applying.outdated).unwrap_or_default();
        for c in entry.facts().containers.iter().filter(|c| may_run(c)) {
            let (Some(old), Some(new)) = (current.container(&c.name), pod.container(&c.name)) else { continue };
            let Some(how) = resize::how(old, new) else { continue };
            let resources = old.resources.as_deref().cloned().unwrap_or_default();
            let before = outdated.entry(c.id.clone()).or_insert(Before { name: c.name.clone(), how, resources });
            before.how = before.how.max(how);
        }
        self.in_place.resize.applying = Some(Applying::new(outdated));
        self.admission.requests = requests;
        let message = "Pod resize started".to_owned();
        ctx.emit_normal(Some(&pod), None, Reason::ResizeStarted, message);
        self.continue_as(pod);
        self.record.wait_for_write();
    }

    /// Gives the pod its new resources before it starts, because nothing of it runs.
    pub(super) fn resize_before_start(&mut self) {
        let (Some(Wanted { pod, requests, .. }), Some(current)) =
            (self.in_place.resize.wanted.take(), self.pod.clone())
        else {
            return;
        };
        (self.admission.requests, self.in_place.resize.applying) = (requests, None);
        self.continue_as(with_amounts(&current, pod));
        self.record.wait_for_write();
    }

    /// R1: drops the resize of a pod that ends before the node decided about it. The pod that starts after it has the
    /// new resources.
    pub(super) fn end_resize(&mut self) {
        let wanted = self.in_place.resize.wanted.take();
        if !self.state.is_sync() || !self.demand.desired {
            return;
        }
        match (&self.pod, wanted) {
            // A pod of the API server starts again only after a shutdown, and then as the same pod. So the pod itself
            // gets the new resources.
            (Some(pod), Some(wanted)) if pod.is_from_api_server() => self.pod = Some(with_amounts(pod, wanted.pod)),
            (_, wanted) => {
                self.demand.successor = self.demand.successor.take().or(wanted.map(|wanted| wanted.pod));
            }
        }
    }
}

/// Returns the pod with the requests and limits of `wanted`. A pod of a manifest takes over all of `wanted`; a pod of
/// the API server takes over its other changes separately (`following`).
fn with_amounts(current: &Rc<Pod>, wanted: Rc<Pod>) -> Rc<Pod> {
    match wanted.is_from_api_server() {
        true => resize::with_amounts(current, &wanted).map_or_else(|| current.clone(), Rc::new),
        false => wanted,
    }
}
