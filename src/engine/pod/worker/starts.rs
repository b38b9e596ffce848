//! The steps that start something: the sandbox with its preparation, and each container from its image to its start.
//!
//! Each call of `start` carries out one step. The plan runs again after each result, so that a kill, a shutdown or
//! another owner of the UID takes effect between two steps.

use super::Worker;
use super::container_start::{self, Instance, Needs, StartError, Starting, VolumeImages, may_run_as};
use super::devices;
use super::measure::container_type;
use super::needed_image::{self, NeededImage};
use super::ops::{ActiveOp, Operations};
use super::preparation::PreparationStep;
use super::pulling::continue_pull;
use super::state::State;
use crate::api::claim::ClaimKey;
use crate::api::data_object::DataKey;
use crate::api::environment::{self, Facts};
use crate::api::facts::{ContainerState, ImageFact};
use crate::api::names::Uid;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::api::volume_contents;
use crate::engine::context::Context;
use crate::engine::effect::{
    CgroupCall, ContainerVolumes, CreateContainer, FilesCall, Measure, RuntimeCall, VolumesCall,
};
use crate::engine::event::Prepared;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::backoff;
use crate::engine::pod::plan;
use crate::engine::pod::plan::next_step::Next;
use crate::engine::pod::plan::observed;
use crate::engine::pod::{process, sandbox_needs};
use std::collections::BTreeSet;
use std::rc::Rc;

fn facts<'f>(pod: &'f Pod, entry: &'f Entry, host_ips: &'f [String], ctx: &'f Context<'_>) -> Facts<'f> {
    let allocatable = &ctx.config.node.allocatable;
    Facts {
        pod,
        ips: entry.ips(),
        host_ips,
        allocatable,
        objects: ctx.objects.data,
        services: Some(ctx.objects.variables),
        cluster: ctx.cluster,
    }
}

fn has_volumes(pod: &Pod, index: usize) -> bool {
    pod.at(index).volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty())
}

/// Takes the slot for the step, or queues for it. Returns true if the step may start.
fn has_slot(uid: &Uid, state: &State, next: &Next, ctx: &mut Context<'_>) -> bool {
    // The step needs only a slot for pulls, which `continue_pull` takes.
    if let (Next::Create { index, attempt }, State::Sync(sync)) = (next, state)
        && matches!(
            sync.starting.next(Instance { index: *index, attempt: *attempt }, &Needs::default()),
            container_start::StartStep::ContinuePull
        )
    {
        return true;
    }
    let slots = match next {
        Next::RunSandbox { .. } => &mut ctx.slots.sandboxes,
        _ => &mut ctx.slots.containers,
    };
    slots.take(uid, ctx.now.boot)
}

fn check_image(
    pod: &Rc<Pod>,
    of: Instance,
    needed: NeededImage,
    state: &State,
    ops: &mut Operations,
    ctx: &mut Context<'_>,
) -> Result<(), StartError> {
    if matches!(state, State::Sync(sync) if sync.starting.is_first_step(of)) {
        ctx.outbox.measure(Measure::StartedContainer { container_type: container_type(pod, of.index) });
    }
    match crate::api::image::normalize(needed.spec(pod, of.index).0) {
        Ok(image) => {
            let op = ctx.runtime(&pod.uid, RuntimeCall::ImageStatus { image });
            ops.start(op, ActiveOp::ImageStatus { index: of.index, attempt: of.attempt, needed });
            Ok(())
        }
        Err(message) => {
            let spec = pod.at(of.index);
            ctx.emit_warning(Some(pod), Some(&spec.name), Reason::InspectFailed, message.clone());
            Err(StartError { reason: Reason::InvalidImageName, message })
        }
    }
}

