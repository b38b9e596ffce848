//! The pods' volumes.

use super::{Item, MS, World};
use crate::runtime::Container;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wherry::api::mount::{ImageSource, Mount, MountSource};
use wherry::api::names::Uid;
use wherry::api::volume::{Volume, VolumeFile, VolumeKind};
use wherry::engine::effect::{ContainerVolumes, VolumesCall};
use wherry::engine::event::Answer;
use wherry::engine::op::{Code, OpError, OpId};

#[derive(Default)]
pub struct Volumes {
    /// Pods with mounted volumes.
    pub mounted: BTreeSet<Uid>,
    /// The files of each pod at its last mount or update: `volume/path mode content`.
    pub files: BTreeMap<Uid, Vec<String>>,
    /// The error of a mount; None: mounts succeed.
    pub mount_error: Option<String>,
    /// The error of a mount in a container.
    pub container_error: Option<String>,
    pub unmount_error: Option<String>,
    /// The error of creating or removing the directory of a claim.
    pub claim_error: Option<String>,
    /// Added to the time of each such call (ns).
    pub claim_delay: u64,
    /// When the removals of directories of claims end (ns), and the largest number of them at one time.
    pub claim_removals: Vec<u64>,
    pub most_claim_calls: usize,
    /// The pods whose containers have got a directory of a claim, by its path.
    pub claim_users: BTreeMap<String, BTreeSet<Uid>>,
    /// The last mount or update of each pod: the life of the process, and the time of the answer.
    pub set_up: BTreeMap<Uid, (u32, u64)>,
}

fn files(volume: &Volume) -> Vec<String> {
    let VolumeKind::Files { files, .. } = &volume.kind else { return Vec::new() };
    let text =
        |f: &VolumeFile| format!("{}/{} {:o} {}", volume.name, f.path, f.mode, String::from_utf8_lossy(&f.bytes));
    files.iter().map(text).collect()
}

impl World {
    pub(super) fn volumes_call(&mut self, op: OpId, call: &VolumesCall, timeout: Duration) {
        self.note(|| match call {
            VolumesCall::Mount { uid, .. } => format!("  < {op} Mount {uid}"),
            VolumesCall::InContainer(of) => format!("  < {op} mount in container {}", of.container.name),
            VolumesCall::Unmount { uid } => format!("  < {op} Unmount {uid}"),
        });
        self.begin(op);
        self.checks.deadline(op, timeout);
        let unlucky = self.chaos.as_mut().is_some_and(|c| c.mishap("a volume fails", "", c.faults).is_some());
        let error = match call {
            VolumesCall::Mount { volumes, .. } => {
                self.volumes.mount_error.clone().or_else(|| self.lacks_claims(volumes))
            }
            VolumesCall::InContainer(_) => self.volumes.container_error.clone(),
            VolumesCall::Unmount { .. } => self.volumes.unmount_error.clone(),
        };
        let result = match error.or_else(|| unlucky.then(|| "input/output error".to_string())) {
            Some(message) => Err(OpError::Answered { code: Code::Other(5), message }),
            None => {
                self.change_volumes(call);
                match call {
                    VolumesCall::InContainer(of) => Ok(Answer::Mounts(self.mounts_of(of))),
                    _ => Ok(Answer::Ok),
                }
            }
        };
        let key = (self.process.life, op);
        self.at(3 * MS, Item::Answer { key, result });
    }

    fn mounts_of(&self, of: &ContainerVolumes) -> Vec<Mount> {
        let mounts = of.container.volume_mounts.iter().flatten();
        let source = |name: &str| match of.volumes.iter().find(|v| v.name == name).map(|v| &v.kind) {
            Some(VolumeKind::Image { reference, id }) => MountSource::Image(ImageSource {
                reference: reference.clone(),
                id: id.clone(),
                sub_path: String::new(),
            }),
            _ => MountSource::Host(format!("/volumes/{name}")),
        };
        mounts.map(|m| Mount { source: source(&m.name), ..Mount::writable(&m.mount_path, "") }).collect()
    }

    fn change_volumes(&mut self, call: &VolumesCall) {
        match call {
            VolumesCall::Mount { uid, volumes } => {
                let in_force = self.volumes.files.entry(uid.clone()).or_default();
                let is_new = |line: &String| volumes.iter().any(|v| line.starts_with(&format!("{}/", v.name)));
                in_force.retain(|line| !is_new(line));
                in_force.extend(volumes.iter().flat_map(files));
                self.volumes.set_up.insert(uid.clone(), (self.process.life, self.clock.now + 3 * MS));
                let Some(name) = self.engine.pod(uid).map(|view| view.pod.name.clone()) else { return };
                self.log(format!("Mount {}", name.name));
                self.volumes.mounted.insert(uid.clone());
                // The volumes are below the pod's directory.
                self.disk.directories.insert(uid.clone(), name);
            }
            VolumesCall::InContainer(of) => {
                if !self.volumes.mounted.contains(&of.uid) {
                    self.checks.fail("W2", format!("a container of {} uses volumes that are not mounted", of.uid));
                }
                self.use_claims(of);
                // The old files of a sub-path that is being mounted would be removed.
                let set_up = self.volumes.set_up.get(&of.uid);
                if set_up.is_some_and(|(life, until)| *life == self.process.life && *until > self.clock.now) {
                    self.checks.fail("D6", format!("volumes of {} are mounted and updated at the same time", of.uid));
                }
            }
            VolumesCall::Unmount { uid } => {
                if self.volumes.mounted.remove(uid) {
                    self.log("Unmount".into());
                }
                let ours = |c: &&Container| c.runs() && c.owner.as_ref() == Some(&self.runtime.owner);
                if let Some(c) = self.runtime.of(uid).find(ours) {
                    let id = c.id.clone();
                    self.checks.fail("W2", format!("the volumes of {uid} are unmounted while {id} runs"));
                }
            }
        }
    }
}
