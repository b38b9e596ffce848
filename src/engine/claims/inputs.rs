//! What the claims need from the node.

use super::definition::Definition;
use crate::api::claim::ClaimKey;
use crate::api::event_object::InvolvedKind;
use crate::api::names::{FullName, Uid};
use crate::api::reason::Reason;
use crate::api::storage_class::{self, StorageClass};
use crate::api::time::Now;
use crate::engine::effect::{Severity, Subject};
use crate::engine::outbox::Outbox;

/// What a step needs from the node.
pub struct ClaimInputs<'a> {
    pub now: Now,
    pub classes: &'a [StorageClass],
    /// The directory of Wherry's own for claims. It is created with the first claim; all others must exist.
    pub own_base: &'a str,
    pub outbox: &'a mut Outbox,
    /// No directory is being removed. One at a time is enough: each can take minutes, and pods need the same helpers.
    pub may_remove: bool,
}

/// A pod that refers to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUser {
    pub uid: Uid,
    pub name: FullName,
    /// It has the directory, or may have it.
    pub holds: bool,
}

impl ClaimInputs<'_> {
    /// Returns the storage class of a claim.
    ///
    /// # Errors
    /// There is no such class, or the claim asks for a volume of a manifest.
    pub fn class(&self, of: &Definition) -> Result<&StorageClass, String> {
        let name = of.class();
        let unknown = || storage_class::unknown(self.classes, name.unwrap_or_default());
        storage_class::find(self.classes, name).ok_or_else(unknown)
    }

    /// Returns true if Wherry may create this directory of a class.
    pub fn owns_base(&self, base: &str) -> bool {
        base == self.own_base
    }
}

/// Emits an event of a claim.
pub fn event(key: &ClaimKey, severity: Severity, reason: Reason, message: String, outbox: &mut Outbox) {
    let kind = InvolvedKind::PersistentVolumeClaim;
    outbox.emit(Subject::Workload { kind, name: key.0.clone(), uid: key.uid() }, severity, reason, message);
}
