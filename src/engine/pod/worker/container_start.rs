//! The start of one container: image, files, create. A pod starts one container at a time.
//!
//! The plan names the container and its attempt. `Starting` keeps the results of the steps so far; a result for
//! another container or attempt is ignored.

use super::needed_image::NeededImage;
use super::pull::Pull;
use crate::api::facts::ImageFact;
use crate::api::mount::Mount;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::event::Prepared;
use crate::engine::pod::backoff;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A container of the pod (`index` is its position in `Pod::every_container`) and the attempt to create it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Instance {
    pub index: usize,
    pub attempt: u32,
}

/// The runtime's image ids for image volumes, by volume.
pub type VolumeImages = BTreeMap<String, String>;

/// The steps towards the CreateContainer call that are done.
#[derive(Debug, Default, Serialize)]
pub enum Starting {
    #[default]
    Nothing,
    /// The images of these volumes are present.
    VolumeImages { of: Instance, volumes: VolumeImages },
    /// An image is missing.
    Pulling { of: Instance, volumes: VolumeImages, needed: NeededImage, pull: Pull },
    /// All images are present. `prepared`: the resources whose device plugins need no further call before this start.
    Image { of: Instance, volumes: VolumeImages, image: ImageFact, prepared: BTreeSet<String> },
    /// In addition, the container's files exist.
    Files { of: Instance, volumes: VolumeImages, image: ImageFact, prepared: Prepared },
    /// In addition, the volumes are mounted for the container. `prepared` contains their mounts.
    Mounted { of: Instance, volumes: VolumeImages, image: ImageFact, prepared: Prepared },
}

/// The parts of a container's spec that need steps of their own.
#[derive(Debug, Default)]
pub struct Needs {
    /// The container has volume mounts.
    pub mounts: bool,
    /// The image volumes that it mounts.
    pub images: Vec<String>,
    /// The resources from which it requests devices.
    pub resources: Vec<String>,
}

/// Why a step towards a container failed. The status shows it as the waiting reason.
#[derive(Debug)]
pub struct StartError {
    pub reason: Reason,
    pub message: String,
}

impl StartError {
    pub fn of_config(message: String) -> StartError {
        StartError { reason: Reason::CreateContainerConfigError, message }
    }
}

/// The next step in starting a container.
#[derive(Debug, PartialEq)]
pub enum StartStep {
    CheckImage(NeededImage),
    ContinuePull,
    /// Devices have to be chosen, or their device plugin has to be called.
    PrepareDevices {
        resource: String,
    },
    PrepareFiles(ImageFact),
    MountVolumes {
        volumes: VolumeImages,
        prepared: Prepared,
    },
    Create {
        image: ImageFact,
        prepared: Prepared,
    },
}

impl Starting {
    pub fn next(&self, instance: Instance, needs: &Needs) -> StartStep {
        match self {
            Starting::Pulling { of, .. } if *of == instance => StartStep::ContinuePull,
            Starting::Image { of, image, prepared, .. } if *of == instance => {
                match needs.resources.iter().find(|resource| !prepared.contains(*resource)) {
                    Some(resource) => StartStep::PrepareDevices { resource: resource.clone() },
                    None => StartStep::PrepareFiles(image.clone()),
                }
            }
            Starting::Files { of, volumes, prepared, .. } if *of == instance && needs.mounts => {
                StartStep::MountVolumes { volumes: volumes.clone(), prepared: prepared.clone() }
            }
            Starting::Files { of, image, prepared, .. } | Starting::Mounted { of, image, prepared, .. }
                if *of == instance =>
            {
                StartStep::Create { image: image.clone(), prepared: prepared.clone() }
            }
            _ => {
                let missing = needs.images.iter().find(|volume| !self.has_volume_image(instance, volume));
                StartStep::CheckImage(missing.cloned().map_or(NeededImage::Own, NeededImage::Volume))
            }
        }
    }

    fn has_volume_image(&self, instance: Instance, volume: &str) -> bool {
        matches!(self, Starting::VolumeImages { of, volumes } if *of == instance && volumes.contains_key(volume))
    }

    /// Returns true if nothing is known about the container yet.
    pub fn is_first_step(&self, instance: Instance) -> bool {
        !matches!(self, Starting::VolumeImages { of, .. } if *of == instance)
    }

