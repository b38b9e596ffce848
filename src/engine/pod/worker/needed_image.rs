//! The images that a container needs before it can be created: those of the image volumes that it mounts, and its own.

use crate::api::k8s;
use crate::api::pod::Pod;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum NeededImage {
    /// The container's own image.
    Own,
    /// The image of the image volume with this name.
    Volume(String),
}

impl NeededImage {
    /// Returns the reference in the spec, and the pull policy.
    pub fn spec<'p>(&self, pod: &'p Pod, index: usize) -> (&'p str, &'p str) {
        let (reference, policy) = match self {
            NeededImage::Own => {
                let container = pod.at(index);
                (container.image.as_deref(), container.image_pull_policy.as_deref())
            }
            NeededImage::Volume(name) => {
                let image = image_volumes(pod).find(|(volume, _)| volume == name).map(|(_, image)| image);
                (image.and_then(|i| i.reference.as_deref()), image.and_then(|i| i.pull_policy.as_deref()))
            }
        };
        (reference.unwrap_or_default(), policy.unwrap_or("IfNotPresent"))
    }
}

fn image_volumes(pod: &Pod) -> impl Iterator<Item = (&str, &k8s::ImageVolumeSource)> {
    pod.spec().volumes.iter().flatten().filter_map(|volume| Some((volume.name.as_str(), volume.image.as_deref()?)))
}

/// Returns the names of the image volumes that the container mounts, each once.
pub fn mounted(pod: &Pod, index: usize) -> Vec<String> {
    let mounts = pod.at(index).volume_mounts.as_deref().unwrap_or_default();
    let is_mounted = |name: &str| mounts.iter().any(|mount| mount.name == name);
    image_volumes(pod).filter(|(name, _)| is_mounted(name)).map(|(name, _)| name.to_owned()).collect()
}