fn prepare_files(
    pod: &Rc<Pod>,
    of: Instance,
    image: &ImageFact,
    ops: &mut Operations,
    entry: &Entry,
    ctx: &mut Context<'_>,
) -> Result<(), StartError> {
    may_run_as(pod, of.index, image).map_err(StartError::of_config)?;
    let ips = entry.ips().to_vec();
    let call = FilesCall::PrepareContainer {
        pod: pod.clone(),
        container: pod.at(of.index).name.clone(),
        host_ips: environment::needs_host_ip(pod.at(of.index), pod.host_network()),
        ips,
        names: ctx.objects.services.names_for(pod),
        attempt: of.attempt,
    };
    let op = ctx.files(&pod.uid, call);
    ops.start(op, ActiveOp::PrepareContainer { index: of.index, attempt: of.attempt });
    Ok(())
}

/// Mounts the volumes for the container. `subPathExpr` needs the complete environment, which is known at this point.
fn mount_in_container(
    pod: &Rc<Pod>,
    of: Instance,
    images: &VolumeImages,
    prepared: &Prepared,
    ops: &mut Operations,
    entry: &Entry,
    ctx: &mut Context<'_>,
) -> Result<(), StartError> {
    // The mount waits for an update of the volumes, which removes old files, possibly those of the `subPath`.
    if ops.is_updating_volumes() {
        return Ok(());
    }
    let container = pod.at(of.index);
    let process = process::of(container, facts(pod, entry, &prepared.host_ips, ctx));
    let env = process.map_err(StartError::of_config)?.env;
    let find = |pod: &Pod, key: &ClaimKey| ctx.objects.claims.find(pod, key);
    let volumes = volume_contents::without_contents(pod, images, &find).map_err(StartError::of_config)?;
    let call = ContainerVolumes {
        uid: pod.uid.clone(),
        container: container.clone(),
        volumes,
        env,
        recursive_read_only: ctx.handler_features(pod).recursive_read_only_mounts,
    };
    let op = ctx.volumes(&pod.uid, VolumesCall::InContainer(Box::new(call)));
    ops.start(op, ActiveOp::MountInContainer { index: of.index, attempt: of.attempt });
    Ok(())
}

impl Worker {
    /// Starts the next step if it may start now.
    pub(super) fn start(&mut self, pod: &Rc<Pod>, next: Next, entry: &mut Entry, ctx: &mut Context<'_>) {
        if let Next::RunSandbox { .. } = next {
            // A2: the pod started in a previous run, and nothing of it runs any more. So it must be admitted again.
            if !self.admission.is_admitted() {
                self.resize_before_start();
                return self.state.set_wants_room(true);
            }
            // W21: two pods with the same UID would share the cgroup and the logs, so this pod waits.
            if entry.foreign().running().is_some() {
                self.state.forget_preparations();
                return self.removals.sharing.report_foreign_objects(pod, &self.state, entry, ctx);
            }
        }
        if !self.may_start(pod, &next, entry, ctx) {
            // The sandbox and the container are prepared again before the next attempt.
            return self.state.forget_preparations();
        }
        if !has_slot(&self.uid, &self.state, &next, ctx) {
            return;
        }
        self.record.keep();
        let volumes = &mut self.volumes;
        if !volumes.follow(pod, &next, ctx) && !volumes.mount(pod, &self.record, &mut self.ops, &mut self.timer, ctx) {
            return;
        }
        match next {
            Next::RunSandbox { attempt } => self.run_sandbox(pod, attempt, ctx),
            Next::Create { index, attempt } => self.create(pod, Instance { index, attempt }, entry, ctx),
            Next::Start { index, id } => self.ops.start_container(&self.uid, index, id, ctx),
            _ => {}
        }
    }

    /// Returns true if the step may start now. Nothing starts while the runtime, its network or PLEG is unhealthy
    /// (P6, W9). The node steps every worker when that changes.
    fn may_start(&mut self, pod: &Rc<Pod>, next: &Next, entry: &Entry, ctx: &Context<'_>) -> bool {
        if !ctx.may_start {
            return false;
        }
        let (volumes, timer) = (&self.volumes, &mut self.timer);
        if !volumes.follow(pod, next, ctx) && !volumes.may_be_mounted(pod, &self.record, timer, ctx.now.boot) {
            return false;
        }
        if !matches!(next, Next::RunSandbox { .. }) {
            return true;
        }
        // A sandbox needs the runtime's network. During a shutdown, a pod does not get its first sandbox (A3).
        if !(ctx.network_ready || pod.host_network()) || ctx.shutting_down && entry.facts().sandboxes.is_empty() {
            return false;
        }
        self.sandbox.hold_for_its_life();
        self.sandbox.hold(ctx.now.boot).is_none()
    }

