//! PersistentVolumeClaims (Y22, Y23): each is a directory of this machine.
//!
//! `definition` says who asks for a claim, `volume` is the state machine of its directory, `record` what the disk
//! keeps of it, and `shown` the objects that the API shows. The pods of a claim are its users: a claim gets its
//! directory with its first user, and keeps it until the last one is gone.

pub mod definition;
pub mod inputs;
pub mod record;
pub mod shown;
pub mod volume;

use crate::api::claim::{ClaimDirectory, ClaimError, ClaimKey, ONE_POD, of_volume};
use crate::api::k8s::Volume;
use crate::api::names::Uid;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::effect::{RecordChange, Severity};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use definition::{ClaimOrigin, Definition};
use inputs::{ClaimInputs, ClaimUser, event};
use record::StoredVolume;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use volume::{ClaimVolume, VolumePhase};

/// What the manifests and the pods ask for.
#[derive(Debug, Default)]
pub struct Demand {
    /// The claims. If two have one name, the first is in force.
    pub claims: Vec<(ClaimKey, Definition)>,
    /// The pods that refer to claims, in the order in which they get one that only one pod can use.
    pub users: Vec<(ClaimKey, ClaimUser)>,
    /// The claims of StatefulSets, with the present policies, whether a pod of theirs exists or not.
    pub kept: Vec<(ClaimKey, Definition)>,
    /// The claims of StatefulSets that end now, as their policies demand.
    pub ended: Vec<ClaimKey>,
}

#[derive(Debug, Default)]
pub struct Claims {
    all: BTreeMap<ClaimKey, ClaimEntry>,
    /// Something has changed since the last step.
    is_touched: bool,
    /// Counts the changes that the API shows.
    version: u64,
    published: u64,
}

/// A claim, its directory, or both.
#[derive(Debug, Default)]
pub struct ClaimEntry {
    /// None: neither a manifest nor a pod defines the claim. Pods may still use its directory.
    definition: Option<Definition>,
    volume: Option<ClaimVolume>,
    users: Vec<ClaimUser>,
    /// Why the claim has no directory.
    waits: Option<ClaimWaits>,
    /// The number of changes that the API shows.
    version: u64,
}

/// Why a claim has no directory yet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClaimWaits {
    ForFirstPod,
    Unusable(String),
}