    /// Takes the volume images that are present for this instance.
    fn take_volume_images(&mut self, instance: Instance) -> VolumeImages {
        match std::mem::take(self) {
            Starting::VolumeImages { of, volumes } | Starting::Pulling { of, volumes, .. } if of == instance => volumes,
            _ => VolumeImages::new(),
        }
    }

    pub fn begin_pull(&mut self, of: Instance, needed: NeededImage, pull: Pull) {
        let volumes = self.take_volume_images(of);
        *self = Starting::Pulling { of, volumes, needed, pull };
    }

    /// Notes that the image is present.
    pub fn image_found(&mut self, of: Instance, needed: NeededImage, image: ImageFact) {
        let mut volumes = self.take_volume_images(of);
        *self = match needed {
            NeededImage::Own => Starting::Image { of, volumes, image, prepared: BTreeSet::new() },
            NeededImage::Volume(name) => {
                volumes.insert(name, image.id);
                Starting::VolumeImages { of, volumes }
            }
        };
    }

    /// Notes that the device plugin of the resource needs no further call before this start.
    pub fn devices_prepared(&mut self, instance: Instance, resource: String) {
        if let Starting::Image { of, prepared, .. } = self
            && *of == instance
        {
            prepared.insert(resource);
        }
    }

    /// Notes that the files of this container were created. They are ignored if the start has begun again since the
    /// image was checked.
    pub fn files_created(&mut self, instance: Instance, prepared: Prepared) {
        *self = match std::mem::take(self) {
            Starting::Image { of, volumes, image, .. } if of == instance => {
                Starting::Files { of, volumes, image, prepared }
            }
            other => other,
        };
    }

    /// Notes that the volumes are mounted for this container.
    pub fn volumes_mounted(&mut self, instance: Instance, mounts: Vec<Mount>) {
        *self = match std::mem::take(self) {
            Starting::Files { of, volumes, image, mut prepared } if of == instance => {
                // As in a kubelet, a volume at /etc/hosts replaces the managed file.
                prepared.mounts.retain(|own| mounts.iter().all(|mount| mount.container_path != own.container_path));
                prepared.mounts.splice(0..0, mounts);
                Starting::Mounted { of, volumes, image, prepared }
            }
            other => other,
        };
    }

    /// Drops the container's files, so that they are created again before the next attempt to create the container. A
    /// pull begins again too.
    pub fn forget_files(&mut self) {
        *self = match std::mem::take(self) {
            Starting::Pulling { .. } => Starting::Nothing,
            Starting::Files { of, volumes, image, .. } | Starting::Mounted { of, volumes, image, .. } => {
                Starting::Image { of, volumes, image, prepared: BTreeSet::new() }
            }
            other => other,
        };
    }

    /// Returns the pull in progress.
    pub fn pull(&self) -> Option<&Pull> {
        match self {
            Starting::Pulling { pull, .. } => Some(pull),
            _ => None,
        }
    }

    /// Returns true if the image of the container at `index` is being pulled, or was found.
    pub fn depends_on_image_of(&self, index: usize) -> bool {
        match self {
            Starting::Pulling { needed: NeededImage::Volume(_), .. } => false,
            Starting::Pulling { of, .. }
            | Starting::Image { of, .. }
            | Starting::Files { of, .. }
            | Starting::Mounted { of, .. } => of.index == index,
            Starting::Nothing | Starting::VolumeImages { .. } => false,
        }
    }

    /// Returns true if the container is about to be created.
    pub fn has_files(&self) -> bool {
        matches!(self, Starting::Files { .. } | Starting::Mounted { .. })
    }
}

/// The back-off of an image whose pull failed.
#[derive(Debug, Serialize)]
pub struct PullBackoff {
    pub failures: u32,
    pub until: Boot,
    pub error: String,
}

/// Failed attempts that delay or renumber later ones.
#[derive(Debug, Default, Serialize)]
pub struct Failures {
    /// By image reference, as written in the spec.
    pulls: BTreeMap<String, PullBackoff>,
    /// By container: the last attempt number that the runtime refused because the name was taken.
    refused: BTreeMap<String, u32>,
}

