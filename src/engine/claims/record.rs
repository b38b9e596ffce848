//! The record of a claim's directory. It outlives the claim: a directory that is kept belongs to the next claim of this
//! name.

use super::definition::ClaimOrigin;
use crate::api::claim::ClaimKey;
use crate::api::document::from_value;
use crate::api::k8s::PersistentVolumeClaim;
use crate::api::names::FullName;
use crate::api::storage_class::ReclaimPolicy;
use crate::api::time::Wall;
use crate::engine::nanoseconds;
use crate::engine::record_error::{self, RecordError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The kind of these records. A key is `persistentvolumes/<uid of the claim>`.
pub const KIND: &str = "persistentvolumes";
const VERSION: u64 = 1;

/// What was done with the directory, as far as it is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoredStage {
    /// It is going to be created.
    Announced,
    Held,
    /// Its claim is gone.
    Released,
    /// It is going to be removed.
    Condemned,
}

/// Who has created the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Creator {
    Wherry,
    /// It existed before. Wherry never removes it.
    Other,
}

impl StoredStage {
    /// Returns true if a claim had the directory, or was to get it.
    pub fn has_claim(self) -> bool {
        matches!(self, StoredStage::Announced | StoredStage::Held)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredVolume {
    pub namespace: String,
    pub name: String,
    pub class: String,
    /// The directory of the class.
    pub base: String,
    pub reclaim_policy: ReclaimPolicy,
    #[serde(with = "nanoseconds")]
    pub created: Wall,
    pub stage: StoredStage,
    pub creator: Creator,
    /// A user has deleted the claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    pub origin: ClaimOrigin,
    /// The last version of the claim.
    pub claim: Value,
}

impl StoredVolume {
    pub fn key(&self) -> ClaimKey {
        ClaimKey(FullName::new(&self.namespace, &self.name))
    }

    /// Returns the claim.
    ///
    /// # Errors
    /// It is not valid.
    pub fn claim(&self) -> Result<PersistentVolumeClaim, RecordError> {
        from_value(&self.claim).map_err(|why| RecordError::Invalid { field: "claim", why })
    }
}

pub fn key(of: &ClaimKey) -> String {
    format!("{KIND}/{}", of.uid())
}

/// Returns the text of a record.
pub fn write(of: &StoredVolume) -> String {
    let mut all = json!(of);
    all["version"] = VERSION.into();
    all.to_string()
}

/// Parses a record with this key. None: it is not the record of a directory.
///
/// # Errors
/// The text is not JSON, a field is missing or invalid, or the version is not supported.
pub fn read(key: &str, text: &str) -> Option<Result<StoredVolume, RecordError>> {
    (key.split_once('/')?.0 == KIND).then(|| {
        let all = record_error::parse(text, VERSION)?;
        let stored: StoredVolume =
            serde_json::from_value(all).map_err(|e| RecordError::Invalid { field: "", why: e.to_string() })?;
        stored.claim().map(|_| stored)
    })
}
