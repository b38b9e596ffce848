//! A pod as the rest of wherry sees it: identity, source, and the defaulted, validated Kubernetes object.

use crate::api::names::{FullName, Uid};
use k8s_openapi::api::core::v1 as core;
use std::time::Duration;

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

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

impl Pod {
    /// The spec; validation does not let a pod without one pass, so the empty one is never seen.
    pub fn spec(&self) -> &core::PodSpec {
        static EMPTY: std::sync::LazyLock<core::PodSpec> = std::sync::LazyLock::new(core::PodSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    pub fn containers(&self) -> &[core::Container] {
        &self.spec().containers
    }

    pub fn container(&self, name: &str) -> Option<&core::Container> {
        self.containers().iter().find(|c| c.name == name)
    }

    pub fn restart_policy(&self) -> RestartPolicy {
        match self.spec().restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        }
    }

    /// `terminationGracePeriodSeconds`, 30 s if unset, at least 1 s (W4).
    pub fn grace_period(&self) -> Duration {
        let s = self.spec().termination_grace_period_seconds.unwrap_or(30);
        Duration::from_secs(u64::try_from(s).unwrap_or(0).max(1))
    }

    pub fn active_deadline(&self) -> Option<Duration> {
        self.spec().active_deadline_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs)
    }

    pub fn host_network(&self) -> bool {
        self.spec().host_network == Some(true)
    }
}
