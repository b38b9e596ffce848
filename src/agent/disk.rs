//! The files of pods, and the records. Small files are created on the main thread. Helpers perform removals, which
//! may be large, and access files of other owners, which may hang.

use super::jobs::{JobSpec, Jobs};
use super::paths;
use super::record_queue::RecordQueue;
use crate::adapters::host::disk_use::{self, Directories, PodDiskUse};
use crate::adapters::pod_files::PodFiles;
use crate::adapters::volumes::{self, ForContainer, VolumeError};
use crate::api::facts::{MeasuredPod, PodDiskFact};
use crate::api::names::Uid;
use crate::api::time::{Boot, Now};
use crate::api::volume::Volume;
use crate::engine::effect::{ClaimCall, ContainerVolumes, FilesCall, VolumesCall};
use crate::engine::event::{Answer, Event};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::Class;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for removing a pod's files. A log of several gigabytes takes long on an SD card.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) struct Disk {
    pub(super) files: PodFiles,
    pub(super) records: RecordQueue,
}

impl Disk {
    /// Carries out a call. Returns the event that ends the operation, unless a job ends it later.
    pub(super) fn use_files(&mut self, op: OpId, call: FilesCall, jobs: &mut Jobs, now: Now) -> Option<Event> {
        let files = self.files.clone();
        let deadline = now.boot + REMOVE_TIMEOUT;
        match call {
            FilesCall::RemovePod { uid, namespace, name, kill, keep_directory } => {
                let (uid, namespace, name) = (uid.to_string(), namespace.to_string(), name.to_string());
                let spec = JobSpec::new(Class::Removals, "remove a pod's files", deadline);
                let work = move || files.remove_pod(&uid, &namespace, &name, kill, keep_directory);
                jobs.run_op(op, spec, work, |()| Answer::Ok);
                None
            }
            FilesCall::RemoveContainerFiles { id, log_path } => {
                let id = id.to_string();
                let spec = JobSpec::new(Class::Removals, "remove a container's log", deadline);
                jobs.run_op(op, spec, move || files.remove_container(&id, &log_path), |()| Answer::Ok);
                None
            }
            other => {
                let call = paths::use_foreign_files(op, other, &files, jobs, now)?;
                Some(Event::Done { op, result: files.execute(&call) })
            }
        }
    }

    /// Has a helper set up or remove volumes, because file systems of other owners may hang.
    pub(super) fn use_volumes(&self, op: OpId, call: VolumesCall, deadline: Boot, jobs: &mut Jobs) {
        let layout = self.files.layout.clone();
        let outside = |volumes: &[Volume]| volumes.iter().find_map(Volume::outside_path).map(PathBuf::from);
        match call {
            VolumesCall::Mount { uid, volumes } => {
                let (uid, path) = (uid.to_string(), outside(&volumes));
                let spec = volumes_job("set up a pod's volumes", path.as_deref(), deadline);
                let work = move || answered(volumes::set_up(&layout, &uid, &volumes));
                jobs.run_op(op, spec, work, |()| Answer::Ok);
            }
            VolumesCall::InContainer(of) => {
                let ContainerVolumes { uid, container, volumes, env, recursive_read_only } = *of;
                let (uid, path) = (uid.to_string(), outside(&volumes));
                let spec = volumes_job("mount volumes in a container", path.as_deref(), deadline);
                let work = move || {
                    let of = ForContainer { container: &container, env: &env, recursive_read_only };
                    answered(volumes::container_mounts(&layout, &uid, &volumes, of))
                };
                jobs.run_op(op, spec, work, Answer::Mounts);
            }
            VolumesCall::Unmount { uid } => {
                let uid = uid.to_string();
                let spec = JobSpec::new(Class::Removals, "remove a pod's volumes", deadline);
                jobs.run_op(op, spec, move || answered(volumes::tear_down(&layout, &uid)), |()| Answer::Ok);
            }
        }
    }

    /// E4, E7: has a helper measure the disk usage of pods. Directories with many files take long.
    pub(super) fn measure_pods(&self, op: OpId, pods: Vec<MeasuredPod>, deadline: Boot, jobs: &mut Jobs) {
        let directories: Vec<Directories> = pods.iter().map(|pod| Directories::of(pod, &self.files.layout)).collect();
        let work = move || directories.iter().map(disk_use::measure).collect::<Vec<PodDiskUse>>();
        let spec = JobSpec::new(Class::Measurements, "measure the disk usage of pods", deadline);
        jobs.run(spec, work, move |agent, found, now| {
            let fact =
                |(pod, PodDiskUse { volumes, logs }): (MeasuredPod, _)| PodDiskFact { uid: pod.uid, volumes, logs };
            let facts = |found: Vec<_>| Answer::PodDisks(pods.into_iter().zip(found).map(fact).collect());
            let result = agent.reporting.standing.job_result(found, now.boot).map(facts);
            agent.events.push_back(Event::Done { op, result });
        });
    }

    /// Has a helper remove a pod's cgroup together with processes that the runtime has lost track of. Killing them
    /// takes a moment.
    pub(super) fn remove_by_force(&self, op: OpId, uid: &Uid, jobs: &mut Jobs, now: Now) {
        let (remove, uid) = (self.files.remove_cgroup.clone(), uid.to_string());
        let spec = JobSpec::new(Class::Removals, "remove a pod's cgroup", now.boot + REMOVE_TIMEOUT);
        jobs.run_op(op, spec, move || remove(&uid, true).map_err(OpError::Unknown), |()| Answer::Ok);
    }
}

fn answered<T>(result: Result<T, VolumeError>) -> Result<T, OpError> {
    result.map_err(|e| OpError::Answered { code: Code::Other(2), message: e.to_string() })
}

/// Has a helper create or remove the directory of a claim. A directory with many files takes long to remove.
pub(super) fn use_claim(op: OpId, call: ClaimCall, deadline: Boot, jobs: &mut Jobs) {
    match call {
        ClaimCall::Make { place, create_base } => {
            let path = PathBuf::from(&place.base);
            let spec = volumes_job("create the directory of a claim", Some(&path), deadline);
            let work = move || volumes::make_claim(&place, create_base).map_err(OpError::Unknown);
            jobs.run_op(op, spec, work, Answer::MadeDirectory);
        }
        ClaimCall::Remove { place } => {
            let spec = JobSpec::new(Class::Removals, "remove the directory of a claim", deadline);
            let work = move || volumes::remove_claim(&place).map_err(OpError::Unknown);
            jobs.run_op(op, spec, work, |()| Answer::Ok);
        }
    }
}

/// Returns a job that sets up volumes. A `path` on a file system that hangs delays only the pods that use it.
fn volumes_job<'a>(name: &'static str, path: Option<&'a Path>, deadline: Boot) -> JobSpec<'a> {
    let spec = JobSpec::new(Class::Volumes, name, deadline);
    match path {
        Some(path) => spec.on(path),
        None => spec,
    }
}
