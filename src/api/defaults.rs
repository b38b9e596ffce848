//! The defaults of Kubernetes v1, and the values that a kubelet adds to a pod from a file.

use crate::api::document::context::Context;
use crate::api::image;
use crate::api::k8s::PersistentVolumeClaimSpec;
use crate::api::k8s::Quantity;
use crate::api::k8s::{Container, DownwardAPIVolumeFile, ObjectMeta, Pod, PodSpec, Toleration, Volume};
use crate::api::names::{Uid, annotation};
use crate::api::pod_resources;

/// Completes a pod. Existing values stay, except for the creation timestamp and the three `config.*` annotations.
pub fn apply(pod: &mut Pod, uid: &Uid, context: Context<'_>) {
    namespace(&mut pod.metadata);
    let metadata = &mut pod.metadata;
    metadata.uid = Some(uid.to_string());
    // The age of a pod counts from the time when it was first seen, because the file may be a copy of an older
    // object.
    metadata.creation_timestamp = None;
    let annotations = metadata.annotations.get_or_insert_default();
    for (key, value) in [
        (annotation::CONFIG_HASH, uid.as_str()),
        (annotation::CONFIG_SEEN, context.seen),
        (annotation::CONFIG_SOURCE, "file"),
    ] {
        annotations.insert(key.to_owned(), value.to_owned());
    }
    if let Some(spec) = &mut pod.spec {
        complete_spec(spec);
        default_text(&mut spec.node_name, context.node_name);
        tolerate_all(spec);
        shrink(spec);
    }
}

/// Completes a pod of an API server. An older server may not have set the defaults of all fields.
pub fn apply_of_cluster(pod: &mut Pod, context: Context<'_>) {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    for (key, value) in [(annotation::CONFIG_SEEN, context.seen), (annotation::CONFIG_SOURCE, "api")] {
        annotations.insert(key.to_owned(), value.to_owned());
    }
    if let Some(spec) = &mut pod.spec {
        complete_spec(spec);
        default_text(&mut spec.node_name, context.node_name);
        shrink(spec);
    }
}

/// Completes the namespace of an object.
pub fn namespace(metadata: &mut ObjectMeta) {
    default_text(&mut metadata.namespace, "default");
}

/// Completes the spec of a template. The node is chosen for each pod.
pub fn apply_to_template(spec: &mut PodSpec) {
    complete_spec(spec);
    shrink(spec);
}

/// Makes the pod tolerate all NoExecute taints, like the static pods of a kubelet.
fn tolerate_all(spec: &mut PodSpec) {
    let stays = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    let tolerations = spec.tolerations.get_or_insert_default();
    if !tolerations.contains(&stays) {
        tolerations.push(stays);
    }
}

/// Frees the spare capacity of lists (the decoder reserves at least four entries), because pods stay in memory.
fn shrink(spec: &mut PodSpec) {
    spec.containers.shrink_to_fit();
    spec.init_containers.iter_mut().for_each(Vec::shrink_to_fit);
    spec.tolerations.iter_mut().for_each(Vec::shrink_to_fit);
    spec.volumes.iter_mut().for_each(Vec::shrink_to_fit);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        container.env.iter_mut().for_each(Vec::shrink_to_fit);
        container.ports.iter_mut().for_each(Vec::shrink_to_fit);
        container.command.iter_mut().for_each(Vec::shrink_to_fit);
        container.args.iter_mut().for_each(Vec::shrink_to_fit);
        container.volume_mounts.iter_mut().for_each(Vec::shrink_to_fit);
    }
}

/// Sets a text that is absent or empty.
pub(crate) fn default_text(field: &mut Option<String>, value: &str) {
    if field.as_deref().is_none_or(str::is_empty) {
        *field = Some(value.to_owned());
    }
}

fn complete_spec(spec: &mut PodSpec) {
    default_text(&mut spec.restart_policy, "Always");
    // The default `ClusterFirst` is not filled in, because only a pod that names a policy gets a warning about it.
    spec.dns_policy.take_if(|policy| policy.is_empty());
    default_text(&mut spec.scheduler_name, "default-scheduler");
    spec.enable_service_links.get_or_insert(true);
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.security_context.get_or_insert_default();
    // Both names refer to the same field; either one sets both.
    let account = spec.service_account_name.clone().or_else(|| spec.service_account.clone());
    spec.service_account_name.clone_from(&account);
    spec.service_account = account;

    let host_network = spec.host_network == Some(true);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        complete_container(container, host_network);
    }
    pod_resources::complete(spec);
    spec.volumes.iter_mut().flatten().for_each(complete_volume);
}

