//! The needs of a pod that the runtime has to satisfy: a handler for its RuntimeClass, and optional features.
//!
//! *Ours:* a pod waits for a feature that the runtime does not have, and starts after an upgrade of the runtime. A kubelet
//! rejects some of these pods, and a controller creates new ones.

use crate::api::pod::Pod;
use crate::api::runtime_class::RuntimeClasses;
use crate::api::runtime_features::RuntimeFeatures;

/// The runtime handler for the pod's sandbox; empty for the default handler.
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
                    this feature; containerd has it from 2.0 on"
                .to_owned(),
        );
    }
    Ok(handler.into())
}
