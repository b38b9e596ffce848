//! Carries out the requests for ephemeral containers (W29).

use super::Engine;
use crate::api::ephemeral_request::{self, Invalid};
use crate::api::k8s;
use crate::engine::control::ephemeral::Origin;
use crate::engine::control::{EphemeralRequest, Reply, RequestError, RequestId};

/// Returns an error for each new container that has a security context of its own.
fn privileges(list: &[k8s::EphemeralContainer], existing: &[k8s::EphemeralContainer]) -> Vec<Invalid> {
    let new = list.iter().enumerate().filter(|(_, c)| c.security_context.is_some() && !existing.contains(c));
    let error = |(i, _)| Invalid {
        field: format!("spec.ephemeralContainers[{i}].securityContext"),
        message: "Forbidden: not permitted on the control socket; use kubectl with the role `edit`".to_owned(),
    };
    new.map(error).collect()
}

impl Engine {
    /// Adds ephemeral containers to the pod. The answer follows when the pod's record contains them.
    pub(super) fn add_ephemeral(
        &mut self,
        id: RequestId,
        request: EphemeralRequest,
    ) -> Result<Option<Reply>, RequestError> {
        let EphemeralRequest { uid, origin, wanted, dry_run } = request;
        let Some(view) = self.pod(&uid) else { return Err(RequestError::UnknownPod(uid)) };
        let pod = view.pod.clone();
        let list = ephemeral_request::accepted(&pod, &wanted);
        let invalid = |errors| RequestError::InvalidEphemeral { pod: pod.name.clone(), errors };
        let list = list.map_err(invalid)?;
        let privileges = privileges(&list, pod.ephemeral_specs());
        if origin == Origin::ControlSocket && !privileges.is_empty() {
            return Err(invalid(privileges));
        }
        let names: Vec<String> = list.iter().map(|c| c.name.clone()).collect();
        let is_new = list != pod.ephemeral_specs();
        if is_new && !self.workers.get(&uid).is_some_and(|worker| worker.takes_ephemeral()) {
            let (phase, reason) = (view.status.phase.clone().unwrap_or_default(), view.status.reason.clone());
            return Err(RequestError::NotStarted { pod: pod.name.clone(), phase, reason });
        }
        if dry_run {
            return Ok(Some(Reply::Ephemeral(names)));
        }
        let before = self.outbox.begun_records().len();
        if is_new {
            self.with_worker(&uid, |worker, _, ctx| worker.set_ephemeral(list, ctx));
            self.steps.touch(uid.clone());
            self.settle_all();
        }
        self.answer_durably(id, Reply::Ephemeral(names), std::slice::from_ref(&uid), before)
    }
}
