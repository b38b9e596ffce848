//! Computes the next step for a pod in Sync from its spec and the observed state. Only this module decides whether a
//! container is started, restarted or left alone. `next` is a pure function; the worker keeps the back-offs and
//! passes them as `held`.

pub mod ephemeral;
mod init;
pub mod input;
pub mod next_step;
pub mod observed;
#[cfg(test)]
mod tests;

use crate::api::facts::{ContainerFact, ContainerState, PodFacts, SandboxFact};
use crate::api::names::{ContainerId, SandboxId};
use crate::api::pod::RestartPolicy;
use init::Init;
use input::PlanInput;
use next_step::Next;
use observed::{newest, ready_sandbox};

pub fn next(input: &PlanInput<'_>) -> Next {
    let PlanInput { pod, facts, first_attempt, .. } = *input;
    let policy = pod.restart_policy();
    // Sidecars do not keep a pod from ending.
    if pod.containers().iter().all(|c| input.has_ended(&c.name)) {
        return Next::Ended;
    }

    // W13: the sandbox may be that of an earlier version with this UID, whose record was lost.
    let is_of_this_version = |s: &&SandboxFact| s.attempt >= first_attempt && s.host_network == pod.host_network();
    let current = ready_sandbox(facts).filter(is_of_this_version);
    let survivors = survivors(facts, current);
    if !survivors.is_empty() {
        return Next::StopContainers(survivors);
    }
    // If several sandboxes are ready, only the newest is kept.
    if let Some(old) = facts.sandboxes.iter().find(|s| s.ready && current.is_none_or(|c| c.id != s.id)) {
        return Next::StopSandbox(old.id.clone());
    }
    let Some(current) = current else { return sandbox(input) };

    let first_main = pod.init_containers().len();
    if first_main > 0 {
        match init::next(input, current) {
            Init::Next(next) => return next,
            Init::Wait => return ephemeral::next(input, current),
            Init::Done => {}
        }
    }
    for (n, container) in pod.containers().iter().enumerate() {
        if (input.held)(&container.name) {
            continue;
        }
        let index = first_main + n;
        match newest(facts, &container.name) {
            None => return input.create(index, None),
            Some(c) => match c.state {
                ContainerState::Running | ContainerState::Unknown => {}
                ContainerState::Created if input.may_start(c, current) => {
                    return Next::Start { index, id: c.id.clone() };
                }
                // Its sandbox is gone, or its image is an old one. The container never ran, but its name is taken, so
                // the next one gets another attempt number.
                ContainerState::Created => return input.create(index, Some(c)),
                ContainerState::Exited if input.restarts(policy, c) => return input.create(index, Some(c)),
                ContainerState::Exited => {}
            },
        }
    }
    ephemeral::next(input, current)
}

/// Returns the containers that run outside the current sandbox or beside a newer instance, or whose state is unknown.
fn survivors(facts: &PodFacts, current: Option<&SandboxFact>) -> Vec<ContainerId> {
    let survives = |c: &&ContainerFact| match c.state {
        // If the runtime does not report the sandbox, the next status read requests it again.
        ContainerState::Running => {
            current.is_none_or(|s| c.sandbox != s.id && !c.sandbox.as_str().is_empty())
                || newest(facts, &c.name).is_some_and(|n| n.id != c.id)
        }
        ContainerState::Unknown => true,
        ContainerState::Created | ContainerState::Exited => false,
    };
    facts.containers.iter().filter(survives).map(|c| c.id.clone()).collect()
}

/// Returns the next step of a pod without a ready sandbox.
fn sandbox(input: &PlanInput<'_>) -> Next {
    let PlanInput { pod, facts, first_attempt, .. } = *input;
    // W13: with restartPolicy Never, a pod gets no second sandbox once one of its containers has existed.
    let is_over =
        pod.restart_policy() == RestartPolicy::Never && !facts.containers.iter().all(ContainerFact::start_was_given_up);
    if is_over && !input.is_restarting() {
        return Next::Ended;
    }
    // As long as no container could start in it, no sandbox is needed.
    let wanted = match pod.init_containers().first() {
        Some(first) => !(input.held)(&first.name),
        None => pod.containers().iter().any(|c| !(input.held)(&c.name) && !input.has_ended(&c.name)),
    };
    if !wanted {
        return Next::Nothing;
    }
    // A dead sandbox still holds its address and host ports until it is stopped.
    if let Some(dead) = facts.sandboxes.iter().find(|s| !(input.stopped)(&s.id)) {
        return Next::StopSandbox(dead.id.clone());
    }
    let attempt = facts.sandboxes.iter().map(|s| s.attempt.saturating_add(1)).max().unwrap_or(0).max(first_attempt);
    Next::RunSandbox { attempt: attempt.max(input.foreign.next_sandbox()) }
}

/// W26: returns a dead container that is no longer needed. The `kept` newest of each name stay: the one that runs or
/// ended last, and usually the one before it (`lastState`, `logs -p`).
pub fn superfluous(facts: &PodFacts, kept: usize) -> Option<&ContainerFact> {
    facts.containers.iter().find(|c| {
        let newer = |o: &&ContainerFact| o.name == c.name && (o.attempt, o.created_at) > (c.attempt, c.created_at);
        match c.state {
            ContainerState::Exited => facts.containers.iter().filter(newer).count() >= kept,
            ContainerState::Created => newest(facts, &c.name).is_some_and(|n| n.id != c.id),
            ContainerState::Running | ContainerState::Unknown => false,
        }
    })
}

/// Returns an old sandbox without containers. The newest sandbox always stays.
pub fn superfluous_sandbox(facts: &PodFacts) -> Option<SandboxId> {
    let mut old = facts.sandboxes.iter().skip(1);
    let found = old.find(|s| !s.ready && !facts.containers.iter().any(|c| c.sandbox == s.id));
    found.map(|s| s.id.clone())
}
