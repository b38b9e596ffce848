//! Handles the results of a worker's operations. Each handler only records the result; the step that follows decides
//! what to do.

use super::Worker;
use super::container_start::Instance;
use super::devices;
use super::hooks;
use super::ops::{ActiveOp, BackgroundOp, Ended};
use super::preparation::Preparation::{self, Cgroup, Directories};
use super::probing;
use super::pulling;
use super::stops;
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::hash;
use crate::api::names::ContainerId;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::runtime_features::CdiDevices;
use crate::api::time::{Boot, Wall};
use crate::engine::context::Context;
use crate::engine::effect::FilesCall;
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::plan::observed;
use std::rc::Rc;

type Outcome = Result<Answer, OpError>;

impl Worker {
    pub fn done(&mut self, op: OpId, result: Outcome, entry: &mut Entry, ctx: &mut Context<'_>) {
        match self.ops.end(op) {
            Some(Ended::Background(background)) => self.background_done(op, background, result, entry, ctx),
            Some(Ended::Active(active)) => self.active_done(active, result, entry, ctx),
            None => {}
        }
    }

    fn background_done(
        &mut self,
        op: OpId,
        background: BackgroundOp,
        result: Outcome,
        entry: &mut Entry,
        ctx: &mut Context<'_>,
    ) {
        match background {
            BackgroundOp::Stop { id } => stops::answered(&id, result, self.pod.as_ref(), entry, ctx),
            BackgroundOp::Record => match result {
                Ok(_) => {
                    if self.record.written(!self.ops.is_writing_record()) {
                        self.containers.backoffs.release(&Reason::CreateContainerConfigError);
                    }
                }
                Err(e) => {
                    if self.record.failed(&e, self.state.outdated_mut(), self.pod.as_ref(), ctx) {
                        // Unlike a write, a removal works even on a full disk.
                        self.ops.remove_record(&self.uid, BackgroundOp::Other, ctx);
                    }
                }
            },
            BackgroundOp::Message { id } => {
                if let Ok(Answer::Message(text)) = result {
                    self.containers.messages.insert(id, text);
                }
            }
            BackgroundOp::RemovePodFiles { marker } => {
                let pod = self.pod.as_ref();
                self.removals.files_removed(marker, result.map(drop), pod, &mut self.state, ctx);
            }
            BackgroundOp::RecordRemoved => {
                self.removals.record_removed(result.map(drop), &mut self.state, &mut self.record, ctx);
            }
            BackgroundOp::PreStop { container } => {
                hooks::pre_stop_done(self.pod.as_ref(), &self.state, &container, result, ctx);
            }
            BackgroundOp::Probe => {
                let pod = self.pod.as_ref();
                if let Some((id, planned)) =
                    pod.and_then(|pod| probing::judge(&mut self.containers.probes, pod, op, result, ctx))
                    && self.state.is_sync()
                {
                    self.stops.plan_stop(id, planned);
                }
            }
            BackgroundOp::UpdateVolumes => self.volumes.updated(result.map(drop), self.pod.as_ref(), ctx),
            BackgroundOp::Unmount => self.volumes.unmounted(result.map(drop), self.pod.as_ref(), ctx),
            BackgroundOp::RemoveCgroup => {
                self.state.cgroup_removed(result.map(drop), &self.sandbox, self.pod.as_ref(), ctx)
            }
            BackgroundOp::Other => {}
        }
    }

    fn active_done(&mut self, active: ActiveOp, result: Outcome, entry: &mut Entry, ctx: &mut Context<'_>) {
        if let Err(e) = &result
            && active.changes_runtime()
        {
            // A failed call may have changed something, unless it was never sent.
            if e.may_have_acted() {
                entry.changed_somehow(ctx.generation);
            }
            if matches!(e, OpError::Unknown(_)) {
                entry.doubt(ctx.now.boot + ctx.config.request_timeout * 2);
            }
        }
        match active {
            ActiveOp::RunSandbox { began, attempt } => self.sandbox_created(began, attempt, result, entry, ctx),
            ActiveOp::StopSandbox { id } => match result {
                Ok(_) => {
                    self.sandbox.stopped(id);
                    entry.changed_somehow(ctx.generation);
                }
                Err(e) if e.is_not_found() => self.sandbox.stopped(id),
                Err(e) => self.sandbox.not_stopped(&id, &e, self.pod.as_ref(), &mut self.state, ctx),
            },
            ActiveOp::RemoveContainer { id, log_path } => self.container_removed(id, log_path, result, entry, ctx),
            ActiveOp::RemoveSandbox { id } => match result {
                Ok(_) => {
                    entry.forget_sandbox(&id, ctx.generation);
                    self.removals.retry.succeeded();
                }
                Err(e) if e.is_not_found() => entry.forget_sandbox(&id, ctx.generation),
                Err(e) => {
                    self.removals.failed(&format!("sandbox {id}"), &e, self.pod.as_ref(), ctx);
                    if e.is_failed_precondition() {
                        let containers = entry.facts().containers.iter();
                        let ended = containers.filter(|c| c.sandbox == id && c.state == ContainerState::Exited);
                        self.ops.delete_tasks(&self.uid, ended.map(|c| c.id.clone()), ctx);
                    }
                }
            },
            ActiveOp::Allocate { index, attempt, resource, ids } => {
                self.devices_allocated(Instance { index, attempt }, resource, ids, result, ctx);
            }
            ActiveOp::PreStartDevices { index, attempt, resource } => {
                self.pre_start_done(Instance { index, attempt }, resource, result, ctx);
            }
            active => self.start_step_done(active, result, entry, ctx),
        }
    }

