//! What the worker knows about individual containers beyond what the runtime shows.

use super::container_backoff::ContainerBackoffs;
use super::container_start::{Failures, StartError, Starting};
use super::measure::measure_start_error;
use super::ops::ActiveOp;
use super::restarting::Restarting;
use super::state::State;
use super::stops::Stops;
use super::termination_messages::TerminationMessages;
use super::timer::Timer;
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::ContainerId;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::engine::context::{Context, runtime_is_gone};
use crate::engine::op::OpError;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::plan::observed;
use crate::engine::probe::Probes;
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;

#[derive(Debug, Default, Serialize)]
pub struct Containers {
    pub backoffs: ContainerBackoffs,
    pub failures: Failures,
    pub probes: Probes,
    pub messages: TerminationMessages,
}

impl Containers {
    /// Sets the back-off of each container that ended and will restart, counted from its end (W10).
    pub fn hold_the_ended(&mut self, pod: &Rc<Pod>, restarting: &Restarting, entry: &Entry, ctx: &mut Context<'_>) {
        for (index, spec) in pod.all_containers().enumerate() {
            let Some(dead) = observed::newest(entry.facts(), &spec.name) else { continue };
            if dead.state != ContainerState::Exited {
                continue;
            }
            let is_restarted = restarting.contains(&dead.id);
            if !is_restarted && !observed::restarts(pod.restart_policy_of(index), dead) {
                self.backoffs.forget(&spec.name);
                continue;
            }
            if restarting.starts_at_once(pod, dead) {
                continue;
            }
            let limits = ctx.config.restart_backoff();
            if let Some(message) = self.backoffs.ended(pod, &spec.name, dead, limits, ctx.now) {
                ctx.emit_warning(Some(pod), Some(&spec.name), Reason::BackOff, message);
            }
        }
        // An ephemeral container never restarts (W29).
        for spec in pod.ephemeral.iter().map(|e| &e.container) {
            if observed::newest(entry.facts(), &spec.name).is_some_and(|c| c.state == ContainerState::Exited) {
                self.backoffs.forget(&spec.name);
            }
        }
    }

    /// Drops the back-offs and errors of running containers. Returns true if all main containers run.
    pub fn note_running(&mut self, pod: &Pod, stops: &Stops, entry: &Entry) -> bool {
        let facts = entry.facts();
        let running = |name: &str| observed::newest(facts, name).is_some_and(|c| c.state == ContainerState::Running);
        let runs =
            |id: &ContainerId| facts.containers.iter().any(|c| c.id == *id && c.state == ContainerState::Running);
        self.backoffs.forget_running(running, runs, |id| stops.has_planned_stop(id));
        pod.containers().iter().all(|c| running(&c.name))
    }

    /// Drops the notes about containers that no longer exist. `known` says whether the list was read in this run.
    pub fn forget_gone(&mut self, containers: &[ContainerFact], known: bool) {
        self.messages.forget_gone(containers);
        self.backoffs.forget_gone(containers);
        if known {
            self.probes.forget_gone(containers);
        }
    }

    /// Handles the failure of a step towards a running container.
    pub fn start_failed(
        &mut self,
        pod: &Rc<Pod>,
        active: ActiveOp,
        e: &OpError,
        state: &mut State,
        timer: &mut Timer,
        ctx: &mut Context<'_>,
    ) {
        // Another object holds the name, perhaps one without pod labels, which no list shows. The next attempt uses
        // another number.
        if let ActiveOp::Create { index, attempt, .. } = &active
            && e.is_name_taken()
        {
            self.failures.name_taken(pod.at(*index).name.clone(), *attempt);
        }
        let (index, reason) = match &active {
            ActiveOp::ImageStatus { index, .. } => (*index, Reason::ImageInspectError),
            ActiveOp::PrepareContainer { index, .. } | ActiveOp::MountInContainer { index, .. } => {
                (*index, Reason::CreateContainerConfigError)
            }
            ActiveOp::Create { index, .. } => (*index, Reason::CreateContainerError),
            ActiveOp::Start { index, .. } => (*index, Reason::RunContainerError),
            _ => return,
        };
        if runtime_is_gone(e, ctx) {
            // This is not an error of the container, although a kubelet counts it as one.
            measure_start_error(pod, index, reason, ctx);
            let until = ctx.now.boot + ctx.rng.jitter(Duration::from_secs(1));
            self.backoffs.hold(&pod.at(index).name, until, None);
            state.set_starting(Starting::Nothing);
            return;
        }
        if let (ActiveOp::Start { id, .. }, OpError::Answered { .. }) = (active, e) {
            // The runtime shows the container as ended (then its back-off applies) or still as created.
            self.backoffs.start_failed(id, (reason.clone(), e.message().to_string()));
        }
        self.hold_error(pod, index, StartError { reason, message: e.message().to_string() }, state, timer, ctx);
    }

    /// Retries the container after a delay (W9). The status shows this waiting reason meanwhile.
    pub fn hold_error(
        &mut self,
        pod: &Rc<Pod>,
        index: usize,
        e: StartError,
        state: &mut State,
        timer: &mut Timer,
        ctx: &mut Context<'_>,
    ) {
        let StartError { reason, message } = e;
        measure_start_error(pod, index, reason.clone(), ctx);
        let name = &pod.at(index).name;
        let text = match reason {
            Reason::CreateContainerError | Reason::CreateContainerConfigError | Reason::RunContainerError => {
                format!("Error: {message}")
            }
            _ => format!("Error: {reason}"),
        };
        ctx.emit_warning(Some(pod), Some(name), Reason::Failed, text);
        let until = ctx.now.boot + ctx.after_error();
        self.backoffs.hold(name, until, Some((reason, message)));
        state.set_starting(Starting::Nothing);
        // The next container does not wait for this one.
        timer.wake_at(ctx.now.boot);
    }
}
