//! The directories of claims, and what the containers of pods have written into them.

use super::{Item, MS, World};
use crate::runtime::Container;
use wherry::api::claim::{ClaimPlace, MadeDirectory};
use wherry::api::names::Uid;
use wherry::api::storage_class::{self, ReclaimPolicy, StorageClass};
use wherry::api::volume::{Volume, VolumeKind};
use wherry::engine::effect::{ClaimCall, ContainerVolumes};
use wherry::engine::event::Answer;
use wherry::engine::op::{Code, OpError, OpId};

/// The classes: the built-in one, and one whose directories are removed with their claims.
pub fn classes() -> Vec<StorageClass> {
    let scratch = StorageClass {
        name: "scratch".to_owned(),
        directory: "/data/scratch".to_owned(),
        reclaim_policy: ReclaimPolicy::Delete,
    };
    storage_class::without_configuration(super::host::ROOT).into_iter().chain([scratch]).collect()
}

impl World {
    pub(super) fn claim_call(&mut self, op: OpId, call: &ClaimCall) {
        self.note(|| format!("  < {op} {call:?}"));
        self.begin(op);
        if let ClaimCall::Remove { .. } = call {
            let (now, of) = (self.clock.now, &mut self.volumes);
            of.claim_removals.retain(|end| *end > now);
            of.claim_removals.push(now + 3 * MS + of.claim_delay);
            of.most_claim_calls = of.most_claim_calls.max(of.claim_removals.len());
        }
        let unlucky =
            self.chaos.as_mut().is_some_and(|c| c.mishap("a directory of a claim fails", "", c.faults).is_some());
        let error = self.volumes.claim_error.clone().or_else(|| unlucky.then(|| "input/output error".to_owned()));
        let result = match error {
            Some(message) => Err(OpError::Answered { code: Code::Other(5), message }),
            None => Ok(self.change_claim(call)),
        };
        let key = (self.process.life, op);
        self.at(3 * MS + self.volumes.claim_delay, Item::Answer { key, result });
    }

    fn change_claim(&mut self, call: &ClaimCall) -> Answer {
        let path = |place: &ClaimPlace| format!("{}/{}/{}", place.base, place.namespace, place.name);
        match call {
            ClaimCall::Make { place, .. } => {
                let made = match self.disk.claims.get(&path(place)) {
                    None => MadeDirectory::New,
                    Some(files) if files.is_empty() => MadeDirectory::Empty,
                    Some(_) => MadeDirectory::Filled,
                };
                self.disk.claims.entry(path(place)).or_default();
                Answer::MadeDirectory(made)
            }
            ClaimCall::Remove { place } => {
                let path = path(place);
                self.log(format!("RemoveClaim {path}"));
                if let Some(user) = self.user_of(&path) {
                    self.checks.fail("Y22", format!("{path} is removed while {user} uses it"));
                }
                if self.disk.claims.get(&path).is_some_and(|files| files.contains(FOREIGN)) {
                    self.checks.fail("Y22", format!("{path}, which existed before its claim, is removed"));
                }
                if let Some(files) = self.disk.claims.remove(&path) {
                    self.disk.removed_claims.push((self.clock.now, path, files));
                }
                Answer::Ok
            }
        }
    }

    /// Returns the error of setting up these volumes: a directory does not exist.
    pub(super) fn lacks_claims(&self, volumes: &[Volume]) -> Option<String> {
        let mut paths = volumes.iter().filter_map(|volume| match &volume.kind {
            VolumeKind::Claim { path, .. } => Some(path),
            _ => None,
        });
        let missing = paths.find(|path| !self.disk.claims.contains_key(*path))?;
        Some(format!("the directory of the claim, {missing}, does not exist"))
    }

    /// Returns a container that runs with this directory.
    fn user_of(&self, path: &str) -> Option<String> {
        let runs = |uid: &&Uid| self.runtime.of(uid).any(Container::runs);
        let users = self.volumes.claim_users.get(path)?;
        users.iter().find(runs).map(ToString::to_string)
    }

    /// A container gets the directories of its claims, and writes the name of its pod into each.
    pub(super) fn use_claims(&mut self, of: &ContainerVolumes) {
        for volume in &of.volumes {
            let VolumeKind::Claim { path, .. } = &volume.kind else { continue };
            let Some(name) = self.engine.pod(&of.uid).map(|view| view.pod.name.name.to_string()) else { continue };
            match self.disk.claims.get_mut(path) {
                Some(files) => drop(files.insert(name)),
                None => self.checks.fail("Y22", format!("{} gets {path}, which does not exist", of.uid)),
            }
            self.volumes.claim_users.entry(path.clone()).or_default().insert(of.uid.clone());
        }
    }

    /// Somebody else has this directory, with a file.
    pub fn foreign_directory(&mut self, path: &str) {
        self.disk.claims.entry(path.to_owned()).or_default().insert(FOREIGN.to_owned());
    }

    /// Returns the names of the pods that have written into the directory of a claim; None: it does not exist.
    pub fn files_of_claim(&self, path: &str) -> Option<Vec<&str>> {
        Some(self.disk.claims.get(path)?.iter().map(String::as_str).collect())
    }
}

/// A file of somebody else.
const FOREIGN: &str = "(foreign)";
