//! The devices of a pod's containers (G3). A container keeps its devices until the pod has ended; the record contains
//! them.

use super::Worker;
use super::container_start::{Instance, StartError};
use super::ops::ActiveOp;
use crate::api::devices::{Allocated, Granted, PodDevices, is_device_resource};
use crate::api::k8s::Container;
use crate::api::limits::limits;
use crate::api::mount::{Access, Mount, MountSource, Propagation};
use crate::api::names::Uid;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::{Pod, is_sidecar};
use crate::api::reason::Reason;
use crate::api::resources::Resources;
use crate::engine::context::Context;
use crate::engine::effect::DeviceCall;
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Returns the number of devices of each resource that a container requests. For devices, the request equals the
/// limit.
fn requested(container: &Container) -> Resources {
    let of_devices = limits(container).into_iter().flatten().filter(|(name, _)| is_device_resource(name));
    Resources::of(of_devices)
}

/// Returns the resources of device plugins that the container requests. Extended resources from the node's
/// configuration are not among them.
pub(super) fn device_resources(pod: &Pod, index: usize, ctx: &Context<'_>) -> Vec<String> {
    let configured = &ctx.config.node.allocatable;
    let all = requested(pod.at(index));
    all.iter().map(|(name, _)| name.to_owned()).filter(|name| configured.get(name) == 0).collect()
}

/// A container is not started until its devices are in the record. Otherwise, if Wherry were killed, another pod
/// could get them.
pub const NOT_RECORDED: &str = "failed to record the container's devices (see the event FailedRecord); make the root \
                                directory writable, or free space on its disk";

/// Returns the devices of init containers that have ended before this container starts, except those that another
/// container has. As in Kubernetes, later containers reuse them: the pod's request is only the larger of the amounts.
fn of_init_containers(devices: &PodDevices, pod: &Pod, index: usize, resource: &str) -> Vec<String> {
    let ids = |i: usize| {
        let granted = devices.get(&pod.at(i).name).and_then(|devices| devices.get(resource));
        granted.map(|granted| granted.ids.as_slice()).unwrap_or_default()
    };
    let ends = |i: &usize| pod.is_init(*i) && !is_sidecar(pod.at(*i));
    let others = (0..pod.all_containers().count()).filter(|i| !ends(i) && *i != index);
    let taken: Vec<&String> = others.flat_map(ids).collect();
    let before = (0..index).filter(ends).flat_map(ids);
    let free: BTreeSet<&String> = before.filter(|id| !taken.contains(id)).collect_set();
    free.into_iter().cloned().collect()
}

/// Gives back devices that the plugin did not allocate, except those that other containers of the pod have.
fn give_back(devices: &PodDevices, resource: &str, ids: &[String], uid: &Uid, ctx: &mut Context<'_>) {
    let granted = devices.values().filter_map(|devices| devices.get(resource));
    let kept: BTreeSet<&String> = granted.flat_map(|granted| &granted.ids).collect_set();
    let unused: Vec<String> = ids.iter().filter(|id| !kept.contains(id)).cloned().collect();
    ctx.devices.give_back(resource, &unused, uid);
}

/// Returns all changes that the device plugins request for the container, merged.
pub fn allocated_to(devices: &PodDevices, container: &str) -> Allocated {
    let mut all = Allocated::default();
    for granted in devices.get(container).into_iter().flatten().map(|(_, granted)| &granted.allocated) {
        all.env.extend(granted.env.clone());
        all.mounts.extend(granted.mounts.clone());
        all.nodes.extend(granted.nodes.clone());
        all.annotations.extend(granted.annotations.clone());
        all.cdi.extend(granted.cdi.clone());
    }
    all
}