impl Claims {
    /// Takes the records that were found at the start. An unusable record is moved aside.
    pub fn records_found<'r>(&mut self, records: impl Iterator<Item = (&'r str, &'r str)>, outbox: &mut Outbox) {
        for (key, value) in records {
            match record::read(key, value) {
                None => {}
                Some(Ok(stored)) => self.restore(stored),
                Some(Err(why)) => {
                    let message = format!("record {key} is unusable: {why}; moving it aside");
                    outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
                    let change = RecordChange::SetAside { key: key.to_owned() };
                    outbox.record(Owner::Worker(Uid::from("")), change);
                }
            }
        }
    }

    fn restore(&mut self, stored: StoredVolume) {
        let definition = match (&stored.origin, stored.claim()) {
            // No manifest and no pod asks for it again.
            (ClaimOrigin::StatefulSet { .. }, Ok(object)) if stored.stage.has_claim() => {
                Some(Definition { object: object.into(), origin: stored.origin.clone() })
            }
            _ => None,
        };
        let (key, volume) = (stored.key(), Some(ClaimVolume::restore(stored)));
        self.all.insert(key, ClaimEntry { definition, volume, ..ClaimEntry::default() });
        self.is_touched = true;
    }

    /// Notes that a manifest or a pod has changed.
    pub fn touch(&mut self) {
        self.is_touched = true;
    }

    /// Returns true if a step is needed.
    pub fn is_touched(&self, now: Boot) -> bool {
        self.is_touched || self.next_deadline().is_some_and(|at| at <= now)
    }

    /// Compares the claims with what is asked for, and begins what is due. Returns the pods whose claims can be used
    /// now, or not any more.
    pub fn step(&mut self, demand: Demand, inputs: &mut ClaimInputs<'_>) -> Vec<Uid> {
        self.is_touched = false;
        self.take(demand);
        inputs.may_remove = self.may_remove();
        let mut woken = Vec::new();
        for (key, entry) in &mut self.all {
            if entry.step(key, inputs) {
                woken.extend(entry.users.iter().map(|user| user.uid.clone()));
            }
        }
        self.version += self.all.values().filter(|entry| entry.is_over()).map(|entry| entry.version + 1).sum::<u64>();
        self.all.retain(|_, entry| !entry.is_over());
        woken
    }

    fn take(&mut self, demand: Demand) {
        let Demand { claims, users, kept, ended } = demand;
        let mut kept = kept.into_iter().collect_map();
        let mut wanted = BTreeMap::new();
        for (key, definition) in claims {
            wanted.entry(key).or_insert(definition);
        }
        for (key, entry) in &mut self.all {
            let next = wanted.remove(key);
            let stays = next.is_none() && entry.outlives_its_stateful_set() && !ended.contains(key);
            let next = if stays { kept.remove(key).or_else(|| entry.definition.clone()) } else { next };
            entry.define(next);
            entry.users.clear();
        }
        for (key, definition) in wanted {
            let mut entry = ClaimEntry::default();
            entry.define(Some(definition));
            self.all.insert(key, entry);
        }
        for (key, user) in users {
            if let Some(entry) = self.all.get_mut(&key) {
                entry.users.push(user);
            }
        }
    }

    /// Returns the directory of a claim for this pod.
    ///
    /// # Errors
    /// The pod has to wait.
    pub fn find(&self, pod: &Pod, key: &ClaimKey) -> Result<ClaimDirectory, ClaimError> {
        let name = &key.0.name;
        let refused = |why: String| Err(ClaimError::NotUsable(format!("persistentvolumeclaim {name:?} {why}")));
        let unknown = || ClaimError::NotUsable(format!("persistentvolumeclaim {name:?} not found"));
        let entry = self.all.get(key).ok_or_else(unknown)?;
        let Some(volume) = entry.volume.as_ref().filter(|volume| volume.is_usable()) else {
            return match entry.why_pending() {
                _ if entry.definition.is_none() => Err(unknown()),
                None => Err(ClaimError::Soon),
                Some(why) => refused(format!("is not bound: {why}")),
            };
        };
        let is_ephemeral = |v: &Volume| v.ephemeral.is_some() && of_volume(pod, v).as_ref() == Some(key);
        if pod.spec().volumes.iter().flatten().any(is_ephemeral)
            && !matches!(&volume.stored.origin, ClaimOrigin::Pod { uid, .. } if *uid == pod.uid)
        {
            return refused(format!("was not created for pod {} (pod is not owner)", pod.name));
        }
        let holds = entry.users.iter().any(|user| user.uid == pod.uid && user.holds);
        if !holds && matches!(volume.phase(), VolumePhase::Terminating(_)) {
            return refused("is being deleted".to_owned());
        }
        if entry.is_for_one_pod() {
            match entry.only_user() {
                // The next step of the claims chooses one of the pods.
                None => return Err(ClaimError::Soon),
                Some(user) if user.uid != pod.uid => {
                    return refused(format!("is in use by pod {}: its access mode is {ONE_POD}", user.name));
                }
                Some(_) => {}
            }
        }
        Ok(ClaimDirectory { path: volume.path() })
    }

    /// Handles the end of writing or deleting a record.
    pub fn recorded(&mut self, key: &ClaimKey, well: bool, now: Boot) {
        self.is_touched = true;
        if let Some(volume) = self.all.get_mut(key).and_then(|entry| entry.volume.as_mut()) {
            volume.recorded(well, now);
        }
    }

    /// Handles the end of the creation or the removal of a directory.
    pub fn answered(&mut self, key: &ClaimKey, result: Result<Answer, OpError>, inputs: &mut ClaimInputs<'_>) {
        self.is_touched = true;
        if let Some(volume) = self.all.get_mut(key).and_then(|entry| entry.volume.as_mut()) {
            volume.answered(key, result, inputs);
        }
    }

    /// Deletes a claim that no manifest defines because a user asks for it. Returns false if there is no such claim.
    pub fn delete(&mut self, key: &ClaimKey) -> bool {
        self.is_touched = true;
        let Some(ClaimEntry { definition: Some(of), volume: Some(volume), .. }) = self.all.get_mut(key) else {
            return false;
        };
        of.origin != ClaimOrigin::Manifest && volume.delete_claim()
    }

    /// Removes the directory of a claim that is gone because a user asks for it. Returns false if the directory has a
    /// claim, or Wherry has not created it. None: there is no such directory.
    pub fn remove_released(&mut self, key: &ClaimKey) -> Option<bool> {
        self.is_touched = true;
        Some(self.all.get_mut(key)?.volume.as_mut()?.condemn())
    }

    pub fn get(&self, key: &ClaimKey) -> Option<&ClaimEntry> {
        self.all.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ClaimKey, &ClaimEntry)> {
        self.all.iter()
    }

    /// Returns true if the API has to show something else than after the last call.
    pub fn take_changed(&mut self) -> bool {
        let version = self.all.values().map(|entry| entry.version).sum::<u64>() + self.version;
        std::mem::replace(&mut self.published, version) != version
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        // A removal that is due waits for the end of another one, which causes a step.
        let may_remove = self.may_remove();
        self.all.values().filter_map(|entry| entry.volume.as_ref()?.next_deadline(may_remove)).min()
    }

    /// Returns true if no directory is being removed.
    fn may_remove(&self) -> bool {
        !self.all.values().any(ClaimEntry::is_being_removed)
    }
}

impl ClaimEntry {
    fn define(&mut self, next: Option<Definition>) {
        if self.definition != next {
            self.definition = next;
            self.version += 1;
        }
    }

