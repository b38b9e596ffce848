//! Validation of a complete DaemonSet, with the messages of Kubernetes.

use super::complaints::one_of;
use super::{data_metadata, workload};
use crate::api::k8s::{DaemonSet, DaemonSetSpec, RollingUpdateDaemonSet};
use crate::api::problem::{At, Fault, Faults};

pub(crate) fn daemon_set(daemon_set: &DaemonSet) -> Vec<Fault> {
    let mut faults = Faults::default();
    data_metadata(&daemon_set.metadata, "daemonset", &mut faults);
    let root = At::Root;
    let Some(spec) = &daemon_set.spec else { return faults.0 };
    let at = root.field("spec");
    workload::not_negative(
        &[("minReadySeconds", spec.min_ready_seconds), ("revisionHistoryLimit", spec.revision_history_limit)],
        root.field("spec"),
        &mut faults,
    );
    update_strategy(spec, at.field("updateStrategy"), &mut faults);
    workload::selector(&spec.selector, &spec.template, root.field("spec"), &mut faults);
    workload::template(&spec.template, "DaemonSet", &mut faults);
    faults.0
}

fn update_strategy(spec: &DaemonSetSpec, at: At<'_>, faults: &mut Faults) {
    let Some(strategy) = &spec.update_strategy else { return };
    let type_ = strategy.type_.as_deref().unwrap_or_default();
    one_of(Some(type_), &["OnDelete", "RollingUpdate"], at.field("type"), faults);
    let at = at.field("rollingUpdate");
    // With `OnDelete`, the field has no effect, as in a cluster.
    if let Some(rolling) = strategy.rolling_update.as_ref().filter(|_| type_ == "RollingUpdate") {
        rolling_update(rolling, at, faults);
    }
}

fn rolling_update(rolling: &RollingUpdateDaemonSet, at: At<'_>, faults: &mut Faults) {
    let (surge, unavailable) = (rolling.max_surge.as_ref(), rolling.max_unavailable.as_ref());
    workload::number_or_percentage(surge, Some(100), at.field("maxSurge"), faults);
    workload::number_or_percentage(unavailable, Some(100), at.field("maxUnavailable"), faults);
    match (workload::is_zero(surge), workload::is_zero(unavailable)) {
        (true, true) => faults.required(at.field("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
        (false, false) => {
            let surge = surge.map(workload::shown).unwrap_or_default();
            faults.invalid(at.field("maxSurge"), surge, "may not be set when maxUnavailable is non-zero");
        }
        (true, false) | (false, true) => {}
    }
}
