//! The directory of one claim, from its announcement to its removal.
//!
//! The record is written before the directory is created, so that a later run knows that the directory may be its own,
//! and again before a pod uses it and before it is removed. So a kill at any moment neither makes Wherry remove a
//! directory of somebody else nor gives a new claim a directory that is half removed.

use super::definition::{ClaimOrigin, Definition};
use super::inputs::{ClaimInputs, ClaimUser, event};
use super::record::{self, Creator, StoredStage, StoredVolume};
use crate::api::claim::{ClaimKey, ClaimPlace, MadeDirectory};
use crate::api::reason::Reason;
use crate::api::storage_class::{ReclaimPolicy, StorageClass};
use crate::api::time::{Boot, Wall};
use crate::engine::effect::{ClaimCall, Effect, RecordChange, Severity};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::owner::Owner;
use crate::engine::rewriting::Rewriting;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// A failed creation or removal is repeated after this time.
const RETRY: Duration = Duration::from_secs(30);
/// The limit for the creation of a directory. A file system that does not answer for this long is treated as hung.
const MAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit for the removal of a directory, which may contain many files.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug, Serialize)]
pub struct ClaimVolume {
    #[serde(skip)]
    pub stored: StoredVolume,
    stage: VolumeStage,
    record: Rewriting,
}

/// What happens with the directory.
#[derive(Debug, Serialize)]
enum VolumeStage {
    /// It is created once the record is on disk. `again`: an earlier attempt may have created it.
    Announced {
        again: bool,
    },
    Making {
        again: bool,
        call: DirectoryCall,
    },
    /// The claim has it. `usable`: the record says so on disk. `deleting_since`: the claim is deleted, but pods use it.
    Held {
        usable: bool,
        deleting_since: Option<Wall>,
    },
    /// There is no claim. The directory belongs to the next one of this name.
    Released,
    /// It is removed once the record is on disk.
    Condemned,
    Removing(DirectoryCall),
    /// The directory is gone. The record is deleted.
    Forgotten,
}

#[derive(Debug, Serialize)]
enum DirectoryCall {
    InFlight,
    Failed { again: Boot, why: String },
}