    /// Handles the end of a step towards a running container.
    fn start_step_done(&mut self, active: ActiveOp, result: Outcome, entry: &mut Entry, ctx: &mut Context<'_>) {
        // An orphan starts nothing.
        let Some(pod) = self.pod.clone() else { return };
        match (active, result) {
            // The status of another owner's container is not a valid answer. Read the pod instead.
            (ActiveOp::Start { .. }, Ok(Answer::Container(fact))) if !is_ours(&fact.owner, ctx) => {
                entry.changed_somehow(ctx.generation);
            }
            (ActiveOp::Create { index, attempt, level }, Ok(Answer::Created(id))) => {
                created(&pod, Instance { index, attempt }, level, id, entry, ctx);
            }
            (ActiveOp::Start { index, id }, Ok(Answer::Container(fact))) => self.started(index, id, fact, entry, ctx),
            // The results below do not matter to a pod that is being stopped.
            _ if !self.state.is_sync() => {}
            (ActiveOp::MountVolumes, result) => {
                self.volumes.mounted(result.map(drop), &pod, &mut self.timer, ctx);
            }
            (ActiveOp::SettleCgroup, result) => {
                self.in_place.resize.settled(result.map(drop), &pod, &mut self.record, ctx);
            }
            (
                active @ (ActiveOp::RaiseCgroup | ActiveOp::MeasureMemory { .. } | ActiveOp::UpdateContainer { .. }),
                result,
            ) => {
                self.in_place.resize.step_done(active, result, &pod, &mut self.ops, entry, ctx);
            }
            (ActiveOp::PostStart { index, id, .. }, result) => {
                hooks::post_start_done(&pod, index, id, result, &mut self.containers.backoffs, &mut self.stops, ctx);
            }
            (ActiveOp::PreparePod { attempt }, Ok(_)) => self.state.set_preparation(Directories { attempt }),
            (ActiveOp::MakeCgroup { attempt }, Ok(_)) => self.state.set_preparation(Cgroup { attempt }),
            (ActiveOp::PreparePod { .. } | ActiveOp::MakeCgroup { .. }, Err(e)) => {
                self.state.set_preparation(Preparation::Nothing);
                self.sandbox.step_failed(&e, Some(&pod), ctx);
            }
            (ActiveOp::ImageStatus { index, attempt, needed }, Ok(Answer::Image(found))) => {
                self.image_found(Instance { index, attempt }, needed, found, ctx);
            }
            (ActiveOp::DockerConfig { index, attempt }, result) => {
                pulling::docker_config_read(Instance { index, attempt }, result, &mut self.state, ctx);
            }
            (ActiveOp::AskProvider { index, attempt, name }, result) => {
                pulling::provider_asked(Instance { index, attempt }, &name, result, &mut self.state, ctx);
            }
            (ActiveOp::Pull { index, attempt, needed, image, began }, result) => {
                self.pulled(Instance { index, attempt }, needed, image, began, result, ctx);
            }
            (ActiveOp::PrepareContainer { index, attempt }, Ok(Answer::Prepared(prepared))) => {
                self.state.files_created(Instance { index, attempt }, prepared);
            }
            (ActiveOp::MountInContainer { index, attempt }, Ok(Answer::Mounts(mounts))) => {
                self.state.volumes_mounted(Instance { index, attempt }, mounts);
            }
            (active, Err(e)) => {
                let (state, timer) = (&mut self.state, &mut self.timer);
                self.containers.start_failed(&pod, active, &e, state, timer, ctx);
            }
            (_, Ok(_)) => {}
        }
    }