impl Failures {
    /// Returns the back-off of this image, if it is not over.
    pub fn of_pull(&self, image: &str, now: Boot) -> Option<&PullBackoff> {
        self.pulls.get(image).filter(|b| b.until > now)
    }

    pub fn pulls(&self) -> &BTreeMap<String, PullBackoff> {
        &self.pulls
    }

    pub fn pulled(&mut self, image: &str) {
        self.pulls.remove(image);
    }

    /// Notes a failed pull. Returns the end of the back-off.
    pub fn pull_failed(&mut self, image: String, error: String, now: Boot) -> Boot {
        let failures = self.pulls.get(&image).map_or(0, |b| b.failures) + 1;
        let until = now + backoff::pull(failures);
        self.pulls.insert(image, PullBackoff { failures, until, error });
        until
    }

    /// Ends all back-offs. Their levels stay.
    pub fn release_pulls(&mut self, now: Boot) {
        self.pulls.values_mut().for_each(|b| b.until = b.until.min(now));
    }

    pub fn name_taken(&mut self, container: String, attempt: u32) {
        self.refused.insert(container, attempt);
    }

    /// Returns the first attempt number that the runtime has not refused for a container of that name.
    pub fn first_free(&self, container: &str) -> u32 {
        self.refused.get(container).map_or(0, |attempt| attempt.saturating_add(1))
    }
}