/// What the API shows of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumePhase<'v> {
    /// It does not exist yet. The text says why, if an attempt has failed.
    Pending(Option<&'v str>),
    Bound,
    /// The claim is deleted, but pods use it.
    Terminating(Wall),
    Released,
    /// It is removed, or was.
    Removing,
    /// The text says why it cannot be removed.
    Failed(&'v str),
}

impl ClaimVolume {
    /// Announces the directory of a claim.
    pub fn announce(key: &ClaimKey, of: &Definition, class: &StorageClass, created: Wall) -> ClaimVolume {
        let reclaim_policy = match of.origin {
            ClaimOrigin::Pod { .. } => ReclaimPolicy::Delete,
            ClaimOrigin::Manifest | ClaimOrigin::StatefulSet { .. } => class.reclaim_policy,
        };
        let stored = StoredVolume {
            namespace: key.0.namespace.to_string(),
            name: key.0.name.to_string(),
            class: class.name.clone(),
            base: class.directory.clone(),
            reclaim_policy,
            created,
            stage: StoredStage::Announced,
            creator: Creator::Other,
            deleted: false,
            origin: of.origin.clone(),
            claim: json!(*of.object),
        };
        ClaimVolume { stored, stage: VolumeStage::Announced { again: false }, record: Rewriting::Due }
    }

    /// Continues with the record of an earlier run.
    pub fn restore(stored: StoredVolume) -> ClaimVolume {
        let stage = match stored.stage {
            StoredStage::Announced => VolumeStage::Announced { again: true },
            StoredStage::Held => VolumeStage::Held { usable: true, deleting_since: None },
            StoredStage::Released => VolumeStage::Released,
            StoredStage::Condemned => VolumeStage::Condemned,
        };
        ClaimVolume { stored, stage, record: Rewriting::Done }
    }

    /// Returns the absolute path of the directory.
    pub fn path(&self) -> String {
        let StoredVolume { base, namespace, name, .. } = &self.stored;
        format!("{base}/{namespace}/{name}")
    }

    fn place(&self) -> ClaimPlace {
        let StoredVolume { base, namespace, name, .. } = &self.stored;
        ClaimPlace { base: base.clone(), namespace: namespace.clone(), name: name.clone() }
    }

    pub fn phase(&self) -> VolumePhase<'_> {
        match &self.stage {
            VolumeStage::Making { call: DirectoryCall::Failed { why, .. }, .. } => VolumePhase::Pending(Some(why)),
            VolumeStage::Announced { .. } | VolumeStage::Making { .. } | VolumeStage::Held { usable: false, .. } => {
                VolumePhase::Pending(None)
            }
            VolumeStage::Held { deleting_since: Some(since), .. } => VolumePhase::Terminating(*since),
            VolumeStage::Held { .. } => VolumePhase::Bound,
            VolumeStage::Released => VolumePhase::Released,
            VolumeStage::Removing(DirectoryCall::Failed { why, .. }) => VolumePhase::Failed(why),
            VolumeStage::Condemned | VolumeStage::Removing(DirectoryCall::InFlight) | VolumeStage::Forgotten => {
                VolumePhase::Removing
            }
        }
    }

    /// Returns true if pods can use the directory.
    pub fn is_usable(&self) -> bool {
        matches!(self.stage, VolumeStage::Held { usable: true, .. })
    }

    /// Returns true if the directory is being removed at the moment.
    pub fn is_being_removed(&self) -> bool {
        matches!(self.stage, VolumeStage::Removing(DirectoryCall::InFlight))
    }

    /// Returns true if the directory and its record are gone.
    pub fn is_gone(&self) -> bool {
        matches!(self.stage, VolumeStage::Forgotten) && self.record.is_done()
    }

    /// Compares the directory with its claim. `definition`: None if the claim is gone.
    pub fn follow(
        &mut self,
        key: &ClaimKey,
        definition: Option<&Definition>,
        users: &[ClaimUser],
        inputs: &mut ClaimInputs<'_>,
    ) {
        let is_used = match &self.stored.origin {
            ClaimOrigin::Pod { uid, .. } => users.iter().any(|user| user.uid == *uid),
            ClaimOrigin::Manifest | ClaimOrigin::StatefulSet { .. } => users.iter().any(|user| user.holds),
        };
        let definition = definition.filter(|of| !self.stored.deleted && self.stored.origin.continues_as(&of.origin));
        match (&mut self.stage, definition) {
            (VolumeStage::Held { deleting_since, .. }, Some(of)) => {
                *deleting_since = None;
                self.take_version(of);
            }
            (VolumeStage::Held { deleting_since, .. }, None) if is_used => {
                deleting_since.get_or_insert(inputs.now.wall);
            }
            (VolumeStage::Held { .. }, None) => self.release(key, inputs),
            (VolumeStage::Released, Some(of)) => self.take_again(key, of, inputs),
            (VolumeStage::Making { call: DirectoryCall::Failed { .. }, .. }, Some(of)) => {
                self.announce_elsewhere(key, of, inputs)
            }
            (VolumeStage::Making { call: DirectoryCall::Failed { .. }, .. }, None) if !is_used => self.forget(),
            _ => {}
        }
    }

    /// Gives a new claim the directory of an earlier one.
    fn take_again(&mut self, key: &ClaimKey, of: &Definition, inputs: &mut ClaimInputs<'_>) {
        if !inputs.class(of).is_ok_and(|class| self.is_of(class)) {
            return;
        }
        self.stage = VolumeStage::Held { usable: false, deleting_since: None };
        self.stored.origin = of.origin.clone();
        self.take_version(of);
        self.record.changed();
        let message = format!("the directory {} of the earlier claim of this name is used again", self.path());
        event(key, Severity::Normal, Reason::ProvisioningSucceeded, message, inputs.outbox);
    }

    /// Announces another directory if the configuration has another one for the class now.
    fn announce_elsewhere(&mut self, key: &ClaimKey, of: &Definition, inputs: &ClaimInputs<'_>) {
        if let Ok(class) = inputs.class(of)
            && !self.is_of(class)
        {
            *self = ClaimVolume::announce(key, of, class, self.stored.created);
        }
    }

    fn is_of(&self, class: &StorageClass) -> bool {
        class.name == self.stored.class && class.directory == self.stored.base
    }

    fn forget(&mut self) {
        self.stage = VolumeStage::Forgotten;
        self.record.changed();
    }

    fn take_version(&mut self, of: &Definition) {
        let claim = json!(*of.object);
        if self.stored.claim != claim || self.stored.origin != of.origin {
            (self.stored.claim, self.stored.origin) = (claim, of.origin.clone());
            self.record.changed();
        }
    }

    /// The claim is gone, and no pod uses it.
    fn release(&mut self, key: &ClaimKey, inputs: &mut ClaimInputs<'_>) {
        self.stored.deleted = false;
        self.record.changed();
        let StoredVolume { reclaim_policy, creator, .. } = self.stored;
        self.stage = match (reclaim_policy, creator) {
            (ReclaimPolicy::Delete, Creator::Wherry) => VolumeStage::Condemned,
            (ReclaimPolicy::Retain, _) => VolumeStage::Released,
            (ReclaimPolicy::Delete, Creator::Other) => {
                let message = format!("{} stays: it existed before the claim; remove it yourself", self.path());
                event(key, Severity::Warning, Reason::VolumeFailedDelete, message, inputs.outbox);
                VolumeStage::Released
            }
        };
    }

    /// Marks the claim as deleted by a user. It ends when no pod uses it. Returns false if the claim has no directory.
    pub fn delete_claim(&mut self) -> bool {
        let has_claim =
            matches!(self.stage, VolumeStage::Announced { .. } | VolumeStage::Making { .. } | VolumeStage::Held { .. });
        if has_claim {
            self.stored.deleted = true;
            self.record.changed();
        }
        has_claim
    }

    /// Removes a directory without a claim because a user asks for it. Returns false if it is not `Released`, or
    /// Wherry has not created it.
    pub fn condemn(&mut self) -> bool {
        let is_possible = matches!(self.stage, VolumeStage::Released) && self.stored.creator == Creator::Wherry;
        if is_possible {
            self.stage = VolumeStage::Condemned;
            self.record.changed();
        }
        is_possible
    }

    /// Begins what is due: the next write of the record, and the call that follows it.
    pub fn drive(&mut self, key: &ClaimKey, inputs: &mut ClaimInputs<'_>) {
        let now = inputs.now.boot;
        let is_recorded = self.record.is_done();
        let is_due = |call: &DirectoryCall| matches!(call, DirectoryCall::Failed { again, .. } if *again <= now);
        match &mut self.stage {
            VolumeStage::Announced { again } if is_recorded => {
                let again = *again;
                self.make(again, key, inputs);
            }
            VolumeStage::Making { call, .. } if is_due(call) => self.make(true, key, inputs),
            VolumeStage::Held { usable: usable @ false, .. } if is_recorded => *usable = true,
            VolumeStage::Condemned if is_recorded && inputs.may_remove => self.remove(key, inputs),
            VolumeStage::Removing(call) if is_due(call) && inputs.may_remove => self.remove(key, inputs),
            _ => {}
        }
        self.write(key, inputs);
    }

    fn write(&mut self, key: &ClaimKey, inputs: &mut ClaimInputs<'_>) {
        if !self.record.begins(inputs.now.boot) {
            return;
        }
        self.stored.stage = match self.stage {
            VolumeStage::Announced { .. } | VolumeStage::Making { .. } => StoredStage::Announced,
            VolumeStage::Held { .. } => StoredStage::Held,
            VolumeStage::Released => StoredStage::Released,
            VolumeStage::Condemned | VolumeStage::Removing(_) | VolumeStage::Forgotten => StoredStage::Condemned,
        };
        let change = match self.stage {
            VolumeStage::Forgotten => RecordChange::Delete { key: record::key(key) },
            _ => RecordChange::Put { key: record::key(key), value: record::write(&self.stored) },
        };
        inputs.outbox.record(Owner::ClaimRecord(key.clone()), change);
    }

    /// `again`: an earlier attempt may have created the directory.
    fn make(&mut self, again: bool, key: &ClaimKey, inputs: &mut ClaimInputs<'_>) {
        self.stage = VolumeStage::Making { again, call: DirectoryCall::InFlight };
        let call = ClaimCall::Make { place: self.place(), create_base: inputs.owns_base(&self.stored.base) };
        inputs.outbox.begin(Owner::ClaimDirectory(key.clone()), |op| Effect::Claim { op, call, timeout: MAKE_TIMEOUT });
    }

    fn remove(&mut self, key: &ClaimKey, inputs: &mut ClaimInputs<'_>) {
        self.stage = VolumeStage::Removing(DirectoryCall::InFlight);
        inputs.may_remove = false;
        let call = ClaimCall::Remove { place: self.place() };
        let timeout = REMOVE_TIMEOUT;
        inputs.outbox.begin(Owner::ClaimDirectory(key.clone()), |op| Effect::Claim { op, call, timeout });
    }

    /// Handles the end of writing or deleting the record.
    pub fn recorded(&mut self, well: bool, now: Boot) {
        self.record.ended(well, now);
    }

    /// Handles the end of the creation or the removal.
    pub fn answered(&mut self, key: &ClaimKey, result: Result<Answer, OpError>, inputs: &mut ClaimInputs<'_>) {
        let again = inputs.now.boot + RETRY;
        let failed = |why: &OpError| DirectoryCall::Failed { again, why: why.message().to_owned() };
        match (&self.stage, result) {
            (VolumeStage::Making { again, .. }, Ok(Answer::MadeDirectory(made))) => {
                self.made(*again, key, made, inputs)
            }
            (VolumeStage::Making { .. }, Err(why)) => {
                let message = format!("failed to create {}: {}", self.path(), why.message());
                self.stage = VolumeStage::Making { again: true, call: failed(&why) };
                event(key, Severity::Warning, Reason::ProvisioningFailed, message, inputs.outbox);
            }
            (VolumeStage::Removing(_), Ok(_)) => self.forget(),
            (VolumeStage::Removing(_), Err(why)) => {
                let message = format!("failed to remove {}: {}", self.path(), why.message());
                self.stage = VolumeStage::Removing(failed(&why));
                event(key, Severity::Warning, Reason::VolumeFailedDelete, message, inputs.outbox);
            }
            _ => {}
        }
    }

    fn made(&mut self, again: bool, key: &ClaimKey, made: MadeDirectory, inputs: &mut ClaimInputs<'_>) {
        self.stored.creator = match made {
            MadeDirectory::New => Creator::Wherry,
            // An earlier attempt, perhaps of a run that was killed, has created it. No pod has used it yet.
            MadeDirectory::Empty if again => Creator::Wherry,
            MadeDirectory::Empty | MadeDirectory::Filled => Creator::Other,
        };
        let message = match self.stored.creator {
            Creator::Wherry => format!("Successfully provisioned volume {}: {}", key.volume_name(), self.path()),
            Creator::Other => format!("{} exists already, and is used as it is", self.path()),
        };
        event(key, Severity::Normal, Reason::ProvisioningSucceeded, message, inputs.outbox);
        self.stage = VolumeStage::Held { usable: false, deleting_since: None };
        self.record.changed();
    }

    /// Returns the time of the next attempt after a failure. `may_remove`: no other directory is being removed.
    pub fn next_deadline(&self, may_remove: bool) -> Option<Boot> {
        let of_call = match &self.stage {
            VolumeStage::Making { call: DirectoryCall::Failed { again, .. }, .. } => Some(*again),
            VolumeStage::Removing(DirectoryCall::Failed { again, .. }) if may_remove => Some(*again),
            _ => None,
        };
        of_call.into_iter().chain(self.record.next_deadline()).min()
    }
}