    fn sandbox_created(
        &mut self,
        began: Boot,
        attempt: u32,
        result: Outcome,
        entry: &mut Entry,
        ctx: &mut Context<'_>,
    ) {
        match result {
            Ok(Answer::Sandbox(fact)) if is_ours(&fact.owner, ctx) => {
                self.sandbox.created(&fact, began);
                entry.put_sandbox(fact, ctx.generation);
            }
            Ok(_) => entry.changed_somehow(ctx.generation),
            Err(e) => {
                self.sandbox.failed(attempt, &e, ctx.now.boot);
                if self.state.is_sync() {
                    self.state.set_preparation(Preparation::Nothing);
                    self.sandbox.step_failed(&e, self.pod.as_ref(), ctx);
                }
            }
        }
    }

    fn started(
        &mut self,
        index: usize,
        id: ContainerId,
        fact: ContainerFact,
        entry: &mut Entry,
        ctx: &mut Context<'_>,
    ) {
        let Some(pod) = self.pod.clone() else { return };
        let name = &pod.at(index).name;
        ctx.emit_normal(Some(&pod), Some(name), Reason::Started, format!("Started container {name}"));
        let spec = pod.at(index);
        let wanted = spec.lifecycle.as_ref().and_then(|l| l.stop_signal.as_deref());
        let honoured = ctx.runtime_features.stop_signals.of_container(spec, fact.stop_signal);
        if let Some(signal) = wanted.filter(|signal| honoured != Some(*signal)) {
            let message = format!(
                "the container runtime does not support lifecycle.stopSignal {signal}: the container is stopped with \
                 the signal of its image, by default SIGTERM"
            );
            ctx.emit_warning(Some(&pod), Some(name), Reason::StopSignalIgnored, message);
        }
        let cdi = devices::allocated_to(&self.history.devices, name).cdi;
        if !cdi.is_empty() && ctx.runtime_features.cdi_devices == CdiDevices::Ignored {
            let message = format!(
                "the container runtime does not support CDI devices: the container runs without {}; upgrade the \
                 runtime (containerd has them since 1.7)",
                cdi.join(", ")
            );
            ctx.emit_warning(Some(&pod), Some(name), Reason::CDIDevicesIgnored, message);
        }
        if crate::engine::probe::any(&pod) {
            self.containers.probes.started_container(&id);
        }
        if self.state.is_sync() {
            hooks::begin_post_start(&pod, index, &id, &mut self.ops, entry, ctx);
        }
        let link = FilesCall::LinkLog { pod: pod.clone(), container: name.clone(), id, attempt: fact.attempt };
        let op = ctx.files(&self.uid, link);
        self.ops.start_background(op, BackgroundOp::Other);
        entry.put_container(fact, ctx.generation);
    }
}

/// Reports the new container, and adds it to the cached status until the next status read.
fn created(pod: &Rc<Pod>, of: Instance, level: u32, id: ContainerId, entry: &mut Entry, ctx: &mut Context<'_>) {
    let spec = pod.at(of.index);
    let message = format!("Created container: {}", spec.name);
    ctx.emit_normal(Some(pod), Some(&spec.name), Reason::Created, message);
    let sandbox = observed::ready_sandbox(entry.facts()).map(|s| s.id.clone());
    let fact = ContainerFact {
        id,
        sandbox: sandbox.unwrap_or_else(|| "".into()),
        name: spec.name.clone(),
        attempt: of.attempt,
        state: ContainerState::Created,
        created_at: ctx.now.wall,
        started_at: Wall(0),
        finished_at: Wall(0),
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: spec.image.clone().unwrap_or_default(),
        image_ref: String::new(),
        spec_hash: Some(hash::container(&spec.name, spec.image.as_deref().unwrap_or_default())),
        backoff_level: level,
        boot: ctx.config.fixed.boot(),
        grace_seconds: None,
        pre_stop: None,
        stop_signal: None,
        user: None,
        termination_file: None,
        fallback_to_logs: false,
        log_path: String::new(),
        owner: Some(ctx.config.fixed.owner.clone()),
        pid: None,
    };
    entry.put_container(fact, ctx.generation);
}

/// Reports whether the object belongs to this root directory (W21).
fn is_ours(owner: &Option<String>, ctx: &Context<'_>) -> bool {
    owner.as_ref() == Some(&ctx.config.fixed.owner)
}
