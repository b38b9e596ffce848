//! The labels and annotations of sandboxes and containers, by which node agents and other tools identify them.

use super::request_config::RequestConfig;
use crate::api::hash;
use crate::api::k8s;
use crate::api::names::{annotation, label};
use crate::api::pod::Pod;
use crate::api::user_namespace::IdRange;
use crate::engine::effect::CreateContainer;
use std::collections::BTreeMap;
use std::fmt::Write;

type Map = BTreeMap<String, String>;

/// Returns the pod's own labels, and the labels that identify the pod.
pub fn sandbox_labels(pod: &Pod) -> Map {
    let mut labels = pod.object.metadata.labels.clone().unwrap_or_default();
    identity(pod, &mut labels);
    labels
}

/// Returns the pod's own annotations (including the three about its source), the owner, the grace period and the user
/// namespace.
pub fn sandbox_annotations(pod: &Pod, user_namespace: Option<IdRange>, cfg: &RequestConfig) -> Map {
    let mut a = pod.object.metadata.annotations.clone().unwrap_or_default();
    a.insert(annotation::OWNER.into(), cfg.owner.clone());
    a.insert(annotation::SANDBOX_GRACE.into(), pod.grace_period().as_secs().to_string());
    a.remove(annotation::USER_NAMESPACE);
    if let Some(range) = user_namespace {
        a.insert(annotation::USER_NAMESPACE.into(), range.to_string());
    }
    a
}

/// Returns the labels that identify the container. The pod's own labels are not copied to containers.
pub fn container_labels(pod: &Pod, name: &str) -> Map {
    let mut labels = Map::new();
    identity(pod, &mut labels);
    labels.insert(label::CONTAINER_NAME.into(), name.into());
    labels
}

fn identity(pod: &Pod, labels: &mut Map) {
    labels.insert(label::POD_NAME.into(), pod.name.name.to_string());
    labels.insert(label::POD_NAMESPACE.into(), pod.name.namespace.to_string());
    labels.insert(label::POD_UID.into(), pod.uid.to_string());
}

pub fn container_annotations(create: &CreateContainer, container: &k8s::Container, cfg: &RequestConfig) -> Map {
    // Insert the annotations of device plugins first, so that they cannot replace Wherry's.
    let mut a = create.devices.annotations.clone();
    a.insert(
        annotation::CONTAINER_HASH.into(),
        format!("{:x}", hash::container(&container.name, container.image.as_deref().unwrap_or_default())),
    );
    a.insert(annotation::RESTART_COUNT.into(), create.attempt.to_string());
    a.insert(annotation::TERMINATION_PATH.into(), container.termination_message_path.clone().unwrap_or_default());
    a.insert(annotation::TERMINATION_POLICY.into(), container.termination_message_policy.clone().unwrap_or_default());
    if let Some(grace) = create.pod.spec().termination_grace_period_seconds {
        a.insert(annotation::GRACE_PERIOD.into(), grace.to_string());
    }
    if let Some(handler) = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()) {
        let json = serde_json::to_string(handler).unwrap_or_default();
        a.insert(annotation::PRE_STOP.into(), go_escaped(json));
    }
    if let Some(ports) = container.ports.as_deref().filter(|p| !p.is_empty()) {
        a.insert(annotation::CONTAINER_PORTS.into(), ports_json(ports));
    }
    a.insert(annotation::OWNER.into(), cfg.owner.clone());
    a.insert(annotation::BACKOFF_LEVEL.into(), create.backoff_level.to_string());
    if let Some(boot) = create.boot {
        a.insert(annotation::BOOT.into(), format!("{boot:x}"));
    }
    a
}

/// Encodes the container's ports as Go's JSON encoder does: Kubernetes' field order, without empty fields.
fn ports_json(ports: &[k8s::ContainerPort]) -> String {
    let mut out = String::from("[");
    for (n, p) in ports.iter().enumerate() {
        out.push_str(if n == 0 { "{" } else { ",{" });
        if let Some(name) = p.name.as_deref().filter(|s| !s.is_empty()) {
            let _ = write!(out, "\"name\":{},", go_string(name));
        }
        if let Some(port) = p.host_port.filter(|p| *p != 0) {
            let _ = write!(out, "\"hostPort\":{port},");
        }
        let _ = write!(out, "\"containerPort\":{}", p.container_port);
        if let Some(protocol) = p.protocol.as_deref().filter(|s| !s.is_empty()) {
            let _ = write!(out, ",\"protocol\":{}", go_string(protocol));
        }
        if let Some(ip) = p.host_ip.as_deref().filter(|s| !s.is_empty()) {
            let _ = write!(out, ",\"hostIP\":{}", go_string(ip));
        }
        out.push('}');
    }
    out.push(']');
    out
}

/// Encodes a JSON string as Go's encoder does: `<`, `>`, `&` and the two Unicode line separators are escaped as well.
fn go_string(text: &str) -> String {
    go_escaped(serde_json::Value::from(text).to_string())
}

fn go_escaped(json: String) -> String {
    let mut out = json;
    for (from, to) in
        [("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")]
    {
        if out.contains(from) {
            out = out.replace(from, to);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_go_does() {
        assert_eq!(go_string("a>b&\"\u{2028}"), r#""a\u003eb\u0026\"\u2028""#);
    }
}
