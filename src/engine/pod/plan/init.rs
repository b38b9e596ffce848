//! W11: init containers run one after another, each until it succeeds, before the main containers. Sidecars among them
//! are started in order and kept running.
//!
//! Only containers in the current sandbox are considered: in a new sandbox the sequence starts again from the first
//! init container (W13). The furthest container that ran determines the progress, because the dead instances of
//! earlier containers may already be removed.

use super::input::PlanInput;
use super::next_step::Next;
use super::observed::newest;
use crate::api::facts::{ContainerFact, ContainerState, SandboxFact};
use crate::api::pod::{RestartPolicy, is_sidecar};

pub(super) enum Init {
    /// The main containers may run.
    Done,
    /// An init container runs or has to wait before the main containers can start.
    Wait,
    Next(Next),
}

pub(super) fn next(input: &PlanInput<'_>, current: &SandboxFact) -> Init {
    let init = input.pod.init_containers();
    // The current instance of that name in this sandbox. If the runtime does not report a container's sandbox, assume
    // this one.
    let of_this = |c: &ContainerFact| c.sandbox == current.id || c.sandbox.as_str().is_empty();
    let here = |name: &str| -> Option<&ContainerFact> { newest(input.facts, name).filter(|c| of_this(c)) };
    // A container is created only after all containers before it have succeeded. In a pod with a fixed UID, a
    // container may belong to another version of the pod, so it must also have run.
    let own_uid = input.pod.has_own_uid();
    let ran = |name: &str| {
        let mut all = input.facts.containers.iter().filter(|c| c.name == name && of_this(c));
        all.any(|c| !own_uid || c.state != ContainerState::Created)
    };
    let main_begun = input.pod.containers().iter().any(|c| ran(&c.name));
    let reached = if main_begun { init.len() } else { init.iter().rposition(|c| ran(&c.name)).unwrap_or(0) };

    let front = init.get(reached);
    let ended = front.filter(|c| !is_sidecar(c)).and_then(|c| here(&c.name));
    let failed = ended.is_some_and(|c| c.state == ContainerState::Exited && c.exit_code != 0);
    let had_its_try = ended.is_some_and(|c| !c.start_was_given_up());
    if failed && had_its_try && input.pod.restart_policy() == RestartPolicy::Never {
        return Init::Next(Next::Ended);
    }
    // A sidecar that was started once is kept running.
    for (index, sidecar) in init.iter().enumerate().take(reached).filter(|(_, c)| is_sidecar(c)) {
        let runs = here(&sidecar.name).is_some_and(|c| c.state == ContainerState::Running);
        if !runs && !(input.held)(&sidecar.name) {
            return Init::Next(begin(input, current, index));
        }
    }
    let Some(front) = front else { return Init::Done };
    // A cancelled start of a later container may still take effect; the earlier container would then run next to it.
    let may_start_late = |index: usize| {
        let later = || init.iter().skip(index + 1).chain(input.pod.containers());
        input.in_doubt && later().any(|c| here(&c.name).is_some_and(|c| c.state == ContainerState::Created))
    };
    let then = |index: usize| match init.get(index) {
        None => Init::Done,
        Some(c) if (input.held)(&c.name) || may_start_late(index) => Init::Wait,
        Some(_) => Init::Next(begin(input, current, index)),
    };
    match here(&front.name) {
        Some(c) if c.state == ContainerState::Running => match is_sidecar(front) && (input.started)(c) {
            true => then(reached + 1),
            false => Init::Wait,
        },
        Some(c) if c.state == ContainerState::Exited && !is_sidecar(front) && !failed => then(reached + 1),
        _ => then(reached),
    }
}

/// Starts a container that was already created in this sandbox, or creates one.
fn begin(input: &PlanInput<'_>, current: &SandboxFact, index: usize) -> Next {
    match newest(input.facts, &input.pod.init_containers()[index].name) {
        Some(c) if input.may_start(c, current) => Next::Start { index, id: c.id.clone() },
        last => input.create(index, last),
    }
}
