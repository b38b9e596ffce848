//! One container: the fields that do not depend on the rest of the pod.

use super::complaints::{complain, one_of};
use super::{environment, probes, resources, security, syntax, unsupported};
use crate::api::expand::{self, ArgumentPlace};
use crate::api::k8s::Container;
use crate::api::pod::is_sidecar;
use crate::api::problem::{At, Faults};

/// Validates one container. `grace` is the pod's grace period in seconds.
pub(super) fn container(container: &Container, grace: i64, at: At<'_>, faults: &mut Faults) {
    if container.name.is_empty() {
        faults.required(at.field("name"), "");
    } else {
        complain(syntax::dns_label(&container.name), &container.name, at.field("name"), faults);
    }
    match container.image.as_deref() {
        None | Some("") => faults.required(at.field("image"), ""),
        Some(image) if image.trim() != image => {
            faults.invalid(at.field("image"), image, "must not have leading or trailing whitespace");
        }
        Some(_) => {}
    }
    let policy = container.image_pull_policy.as_deref();
    one_of(policy, &["Always", "IfNotPresent", "Never"], at.field("imagePullPolicy"), faults);
    let policy = container.termination_message_policy.as_deref();
    one_of(policy, &["FallbackToLogsOnError", "File"], at.field("terminationMessagePolicy"), faults);
    environment::environment(container, at, faults);
    probes::of_container(container, grace, at, faults);
    arguments(container, at, faults);
    if let Some(list) = &container.resources {
        resources::resources(list, at.field("resources"), faults);
    }
    if let Some(context) = &container.security_context {
        security::of_container(context, at.field("securityContext"), faults);
    }
    unsupported::of_container(container, at, faults);
}

/// Validates the additional rules for init containers. Only a restartable one (sidecar) may have probes and hooks,
/// because others run to completion.
pub(super) fn init_container(container: &Container, at: At<'_>, faults: &mut Faults) {
    if let Some(policy) = &container.restart_policy {
        one_of(Some(policy), &["Always"], at.field("restartPolicy"), faults);
    }
    if is_sidecar(container) {
        return;
    }
    for (used, field) in [
        (container.lifecycle.is_some(), "lifecycle"),
        (container.liveness_probe.is_some(), "livenessProbe"),
        (container.readiness_probe.is_some(), "readinessProbe"),
        (container.startup_probe.is_some(), "startupProbe"),
        (container.resize_policy.is_some(), "resizePolicy"),
    ] {
        if used {
            faults.forbidden(at.field(field), "may not be set for init containers without restartPolicy=Always");
        }
    }
}

/// Limits the expanded size. `$(VAR)` references can turn a small manifest into gigabytes.
fn arguments(container: &Container, at: At<'_>, faults: &mut Faults) {
    let Err(too_long) = expand::container(container) else { return };
    let (env, command, args) = (at.field("env"), at.field("command"), at.field("args"));
    match too_long.at {
        ArgumentPlace::Env(i) => faults.add(env.item(i).field("value"), too_long.detail()),
        ArgumentPlace::Command(i) => faults.add(command.item(i), too_long.detail()),
        ArgumentPlace::Args(i) => faults.add(args.item(i), too_long.detail()),
    }
}
