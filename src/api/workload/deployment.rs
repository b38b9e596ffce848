//! A Deployment (apps/v1): how many pods of a template run, and how a new template replaces an old one.

use super::head::WorkloadHead;
use super::key::WorkloadKind;
use super::portion::{self, Rounding};
use super::template;
use crate::api::defaults;
use crate::api::k8s::{self, IntOrString};
use crate::api::source::Source;
use std::time::Duration;

/// The defaults of the API.
const REPLICAS: i32 = 1;
const REVISION_HISTORY: i32 = 10;
const PROGRESS_DEADLINE: i32 = 600;
const PORTION: &str = "25%";
/// A rule of ours: the maximum number of replicas. Each replica needs memory, even if it only waits.
pub const MAX_REPLICAS: i32 = 1000;
/// The value of `progressDeadlineSeconds` that means that there is no deadline.
const NO_DEADLINE: i32 = i32::MAX;

/// A valid Deployment of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    pub head: WorkloadHead,
    /// With all defaults, except for the template, which is empty.
    pub object: k8s::Deployment,
}

/// How a new template replaces an old one, in numbers of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The old pods end before the new ones start.
    Recreate,
    /// At least one of the two numbers is not zero.
    Rolling { surge: u32, unavailable: u32 },
}

/// Fills in the defaults of the API.
pub fn complete(object: &mut k8s::Deployment) {
    defaults::namespace(&mut object.metadata);
    let spec = object.spec.get_or_insert_default();
    spec.replicas.get_or_insert(REPLICAS);
    spec.revision_history_limit.get_or_insert(REVISION_HISTORY);
    spec.progress_deadline_seconds.get_or_insert(PROGRESS_DEADLINE);
    let strategy = spec.strategy.get_or_insert_default();
    let type_ = strategy.type_.get_or_insert_default();
    if type_.is_empty() {
        type_.push_str("RollingUpdate");
    }
    if type_ == "RollingUpdate" {
        let rolling = strategy.rolling_update.get_or_insert_default();
        rolling.max_surge.get_or_insert_with(|| IntOrString::String(PORTION.to_owned()));
        rolling.max_unavailable.get_or_insert_with(|| IntOrString::String(PORTION.to_owned()));
    }
    template::complete(&mut spec.template);
}

impl Deployment {
    /// Makes a Deployment of a complete, valid object.
    pub fn new(mut object: k8s::Deployment, source: Source, digest: String) -> Deployment {
        let template = object.spec.as_mut().map(|spec| std::mem::take(&mut spec.template)).unwrap_or_default();
        let head = WorkloadHead::new(WorkloadKind::Deployment, &mut object.metadata, template, source, digest);
        Deployment { head, object }
    }

    fn spec(&self) -> &k8s::DeploymentSpec {
        static EMPTY: std::sync::LazyLock<k8s::DeploymentSpec> = std::sync::LazyLock::new(k8s::DeploymentSpec::default);
        self.object.spec.as_ref().unwrap_or(&EMPTY)
    }

    pub fn selector(&self) -> &k8s::LabelSelector {
        &self.spec().selector
    }

    pub fn replicas(&self) -> u32 {
        self.spec().replicas.and_then(|n| u32::try_from(n).ok()).unwrap_or_default()
    }

    pub fn is_paused(&self) -> bool {
        self.spec().paused == Some(true)
    }

    /// Returns how long a pod has to be ready until it is available.
    pub fn min_ready(&self) -> Duration {
        seconds(self.spec().min_ready_seconds)
    }

    /// Returns how long a roll-out may make no progress. None: for ever.
    pub fn progress_deadline(&self) -> Option<Duration> {
        let deadline = self.spec().progress_deadline_seconds;
        (deadline != Some(NO_DEADLINE)).then(|| seconds(deadline))
    }

    /// Returns the number of old revisions that are kept.
    pub fn history_limit(&self) -> usize {
        self.spec().revision_history_limit.and_then(|n| usize::try_from(n).ok()).unwrap_or_default()
    }

    /// Returns the strategy for the present number of replicas. As in a cluster, a surge is rounded up and the number
    /// of unavailable pods down; if both are zero, one pod may be unavailable.
    pub fn strategy(&self) -> Strategy {
        let strategy = self.spec().strategy.as_ref();
        if strategy.and_then(|s| s.type_.as_deref()) == Some("Recreate") {
            return Strategy::Recreate;
        }
        let rolling = strategy.and_then(|s| s.rolling_update.as_ref());
        let number = |value: Option<&IntOrString>, rounding| {
            value.and_then(|value| portion::of(value, self.replicas(), rounding)).unwrap_or_default()
        };
        let surge = number(rolling.and_then(|r| r.max_surge.as_ref()), Rounding::Up);
        let unavailable = number(rolling.and_then(|r| r.max_unavailable.as_ref()), Rounding::Down).min(self.replicas());
        Strategy::Rolling { surge, unavailable: if surge == 0 { unavailable.max(1) } else { unavailable } }
    }
}

/// Returns a duration in whole seconds. A negative one is 0.
pub(super) fn seconds(value: Option<i32>) -> Duration {
    Duration::from_secs(value.and_then(|n| u64::try_from(n).ok()).unwrap_or_default())
}
