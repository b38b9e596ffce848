//! Ephemeral containers of a running pod (W29). They belong to one run of the pod: they stay when its labels or
//! resources change, and a pod that starts again after its end has none.

use super::Worker;
use super::history::History;
use super::pod_record::PodRecord;
use super::state::State;
use crate::api::facts::PodFacts;
use crate::api::k8s;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::engine::context::Context;
use crate::engine::pod::plan::ephemeral::{has_begun, waits_for_target};
use std::rc::Rc;

impl Worker {
    /// Returns true if the pod can get further ephemeral containers: it has started, and nothing ends it.
    pub fn takes_ephemeral(&self) -> bool {
        matches!(self.state, State::Sync(_)) && self.demand.desired && self.admission.rejection().is_none()
    }

    /// Sets the ephemeral containers of the pod. New ones start when its record contains them.
    pub fn set_ephemeral(&mut self, list: Vec<k8s::EphemeralContainer>, ctx: &mut Context<'_>) {
        let Some(pod) = &self.pod else { return };
        // A user may reuse a name from an earlier run of the pod.
        for new in list.iter().filter(|new| pod.ephemeral(&new.name).is_none()) {
            self.history.begun_ephemeral.remove(&new.name);
        }
        self.pod = Some(Rc::new(pod.with_ephemeral(list)));
        self.record.wait_for_write();
        ctx.outbox.publish(&self.uid, &self.name);
    }

    /// Lets the running pod continue with another version of its manifest. Its ephemeral containers stay.
    pub fn continue_as(&mut self, pod: Rc<Pod>) {
        let list = self.pod.as_ref().map(|pod| pod.ephemeral_specs()).unwrap_or_default();
        self.pod = Some(if list.is_empty() { pod } else { Rc::new(pod.with_ephemeral(list.to_vec())) });
    }
}

impl History {
    /// Returns the ephemeral containers of `wanted` that the pod does not have yet, without those of an earlier run
    /// of the pod (W29). Ephemeral containers are never removed.
    pub(super) fn new_ephemeral<'a>(
        &'a self,
        pod: &'a Pod,
        wanted: &'a Pod,
    ) -> impl Iterator<Item = &'a k8s::EphemeralContainer> {
        let is_new = |name: &str| pod.ephemeral(name).is_none() && !self.begun_ephemeral.contains(name);
        wanted.ephemeral_specs().iter().filter(move |new| is_new(&new.name))
    }

    /// Notes the ephemeral containers that were started. The record contains them, so that none of them starts again
    /// when its dead container is gone.
    pub(super) fn note_ephemeral(&mut self, pod: &Pod, facts: &PodFacts, record: &mut PodRecord) {
        let ran = |name: &str| facts.containers.iter().any(|c| c.name == name && has_begun(c));
        let names = pod.ephemeral.iter().map(|e| e.container.name.as_str());
        let new: Vec<String> =
            names.filter(|name| !self.begun_ephemeral.contains(*name) && ran(name)).map(str::to_owned).collect();
        if new.is_empty() {
            return;
        }
        self.begun_ephemeral.extend(new);
        record.rewrite();
    }

    /// Returns the waiting reason of an ephemeral container whose target does not run.
    pub(super) fn without_target(&self, pod: &Pod, facts: &PodFacts, name: &str) -> Option<(Reason, String)> {
        if self.begun_ephemeral.contains(name) {
            return None;
        }
        let target = waits_for_target(pod, facts, name)?;
        Some((
            Reason::CreateContainerConfigError,
            format!("unable to find target container {target}: it is not running"),
        ))
    }
}
