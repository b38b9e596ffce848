//! Carries out changes to manifests on a helper thread (`kubectl_api::change_queue` determines their order).

use super::Kube;
use crate::adapters::manifests::edit::{self, Abandoned, Edit};
use crate::adapters::server::api;
use crate::agent::jobs::{JobSpec, Jobs};
use crate::api::kube::edit::{EditOutcome, Edited};
use crate::api::kube::path::ObjectPath;
use crate::api::kube::status::Failure;
use crate::api::time::Now;
use crate::engine::control::RequestId;
use crate::engine::node::Engine;
use crate::event_loop::Class;
use crate::kubectl_api::{FileChange, RequestedChange};
use crate::net::server::exchange::Ticket;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for changing a file.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

impl Kube {
    /// Queues a change that a client has requested, and starts it if no other change is in progress.
    ///
    /// # Errors
    /// Too many changes are pending.
    pub(in crate::agent) fn queue_change(
        &mut self,
        ticket: Ticket,
        change: RequestedChange,
        manifests: &Path,
        engine: &Engine,
        jobs: &mut Jobs,
        now: Now,
    ) -> Result<(), Failure> {
        self.api.queue_change(RequestId(ticket.0), change)?;
        self.begin_change(manifests, engine, jobs, now);
        Ok(())
    }

    /// Abandons the change of a client that has disconnected.
    pub(in crate::agent) fn gone(&mut self, ticket: Ticket) {
        if self.api.gone(RequestId(ticket.0)) {
            self.abandoned.abandon();
        }
    }

    /// Has a helper carry out the next change, unless one is already being carried out.
    fn begin_change(&mut self, manifests: &Path, engine: &Engine, jobs: &mut Jobs, now: Now) {
        let Some((_, FileChange { file, manifest, dry_run })) = self.api.next_change(engine) else { return };
        let object = manifest.object.clone();
        let edit = Edit { directory: manifests.to_owned(), file: file.map(PathBuf::from), manifest, dry_run };
        let abandoned = Abandoned::default();
        self.abandoned = abandoned.clone();
        let spec = JobSpec::new(Class::Records, "write a manifest", now.boot + WRITE_TIMEOUT);
        jobs.run(
            spec,
            move || edit.run(&abandoned),
            move |agent, edited, now| {
                let edited = edited.unwrap_or_else(|e| {
                    let why = agent.reporting.standing.job_failed(&e, now.boot);
                    Err(Failure::internal(format!("failed to write the manifest: {why}")))
                });
                if let Ok(edited) = &edited {
                    log_change(&object, edited, dry_run);
                }
                let Some(kube) = agent.serving.kube.get() else { return };
                let refused = kube.api.change_done(edited, now.boot);
                kube.begin_change(agent.manifests.directory(), &agent.engine, &mut agent.jobs, now);
                if let Some((RequestId(id), failure)) = refused {
                    agent.respond(Ticket(id), api::failure(&failure), now);
                }
                agent.drive_server_again();
            },
        );
    }
}

fn log_change(object: &ObjectPath, edited: &Edited, dry_run: bool) {
    log::info!(
        "kubectl {} {} {}/{} file={:?} dry_run={dry_run}",
        match edited.outcome {
            EditOutcome::Created => "created",
            EditOutcome::Changed => "changed",
            EditOutcome::Unchanged => "did not change",
            EditOutcome::Removed => "removed",
        },
        object.resource.singular,
        object.namespace.as_deref().unwrap_or_default(),
        object.name.as_deref().unwrap_or_default(),
        edited.file,
    );
}

/// Reverts a change that the engine has refused.
pub(in crate::agent) fn take_back(manifests: &Path, edited: Edited, jobs: &mut Jobs, now: Now) {
    let directory = manifests.to_owned();
    let spec = JobSpec::new(Class::Records, "revert a manifest", now.boot + WRITE_TIMEOUT);
    jobs.run(
        spec,
        move || edit::take_back(&directory, &edited),
        |agent, taken, now| {
            let log = &mut agent.reporting.standing;
            if let Err(why) = taken.unwrap_or_else(|e| Err(log.job_failed(&e, now.boot))) {
                log::error!("failed to revert a change to a manifest error={why:?}");
            }
        },
    );
}