/// Completes the spec of a claim, or of a template of claims.
pub(crate) fn claim(spec: &mut PersistentVolumeClaimSpec) {
    spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
}

/// The mode of the files in a volume.
const FILE_MODE: i32 = 0o644;
/// The lifetime of a projected token, in seconds.
const TOKEN_LIFETIME: i64 = 3600;

fn complete_volume(volume: &mut Volume) {
    let bare = Volume { name: volume.name.clone(), ..Volume::default() };
    if *volume == bare {
        volume.empty_dir = Some(Box::default());
    }
    if let Some(source) = &mut volume.host_path {
        source.type_.get_or_insert_default();
    }
    if let Some(source) = &mut volume.config_map {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.secret {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.image {
        let reference = source.reference.as_deref().unwrap_or_default();
        default_text(&mut source.pull_policy, default_pull_policy(reference));
    }
    if let Some(source) = &mut volume.downward_api {
        source.default_mode.get_or_insert(FILE_MODE);
        source.items.iter_mut().flatten().for_each(complete_file);
    }
    if let Some(template) = volume.ephemeral.as_mut().and_then(|source| source.volume_claim_template.as_mut()) {
        claim(&mut template.spec);
    }
    if let Some(source) = &mut volume.projected {
        source.default_mode.get_or_insert(FILE_MODE);
        for source in source.sources.iter_mut().flatten() {
            if let Some(fields) = &mut source.downward_api {
                fields.items.iter_mut().flatten().for_each(complete_file);
            }
            if let Some(token) = &mut source.service_account_token {
                token.expiration_seconds.get_or_insert(TOKEN_LIFETIME);
            }
        }
    }
}

fn complete_file(file: &mut DownwardAPIVolumeFile) {
    if let Some(selector) = &mut file.field_ref {
        default_text(&mut selector.api_version, "v1");
    }
    if let Some(selector) = &mut file.resource_field_ref {
        // Kubernetes writes an unset divisor as zero, and treats it as 1.
        selector.divisor.get_or_insert_with(|| Quantity("0".to_owned()));
    }
}

pub(crate) fn complete_container(container: &mut Container, host_network: bool) {
    default_text(&mut container.termination_message_path, "/dev/termination-log");
    default_text(&mut container.termination_message_policy, "File");
    let image = container.image.as_deref().unwrap_or_default();
    default_text(&mut container.image_pull_policy, default_pull_policy(image));

    let resources = container.resources.get_or_insert_default();
    if let Some(limits) = &resources.limits {
        for (name, limit) in limits {
            let requests = resources.requests.get_or_insert_default();
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
    for probe in [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe] {
        let Some(probe) = probe else { continue };
        if let Some(get) = &mut probe.http_get {
            default_text(&mut get.path, "/");
            default_text(&mut get.scheme, "HTTP");
        }
        for (field, value) in [
            (&mut probe.timeout_seconds, 1),
            (&mut probe.period_seconds, 10),
            (&mut probe.success_threshold, 1),
            (&mut probe.failure_threshold, 3),
        ] {
            *field = field.filter(|n| *n != 0).or(Some(value));
        }
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        for hook in [&mut lifecycle.post_start, &mut lifecycle.pre_stop] {
            if let Some(get) = hook.as_mut().and_then(|hook| hook.http_get.as_mut()) {
                default_text(&mut get.path, "/");
                default_text(&mut get.scheme, "HTTP");
            }
        }
    }
    for from in container.env.iter_mut().flatten().filter_map(|e| e.value_from.as_mut()) {
        if let Some(field) = &mut from.field_ref {
            default_text(&mut field.api_version, "v1");
        }
        if let Some(resource) = &mut from.resource_field_ref {
            resource.divisor.get_or_insert_with(|| Quantity("0".to_owned()));
        }
    }
    for port in container.ports.iter_mut().flatten() {
        default_text(&mut port.protocol, "TCP");
        if host_network && port.host_port.is_none_or(|p| p == 0) {
            port.host_port = Some(port.container_port);
        }
    }
}

/// Returns `Always` for `:latest` and for a missing tag, because such images are expected to change.
fn default_pull_policy(image: &str) -> &'static str {
    match image::tag_of(image) {
        (Some("latest"), _) | (None, false) => "Always",
        _ => "IfNotPresent",
    }
}
