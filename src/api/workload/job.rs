//! A Job (batch/v1): pods of a template run until a number of them has succeeded.

use super::head::WorkloadHead;
use super::key::{WorkloadKey, WorkloadKind};
use super::template;
use crate::api::defaults;
use crate::api::k8s::{self, LabelSelector, ObjectMeta};
use crate::api::names::{FullName, Uid};
use crate::api::source::Source;
use std::collections::BTreeMap;
use std::time::Duration;

/// The defaults of the API.
const PARALLELISM: i32 = 1;
const COMPLETIONS: i32 = 1;
const BACKOFF_LIMIT: i32 = 6;
/// A rule of ours: the maximum number of indexes. Each needs memory.
pub const MAX_INDEXES: u32 = 10_000;
/// The only value of `managedBy`: the controller of Jobs.
pub const MANAGER: &str = "kubernetes.io/job-controller";
/// The labels of a Job's pods, with its UID and its name. The second of each pair is the older form.
pub const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
pub const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
/// The label and annotation with the index of a pod.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The variable of the environment with the index.
pub const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// A valid Job of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub head: WorkloadHead,
    /// With all defaults, except for the template, which is empty.
    pub object: k8s::Job,
    selector: LabelSelector,
    /// The CronJob that has created it. None: a manifest defines it.
    pub created_by: Option<WorkloadKey>,
}

/// When the Job succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completions {
    /// When one pod has succeeded, and all have ended: the pods share a queue of work.
    Any,
    Number(u32),
    /// When a pod of each index below this number has succeeded.
    Indexed(u32),
}

/// Fills in the defaults of the API.
pub fn complete(object: &mut k8s::Job) {
    defaults::namespace(&mut object.metadata);
    let spec = object.spec.get_or_insert_default();
    if spec.completions.is_none() && spec.parallelism.is_none() {
        spec.completions = Some(COMPLETIONS);
    }
    spec.parallelism.get_or_insert(PARALLELISM);
    let backoff_limit = if spec.backoff_limit_per_index.is_some() { i32::MAX } else { BACKOFF_LIMIT };
    spec.backoff_limit.get_or_insert(backoff_limit);
    spec.completion_mode.get_or_insert_with(|| "NonIndexed".to_owned());
    spec.suspend.get_or_insert(false);
    let policy = if spec.pod_failure_policy.is_some() { "Failed" } else { "TerminatingOrFailed" };
    spec.pod_replacement_policy.get_or_insert_with(|| policy.to_owned());
    // An object that was read from an API has the labels that its pods get.
    if spec.manual_selector != Some(true)
        && let Some(labels) = spec.template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut())
    {
        labels.retain(|key, _| !UID_LABELS.iter().chain(&NAME_LABELS).any(|own| own == key));
    }
    template::complete(&mut spec.template);
}

/// Returns the selector of a Job whose selector is not written by hand.
pub fn own_selector(metadata: &ObjectMeta) -> LabelSelector {
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    let name = FullName::new(namespace.unwrap_or_default(), name.unwrap_or_default());
    of_uid(&WorkloadKey::new(WorkloadKind::Job, name).uid())
}

fn of_uid(uid: &Uid) -> LabelSelector {
    let own = [(UID_LABELS[0].to_owned(), uid.to_string())].into();
    LabelSelector { match_labels: Some(own), ..LabelSelector::default() }
}

impl Job {
    /// Makes a Job of a complete, valid object. Its pods get labels with its UID and its name.
    pub fn new(mut object: k8s::Job, source: Source, digest: String) -> Job {
        let template = object.spec.as_mut().map(|spec| std::mem::take(&mut spec.template)).unwrap_or_default();
        let head = WorkloadHead::new(WorkloadKind::Job, &mut object.metadata, template, source, digest);
        let selector = object.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selector = selector.unwrap_or_else(|| of_uid(&head.uid));
        Job { head, object, selector, created_by: None }
    }

    /// Makes the Job of a CronJob, of a complete object. `source`: the document of the CronJob.
    pub fn created(object: k8s::Job, source: Source, by: WorkloadKey) -> Job {
        Job { created_by: Some(by), ..Job::new(object, source, String::new()) }
    }

