//! Probes and lifecycle hooks: one valid handler each, and valid times.

use super::complaints::one_of;
use super::syntax;
use crate::api::k8s::IntOrString;
use crate::api::k8s::{Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction};
use crate::api::problem::{At, Faults};

pub(super) fn of_container(container: &Container, grace: i64, at: At<'_>, faults: &mut Faults) {
    for (probe, field, kind) in [
        (&container.liveness_probe, "livenessProbe", ProbeKind::Liveness),
        (&container.readiness_probe, "readinessProbe", ProbeKind::Readiness),
        (&container.startup_probe, "startupProbe", ProbeKind::Startup),
    ] {
        if let Some(probe) = probe {
            of_probe(probe, kind, container, at.field(field), faults);
        }
    }
    let Some(lifecycle) = &container.lifecycle else { return };
    let at = at.field("lifecycle");
    for (hook, field) in [(&lifecycle.post_start, "postStart"), (&lifecycle.pre_stop, "preStop")] {
        if let Some(hook) = hook {
            of_hook(hook, container, grace, at.field(field), faults);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProbeKind {
    Liveness,
    Readiness,
    Startup,
}

fn of_probe(probe: &Probe, kind: ProbeKind, container: &Container, at: At<'_>, faults: &mut Faults) {
    handlers(
        [probe.exec.is_some(), probe.http_get.is_some(), probe.tcp_socket.is_some(), probe.grpc.is_some()],
        at,
        faults,
    );
    actions(probe.exec.as_deref(), probe.http_get.as_deref(), probe.tcp_socket.as_deref(), container, at, faults);
    if let Some(grpc) = &probe.grpc
        && !(1..=65535).contains(&grpc.port)
    {
        faults.invalid(at.field("grpc").field("port"), grpc.port, "must be between 1 and 65535, inclusive");
    }
    for (value, field) in [
        (probe.initial_delay_seconds, "initialDelaySeconds"),
        (probe.timeout_seconds, "timeoutSeconds"),
        (probe.period_seconds, "periodSeconds"),
        (probe.success_threshold, "successThreshold"),
        (probe.failure_threshold, "failureThreshold"),
    ] {
        if let Some(value) = value.filter(|value| *value < 0) {
            faults.invalid(at.field(field), value, "must be greater than or equal to 0");
        }
    }
    if let Some(successes) = probe.success_threshold.filter(|n| *n > 1 && kind != ProbeKind::Readiness) {
        faults.invalid(at.field("successThreshold"), successes, "must be 1");
    }
    if let Some(grace) = probe.termination_grace_period_seconds {
        let at = at.field("terminationGracePeriodSeconds");
        match kind {
            ProbeKind::Readiness => faults.invalid(at, grace, "must not be set for readinessProbes"),
            _ if grace <= 0 => faults.invalid(at, grace, "must be greater than 0"),
            _ => {}
        }
    }
}

fn of_hook(hook: &LifecycleHandler, container: &Container, grace: i64, at: At<'_>, faults: &mut Faults) {
    handlers(
        [hook.exec.is_some(), hook.http_get.is_some(), hook.tcp_socket.is_some(), hook.sleep.is_some()],
        at,
        faults,
    );
    actions(hook.exec.as_deref(), hook.http_get.as_deref(), hook.tcp_socket.as_deref(), container, at, faults);
    if let Some(sleep) = &hook.sleep
        && !(0..=grace).contains(&sleep.seconds)
    {
        let detail = format_args!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        faults.invalid(at.field("sleep").field("seconds"), sleep.seconds, detail);
    }
}

fn handlers(used: [bool; 4], at: At<'_>, faults: &mut Faults) {
    match used.into_iter().filter(|used| *used).count() {
        0 => faults.required(at, "must specify a handler type"),
        1 => {}
        _ => faults.forbidden(at, "may not specify more than 1 handler type"),
    }
}

fn actions(
    exec: Option<&ExecAction>,
    get: Option<&HTTPGetAction>,
    tcp: Option<&TCPSocketAction>,
    container: &Container,
    at: At<'_>,
    faults: &mut Faults,
) {
    if let Some(exec) = exec
        && exec.command.as_ref().is_none_or(Vec::is_empty)
    {
        faults.required(at.field("exec").field("command"), "");
    }
    if let Some(get) = get {
        http_get(get, container, at.field("httpGet"), faults);
    }
    if let Some(tcp) = tcp {
        let at = at.field("tcpSocket");
        port(&tcp.port, container, at.field("port"), faults);
        host(tcp.host.as_deref(), at, faults);
    }
}

fn http_get(get: &HTTPGetAction, container: &Container, at: At<'_>, faults: &mut Faults) {
    port(&get.port, container, at.field("port"), faults);
    host(get.host.as_deref(), at, faults);
    if get.path.as_deref().is_none_or(str::is_empty) {
        faults.required(at.field("path"), "");
    }
    one_of(get.scheme.as_deref(), &["HTTP", "HTTPS"], at.field("scheme"), faults);
    let headers = at.field("httpHeaders");
    for (i, header) in get.http_headers.iter().flatten().enumerate() {
        let at = headers.item(i);
        if !is_header_name(&header.name) {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name')";
            faults.invalid(at.field("name"), &header.name, detail);
        }
        if header.value.chars().any(|c| c.is_control() && c != '\t') {
            faults.invalid(at.field("value"), &header.value, "must not contain control characters");
        }
    }
    if get.path.as_deref().is_some_and(|path| path.chars().any(|c| c.is_control() || c == ' ')) {
        faults.invalid(
            at.field("path"),
            get.path.as_deref().unwrap_or_default(),
            "must not contain spaces or control characters",
        );
    }
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Checks a port: a number, or the name of a port of the container *(ours: a kubelet notices an unknown name only
/// when it probes)*.
fn port(port: &IntOrString, container: &Container, at: At<'_>, faults: &mut Faults) {
    match port {
        IntOrString::Int(number) if !(1..=65_535).contains(number) => {
            faults.invalid(at, number, "must be between 1 and 65535, inclusive");
        }
        IntOrString::Int(_) => {}
        IntOrString::String(name) if name.bytes().all(|b| b.is_ascii_digit()) => {
            faults.invalid(at, name, "must be a number without quotes, or the name of a port");
        }
        IntOrString::String(name) => {
            let complaints = syntax::port_name(name);
            let valid = complaints.is_empty();
            complaints.into_iter().for_each(|complaint| faults.invalid(at, name, complaint));
            let mut ports = container.ports.iter().flatten();
            if valid && !ports.any(|port| port.name.as_deref() == Some(name)) {
                faults.invalid_in_manifest(
                    at,
                    name,
                    "the container has no port with this name; add it to ports, or give the number",
                );
            }
        }
    }
}

fn host(host: Option<&str>, at: At<'_>, faults: &mut Faults) {
    let Some(host) = host.filter(|host| !host.is_empty() && *host != "localhost") else { return };
    // Kubernetes does not check the host. A name in the hosts file can have underscores.
    let is_name = host.len() <= 253 && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    if !is_name && host.parse::<std::net::IpAddr>().is_err() {
        faults.invalid(at.field("host"), host, "must be an IP address or the name of a host");
    }
}
