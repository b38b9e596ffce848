//! Has helpers read the manifests and write their records, because a read may block for as long as the file system
//! hangs.

use super::jobs::{JobSpec, Jobs};
use super::record_queue::RECORD_TIMEOUT;
use crate::adapters::manifests::edit::{Abandoned, Edit};
use crate::adapters::manifests::{Manifests, NotSeen};
use crate::api::document::context::NetworkPolicies;
use crate::api::kube::edit::ManifestEdit;
use crate::api::kube::path::ObjectPath;
use crate::api::kube::resources::{Kind, Resource};
use crate::api::manifest_report::RecordUpdate;
use crate::api::time::Now;
use crate::engine::effect::RemovedManifest;
use crate::engine::event::{Answer, Event};
use crate::engine::op::{OpError, OpId};
use crate::event_loop::{Class, JobError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for reading the manifest directory or a file in it. The limit is shorter on file systems that depend on
/// a server.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(8);

/// Stores the last good versions of manifests.
pub(super) fn store(manifests: &mut Manifests, op: OpId, updates: Vec<RecordUpdate>, jobs: &mut Jobs, now: Now) {
    let write = manifests.store(updates);
    let spec = JobSpec::new(Class::Records, "write manifests' records", now.boot + RECORD_TIMEOUT);
    jobs.run_op(op, spec, move || write.run().map_err(OpError::Unknown), |()| Answer::Ok);
}

/// Removes the file of an object's manifest, if the document still has this digest.
pub(super) fn remove(removed: RemovedManifest, op: OpId, directory: &Path, jobs: &mut Jobs, now: Now) {
    let RemovedManifest { of, source, digest } = removed;
    let object = ObjectPath {
        resource: Resource::of(Kind::of_workload(of.kind)),
        namespace: Some(of.name.namespace.to_string()),
        name: Some(of.name.name.to_string()),
        subresource: None,
    };
    let manifest = ManifestEdit {
        object,
        document: Some(source.document),
        digest: Some(digest),
        change: None,
        node_name: String::new(),
        seen: String::new(),
        network_policies: NetworkPolicies::default(),
    };
    let file = Some(PathBuf::from(source.path));
    let edit = Edit { directory: directory.to_owned(), file, manifest, dry_run: false };
    let spec = JobSpec::new(Class::Records, "remove a manifest", now.boot + RECORD_TIMEOUT);
    let of = of.to_string();
    let run = move || match edit.run(&Abandoned::default()) {
        Ok(removed) => {
            log::info!("removed the manifest of {of} file={:?}", removed.file);
            Ok(())
        }
        Err(failure) => Err(OpError::Refused(failure.message)),
    };
    jobs.run_op(op, spec, run, |()| Answer::Ok);
}

/// Writes the record of the directory if it has changed.
pub(super) fn write_directory(manifests: &mut Manifests, jobs: &mut Jobs, now: Now) {
    let Some(write) = manifests.take_write() else { return };
    let spec = JobSpec::new(Class::Records, "write the directory's record", now.boot + RECORD_TIMEOUT);
    jobs.run(
        spec,
        move || write.run(),
        |agent, written, now| {
            let written = written.unwrap_or_else(|e| Err(agent.reporting.standing.job_failed(&e, now.boot)));
            agent.manifests.written(written, now);
        },
    );
}

/// Reads the manifests that may have changed.
pub(super) fn inspect(manifests: &mut Manifests, jobs: &mut Jobs, now: Now) {
    while let Some(inspection) = manifests.take_inspection(now) {
        let ticket = inspection.ticket();
        let spec = JobSpec::new(Class::Manifests, "read manifests", now.boot + INSPECTION_TIMEOUT);
        jobs.run(
            spec,
            move || inspection.run(),
            move |agent, seen, now| {
                // `Manifests` reports these errors in more detail.
                let seen = seen.map_err(|e| match e {
                    JobError::Stuck { .. } => NotSeen::Stuck,
                    e => NotSeen::NotBegun(e.to_string()),
                });
                let report = agent.manifests.inspected(ticket, seen, now);
                agent.events.extend(report.map(Event::Manifests));
            },
        );
    }
}