impl Worker {
    /// Starts the next step towards the container's devices: chooses them and requests their allocation, or calls
    /// PreStartContainer. Without such a step, the start continues at once.
    pub(super) fn prepare_devices(
        &mut self,
        pod: &Rc<Pod>,
        of: Instance,
        resource: String,
        ctx: &mut Context<'_>,
    ) -> Result<(), StartError> {
        let container = pod.at(of.index);
        let Instance { index, attempt } = of;
        let granted = self.history.devices.get(&container.name).and_then(|devices| devices.get(&resource));
        match granted.map(|granted| granted.ids.clone()) {
            None => {
                let amount = requested(container).get(&resource);
                let reuse = of_init_containers(&self.history.devices, pod, index, &resource);
                let ids = ctx.devices.take(&resource, amount, &self.uid, &reuse).map_err(StartError::of_config)?;
                let op = ctx.device(&self.uid, DeviceCall::Allocate { resource: resource.clone(), ids: ids.clone() });
                self.ops.start(op, ActiveOp::Allocate { index, attempt, resource, ids });
            }
            Some(ids) if ctx.devices.needs_pre_start(&resource) => {
                let op = ctx.device(&self.uid, DeviceCall::PreStart { resource: resource.clone(), ids });
                self.ops.start(op, ActiveOp::PreStartDevices { index, attempt, resource });
            }
            Some(_) => {
                self.state.devices_are_prepared(of, resource);
                // The next step follows at once.
                self.timer.wake_at(ctx.now.boot);
            }
        }
        Ok(())
    }

    /// Handles the plugin's answer to Allocate. The record contains the devices before the container exists.
    pub(super) fn devices_allocated(
        &mut self,
        of: Instance,
        resource: String,
        ids: Vec<String>,
        result: Result<Answer, OpError>,
        ctx: &mut Context<'_>,
    ) {
        let Some(pod) = self.pod.clone() else { return };
        let container = &pod.at(of.index).name;
        match result {
            Ok(Answer::Allocated(allocated)) if self.state.is_sync() => {
                let granted = Granted { ids, allocated: *allocated };
                self.history.devices.entry(container.clone()).or_default().insert(resource, granted);
                self.record.wait_for_devices();
            }
            Ok(_) => give_back(&self.history.devices, &resource, &ids, &self.uid, ctx),
            Err(e) => {
                give_back(&self.history.devices, &resource, &ids, &self.uid, ctx);
                if self.state.is_sync() {
                    let message = format!("the device plugin of {resource} did not allocate {}: {e}", ids.join(", "));
                    let e = StartError::of_config(message);
                    self.containers.hold_error(&pod, of.index, e, &mut self.state, &mut self.timer, ctx);
                }
            }
        }
    }

    pub(super) fn pre_start_done(
        &mut self,
        of: Instance,
        resource: String,
        result: Result<Answer, OpError>,
        ctx: &mut Context<'_>,
    ) {
        let Some(pod) = self.pod.clone().filter(|_| self.state.is_sync()) else { return };
        match result {
            Ok(_) => {
                self.state.devices_are_prepared(of, resource);
                self.timer.wake_at(ctx.now.boot);
            }
            Err(e) => {
                let message = format!("the device plugin of {resource} did not prepare the devices: {e}");
                let e = StartError::of_config(message);
                self.containers.hold_error(&pod, of.index, e, &mut self.state, &mut self.timer, ctx);
            }
        }
    }

    /// Retries the containers that could not get their devices. Returns true if the worker has to be stepped.
    pub fn devices_changed(&mut self) -> bool {
        let requests = |pod: &Rc<Pod>| pod.all_containers().any(|c| requested(c).iter().next().is_some());
        self.pod.as_ref().is_some_and(requests) && self.containers.backoffs.release(&Reason::CreateContainerConfigError)
    }
}

/// Returns the mounts that device plugins request.
pub(super) fn mounts(allocated: &Allocated) -> impl Iterator<Item = Mount> {
    allocated.mounts.iter().map(|mount| Mount {
        container_path: mount.container_path.clone(),
        source: MountSource::Host(mount.host_path.clone()),
        access: if mount.read_only { Access::ReadOnly } else { Access::ReadWrite },
        propagation: Propagation::Private,
        owned: false,
    })
}
