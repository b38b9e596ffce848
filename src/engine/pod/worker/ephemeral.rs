//! Ephemeral containers of a running pod (W29). They belong to the instance of the pod: a new version of its labels or
//! resources keeps them, and a pod that starts again after its end has none.

use super::{State, Worker};
use crate::api::facts::ContainerState;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::engine::context::Context;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::plan;
use crate::engine::pod::plan::ephemeral::{has_begun, waits_for_target};
use k8s_openapi::api::core::v1 as core;
use std::rc::Rc;

impl Worker {
    /// The pod can get further ephemeral containers: it has started, and nothing ends it.
    pub fn takes_ephemeral(&self) -> bool {
        matches!(self.state, State::Sync(_)) && self.demand.desired && self.admission.rejection().is_none()
    }

    /// The pod has these ephemeral containers from now on. They start when its record contains them.
    pub fn set_ephemeral(&mut self, list: Vec<core::EphemeralContainer>, ctx: &mut Context<'_>) {
        let Some(pod) = &self.pod else { return };
        // A user may use a name of an earlier run of the pod again.
        for new in list.iter().filter(|new| pod.ephemeral(&new.name).is_none()) {
            self.history.begun_ephemeral.remove(&new.name);
        }
        self.pod = Some(Rc::new(pod.with_ephemeral(list)));
        self.record.wait_for_write();
        ctx.outbox.publish(&self.uid, &self.name);
    }

    /// The pod's manifest has another version, with which the instance continues.
    pub fn continue_as(&mut self, pod: Rc<Pod>) {
        let list = self.pod.as_ref().map(|pod| pod.ephemeral_specs()).unwrap_or_default();
        self.pod = Some(if list.is_empty() { pod } else { Rc::new(pod.with_ephemeral(list.to_vec())) });
    }

    /// Notes the ephemeral containers that were started. The record contains them, so that none of them starts again
    /// when its dead container is gone.
    pub(super) fn note_ephemeral(&mut self, pod: &Pod, entry: &Entry) {
        for e in &pod.ephemeral {
            let newest = plan::newest(entry.facts(), &e.container.name);
            if newest.is_some_and(|c| c.state == ContainerState::Exited) {
                self.containers.backoffs.forget(&e.container.name);
            }
        }
        let ran = |name: &str| entry.facts().containers.iter().any(|c| c.name == name && has_begun(c));
        let names = pod.ephemeral.iter().map(|e| e.container.name.as_str());
        let new: Vec<String> = names
            .filter(|name| !self.history.begun_ephemeral.contains(*name) && ran(name))
            .map(str::to_owned)
            .collect();
        if new.is_empty() {
            return;
        }
        self.history.begun_ephemeral.extend(new);
        self.record.rewrite();
    }

    /// The waiting reason of an ephemeral container whose target does not run.
    pub(super) fn without_target(&self, pod: &Pod, entry: &Entry, name: &str) -> Option<(Reason, String)> {
        if self.history.begun_ephemeral.contains(name) {
            return None;
        }
        let target = waits_for_target(pod, entry.facts(), name)?;
        Some((
            Reason::CreateContainerConfigError,
            format!("unable to find target container {target}: it is not running"),
        ))
    }
}
