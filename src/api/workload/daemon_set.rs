//! A DaemonSet (apps/v1): one pod of a template on each node that admits it, so at most one on this machine.

use super::deployment::seconds;
use super::head::WorkloadHead;
use super::key::WorkloadKind;
use super::portion::{self, Rounding};
use super::template;
use crate::api::defaults;
use crate::api::k8s::{self, IntOrString, Toleration};
use crate::api::source::Source;
use std::time::Duration;

/// The defaults of the API.
const REVISION_HISTORY: i32 = 10;
const UNAVAILABLE: i32 = 1;
/// The taints that the pods of each DaemonSet tolerate, as in a cluster.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// A taint that pods in the host's network tolerate too.
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// A valid DaemonSet of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonSet {
    pub head: WorkloadHead,
    /// With all defaults, except for the template, which is empty.
    pub object: k8s::DaemonSet,
}

/// How a pod of a new template replaces the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonUpdate {
    /// When a user deletes the old pod.
    OnDelete,
    /// The old pod ends before the new one starts.
    InPlace,
    /// The old pod ends when the new one is available.
    Surge,
}

/// Fills in the defaults of the API.
pub fn complete(object: &mut k8s::DaemonSet) {
    defaults::namespace(&mut object.metadata);
    let spec = object.spec.get_or_insert_default();
    spec.revision_history_limit.get_or_insert(REVISION_HISTORY);
    let strategy = spec.update_strategy.get_or_insert_default();
    let type_ = strategy.type_.get_or_insert_default();
    if type_.is_empty() {
        type_.push_str("RollingUpdate");
    }
    if type_ == "RollingUpdate" {
        let rolling = strategy.rolling_update.get_or_insert_default();
        rolling.max_unavailable.get_or_insert(IntOrString::Int(UNAVAILABLE));
        rolling.max_surge.get_or_insert(IntOrString::Int(0));
    }
    template::complete(&mut spec.template);
}

/// Returns the tolerations of a pod of a DaemonSet: those of the template, and those that each such pod gets.
pub fn tolerations(spec: &k8s::PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let of_host = (spec.host_network == Some(true)).then_some(NO_NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(of_host) {
        let added = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !all.contains(&added) {
            all.push(added);
        }
    }
    all
}

impl DaemonSet {
    /// Makes a DaemonSet of a complete, valid object.
    pub fn new(mut object: k8s::DaemonSet, source: Source, digest: String) -> DaemonSet {
        let template = object.spec.as_mut().map(|spec| std::mem::take(&mut spec.template)).unwrap_or_default();
        let head = WorkloadHead::new(WorkloadKind::DaemonSet, &mut object.metadata, template, source, digest);
        DaemonSet { head, object }
    }

    fn spec(&self) -> &k8s::DaemonSetSpec {
        static EMPTY: std::sync::LazyLock<k8s::DaemonSetSpec> = std::sync::LazyLock::new(k8s::DaemonSetSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    pub fn selector(&self) -> &k8s::LabelSelector {
        &self.spec().selector
    }

    /// Returns how long the pod has to be ready until it is available.
    pub fn min_ready(&self) -> Duration {
        seconds(self.spec().min_ready_seconds)
    }

    /// Returns the number of old revisions that are kept.
    pub fn history_limit(&self) -> usize {
        self.spec().revision_history_limit.and_then(|n| usize::try_from(n).ok()).unwrap_or_default()
    }

    /// Returns the strategy. With one node, all positive numbers and percentages mean one pod.
    pub fn update(&self) -> DaemonUpdate {
        let strategy = self.spec().update_strategy.as_ref();
        if strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete") {
            return DaemonUpdate::OnDelete;
        }
        let surge = strategy.and_then(|s| s.rolling_update.as_ref()?.max_surge.as_ref());
        match surge.and_then(|surge| portion::of(surge, 1, Rounding::Up)) {
            Some(1..) => DaemonUpdate::Surge,
            _ => DaemonUpdate::InPlace,
        }
    }
}
