//! Has helpers read the manifests and write their records, because a read may block for as long as the file system
//! hangs.

use super::jobs::{JobSpec, Jobs};
use super::record_queue::RECORD_TIMEOUT;
use crate::adapters::manifests::{Manifests, NotSeen};
use crate::api::manifest_report::RecordUpdate;
use crate::api::time::Now;
use crate::engine::event::{Answer, Event};
use crate::engine::op::{OpError, OpId};
use crate::event_loop::{Class, JobError};
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
