//! The record of a workload: its revisions, which the manifest does not contain. Its pods have records of their own.

use super::cron::record::StoredCron;
use super::job::phase::StoredJob;
use super::progress::StoredProgress;
use super::revision::Revision;
use crate::api::document::from_value;
use crate::api::k8s::PodTemplateSpec;
use crate::api::names::FullName;
use crate::api::time::Wall;
use crate::api::workload::key::{WorkloadKey, WorkloadKind};
use crate::engine::nanoseconds;
use crate::engine::record_error::RecordError;
use crate::engine::record_fields as fields;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The kinds of these records. A key is, for example, `deployments/<uid>`.
pub const KINDS: [&str; 6] = [
    kind(WorkloadKind::CronJob),
    kind(WorkloadKind::Deployment),
    kind(WorkloadKind::DaemonSet),
    kind(WorkloadKind::Job),
    kind(WorkloadKind::ReplicaSet),
    kind(WorkloadKind::StatefulSet),
];
const VERSION: u64 = 1;

/// The content of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredWorkload {
    pub key: WorkloadKey,
    pub base: StoredBase,
    pub own: StoredOwn,
}

/// The fields of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum StoredOwn {
    CronJob(StoredCron),
    Deployment(StoredRollout),
    DaemonSet,
    Job(Box<StoredJob>),
    ReplicaSet,
    StatefulSet(StoredSequence),
}

/// The fields of all kinds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredBase {
    pub namespace: String,
    pub name: String,
    #[serde(with = "nanoseconds")]
    pub created: Wall,
    /// The number of changes of the spec.
    pub generation: i64,
    /// The digest of the manifest to which the generation belongs.
    pub digest: String,
    pub revisions: Vec<StoredRevision>,
}

/// The fields of a Deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRollout {
    /// The number of replicas for which the sizes of the revisions were chosen last, and the maximum then.
    pub scaled: (u32, u32),
    #[serde(default)]
    pub progress: StoredProgress,
}

/// The fields of a StatefulSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredSequence {
    /// The hash of the template that is being replaced, or of the present one.
    pub current: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRevision {
    pub revision: u64,
    pub hash: String,
    #[serde(with = "nanoseconds")]
    pub created: Wall,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    pub template: Value,
}

impl StoredRevision {
    pub fn of(of: &Revision) -> StoredRevision {
        let Revision { number, hash, created, annotations, template, .. } = of;
        StoredRevision {
            revision: *number,
            hash: hash.clone(),
            created: *created,
            annotations: annotations.clone(),
            template: json!(**template),
        }
    }

    /// Returns the revision, without pods.
    ///
    /// # Errors
    /// The template is not valid.
    pub fn restore(self, owner: &WorkloadKey) -> Result<Revision, RecordError> {
        let template = from_value::<PodTemplateSpec>(&self.template)
            .map_err(|why| RecordError::Invalid { field: "template", why })?;
        let revision = Revision::new(owner, self.hash, self.revision, Rc::new(template), self.created);
        Ok(Revision { annotations: self.annotations, ..revision })
    }
}

const fn kind(of: WorkloadKind) -> &'static str {
    match of {
        WorkloadKind::CronJob => "cronjobs",
        WorkloadKind::Deployment => "deployments",
        WorkloadKind::DaemonSet => "daemonsets",
        WorkloadKind::Job => "jobs",
        WorkloadKind::ReplicaSet => "replicasets",
        WorkloadKind::StatefulSet => "statefulsets",
    }
}

pub fn key(of: &WorkloadKey) -> String {
    format!("{}/{}", kind(of.kind), of.uid())
}

/// Returns the text of a record.
pub fn write(base: &StoredBase, own: &StoredOwn) -> String {
    let mut all = fields::of(VERSION);
    fields::put(base, &mut all);
    fields::put(own, &mut all);
    Value::Object(all).to_string()
}

/// Parses a record with this key. None: it is not the record of a workload.
///
/// # Errors
/// The text is not JSON, a field is missing or invalid, or the version is not supported.
pub fn read(key: &str, text: &str) -> Option<Result<StoredWorkload, RecordError>> {
    let (of, _) = key.split_once('/')?;
    let of = WorkloadKind::ALL.into_iter().find(|one| kind(*one) == of)?;
    Some(fields::parse(text, VERSION).and_then(|mut all| {
        let base: StoredBase = fields::take(&mut all)?;
        let own = match of {
            WorkloadKind::CronJob => StoredOwn::CronJob(fields::take(&mut all)?),
            WorkloadKind::Deployment => StoredOwn::Deployment(fields::take(&mut all)?),
            WorkloadKind::DaemonSet => StoredOwn::DaemonSet,
            WorkloadKind::Job => StoredOwn::Job(Box::new(fields::take(&mut all)?)),
            WorkloadKind::ReplicaSet => StoredOwn::ReplicaSet,
            WorkloadKind::StatefulSet => StoredOwn::StatefulSet(fields::take(&mut all)?),
        };
        Ok(StoredWorkload { key: WorkloadKey::new(of, FullName::new(&base.namespace, &base.name)), base, own })
    }))
}
