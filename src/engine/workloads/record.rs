//! The record of a Deployment: its revisions, which the manifest does not contain. Its pods have records of their own.

use super::progress::StoredProgress;
use super::replica_set::ReplicaSet;
use crate::api::document::from_value;
use crate::api::k8s::PodTemplateSpec;
use crate::api::names::FullName;
use crate::api::time::Wall;
use crate::api::workload::deployment;
use crate::engine::nanoseconds;
use crate::engine::record_error::RecordError;
use crate::engine::record_fields as fields;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The kind of these records. A key is `deployments/<uid>`.
pub const KIND: &str = "deployments";
const VERSION: u64 = 1;

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredDeployment {
    pub namespace: String,
    pub name: String,
    #[serde(with = "nanoseconds")]
    pub created: Wall,
    /// The number of changes of the spec.
    pub generation: i64,
    /// The digest of the manifest to which the generation belongs.
    pub digest: String,
    /// The number of replicas for which the sizes of the revisions were chosen last, and the maximum then.
    pub scaled: (u32, u32),
    #[serde(default)]
    pub progress: StoredProgress,
    pub revisions: Vec<StoredRevision>,
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

impl StoredDeployment {
    pub fn full_name(&self) -> FullName {
        FullName::new(&self.namespace, &self.name)
    }
}

impl StoredRevision {
    pub fn of(set: &ReplicaSet) -> StoredRevision {
        let ReplicaSet { revision, hash, created, annotations, template, .. } = set;
        StoredRevision {
            revision: *revision,
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
    pub fn replica_set(self, deployment: &FullName) -> Result<ReplicaSet, RecordError> {
        let template = from_value::<PodTemplateSpec>(&self.template)
            .map_err(|why| RecordError::Invalid { field: "template", why })?;
        let set = ReplicaSet::new(deployment, self.hash, self.revision, Rc::new(template), self.created);
        Ok(ReplicaSet { annotations: self.annotations, ..set })
    }
}

pub fn key(deployment: &FullName) -> String {
    format!("{KIND}/{}", deployment::uid(deployment))
}

pub fn is_key(key: &str) -> bool {
    key.split_once('/').is_some_and(|(kind, _)| kind == KIND)
}

pub fn write(stored: &StoredDeployment) -> String {
    let mut all = fields::of(VERSION);
    fields::put(stored, &mut all);
    Value::Object(all).to_string()
}

/// Parses a record.
///
/// # Errors
/// The text is not JSON, a field is missing or invalid, or the version is not supported.
pub fn read(text: &str) -> Result<StoredDeployment, RecordError> {
    fields::take(&mut fields::parse(text, VERSION)?)
}
