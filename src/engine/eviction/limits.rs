//! E7: the limits of a pod's local storage: the size limits of emptyDirs on disk, and the limits of ephemeral
//! storage.

use super::ranking::Candidate;
use super::usage::{Disks, Usage};
use crate::api::eviction::in_bytes;
use crate::api::k8s::{Container, EmptyDirVolumeSource};
use crate::api::pod::Pod;
use crate::api::quantity::{Quantity, amount};
use crate::api::resources::{EPHEMERAL_STORAGE, limits_of};

/// Returns true if the pod has a limit that depends on measurements.
pub fn has_any(pod: &Pod) -> bool {
    volume_limits(pod).next().is_some() || pod.all_containers().any(|c| container_limit(c).is_some())
}

/// Returns the names of the emptyDirs on disk.
pub fn empty_dirs(pod: &Pod) -> impl Iterator<Item = &str> {
    on_disk(pod).map(|(name, _)| name)
}

fn on_disk(pod: &Pod) -> impl Iterator<Item = (&str, &EmptyDirVolumeSource)> {
    let volumes = pod.spec().volumes.iter().flatten();
    let sources = volumes.filter_map(|volume| Some((volume.name.as_str(), volume.empty_dir.as_deref()?)));
    sources.filter(|(_, source)| source.medium.as_deref().unwrap_or_default().is_empty())
}

fn volume_limits(pod: &Pod) -> impl Iterator<Item = (&str, u64)> {
    let limit = |source: &EmptyDirVolumeSource| {
        let limit = Quantity::parse(&source.size_limit.as_ref()?.0).ok()?;
        u64::try_from(limit.value()).ok().filter(|limit| *limit > 0)
    };
    on_disk(pod).filter_map(move |(name, source)| Some((name, limit(source)?)))
}

fn container_limit(c: &Container) -> Option<u64> {
    let limits = c.resources.as_ref()?.limits.as_ref();
    u64::try_from(amount(limits, EPHEMERAL_STORAGE)?.value()).ok().filter(|limit| *limit > 0)
}

/// Returns the limit of all containers together; 0 if there is none. Init containers count in the same way as in the
/// pod's requests.
fn pod_limit(pod: &Pod) -> u64 {
    limits_of(pod.spec()).get(EPHEMERAL_STORAGE)
}

/// Returns the kubelet's message if the pod exceeds a limit. As in a kubelet, the limits of single containers are
/// checked only for main containers, and cover the writable layer only if it is on the node's file system.
pub fn exceeded(of: &Candidate, usage: &Usage, two_disks: bool) -> Option<String> {
    let pod = &of.pod;
    for (volume, limit) in volume_limits(pod) {
        if usage.of_volume(&of.uid, volume).is_some_and(|used| used.bytes > limit) {
            let limit = in_bytes(limit);
            return Some(format!("Usage of EmptyDir volume \"{volume}\" exceeds the limit \"{limit}\". "));
        }
    }
    let total = pod_limit(pod);
    if total > 0 && usage.of_pod(&of.uid, &of.containers, Disks::All).disk > total {
        return Some(format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {}. ",
            in_bytes(total)
        ));
    }
    let disks = if two_disks { Disks::Node } else { Disks::All };
    for (name, id) in &of.containers {
        let limit = pod.containers().iter().find(|c| c.name == *name).and_then(container_limit);
        if let Some(limit) = limit.filter(|limit| usage.of_container(&of.uid, name, id, disks).disk > *limit) {
            let limit = in_bytes(limit);
            return Some(format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "));
        }
    }
    None
}