    fn spec(&self) -> &k8s::JobSpec {
        static EMPTY: std::sync::LazyLock<k8s::JobSpec> = std::sync::LazyLock::new(k8s::JobSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    pub fn selector(&self) -> &LabelSelector {
        &self.selector
    }

    /// Returns the labels that its pods get in addition to those of the template.
    pub fn own_labels(&self) -> BTreeMap<String, String> {
        if self.spec().manual_selector == Some(true) {
            return BTreeMap::new();
        }
        let (uid, name) = (self.head.uid.to_string(), self.head.name().name.to_string());
        let of_uid = UID_LABELS.map(|label| (label.to_owned(), uid.clone()));
        let of_name = NAME_LABELS.map(|label| (label.to_owned(), name.clone()));
        of_uid.into_iter().chain(of_name).collect()
    }

    pub fn completions(&self) -> Completions {
        let number = self.spec().completions.map(|n| u32::try_from(n).unwrap_or_default());
        match (self.spec().completion_mode.as_deref(), number) {
            (_, None) => Completions::Any,
            (Some("Indexed"), Some(number)) => Completions::Indexed(number),
            (_, Some(number)) => Completions::Number(number),
        }
    }

    pub fn parallelism(&self) -> u32 {
        self.spec().parallelism.and_then(|n| u32::try_from(n).ok()).unwrap_or_default()
    }

    /// Returns the number of failures that do not fail the Job.
    pub fn backoff_limit(&self) -> u32 {
        self.spec().backoff_limit.and_then(|n| u32::try_from(n).ok()).unwrap_or_default()
    }

    /// Returns the number of failures that do not fail an index.
    pub fn backoff_limit_per_index(&self) -> Option<u32> {
        self.spec().backoff_limit_per_index.and_then(|n| u32::try_from(n).ok())
    }

    pub fn max_failed_indexes(&self) -> Option<u32> {
        self.spec().max_failed_indexes.and_then(|n| u32::try_from(n).ok())
    }

    /// Returns how long the Job may be active.
    pub fn active_deadline(&self) -> Option<Duration> {
        self.spec().active_deadline_seconds.and_then(|n| u64::try_from(n).ok()).map(Duration::from_secs)
    }

    /// Returns after which time the finished Job is forgotten.
    pub fn ttl(&self) -> Option<Duration> {
        self.spec().ttl_seconds_after_finished.and_then(|n| u64::try_from(n).ok()).map(Duration::from_secs)
    }

    pub fn is_suspended(&self) -> bool {
        self.spec().suspend == Some(true)
    }

    /// Returns true if a pod is replaced only when it has ended, not when it is being deleted.
    pub fn replaces_failed_only(&self) -> bool {
        self.spec().pod_replacement_policy.as_deref() == Some("Failed")
    }

    pub fn failure_rules(&self) -> &[k8s::PodFailurePolicyRule] {
        self.spec().pod_failure_policy.as_ref().map_or(&[], |policy| &policy.rules)
    }

    pub fn success_rules(&self) -> &[k8s::SuccessPolicyRule] {
        self.spec().success_policy.as_ref().map_or(&[], |policy| &policy.rules)
    }

    /// Returns the first field that a later version changes although it must stay, as in a cluster. An Indexed Job may
    /// change its completions together with its parallelism.
    pub fn immutable_difference(&self, later: &Job) -> Option<&'static str> {
        let (is, then) = (self.spec(), later.spec());
        let may_scale = is.completion_mode.as_deref() == Some("Indexed") && then.completions == then.parallelism;
        let fields = [
            ("spec.template", self.head.hash != later.head.hash),
            ("spec.completionMode", is.completion_mode != then.completion_mode),
            ("spec.completions", is.completions != then.completions && !may_scale),
            ("spec.backoffLimitPerIndex", is.backoff_limit_per_index != then.backoff_limit_per_index),
            ("spec.podFailurePolicy", is.pod_failure_policy != then.pod_failure_policy),
            ("spec.successPolicy", is.success_policy != then.success_policy),
            ("spec.selector", is.selector != then.selector),
        ];
        fields.into_iter().find_map(|(field, differs)| differs.then_some(field))
    }
}
