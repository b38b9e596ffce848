//! The volumes of a pod, and the volumeMounts of its containers (`mounts`).
//!
//! Wherry supports the volume sources that need neither a cluster nor a storage driver. Every other source is
//! rejected by name.

use super::complaints::{complain, one_of};
use super::{claim_spec, syntax};
use crate::api::k8s::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, ImageVolumeSource, KeyToPath, ObjectMeta,
    PodSpec, ProjectedVolumeSource, SecretVolumeSource, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use crate::api::ordered::OrderSlice;
use crate::api::problem::{At, Faults};
use crate::api::quantity::Quantity;
use crate::api::volume::{HOST_PATH_TYPES, HostPathType, huge_page_size};

mod downward;
mod mounts;
mod paths;

pub(super) use mounts::mounts;
use paths::{file_path, mode, no_backsteps};

const MORE_THAN_ONE: &str = "may not specify more than one volume type";
const COLLISION: &str = "conflicting duplicate paths";
/// The limits of a token's lifetime, in seconds.
const SHORTEST_TOKEN: i64 = 10 * 60;
const LONGEST_TOKEN: i64 = 1 << 32;

pub(super) fn volumes(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let at_volumes = at.field("volumes");
    let mut names: Vec<&str> = Vec::new();
    for (i, each) in spec.volumes.iter().flatten().enumerate() {
        let at = at_volumes.item(i);
        if each.name.is_empty() {
            faults.required(at.field("name"), "");
        } else {
            complain(syntax::dns_label(&each.name), &each.name, at.field("name"), faults);
            if names.contains(&each.name.as_str()) {
                faults.duplicate(at.field("name"), &each.name);
            }
            names.push(&each.name);
        }
        source(each, spec, at, faults);
    }
}

/// Checks that the volume has exactly one source, and validates the fields of the source.
fn source(volume: &Volume, spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let known = [
        (volume.config_map.is_some(), "configMap"),
        (volume.downward_api.is_some(), "downwardAPI"),
        (volume.empty_dir.is_some(), "emptyDir"),
        (volume.ephemeral.is_some(), "ephemeral"),
        (volume.host_path.is_some(), "hostPath"),
        (volume.image.is_some(), "image"),
        (volume.persistent_volume_claim.is_some(), "persistentVolumeClaim"),
        (volume.projected.is_some(), "projected"),
        (volume.secret.is_some(), "secret"),
    ];
    let mut count = 0;
    for (is_set, field) in known.into_iter().chain(others(volume)).filter(|(is_set, _)| *is_set) {
        count += usize::from(is_set);
        if count > 1 {
            faults.forbidden(at.field(field), MORE_THAN_ONE);
        }
    }
    if count == 0 {
        faults.required(at, "must specify a volume type");
    }
    for (_, field) in others(volume).into_iter().filter(|(is_set, _)| *is_set) {
        faults.not_yet(at.field(field));
    }
    if let Some(source) = &volume.empty_dir {
        empty_dir(source, spec, at.field("emptyDir"), faults);
    }
    if let Some(source) = &volume.host_path {
        host_path(source, at.field("hostPath"), faults);
    }
    if let Some(source) = &volume.config_map {
        config_map(source, at.field("configMap"), faults);
    }
    if let Some(source) = &volume.secret {
        secret(source, at.field("secret"), faults);
    }
    if let Some(source) = &volume.downward_api {
        let at = at.field("downwardAPI");
        mode(source.default_mode, at.field("defaultMode"), faults);
        let items = at.field("items");
        for (i, item) in source.items.iter().flatten().enumerate() {
            downward::file(item, spec, items.item(i), faults);
        }
    }
    if let Some(source) = &volume.projected {
        projected(source, spec, at.field("projected"), faults);
    }
    if let Some(source) = &volume.image {
        image(source, at.field("image"), faults);
    }
    claims(volume, at, faults);
}

fn claims(volume: &Volume, at: At<'_>, faults: &mut Faults) {
    if volume.persistent_volume_claim.as_ref().is_some_and(|source| source.claim_name.is_empty()) {
        let at = at.field("persistentVolumeClaim");
        faults.required(at.field("claimName"), "");
    }
    let Some(source) = &volume.ephemeral else { return };
    let at = at.field("ephemeral");
    let at = at.field("volumeClaimTemplate");
    let Some(template) = &source.volume_claim_template else { return faults.required(at, "") };
    claim_spec::spec(&template.spec, "", at.field("spec"), faults);
    let more = |of: &ObjectMeta| ObjectMeta { labels: None, annotations: None, ..of.clone() } != ObjectMeta::default();
    if template.metadata.as_ref().is_some_and(more) {
        faults.forbidden(at.field("metadata"), "may only have labels and annotations");
    }
}