    /// Returns true if the claim exists without a pod, because a StatefulSet has created it.
    fn outlives_its_stateful_set(&self) -> bool {
        let is_deleted = self.volume.as_ref().is_some_and(|volume| volume.stored.deleted);
        let origin = self.definition.as_ref().map(|of| &of.origin);
        matches!(origin, Some(ClaimOrigin::StatefulSet { .. })) && !is_deleted && self.volume.is_some()
    }

    /// Returns true if the pods have to look again.
    fn step(&mut self, key: &ClaimKey, inputs: &mut ClaimInputs<'_>) -> bool {
        let before = (self.phase_text(), self.is_usable(), self.only_user().cloned());
        if self.volume.is_none() {
            self.provision(key, inputs);
        }
        if let Some(volume) = &mut self.volume {
            volume.follow(key, self.definition.as_ref(), &self.users, inputs);
            volume.drive(key, inputs);
            if volume.is_gone() {
                self.volume = None;
                self.provision(key, inputs);
            }
        }
        let after = (self.phase_text(), self.is_usable(), self.only_user().cloned());
        self.version += u64::from(before.0 != after.0);
        before.1 != after.1 || before.2 != after.2
    }

    /// Announces a directory for a claim with a user.
    fn provision(&mut self, key: &ClaimKey, inputs: &mut ClaimInputs<'_>) {
        let Some(of) = &self.definition else { return };
        let waits = match inputs.class(of) {
            Err(why) => Some(ClaimWaits::Unusable(why)),
            Ok(_) if self.users.is_empty() => Some(ClaimWaits::ForFirstPod),
            Ok(class) => {
                let mut volume = ClaimVolume::announce(key, of, &class.clone(), inputs.now.wall);
                volume.drive(key, inputs);
                self.volume = Some(volume);
                None
            }
        };
        if self.waits != waits {
            match &waits {
                Some(ClaimWaits::Unusable(why)) => {
                    event(key, Severity::Warning, Reason::ProvisioningFailed, why.clone(), inputs.outbox);
                }
                Some(ClaimWaits::ForFirstPod) => {
                    let message = "waiting for first consumer to be created before binding".to_owned();
                    event(key, Severity::Normal, Reason::WaitForFirstConsumer, message, inputs.outbox);
                }
                None => {}
            }
            self.waits = waits;
            self.version += 1;
        }
    }

    /// Returns the pod that has a claim that only one pod can use.
    fn only_user(&self) -> Option<&ClaimUser> {
        if !self.is_for_one_pod() {
            return None;
        }
        self.users.iter().find(|user| user.holds).or(self.users.first())
    }

    fn is_for_one_pod(&self) -> bool {
        let modes = self.definition.as_ref().map(Definition::access_modes).unwrap_or_default();
        modes.iter().any(|mode| mode == ONE_POD)
    }

    fn is_being_removed(&self) -> bool {
        self.volume.as_ref().is_some_and(ClaimVolume::is_being_removed)
    }

    fn is_usable(&self) -> bool {
        self.volume.as_ref().is_some_and(ClaimVolume::is_usable)
    }

    fn phase_text(&self) -> String {
        format!("{:?}", self.phase())
    }

    /// Returns the phase of the directory. None: there is none.
    pub fn phase(&self) -> Option<VolumePhase<'_>> {
        self.volume.as_ref().map(ClaimVolume::phase)
    }

    /// Returns true if there is a claim, or was one that pods still use.
    pub fn has_claim(&self) -> bool {
        self.definition.is_some() || matches!(self.phase(), Some(VolumePhase::Terminating(_)))
    }

    pub fn volume(&self) -> Option<&ClaimVolume> {
        self.volume.as_ref()
    }

    pub fn definition(&self) -> Option<&Definition> {
        self.definition.as_ref()
    }

    pub fn users(&self) -> &[ClaimUser] {
        &self.users
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns why the claim has no directory. None: nothing is wrong.
    fn why_pending(&self) -> Option<String> {
        match (&self.waits, self.phase()) {
            (_, Some(VolumePhase::Pending(Some(why)))) => Some(why.to_owned()),
            (_, Some(VolumePhase::Removing | VolumePhase::Failed(_))) => {
                Some("the directory of an earlier claim of this name is being removed".to_owned())
            }
            (_, Some(VolumePhase::Released)) => {
                let why = "the directory of an earlier claim of this name has another storage class; remove it with \
                           `wherry volumes remove`";
                Some(why.to_owned())
            }
            (Some(ClaimWaits::Unusable(why)), _) => Some(why.clone()),
            _ => None,
        }
    }

    fn is_over(&self) -> bool {
        self.definition.is_none() && self.volume.is_none()
    }
}

/// Writes the claims by their names, for a dump.
impl Serialize for Claims {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.all.iter().map(|(key, entry)| {
            let users: Vec<String> = entry.users.iter().map(|user| user.name.to_string()).collect();
            (key.to_string(), (entry.has_claim(), &entry.volume, users))
        }))
    }
}
