//! The internal form of a pod: identity, source, and the defaulted, validated Kubernetes object.

use crate::api::ephemeral::{self, Ephemeral};
use crate::api::k8s;
use crate::api::names::{FullName, Uid};
use crate::api::source::Source;
use serde::Serialize;
use std::time::Duration;

/// The maximum grace period: 68 years. Container runtimes count nanoseconds in 64 bits or seconds in 32 bits. A period
/// that overflows there ends immediately (in containerd: above 292 years).
pub const LONGEST_GRACE: Duration = Duration::from_secs(i32::MAX as u64);

/// One accepted pod document. It is stored once, in an `Rc`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub uid: Uid,
    pub name: FullName,
    /// The file path, and the number of the document in the file (from 1); or `Source::api`.
    pub source: Source,
    /// Digest of the parsed content before defaulting. Equal digests mean equal pods (D3).
    pub digest: String,
    /// Defaulted and validated. `metadata` has the namespace, the UID and the `config.*` annotations.
    pub object: k8s::Pod,
    /// W29: the containers of `spec.ephemeralContainers`. A manifest has none; a user adds them to the running pod.
    pub ephemeral: Vec<Ephemeral>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    /// Returns None for a policy that this version does not know.
    pub fn parse(text: &str) -> Option<RestartPolicy> {
        match text {
            "Always" => Some(RestartPolicy::Always),
            "OnFailure" => Some(RestartPolicy::OnFailure),
            "Never" => Some(RestartPolicy::Never),
            _ => None,
        }
    }
}

/// Serializes only identity and source. The spec is available elsewhere (manifests, `/pods`), and may contain
/// secrets.
impl Serialize for Pod {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        // No `..`: a new field must not be skipped by accident.
        let Pod { uid, name, source, digest, object: _, ephemeral: _ } = self;
        let mut pod = s.serialize_struct("Pod", 4)?;
        pod.serialize_field("uid", uid)?;
        pod.serialize_field("name", name)?;
        pod.serialize_field("source", source)?;
        pod.serialize_field("digest", digest)?;
        pod.end()
    }
}