/// Reports the claims of a pod of the API server: this version reads no claims from it.
pub(super) fn claims_of_cluster(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let at_volumes = at.field("volumes");
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        let at = at_volumes.item(i);
        for (is_set, field) in [
            (volume.persistent_volume_claim.is_some(), "persistentVolumeClaim"),
            (volume.ephemeral.is_some(), "ephemeral"),
        ] {
            if is_set {
                let detail = "the claims of a cluster are not supported; use a hostPath volume";
                faults.unsupported(at.field(field), detail);
            }
        }
    }
}

/// Returns the sources that Wherry does not support, and whether each of them is set. There is no `..` in the
/// pattern, so a new source cannot be accepted by accident.
fn others(volume: &Volume) -> [(bool, &'static str); 21] {
    let Volume {
        name: _,
        config_map: _,
        downward_api: _,
        empty_dir: _,
        ephemeral: _,
        host_path: _,
        image: _,
        persistent_volume_claim: _,
        projected: _,
        secret: _,
        aws_elastic_block_store,
        azure_disk,
        azure_file,
        cephfs,
        cinder,
        csi,
        fc,
        flex_volume,
        flocker,
        gce_persistent_disk,
        git_repo,
        glusterfs,
        iscsi,
        nfs,
        photon_persistent_disk,
        portworx_volume,
        quobyte,
        rbd,
        scale_io,
        storageos,
        vsphere_volume,
    } = volume;
    [
        (aws_elastic_block_store.is_some(), "awsElasticBlockStore"),
        (azure_disk.is_some(), "azureDisk"),
        (azure_file.is_some(), "azureFile"),
        (cephfs.is_some(), "cephfs"),
        (cinder.is_some(), "cinder"),
        (csi.is_some(), "csi"),
        (fc.is_some(), "fc"),
        (flex_volume.is_some(), "flexVolume"),
        (flocker.is_some(), "flocker"),
        (gce_persistent_disk.is_some(), "gcePersistentDisk"),
        (git_repo.is_some(), "gitRepo"),
        (glusterfs.is_some(), "glusterfs"),
        (iscsi.is_some(), "iscsi"),
        (nfs.is_some(), "nfs"),
        (photon_persistent_disk.is_some(), "photonPersistentDisk"),
        (portworx_volume.is_some(), "portworxVolume"),
        (quobyte.is_some(), "quobyte"),
        (rbd.is_some(), "rbd"),
        (scale_io.is_some(), "scaleIO"),
        (storageos.is_some(), "storageos"),
        (vsphere_volume.is_some(), "vsphereVolume"),
    ]
}

fn empty_dir(source: &EmptyDirVolumeSource, spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    if let Some(limit) = &source.size_limit {
        let at = at.field("sizeLimit");
        match Quantity::parse(&limit.0) {
            Err(why) => faults.invalid(at, &limit.0, why),
            Ok(limit) if limit.is_negative() => {
                faults.forbidden(at, "SizeLimit field must be a valid resource quantity");
            }
            Ok(_) => {}
        }
    }
    let medium = source.medium.as_deref().unwrap_or_default();
    if matches!(medium, "" | "Memory") {
        return;
    }
    let at = at.field("medium");
    let Some(wanted) = huge_page_size(medium) else {
        return faults.unsupported_value(at, medium, &["", "HugePages", "HugePages-<size>", "Memory"]);
    };
    let mut sizes = requested_pages(spec);
    sizes.retain(|size| wanted.is_none_or(|wanted| wanted == *size));
    match sizes.len() {
        0 => faults.invalid(at, medium, "a container of the pod must request huge pages of this size"),
        1 => {}
        _ => faults.invalid(at, medium, "the pod requests huge pages of several sizes; use HugePages-<size>"),
    }
}

/// Returns the sizes of the huge pages that the containers request, in bytes, without duplicates.
fn requested_pages(spec: &PodSpec) -> Vec<u64> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    let sizes = requests.flat_map(|list| list.keys()).filter_map(|name| name.strip_prefix("hugepages-"));
    let mut sizes: Vec<u64> =
        sizes.filter_map(|size| u64::try_from(Quantity::parse(size).ok()?.value()).ok()).collect();
    sizes.order();
    sizes.dedup();
    sizes
}

fn host_path(source: &HostPathVolumeSource, at: At<'_>, faults: &mut Faults) {
    if source.path.is_empty() {
        return faults.required(at.field("path"), "");
    }
    no_backsteps(&source.path, at.field("path"), faults);
    let kind = source.type_.as_deref().unwrap_or_default();
    if HostPathType::named(kind).is_none() {
        faults.unsupported_value(at.field("type"), kind, &HOST_PATH_TYPES.map(|(name, _)| name));
    }
}

fn config_map(source: &ConfigMapVolumeSource, at: At<'_>, faults: &mut Faults) {
    if source.name.is_empty() {
        faults.required(at.field("name"), "");
    }
    mode(source.default_mode, at.field("defaultMode"), faults);
    items(source.items.as_deref(), at.field("items"), faults);
}