    fn run_sandbox(&mut self, pod: &Rc<Pod>, attempt: u32, ctx: &mut Context<'_>) {
        let State::Sync(sync) = &self.state else { return };
        match sync.preparation.next(attempt) {
            PreparationStep::Directories => {
                ctx.outbox.measure(Measure::StartedPod);
                let op = ctx.files(&self.uid, FilesCall::PreparePod { pod: pod.clone() });
                self.ops.start(op, ActiveOp::PreparePod { attempt });
            }
            PreparationStep::Cgroup => {
                let op = ctx.cgroup(&self.uid, CgroupCall::Make { pod: pod.clone() });
                self.ops.start(op, ActiveOp::MakeCgroup { attempt });
            }
            PreparationStep::Sandbox => {
                let handler = match sandbox_needs::handler(pod, ctx.runtime_classes, ctx.runtime_features) {
                    Ok(handler) => handler,
                    Err(message) => {
                        self.state.forget_preparations();
                        return self.sandbox.not_possible(message, Some(pod), ctx);
                    }
                };
                let user_namespace =
                    (pod.spec().host_users == Some(false)).then(|| ctx.user_namespaces.take(&self.uid));
                let call = RuntimeCall::RunSandbox { pod: pod.clone(), attempt, handler, user_namespace };
                let op = ctx.runtime(&self.uid, call);
                self.ops.start(op, ActiveOp::RunSandbox { began: ctx.now.boot, attempt });
                self.state.forget_preparations();
            }
        }
    }

    fn create(&mut self, pod: &Rc<Pod>, instance: Instance, entry: &Entry, ctx: &mut Context<'_>) {
        let State::Sync(sync) = &self.state else { return };
        let needs = Needs {
            mounts: has_volumes(pod, instance.index),
            images: needed_image::mounted(pod, instance.index),
            resources: devices::device_resources(pod, instance.index, ctx),
        };
        let (durable, ops) = (self.record.is_durable(), &mut self.ops);
        let begun = match sync.starting.next(instance, &needs) {
            container_start::StartStep::CheckImage(needed) => check_image(pod, instance, needed, &self.state, ops, ctx),
            container_start::StartStep::ContinuePull => {
                continue_pull(pod, instance, &mut self.state, ops, ctx);
                Ok(())
            }
            container_start::StartStep::PrepareDevices { .. } if !durable => Ok(()),
            container_start::StartStep::PrepareDevices { resource } => {
                self.prepare_devices(pod, instance, resource, ctx)
            }
            // The pod's record is durable before its first container exists (W25).
            container_start::StartStep::PrepareFiles(_) if !durable => Ok(()),
            container_start::StartStep::PrepareFiles(_)
                if !needs.resources.is_empty() && self.record.lacks_devices() =>
            {
                Err(StartError::of_config(devices::NOT_RECORDED.to_owned()))
            }
            container_start::StartStep::PrepareFiles(image) => prepare_files(pod, instance, &image, ops, entry, ctx),
            container_start::StartStep::MountVolumes { volumes, prepared } => {
                mount_in_container(pod, instance, &volumes, &prepared, ops, entry, ctx)
            }
            container_start::StartStep::Create { image, prepared } => {
                self.create_container(pod, instance, image, prepared, entry, ctx)
            }
        };
        if let Err(e) = begun {
            let (state, timer) = (&mut self.state, &mut self.timer);
            self.containers.hold_error(pod, instance.index, e, state, timer, ctx);
        }
    }

