//! A StatefulSet (apps/v1): pods of a template with stable names, which start and end in the order of their numbers.

use super::deployment::seconds;
use super::head::WorkloadHead;
use super::key::WorkloadKind;
use super::portion::{self, Rounding};
use super::template;
use crate::api::claim::ClaimKey;
use crate::api::defaults;
use crate::api::k8s::{self, IntOrString};
use crate::api::names::FullName;
use crate::api::source::Source;
use std::ops::Range;
use std::time::Duration;

/// The defaults of the API.
const REPLICAS: i32 = 1;
const REVISION_HISTORY: i32 = 10;

/// The labels of a pod with its name and its number.
pub const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
pub const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// Returns the name of the claim of a template for this pod.
pub fn claim_name(template: &str, pod: &str) -> String {
    format!("{template}-{pod}")
}

/// A valid StatefulSet of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct StatefulSet {
    pub head: WorkloadHead,
    /// With all defaults, except for the template, which is empty.
    pub object: k8s::StatefulSet,
}

/// How pods of a new template replace the old ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatefulUpdate {
    /// When a user deletes them.
    OnDelete,
    /// From the highest number down to this one, at most `unavailable` of them at a time.
    Rolling { partition: u32, unavailable: u32 },
}

/// Fills in the defaults of the API.
pub fn complete(object: &mut k8s::StatefulSet) {
    defaults::namespace(&mut object.metadata);
    let spec = object.spec.get_or_insert_default();
    spec.replicas.get_or_insert(REPLICAS);
    spec.revision_history_limit.get_or_insert(REVISION_HISTORY);
    spec.pod_management_policy.get_or_insert_with(|| "OrderedReady".to_owned());
    let strategy = spec.update_strategy.get_or_insert_default();
    let type_ = strategy.type_.get_or_insert_default();
    if type_.is_empty() {
        type_.push_str("RollingUpdate");
    }
    if type_ == "RollingUpdate" {
        strategy.rolling_update.get_or_insert_default().partition.get_or_insert(0);
    }
    template::complete(&mut spec.template);
    for template in spec.volume_claim_templates.iter_mut().flatten() {
        defaults::claim(template.spec.get_or_insert_default());
    }
}

/// Replaces the volumes that have the name of a template by claims, and adds the others, as in a cluster. `name`:
/// returns the name of the claim of a template.
pub fn with_claims(spec: &mut k8s::PodSpec, templates: &[k8s::PersistentVolumeClaim], name: impl Fn(&str) -> String) {
    let volumes = spec.volumes.get_or_insert_default();
    for of in templates.iter().filter_map(|template| template.metadata.name.as_deref()) {
        let source = k8s::PersistentVolumeClaimVolumeSource { claim_name: name(of), read_only: None };
        volumes.retain(|volume| volume.name != of);
        volumes.push(k8s::Volume {
            name: of.to_owned(),
            persistent_volume_claim: Some(Box::new(source)),
            ..k8s::Volume::default()
        });
    }
    if volumes.is_empty() {
        spec.volumes = None;
    }
}

impl StatefulSet {
    /// Makes a StatefulSet of a complete, valid object.
    pub fn new(mut object: k8s::StatefulSet, source: Source, digest: String) -> StatefulSet {
        let template = object.spec.as_mut().map(|spec| std::mem::take(&mut spec.template)).unwrap_or_default();
        let head = WorkloadHead::new(WorkloadKind::StatefulSet, &mut object.metadata, template, source, digest);
        StatefulSet { head, object }
    }

    fn spec(&self) -> &k8s::StatefulSetSpec {
        static EMPTY: std::sync::LazyLock<k8s::StatefulSetSpec> =
            std::sync::LazyLock::new(k8s::StatefulSetSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    pub fn selector(&self) -> &k8s::LabelSelector {
        &self.spec().selector
    }

    pub fn replicas(&self) -> u32 {
        self.spec().replicas.and_then(|n| u32::try_from(n).ok()).unwrap_or_default()
    }

    /// Returns the numbers of the pods.
    pub fn ordinals(&self) -> Range<u32> {
        let start = self.spec().ordinals.as_ref().and_then(|ordinals| ordinals.start);
        let start = start.and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
        start..start.saturating_add(self.replicas())
    }

    /// Returns the domain of the pods.
    pub fn service_name(&self) -> &str {
        self.spec().service_name.as_deref().unwrap_or_default()
    }

    /// Returns true if a pod starts or ends only when those before it are available.
    pub fn is_ordered(&self) -> bool {
        self.spec().pod_management_policy.as_deref() != Some("Parallel")
    }

    /// Returns the templates of the pods' claims.
    pub fn claim_templates(&self) -> &[k8s::PersistentVolumeClaim] {
        self.spec().volume_claim_templates.as_deref().unwrap_or_default()
    }

    /// Returns whether the claims end with the StatefulSet, and whether they end when the number of replicas falls
    /// below theirs.
    pub fn claims_end(&self) -> (bool, bool) {
        let policy = self.spec().persistent_volume_claim_retention_policy.as_ref();
        let ends = |when: Option<&Option<String>>| when.and_then(|when| when.as_deref()) == Some("Delete");
        (ends(policy.map(|policy| &policy.when_deleted)), ends(policy.map(|policy| &policy.when_scaled)))
    }

    /// Returns the claim of a template for the pod with this name: its key and its object.
    pub fn claim(
        &self,
        template: &k8s::PersistentVolumeClaim,
        pod: &FullName,
    ) -> (ClaimKey, k8s::PersistentVolumeClaim) {
        let name = claim_name(template.metadata.name.as_deref().unwrap_or_default(), &pod.name);
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(self.selector().match_labels.clone().unwrap_or_default());
        let metadata = k8s::ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(pod.namespace.to_string()),
            labels: Some(labels),
            annotations: template.metadata.annotations.clone(),
            ..k8s::ObjectMeta::default()
        };
        let object =
            k8s::PersistentVolumeClaim { metadata, spec: template.spec.clone(), api_version: None, kind: None };
        (ClaimKey(FullName::new(&pod.namespace, &name)), object)
    }

    /// Returns how long a pod has to be ready until it is available.
    pub fn min_ready(&self) -> Duration {
        seconds(self.spec().min_ready_seconds)
    }

    /// Returns the number of old revisions that are kept.
    pub fn history_limit(&self) -> usize {
        self.spec().revision_history_limit.and_then(|n| usize::try_from(n).ok()).unwrap_or_default()
    }

    /// Returns the strategy. The partition is the first number that is updated.
    pub fn update(&self) -> StatefulUpdate {
        let strategy = self.spec().update_strategy.as_ref();
        if strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete") {
            return StatefulUpdate::OnDelete;
        }
        let rolling = strategy.and_then(|s| s.rolling_update.as_ref());
        let partition = rolling.and_then(|r| r.partition).and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
        let number = |value: &IntOrString| portion::of(value, self.replicas(), Rounding::Up);
        let unavailable = rolling.and_then(|r| r.max_unavailable.as_ref()).and_then(number).unwrap_or(1).max(1);
        StatefulUpdate::Rolling { partition: self.ordinals().start.saturating_add(partition), unavailable }
    }
}