/// Reports whether the container is a sidecar: a restartable init container, which starts in the order of the init
/// containers and runs alongside the main containers.
pub fn is_sidecar(container: &k8s::Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

impl Pod {
    /// Returns the spec. Validation rejects a pod without a spec, so the empty default is never used.
    pub fn spec(&self) -> &k8s::PodSpec {
        static EMPTY: std::sync::LazyLock<k8s::PodSpec> = std::sync::LazyLock::new(k8s::PodSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    /// Reports whether the pod comes from the API server of a cluster, not from a manifest.
    pub fn is_from_api_server(&self) -> bool {
        self.source.is_api()
    }

    /// Returns the main containers.
    pub fn containers(&self) -> &[k8s::Container] {
        &self.spec().containers
    }

    /// Returns the init containers and sidecars (`is_sidecar`).
    pub fn init_containers(&self) -> &[k8s::Container] {
        self.spec().init_containers.as_deref().unwrap_or_default()
    }

    /// Returns the init containers, then the main containers, in start order: the containers of the manifest.
    pub fn all_containers(&self) -> impl Iterator<Item = &k8s::Container> {
        self.init_containers().iter().chain(self.containers())
    }

    /// Returns `all_containers`, followed by the ephemeral containers. The index of a container is its position in
    /// this list.
    pub fn every_container(&self) -> impl Iterator<Item = &k8s::Container> {
        self.all_containers().chain(self.ephemeral.iter().map(|e| &e.container))
    }

    /// Returns the container at `index` of `every_container`. An index out of range is a bug in the caller.
    pub fn at(&self, index: usize) -> &k8s::Container {
        let (init, main) = (self.init_containers(), self.containers());
        let of_manifest = init.get(index).or_else(|| main.get(index - init.len()));
        of_manifest.unwrap_or_else(|| &self.ephemeral[index - init.len() - main.len()].container)
    }

    /// Returns the container with this name, of any kind.
    pub fn container(&self, name: &str) -> Option<&k8s::Container> {
        self.every_container().find(|c| c.name == name)
    }

    /// Returns the index of the first ephemeral container.
    pub fn first_ephemeral(&self) -> usize {
        self.init_containers().len() + self.containers().len()
    }

    /// Returns the ephemeral container with this name.
    pub fn ephemeral(&self, name: &str) -> Option<&Ephemeral> {
        self.ephemeral.iter().find(|e| e.container.name == name)
    }

    /// Returns the same pod with these ephemeral containers.
    pub fn with_ephemeral(&self, list: Vec<k8s::EphemeralContainer>) -> Pod {
        let mut pod = self.clone();
        pod.ephemeral = list.iter().map(ephemeral::of).collect();
        if let Some(spec) = &mut pod.object.spec {
            spec.ephemeral_containers = Some(list).filter(|list| !list.is_empty());
        }
        pod
    }

    /// Returns `spec.ephemeralContainers`.
    pub fn ephemeral_specs(&self) -> &[k8s::EphemeralContainer] {
        self.spec().ephemeral_containers.as_deref().unwrap_or_default()
    }

    /// Returns the field path of the container in the form of a kubelet's events: `spec.containers{main}`.
    pub fn field_of(&self, name: &str) -> String {
        let field = match () {
            () if self.init_containers().iter().any(|c| c.name == name) => "initContainers",
            () if self.ephemeral(name).is_some() => "ephemeralContainers",
            () => "containers",
        };
        format!("spec.{field}{{{name}}}")
    }

    /// Reports whether the container at `index` is an init container or a sidecar.
    pub fn is_init(&self, index: usize) -> bool {
        index < self.init_containers().len()
    }

    /// Returns the restart policy of the container at `index`. A main container has the pod's policy. A sidecar
    /// always restarts. An init container restarts only after a failure, and never if the pod's policy is `Never`.
    pub fn restart_policy_of(&self, index: usize) -> RestartPolicy {
        match (self.init_containers().get(index), self.restart_policy()) {
            (Some(c), _) if is_sidecar(c) => RestartPolicy::Always,
            (Some(_), RestartPolicy::Always) => RestartPolicy::OnFailure,
            (_, policy) => policy,
        }
    }

    pub fn restart_policy(&self) -> RestartPolicy {
        self.spec().restart_policy.as_deref().and_then(RestartPolicy::parse).unwrap_or_default()
    }

    /// Returns `terminationGracePeriodSeconds`: default 30 s, minimum 1 s (W4), maximum `LONGEST_GRACE`.
    pub fn grace_period(&self) -> Duration {
        let s = self.spec().termination_grace_period_seconds.unwrap_or(30);
        Duration::from_secs(u64::try_from(s).unwrap_or(0).max(1)).min(LONGEST_GRACE)
    }

    pub fn active_deadline(&self) -> Option<Duration> {
        self.spec().active_deadline_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs)
    }

    /// Reports whether the UID comes from the manifest's `metadata.uid`. Otherwise it is a digest (D3).
    pub fn has_own_uid(&self) -> bool {
        super::uid::of(&self.source.path, &self.digest) != self.uid
    }

    /// Returns the images of all containers and of all image volumes, as written in the spec.
    pub fn images(&self) -> impl Iterator<Item = &String> {
        let volumes = self.spec().volumes.iter().flatten().filter_map(|v| v.image.as_ref()?.reference.as_ref());
        self.every_container().filter_map(|c| c.image.as_ref()).chain(volumes)
    }

    pub fn host_network(&self) -> bool {
        self.spec().host_network == Some(true)
    }
}

#[cfg(test)]
impl Pod {
    /// Returns a pod of a manifest for tests, in the namespace `default`.
    pub(crate) fn of_spec(name: &str, spec: k8s::PodSpec) -> Pod {
        Pod {
            uid: Uid::from("u"),
            name: FullName::new("default", name),
            source: Source { path: String::new(), document: 1 },
            digest: String::new(),
            object: k8s::Pod { spec: Some(spec), ..Default::default() },
            ephemeral: Vec::new(),
        }
    }
}