/// Checks `runAsNonRoot` against the user as which the container would run.
///
/// # Errors
/// The kubelet's message, if the container would run as root or the image's user is a name.
pub fn may_run_as(pod: &Pod, index: usize, image: &ImageFact) -> Result<(), String> {
    let spec = pod.at(index);
    let of_pod = pod.spec().security_context.as_ref();
    let of_container = spec.security_context.as_ref();
    let non_root = of_container.and_then(|s| s.run_as_non_root).or(of_pod.and_then(|s| s.run_as_non_root));
    if non_root != Some(true) {
        return Ok(());
    }
    let user = of_container.and_then(|s| s.run_as_user).or(of_pod.and_then(|s| s.run_as_user));
    let whose = format!("(pod: \"{}_{}({})\", container: {})", pod.name.name, pod.name.namespace, pod.uid, spec.name);
    match (user, image.uid) {
        (Some(0), _) => Err(format!("container's runAsUser breaks non-root policy {whose}")),
        (Some(_), _) => Ok(()),
        (None, _) if !image.username.is_empty() => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root {whose}",
            image.username
        )),
        (None, None | Some(0)) => Err(format!("container has runAsNonRoot and image will run as root {whose}")),
        (None, Some(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn image() -> ImageFact {
        ImageFact { id: "sha256:1".into(), uid: None, username: String::new(), size: 0 }
    }

    fn at(seconds: u64) -> Boot {
        Boot(0) + Duration::from_secs(seconds)
    }

    fn prepared(host_path: &str) -> Prepared {
        Prepared { mounts: vec![Mount::writable("/dev/termination-log", host_path)], ..Prepared::default() }
    }

    fn mounts() -> Needs {
        Needs { mounts: true, ..Needs::default() }
    }

    #[test]
    fn the_images_of_volumes_are_needed_before_the_containers_own() {
        let (this, other) = (Instance { index: 0, attempt: 1 }, Instance { index: 0, attempt: 2 });
        let needs = Needs { mounts: true, images: vec!["a".into(), "b".into()], ..Needs::default() };
        let volume = |name: &str| NeededImage::Volume(name.into());
        let found = |id: &str| ImageFact { id: id.into(), ..image() };
        let mut starting = Starting::Nothing;
        assert_eq!(starting.next(this, &needs), StartStep::CheckImage(volume("a")));
        assert!(starting.is_first_step(this));
        starting.image_found(this, volume("a"), found("1"));
        assert_eq!(starting.next(this, &needs), StartStep::CheckImage(volume("b")));
        assert!(!starting.is_first_step(this) && starting.is_first_step(other));
        assert_eq!(starting.next(other, &needs), StartStep::CheckImage(volume("a")), "of another instance");
        starting.begin_pull(this, volume("b"), Pull::new("b:1".into(), "b".into(), at(3)));
        assert_eq!(starting.next(this, &needs), StartStep::ContinuePull);
        starting.image_found(this, volume("b"), found("2"));
        assert_eq!(starting.next(this, &needs), StartStep::CheckImage(NeededImage::Own));
        starting.begin_pull(this, NeededImage::Own, Pull::new("i:1".into(), "i".into(), at(4)));
        starting.image_found(this, NeededImage::Own, image());
        starting.files_created(this, prepared("/t"));
        let volumes: VolumeImages = [("a".into(), "1".into()), ("b".into(), "2".into())].into();
        assert_eq!(starting.next(this, &needs), StartStep::MountVolumes { volumes, prepared: prepared("/t") });
        starting.image_found(other, volume("b"), found("2"));
        assert_eq!(starting.next(other, &needs), StartStep::CheckImage(volume("a")), "the images of another instance");
    }

    #[test]
    fn a_start_goes_from_the_image_to_the_files_to_the_create_of_one_instance() {
        let (this, other) = (Instance { index: 0, attempt: 1 }, Instance { index: 0, attempt: 2 });
        let mut starting = Starting::Nothing;
        assert_eq!(starting.next(this, &Needs::default()), StartStep::CheckImage(NeededImage::Own));
        let pull = Pull::new("i:1".into(), "docker.io/library/i".into(), at(3));
        starting.begin_pull(this, NeededImage::Own, pull);
        assert!(
            starting.next(this, &Needs::default()) == StartStep::ContinuePull
                && starting.next(other, &Needs::default()) == StartStep::CheckImage(NeededImage::Own)
        );
        starting.forget_files();
        assert_eq!(starting.next(this, &Needs::default()), StartStep::CheckImage(NeededImage::Own));
        starting.image_found(this, NeededImage::Own, image());
        assert_eq!(starting.next(this, &Needs::default()), StartStep::PrepareFiles(image()));
        starting.files_created(other, prepared("/x"));
        assert_eq!(
            starting.next(this, &Needs::default()),
            StartStep::PrepareFiles(image()),
            "the files of another instance"
        );
        starting.files_created(this, prepared("/t"));
        assert_eq!(
            starting.next(this, &Needs::default()),
            StartStep::Create { image: image(), prepared: prepared("/t") }
        );
        assert_eq!(starting.next(other, &Needs::default()), StartStep::CheckImage(NeededImage::Own));
        assert_eq!(
            starting.next(this, &mounts()),
            StartStep::MountVolumes { volumes: VolumeImages::new(), prepared: prepared("/t") }
        );
        let volume = Mount::writable("/data", "/v");
        starting.volumes_mounted(other, vec![volume.clone()]);
        assert_eq!(
            starting.next(this, &mounts()),
            StartStep::MountVolumes { volumes: VolumeImages::new(), prepared: prepared("/t") }
        );
        starting.volumes_mounted(this, vec![volume.clone(), Mount::writable("/dev/termination-log", "/own")]);
        let StartStep::Create { prepared: mounted, .. } = starting.next(this, &mounts()) else { panic!("a create") };
        assert_eq!(mounted.mounts, [volume, Mount::writable("/dev/termination-log", "/own")]);
        starting.forget_files();
        assert_eq!(starting.next(this, &Needs::default()), StartStep::PrepareFiles(image()));
    }

    #[test]
    fn w10_the_back_off_of_a_pull_grows_until_a_pull_succeeds() {
        let mut failures = Failures::default();
        let first = failures.pull_failed("i:1".into(), "no such host".into(), at(0));
        let second = failures.pull_failed("i:1".into(), "no such host".into(), first);
        assert_eq!((first.since(at(0)), second.since(first)), (backoff::pull(1), backoff::pull(2)));
        assert!(backoff::pull(2) > backoff::pull(1));
        assert_eq!(failures.of_pull("i:1", first).map(|b| b.failures), Some(2));
        assert!(failures.of_pull("i:1", second).is_none() && failures.of_pull("i:2", first).is_none());
        failures.pulled("i:1");
        assert_eq!(failures.pull_failed("i:1".into(), String::new(), at(0)), first);
    }

    #[test]
    fn w21_an_attempt_whose_name_is_taken_is_not_repeated() {
        let mut failures = Failures::default();
        assert_eq!(failures.first_free("main"), 0);
        failures.name_taken("main".into(), 4);
        assert_eq!((failures.first_free("main"), failures.first_free("other")), (5, 0));
    }
}
