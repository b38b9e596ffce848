//! W29: ephemeral containers. Each starts at most once. It starts when the plan has no step for any other container
//! of the pod, even while init containers run.

use super::input::PlanInput;
use super::next_step::Next;
use super::observed::newest;
use crate::api::ephemeral::Ephemeral;
use crate::api::facts::{ContainerFact, ContainerState, PodFacts, SandboxFact};
use crate::api::pod::Pod;

/// Returns the target container of this name, whose processes an ephemeral container has to see; None if it does not
/// run.
pub fn target<'f>(facts: &'f PodFacts, name: &str) -> Option<&'f ContainerFact> {
    newest(facts, name).filter(|c| c.state == ContainerState::Running)
}

/// Returns the name of the target for which this ephemeral container waits; None if the target runs, or there is no
/// target.
pub fn waits_for_target<'p>(pod: &'p Pod, facts: &PodFacts, name: &str) -> Option<&'p str> {
    let name_of_target = pod.ephemeral(name)?.target.as_deref()?;
    target(facts, name_of_target).is_none().then_some(name_of_target)
}

/// Returns true if the ephemeral container has already been started. It is not started a second time.
pub fn has_begun(c: &ContainerFact) -> bool {
    c.state != ContainerState::Created && !c.start_was_given_up()
}

pub(super) fn next(input: &PlanInput<'_>, current: &SandboxFact) -> Next {
    let first = input.pod.first_ephemeral();
    for (n, Ephemeral { container, .. }) in input.pod.ephemeral.iter().enumerate() {
        let (index, name) = (first + n, container.name.as_str());
        let waits = (input.held)(name) || waits_for_target(input.pod, input.facts, name).is_some();
        if waits || input.begun_ephemeral.contains(name) {
            continue;
        }
        match newest(input.facts, name) {
            None => return input.create(index, None),
            Some(c) if has_begun(c) => {}
            Some(c) if c.state == ContainerState::Created && c.sandbox == current.id => {
                return Next::Start { index, id: c.id.clone() };
            }
            // Its sandbox is gone, or the runtime abandoned the start. The container never ran, so it is created once
            // more.
            Some(c) => return input.create(index, Some(c)),
        }
    }
    Next::Nothing
}
