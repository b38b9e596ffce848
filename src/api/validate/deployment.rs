//! Validation of a complete Deployment, with the messages of Kubernetes.

use super::complaints::one_of;
use super::{data_metadata, workload};
use crate::api::k8s::{Deployment, DeploymentSpec};
use crate::api::problem::{At, Fault, Faults};

pub(crate) fn deployment(deployment: &Deployment) -> Vec<Fault> {
    let mut faults = Faults::default();
    data_metadata(&deployment.metadata, "deployment", &mut faults);
    let root = At::Root;
    let Some(spec) = &deployment.spec else { return faults.0 };
    numbers(spec, root.field("spec"), &mut faults);
    let at = root.field("spec");
    strategy(spec, at.field("strategy"), &mut faults);
    workload::selector(&spec.selector, &spec.template, root.field("spec"), &mut faults);
    workload::template(&spec.template, "ReplicaSet", &mut faults);
    faults.0
}

fn numbers(spec: &DeploymentSpec, at: At<'_>, faults: &mut Faults) {
    workload::not_negative(
        &[
            ("replicas", spec.replicas),
            ("minReadySeconds", spec.min_ready_seconds),
            ("revisionHistoryLimit", spec.revision_history_limit),
            ("progressDeadlineSeconds", spec.progress_deadline_seconds),
        ],
        at,
        faults,
    );
    workload::replicas(spec.replicas, at, faults);
    if let Some(deadline) = spec.progress_deadline_seconds
        && deadline <= spec.min_ready_seconds.unwrap_or_default()
    {
        faults.invalid(at.field("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
    }
}

fn strategy(spec: &DeploymentSpec, at: At<'_>, faults: &mut Faults) {
    let Some(strategy) = &spec.strategy else { return };
    let type_ = strategy.type_.as_deref().unwrap_or_default();
    one_of(Some(type_), &["Recreate", "RollingUpdate"], at.field("type"), faults);
    let at = at.field("rollingUpdate");
    match &strategy.rolling_update {
        Some(_) if type_ == "Recreate" => {
            faults.forbidden(at, "may not be specified when strategy `type` is 'Recreate'");
        }
        Some(rolling) => {
            let (surge, unavailable) = (rolling.max_surge.as_ref(), rolling.max_unavailable.as_ref());
            workload::number_or_percentage(surge, None, at.field("maxSurge"), faults);
            workload::number_or_percentage(unavailable, Some(100), at.field("maxUnavailable"), faults);
            if workload::is_zero(surge) && workload::is_zero(unavailable) {
                let at = at.field("maxUnavailable");
                faults.invalid(
                    at,
                    unavailable.map(workload::shown).unwrap_or_default(),
                    "may not be 0 when `maxSurge` is 0",
                );
            }
        }
        None => {}
    }
}
