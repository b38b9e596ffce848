//! `lifecycle.stopSignal`.

use crate::api::k8s::PodSpec;
use crate::api::problem::{At, Faults};
use crate::api::stop_signal;

pub(super) fn of_pod(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let has_os = spec.os.as_ref().is_some_and(|os| !os.name.is_empty());
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (field, list) in [("initContainers", init), ("containers", &spec.containers)] {
        let at = at.field(field);
        for (i, container) in list.iter().enumerate() {
            let Some(signal) = container.lifecycle.as_ref().and_then(|l| l.stop_signal.as_deref()) else { continue };
            let at = at.item(i);
            let at = at.field("lifecycle");
            let at = at.field("stopSignal");
            if !has_os {
                faults.forbidden(at, "may not be set for containers with empty `spec.os.name`");
            }
            if stop_signal::number(signal).is_none() {
                faults.invalid(at, signal, "must be a Linux signal, for example SIGUSR1 or SIGRTMIN+3");
            }
        }
    }
}