fn secret(source: &SecretVolumeSource, at: At<'_>, faults: &mut Faults) {
    if source.secret_name.as_deref().is_none_or(str::is_empty) {
        faults.required(at.field("secretName"), "");
    }
    mode(source.default_mode, at.field("defaultMode"), faults);
    items(source.items.as_deref(), at.field("items"), faults);
}

fn image(source: &ImageVolumeSource, at: At<'_>, faults: &mut Faults) {
    if source.reference.as_deref().is_none_or(str::is_empty) {
        faults.required(at.field("reference"), "");
    }
    if let Some(policy) = source.pull_policy.as_deref().filter(|policy| !policy.is_empty()) {
        one_of(Some(policy), &["Always", "IfNotPresent", "Never"], at.field("pullPolicy"), faults);
    }
}

fn projected(source: &ProjectedVolumeSource, spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    mode(source.default_mode, at.field("defaultMode"), faults);
    let at_sources = at.field("sources");
    let mut paths: Vec<&str> = Vec::new();
    for (i, each) in source.sources.iter().flatten().enumerate() {
        let at = at_sources.item(i);
        projection(each, spec, at, faults);
        for path in projected_paths(each) {
            if paths.contains(&path) {
                faults.invalid(at, path, COLLISION);
            }
            paths.push(path);
        }
    }
}

/// Returns the paths that a source specifies explicitly.
fn projected_paths(source: &VolumeProjection) -> impl Iterator<Item = &str> {
    fn of(items: &Option<Vec<KeyToPath>>) -> Vec<&str> {
        items.iter().flatten().map(|item| item.path.as_str()).collect()
    }
    let lists: [Vec<&str>; 4] = [
        source.config_map.as_ref().map_or_else(Vec::new, |source| of(&source.items)),
        source.secret.as_ref().map_or_else(Vec::new, |source| of(&source.items)),
        source.downward_api.iter().flat_map(|s| s.items.iter().flatten()).map(|item| item.path.as_str()).collect(),
        source.service_account_token.iter().map(|token| token.path.as_str()).collect(),
    ];
    lists.into_iter().flatten().filter(|path| !path.is_empty())
}

fn projection(source: &VolumeProjection, spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    let VolumeProjection {
        cluster_trust_bundle,
        config_map,
        downward_api,
        pod_certificate,
        secret,
        service_account_token,
    } = source;
    let mut count = 0;
    for (is_set, field) in [
        (secret.is_some(), "secret"),
        (downward_api.is_some(), "downwardAPI"),
        (config_map.is_some(), "configMap"),
        (service_account_token.is_some(), "serviceAccountToken"),
        (cluster_trust_bundle.is_some(), "clusterTrustBundle"),
        (pod_certificate.is_some(), "podCertificate"),
    ] {
        count += usize::from(is_set);
        if is_set && count > 1 {
            faults.forbidden(at.field(field), "may not specify more than 1 volume type per source");
        }
    }
    if count == 0 {
        faults.required(at, "must specify a volume type");
    }
    if let Some(source) = secret {
        let at = at.field("secret");
        if source.name.is_empty() {
            faults.required(at.field("name"), "");
        }
        items(source.items.as_deref(), at.field("items"), faults);
    }
    if let Some(source) = config_map {
        let at = at.field("configMap");
        if source.name.is_empty() {
            faults.required(at.field("name"), "");
        }
        items(source.items.as_deref(), at.field("items"), faults);
    }
    if let Some(source) = downward_api {
        let at = at.field("downwardAPI");
        let items = at.field("items");
        for (i, item) in source.items.iter().flatten().enumerate() {
            downward::file(item, spec, items.item(i), faults);
        }
    }
    if let Some(token) = service_account_token {
        projected_token(token, at.field("serviceAccountToken"), faults);
    }
    if cluster_trust_bundle.is_some() {
        faults.not_yet(at.field("clusterTrustBundle"));
    }
    if pod_certificate.is_some() {
        faults.not_yet(at.field("podCertificate"));
    }
}

fn projected_token(token: &ServiceAccountTokenProjection, at: At<'_>, faults: &mut Faults) {
    if let Some(seconds) = token.expiration_seconds {
        let at = at.field("expirationSeconds");
        if seconds < SHORTEST_TOKEN {
            faults.invalid(at, seconds, "may not specify a duration less than 10 minutes");
        } else if seconds > LONGEST_TOKEN {
            faults.invalid(at, seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
    file_path(&token.path, at.field("path"), faults);
    let detail = "a token for an API server needs a cluster; remove this volume and its mounts (a cluster adds them \
                  to each pod unless automountServiceAccountToken is false)";
    faults.needs_cluster(at, detail);
}

fn items(list: Option<&[KeyToPath]>, at: At<'_>, faults: &mut Faults) {
    for (i, item) in list.unwrap_or_default().iter().enumerate() {
        let at = at.item(i);
        if item.key.is_empty() {
            faults.required(at.field("key"), "");
        }
        file_path(&item.path, at.field("path"), faults);
        mode(item.mode, at.field("mode"), faults);
    }
}

#[cfg(test)]
mod tests;