    /// Handles the image status: uses the image, pulls it, or waits.
    pub(super) fn image_found(
        &mut self,
        of: Instance,
        needed: NeededImage,
        found: Option<ImageFact>,
        ctx: &mut Context<'_>,
    ) {
        let Some(pod) = self.pod.clone() else { return };
        let spec = pod.at(of.index);
        let (image, policy) = needed.spec(&pod, of.index);
        match (policy, found) {
            ("Never", None) => {
                let message = format!("Container image \"{image}\" is not present with pull policy of Never");
                ctx.emit_warning(Some(&pod), Some(&spec.name), Reason::ErrImageNeverPull, message.clone());
                let e = StartError { reason: Reason::ErrImageNeverPull, message };
                let (state, timer) = (&mut self.state, &mut self.timer);
                self.containers.hold_error(&pod, of.index, e, state, timer, ctx);
            }
            ("IfNotPresent" | "Never", Some(found)) => {
                let message = format!("Container image \"{image}\" already present on machine");
                ctx.emit_normal(Some(&pod), Some(&spec.name), Reason::Pulled, message);
                self.state.image_is_present(of, needed, found);
            }
            _ => self.pull(&pod, of, needed, ctx),
        }
    }

    fn create_container(
        &mut self,
        pod: &Rc<Pod>,
        Instance { index, attempt }: Instance,
        image: ImageFact,
        prepared: Prepared,
        entry: &Entry,
        ctx: &mut Context<'_>,
    ) -> Result<(), StartError> {
        self.state.set_starting(Starting::Nothing);
        let Some(sandbox) = observed::ready_sandbox(entry.facts()) else { return Ok(()) };
        let container = pod.at(index);
        // The plan creates the container only while its target runs, so the target is found here.
        let target = pod.ephemeral(&container.name).and_then(|e| e.target.as_deref());
        let target = target.and_then(|name| plan::ephemeral::target(entry.facts(), name)).map(|c| c.id.clone());
        let Prepared { mut mounts, host_ips } = prepared;
        let mut devices = devices::allocated_to(&self.history.devices, &container.name);
        mounts.extend(devices::mounts(&devices));
        let process = process::of(container, facts(pod, entry, &host_ips, ctx));
        let mut process = process.map_err(StartError::of_config)?;
        // As in a kubelet, a variable of the pod takes precedence over a variable of a plugin.
        let own: BTreeSet<&String> = process.env.iter().map(|(name, _)| name).collect_set();
        let added: Vec<_> =
            std::mem::take(&mut devices.env).into_iter().filter(|(name, _)| !own.contains(name)).collect();
        process.env.splice(0..0, added);
        let name = &container.name;
        let level = match observed::newest(entry.facts(), name) {
            Some(before) if self.history.restarting.starts_at_once(pod, before) => 0,
            Some(unused) if unused.state == ContainerState::Created => unused.backoff_level,
            Some(dead) if dead.attempt < attempt => backoff::after(dead, ctx.config.restart_backoff()).1,
            _ => 0,
        };
        let call = CreateContainer {
            pod: pod.clone(),
            container: name.clone(),
            sandbox: sandbox.id.clone(),
            sandbox_attempt: sandbox.attempt,
            user_namespace: sandbox.user_namespace,
            attempt,
            backoff_level: level,
            boot: ctx.config.fixed.boot(),
            image,
            ips: entry.ips().to_vec(),
            process,
            mounts,
            devices,
            target,
        };
        let op = ctx.runtime(&self.uid, RuntimeCall::CreateContainer(Box::new(call)));
        self.ops.start(op, ActiveOp::Create { index, attempt, level });
        Ok(())
    }

    /// D6: retries the containers that wait for one of these objects, and lets the volumes get the new files. Returns
    /// true if the worker has to be stepped.
    pub fn data_changed(&mut self, changed: &[DataKey], now: Boot) -> bool {
        let Some(pod) = &self.pod else { return false };
        let in_pulls = pod.image_pull_secrets().any(|key| changed.contains(&key));
        let in_volumes = volume_contents::references(pod).any(|key| changed.contains(&key));
        let in_environment = environment::references(pod).any(|key| changed.contains(&key));
        let released = in_environment && self.containers.backoffs.release(&Reason::CreateContainerConfigError);
        let released = in_pulls && self.containers.release_pulls(now) || released;
        if in_volumes {
            self.volumes.outdated();
        }
        in_volumes || released
    }
}
