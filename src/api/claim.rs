//! PersistentVolumeClaims, and the claims that pods refer to. On one machine, a claim is a directory.

use crate::api::defaults;
use crate::api::duplicates;
use crate::api::k8s::{self, PersistentVolumeClaimSpec};
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::problem::Problem;
use crate::api::source::Source;
use crate::api::uid;
use serde::{Serialize, Serializer};
use std::fmt;
use std::rc::Rc;

/// The kind of the objects.
pub const CLAIM: &str = "PersistentVolumeClaim";
/// The resource that a claim requests.
pub const STORAGE: &str = "storage";
/// The access mode of a claim that one pod at a time uses.
pub const ONE_POD: &str = "ReadWriteOncePod";
pub const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", ONE_POD];

/// Identifies a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimKey(pub FullName);

impl ClaimKey {
    /// Returns the UID of the object, which depends on its name alone.
    pub fn uid(&self) -> Uid {
        Uid::from(uid::of_name(CLAIM, &self.0.namespace, &self.0.name))
    }

    /// Returns the name of its PersistentVolume, as a provisioner of a cluster chooses it.
    pub fn volume_name(&self) -> String {
        format!("pvc-{}", self.uid())
    }
}

/// Serializes as a string, because dumps use it as the key of maps.
impl Serialize for ClaimKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{CLAIM} {}", self.0)
    }
}

/// A valid claim of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub key: ClaimKey,
    /// With all defaults.
    pub object: k8s::PersistentVolumeClaim,
    pub source: Source,
    /// The digest of the parsed content, as for a pod (D3).
    pub digest: String,
}

/// Fills in the defaults of the API.
pub fn complete(object: &mut k8s::PersistentVolumeClaim) {
    defaults::namespace(&mut object.metadata);
    defaults::claim(object.spec.get_or_insert_default());
}

/// Returns the requested size as a quantity.
pub fn request(spec: &PersistentVolumeClaimSpec) -> &str {
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.and_then(|requests| requests.get(STORAGE)).map(|size| size.0.as_str()).unwrap_or_default()
}

impl Claim {
    /// Makes a claim of a complete, valid object.
    pub fn new(object: k8s::PersistentVolumeClaim, source: Source, digest: String) -> Claim {
        let metadata = &object.metadata;
        let name = FullName::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        Claim { key: ClaimKey(name), object, source, digest }
    }

    pub fn spec(&self) -> &PersistentVolumeClaimSpec {
        static EMPTY: std::sync::LazyLock<PersistentVolumeClaimSpec> =
            std::sync::LazyLock::new(PersistentVolumeClaimSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    /// Returns the field that `new` changes although it must stay. Only the size can change.
    pub fn immutable_difference(&self, new: &Claim) -> Option<&'static str> {
        // (The name of the volume can only be that of the claim's own one.)
        let rest =
            |claim: &Claim| PersistentVolumeClaimSpec { resources: None, volume_name: None, ..claim.spec().clone() };
        (rest(self) != rest(new)).then_some("spec")
    }
}

/// Returns a problem for each document that has the name of an earlier claim, which is in force (D6).
pub fn duplicates(all: &[Rc<Claim>]) -> Vec<Problem> {
    duplicates::find(all.iter().map(|claim| (CLAIM, &claim.key.0, &claim.source)))
}

/// Returns the name of the claim that a volume of this pod uses.
pub fn of_volume(pod: &Pod, volume: &k8s::Volume) -> Option<ClaimKey> {
    let name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => source.claim_name.clone(),
        (None, Some(_)) => format!("{}-{}", pod.name.name, volume.name),
        (None, None) => return None,
    };
    Some(ClaimKey(FullName::new(&pod.name.namespace, &name)))
}

impl Pod {
    /// Returns the claims that the pod refers to.
    pub fn claims(&self) -> impl Iterator<Item = ClaimKey> {
        self.spec().volumes.iter().flatten().filter_map(|volume| of_volume(self, volume))
    }
}

/// The directory that a pod gets for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimDirectory {
    /// An absolute path on the host.
    pub path: String,
}

/// The directory of a claim: `<base>/<namespace>/<name>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPlace {
    /// The directory of the storage class, an absolute path.
    pub base: String,
    pub namespace: String,
    pub name: String,
}

/// What was found where the directory of a claim was to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeDirectory {
    New,
    /// It existed, and is empty.
    Empty,
    /// It existed, and contains something.
    Filled,
}

/// Why a pod does not get the directory of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// Nothing is wrong: the directory is being created.
    Soon,
    /// The text is that of a cluster, where it has one.
    NotUsable(String),
}

/// Finds the directory of a claim for a pod.
pub type FindClaim<'a> = &'a dyn Fn(&Pod, &ClaimKey) -> Result<ClaimDirectory, ClaimError>;

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClaimError::Soon => "the directory of the claim is being created",
            ClaimError::NotUsable(why) => why,
        })
    }
}
