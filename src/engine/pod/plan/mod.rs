//! Computes the next step for a pod in Sync from its spec and the observed state. Only this module decides whether a
//! container is started, restarted or left alone. It is a pure function; the worker keeps the back-offs and passes them
//! as `held`.

pub mod ephemeral;
mod init;
#[cfg(test)]
mod tests;

use crate::api::facts::{ContainerFact, ContainerState, PodFacts, SandboxFact};
use crate::api::hash;
use crate::api::names::{ContainerId, SandboxId};
use crate::api::pod::{Pod, RestartPolicy};
use crate::engine::pleg::foreign_objects::ForeignObjects;
use crate::engine::pod::worker::restarting::Restarting;
use init::Init;
use std::collections::BTreeSet;

/// The next changing step. The worker makes one step at a time and plans again after each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Every container that should run runs, or has to wait.
    Nothing,
    /// All containers ended and none will restart: the pod has ended (W1).
    Ended,
    /// Containers that survived their sandbox (W13), or whose state is unknown to the runtime.
    StopContainers(Vec<ContainerId>),
    /// A dead or a superfluous sandbox.
    StopSandbox(SandboxId),
    RunSandbox {
        attempt: u32,
    },
    /// `index` of `Pod::every_container`.
    Create {
        index: usize,
        attempt: u32,
    },
    /// The container was created but not started, because Wherry was killed in between.
    Start {
        index: usize,
        id: ContainerId,
    },
}

/// The newest sandbox, if it is ready.
pub fn ready_sandbox(facts: &PodFacts) -> Option<&SandboxFact> {
    facts.sandboxes.first().filter(|s| s.ready)
}

/// The current container of that name: the running one, otherwise the newest. A call that was cancelled long ago may
/// have created a container with a higher attempt number.
pub fn newest<'a>(facts: &'a PodFacts, name: &str) -> Option<&'a ContainerFact> {
    let of_name = facts.containers.iter().filter(|c| c.name == name);
    of_name.max_by_key(|c| (c.state == ContainerState::Running, c.attempt, c.created_at))
}

/// Whether the restart policy restarts a container that ended with this result.
pub fn restarts(policy: RestartPolicy, c: &ContainerFact) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => c.exit_code != 0,
        RestartPolicy::Never => c.start_was_given_up(),
    }
}

/// C2: the image in the spec of a pod of the API server is not the one for which the container was created.
pub fn has_old_image(pod: &Pod, c: &ContainerFact) -> bool {
    let spec = pod.all_containers().find(|spec| spec.name == c.name).filter(|_| pod.is_from_api_server());
    let wanted = spec.map(|spec| hash::container(&spec.name, spec.image.as_deref().unwrap_or_default()));
    wanted.zip(c.spec_hash).is_some_and(|(wanted, had)| wanted != had)
}

/// The input of a plan.
pub struct PlanInput<'a> {
    pub pod: &'a Pod,
    pub facts: &'a PodFacts,
    /// Sandboxes with a lower attempt belong to an earlier pod.
    pub first_attempt: u32,
    /// Objects of other owners under the pod's UID; their attempt numbers are taken (W21).
    pub foreign: &'a ForeignObjects,
    /// The first attempt number of a container of that name that the runtime has not refused as taken.
    pub first_free: &'a dyn Fn(&str) -> u32,
    /// The container of that name has to wait for a back-off or after an error.
    pub held: &'a dyn Fn(&str) -> bool,
    /// The dead sandbox has been stopped, so its network is released. The sandbox state does not show this.
    pub stopped: &'a dyn Fn(&SandboxId) -> bool,
    /// A cancelled call may still take effect.
    pub in_doubt: bool,
    /// A running container has started: its startup probe succeeded, or it has none.
    pub started: &'a dyn Fn(&ContainerFact) -> bool,
    /// W29: the ephemeral containers that were started.
    pub begun_ephemeral: &'a BTreeSet<String>,
    /// W10: containers that were stopped to start again. They restart whatever the policy is.
    pub restarting: &'a Restarting,
}

impl PlanInput<'_> {
    /// The container has ended and does not restart.
    fn has_ended(&self, name: &str) -> bool {
        let policy = self.pod.restart_policy();
        newest(self.facts, name).is_some_and(|c| c.state == ContainerState::Exited && !self.restarts(policy, c))
    }

    fn restarts(&self, policy: RestartPolicy, c: &ContainerFact) -> bool {
        restarts(policy, c) || self.restarting.contains(&c.id)
    }

    /// A container that was stopped to start again has ended, and its successor does not exist yet.
    fn is_restarting(&self) -> bool {
        let mut newest = self.pod.all_containers().filter_map(|spec| newest(self.facts, &spec.name));
        newest.any(|c| c.state == ContainerState::Exited && self.restarting.contains(&c.id))
    }

    /// The container was created in this sandbox for the spec, and has not started.
    fn may_start(&self, c: &ContainerFact, current: &SandboxFact) -> bool {
        c.state == ContainerState::Created && c.sandbox == current.id && !has_old_image(self.pod, c)
    }

    /// The next instance of a container, under a free attempt number.
    fn create(&self, index: usize, last: Option<&ContainerFact>) -> Next {
        let name = &self.pod.at(index).name;
        let attempt = last.map_or(0, |c| c.attempt.saturating_add(1));
        Next::Create { index, attempt: attempt.max(self.foreign.next_container(name)).max((self.first_free)(name)) }
    }
}

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
    // If several sandboxes are ready, the newest counts.
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
                // Its sandbox is gone, or its image is an old one. The container never ran, but its name is taken.
                ContainerState::Created => return input.create(index, Some(c)),
                ContainerState::Exited if input.restarts(policy, c) => return input.create(index, Some(c)),
                ContainerState::Exited => {}
            },
        }
    }
    ephemeral::next(input, current)
}

/// The containers that run outside the current sandbox, beside a newer instance, or in an unknown state.
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

/// The step of a pod without a ready sandbox.
fn sandbox(input: &PlanInput<'_>) -> Next {
    let PlanInput { pod, facts, first_attempt, .. } = *input;
    // W13: under restartPolicy Never a pod gets no second sandbox once a container existed.
    let is_over =
        pod.restart_policy() == RestartPolicy::Never && !facts.containers.iter().all(ContainerFact::start_was_given_up);
    if is_over && !input.is_restarting() {
        return Next::Ended;
    }
    // Without a container that could start in it, no sandbox is needed yet.
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

/// W26: a dead container that is no longer needed. The `kept` newest of each name stay: the one that runs or ended
/// last, and usually the one before it (`lastState`, `logs -p`).
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

/// An old sandbox without containers; the newest sandbox stays.
pub fn superfluous_sandbox(facts: &PodFacts) -> Option<SandboxId> {
    let mut old = facts.sandboxes.iter().skip(1);
    let found = old.find(|s| !s.ready && !facts.containers.iter().any(|c| c.sandbox == s.id));
    found.map(|s| s.id.clone())
}
