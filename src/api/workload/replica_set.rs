//! A ReplicaSet (apps/v1): a number of pods of a template. A new template is that of new pods only.

use super::deployment::seconds;
use super::head::WorkloadHead;
use super::key::WorkloadKind;
use super::template;
use crate::api::defaults;
use crate::api::k8s;
use crate::api::source::Source;
use std::time::Duration;

/// The default of the API.
const REPLICAS: i32 = 1;

/// A valid ReplicaSet of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSet {
    pub head: WorkloadHead,
    /// With all defaults, except for the template, which is absent.
    pub object: k8s::ReplicaSet,
}

/// Fills in the defaults of the API.
pub fn complete(object: &mut k8s::ReplicaSet) {
    defaults::namespace(&mut object.metadata);
    let spec = object.spec.get_or_insert_default();
    spec.replicas.get_or_insert(REPLICAS);
    template::complete(spec.template.get_or_insert_default());
}

impl ReplicaSet {
    /// Makes a ReplicaSet of a complete, valid object.
    pub fn new(mut object: k8s::ReplicaSet, source: Source, digest: String) -> ReplicaSet {
        let template = object.spec.as_mut().and_then(|spec| spec.template.take()).unwrap_or_default();
        let head = WorkloadHead::new(WorkloadKind::ReplicaSet, &mut object.metadata, template, source, digest);
        ReplicaSet { head, object }
    }

    fn spec(&self) -> &k8s::ReplicaSetSpec {
        static EMPTY: std::sync::LazyLock<k8s::ReplicaSetSpec> = std::sync::LazyLock::new(k8s::ReplicaSetSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    pub fn selector(&self) -> &k8s::LabelSelector {
        &self.spec().selector
    }

    pub fn replicas(&self) -> u32 {
        self.spec().replicas.and_then(|n| u32::try_from(n).ok()).unwrap_or_default()
    }

    /// Returns how long a pod has to be ready until it is available.
    pub fn min_ready(&self) -> Duration {
        seconds(self.spec().min_ready_seconds)
    }
}
