//! A pod as the rest of wherry sees it: identity, source, and the defaulted, validated Kubernetes object.

use crate::api::names::{FullName, Uid};
use k8s_openapi::api::core::v1 as core;
use serde::Serialize;
use std::time::Duration;

/// No grace period is longer: 68 years. Container runtimes count nanoseconds in 64 bits or seconds in 32, and a period
/// that overflows there ends at once (containerd: above 292 years).
pub const LONGEST_GRACE: Duration = Duration::from_secs(i32::MAX as u64);

/// One accepted pod document. Held once, in an `Rc`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub uid: Uid,
    pub name: FullName,
    /// Where it was read: the file's path, and the document's number in it (from 1).
    pub source: Source,
    /// Digest of the parsed content before defaulting: equal digests are equal pods (D3).
    pub digest: String,
    /// Defaulted and validated; `metadata` has namespace, uid and the three `config.*` annotations.
    pub object: core::Pod,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Source {
    pub path: String,
    pub document: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// What names it and where it is from. The spec has its own places (manifests, `/pods`), and secrets in it maybe.
impl Serialize for Pod {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        // Without `..`: a new field is to be thought of.
        let Pod { uid, name, source, digest, object: _ } = self;
        let mut pod = s.serialize_struct("Pod", 4)?;
        pod.serialize_field("uid", uid)?;
        pod.serialize_field("name", name)?;
        pod.serialize_field("source", source)?;
        pod.serialize_field("digest", digest)?;
        pod.end()
    }
}

/// A restartable init container: it is started in its turn and runs beside the main containers.
pub fn is_sidecar(container: &core::Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

impl Pod {
    /// The spec; validation does not let a pod without one pass, so the empty one is never seen.
    pub fn spec(&self) -> &core::PodSpec {
        static EMPTY: std::sync::LazyLock<core::PodSpec> = std::sync::LazyLock::new(core::PodSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    /// The main containers.
    pub fn containers(&self) -> &[core::Container] {
        &self.spec().containers
    }

    /// Init containers and sidecars (`is_sidecar`).
    pub fn init_containers(&self) -> &[core::Container] {
        self.spec().init_containers.as_deref().unwrap_or_default()
    }

    /// Init containers, then the main ones: the order in which they start. A container's index is its place here.
    pub fn all_containers(&self) -> impl Iterator<Item = &core::Container> {
        self.init_containers().iter().chain(self.containers())
    }

    /// The container at `index` of `all_containers`. Indexes come from there: one too large is a mistake of ours.
    pub fn at(&self, index: usize) -> &core::Container {
        let init = self.init_containers();
        init.get(index).unwrap_or_else(|| &self.containers()[index - init.len()])
    }

    /// Of all containers the one of that name.
    pub fn container(&self, name: &str) -> Option<&core::Container> {
        self.all_containers().find(|c| c.name == name)
    }

    /// Is the container at `index` an init container or a sidecar?
    pub fn is_init(&self, index: usize) -> bool {
        index < self.init_containers().len()
    }

    /// The policy that decides whether the container at `index` starts again: the pod's own for a main container. A
    /// sidecar always does, an init container after a failure only, unless the pod never restarts anything.
    pub fn restart_policy_of(&self, index: usize) -> RestartPolicy {
        match (self.init_containers().get(index), self.restart_policy()) {
            (Some(c), _) if is_sidecar(c) => RestartPolicy::Always,
            (Some(_), RestartPolicy::Always) => RestartPolicy::OnFailure,
            (_, policy) => policy,
        }
    }

    pub fn restart_policy(&self) -> RestartPolicy {
        match self.spec().restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        }
    }

    /// `terminationGracePeriodSeconds`, 30 s if unset, at least 1 s (W4), at most `LONGEST_GRACE`.
    pub fn grace_period(&self) -> Duration {
        let s = self.spec().termination_grace_period_seconds.unwrap_or(30);
        Duration::from_secs(u64::try_from(s).unwrap_or(0).max(1)).min(LONGEST_GRACE)
    }

    pub fn active_deadline(&self) -> Option<Duration> {
        self.spec().active_deadline_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs)
    }

    /// Its UID is the manifest's `metadata.uid`, and no digest of ours (D3).
    pub fn has_own_uid(&self) -> bool {
        super::uid::of(&self.source.path, &self.digest) != self.uid
    }

    pub fn host_network(&self) -> bool {
        self.spec().host_network == Some(true)
    }
}
