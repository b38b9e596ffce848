//! What the plan, the status and the worker read from the observed state of a pod.

use crate::api::facts::{ContainerFact, ContainerState, PodFacts, SandboxFact};
use crate::api::hash;
use crate::api::pod::{Pod, RestartPolicy};

/// Returns the newest sandbox, if it is ready.
pub fn ready_sandbox(facts: &PodFacts) -> Option<&SandboxFact> {
    facts.sandboxes.first().filter(|s| s.ready)
}

/// Returns the current container of that name: the running one, otherwise the newest. A call that was cancelled long
/// ago may have created a container with a higher attempt number.
pub fn newest<'a>(facts: &'a PodFacts, name: &str) -> Option<&'a ContainerFact> {
    let of_name = facts.containers.iter().filter(|c| c.name == name);
    of_name.max_by_key(|c| (c.state == ContainerState::Running, c.attempt, c.created_at))
}

/// Reports whether the restart policy restarts a container that ended like `c`.
pub fn restarts(policy: RestartPolicy, c: &ContainerFact) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => c.exit_code != 0,
        RestartPolicy::Never => c.start_was_given_up(),
    }
}

/// C2: returns true if the pod is from the API server, and the container was created with another image than the spec
/// has now.
pub fn has_old_image(pod: &Pod, c: &ContainerFact) -> bool {
    let spec = pod.all_containers().find(|spec| spec.name == c.name).filter(|_| pod.is_from_api_server());
    let wanted = spec.map(|spec| hash::container(&spec.name, spec.image.as_deref().unwrap_or_default()));
    wanted.zip(c.spec_hash).is_some_and(|(wanted, had)| wanted != had)
}
