//! Who asks for a claim, and what it asks for.

use crate::api::claim::{Claim, ClaimKey};
use crate::api::k8s::PersistentVolumeClaim;
use crate::api::names::Uid;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// Who has created a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimOrigin {
    /// A manifest defines it, and it ends with its document.
    Manifest,
    /// A template of a StatefulSet. The claim stays until a user deletes it, or until the policy of the StatefulSet
    /// says that it ends.
    #[serde(rename_all = "camelCase")]
    StatefulSet {
        name: String,
        /// It ends with the StatefulSet.
        ends_with_it: bool,
    },
    /// An ephemeral volume of this pod. The claim ends with the pod, and its directory too *(ours)*: no other pod could
    /// use it.
    #[serde(rename_all = "camelCase")]
    Pod { name: String, uid: Uid },
}

impl ClaimOrigin {
    /// Returns true if a claim of this origin can be continued by `next`. The files of an ephemeral volume are for one
    /// pod.
    pub fn continues_as(&self, next: &ClaimOrigin) -> bool {
        let is_of_pod = |origin: &ClaimOrigin| matches!(origin, ClaimOrigin::Pod { .. });
        self == next || !is_of_pod(self) && !is_of_pod(next)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    pub object: Rc<PersistentVolumeClaim>,
    pub origin: ClaimOrigin,
}

impl Definition {
    pub fn of_manifest(claim: &Claim) -> (ClaimKey, Definition) {
        let object = Rc::new(claim.object.clone());
        (claim.key.clone(), Definition { object, origin: ClaimOrigin::Manifest })
    }

    /// Returns the name of the storage class. None: the claim takes the first one.
    pub fn class(&self) -> Option<&str> {
        self.object.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref())
    }

    pub fn access_modes(&self) -> &[String] {
        self.object.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
    }
}
