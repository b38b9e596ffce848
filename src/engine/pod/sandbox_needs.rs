//! The requirements of a pod that the runtime has to meet: a handler for its RuntimeClass, and optional features.
//!
//! *Ours:* a pod waits for a feature that the runtime does not have, and starts after an upgrade of the runtime. A
//! kubelet rejects some of these pods, and a controller creates new ones.

use crate::api::pod::Pod;
use crate::api::runtime_class::RuntimeClasses;
use crate::api::runtime_features::{ImageVolumes, RuntimeFeatures};

/// Returns the runtime handler for the pod's sandbox; empty for the default handler.
///
/// # Errors
/// The reason why the runtime cannot run the pod, with the remedy.
pub fn handler(pod: &Pod, classes: &RuntimeClasses, runtime: &RuntimeFeatures) -> Result<Box<str>, String> {
    let spec = pod.spec();
    let handler = classes.handler(spec)?;
    let policy = spec.security_context.as_ref().and_then(|context| context.supplemental_groups_policy.as_deref());
    if policy == Some("Strict") && !runtime.supplemental_groups_policy {
        return Err(
            "SupplementalGroupsPolicy=Strict is not supported in this node: the container runtime does not report \
                    this feature; containerd has it from 2.0 on, CRI-O from 1.31 on"
                .to_owned(),
        );
    }
    image_volumes(pod, runtime.image_volumes)?;
    if spec.host_users == Some(false) && !runtime.of_handler(handler).user_namespaces {
        let of = if handler.is_empty() { "default runtime handler".to_owned() } else { format!("handler {handler:?}") };
        return Err(format!(
            "hostUsers=false is not supported in this node: the container runtime does not report user namespaces for \
             its {of}; containerd has them from 2.0 on, CRI-O from 1.30 on, with runc 1.2 or crun 1.13"
        ));
    }
    Ok(handler.into())
}

fn image_volumes(pod: &Pod, runtime: ImageVolumes) -> Result<(), String> {
    let volumes = || pod.spec().volumes.iter().flatten().filter(|volume| volume.image.is_some());
    let given = |path: &Option<String>| path.as_deref().is_some_and(|path| !path.is_empty());
    let has_sub_path = |name: &str| {
        let mut mounts = pod.all_containers().flat_map(|container| container.volume_mounts.iter().flatten());
        mounts.any(|mount| mount.name == name && (given(&mount.sub_path) || given(&mount.sub_path_expr)))
    };
    match (runtime, volumes().next()) {
        (_, None) => Ok(()),
        (ImageVolumes::None, Some(volume)) => Err(format!(
            "volume {:?}: image volumes are not supported in this node: containerd has them from 2.1 on, CRI-O from \
             1.31 on; upgrade the container runtime",
            volume.name
        )),
        (ImageVolumes::Whole, _) => match volumes().find(|volume| has_sub_path(&volume.name)) {
            None => Ok(()),
            Some(volume) => Err(format!(
                "volume {:?}: subPath of an image volume is not supported in this node: the container runtime would \
                 mount the whole image; containerd has it from 2.2 on, CRI-O from 1.33 on; upgrade the container \
                 runtime",
                volume.name
            )),
        },
        (ImageVolumes::WithSubPaths, _) => Ok(()),
    }
}
