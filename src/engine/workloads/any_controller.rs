//! The controller of an object of any kind.

use super::controller::Controller;
use super::cron::CronRun;
use super::daemon_set::Daemon;
use super::deployment::Rollout;
use super::job::JobRun;
use super::record::StoredWorkload;
use super::replica_set::Replication;
use super::stateful_set::Sequence;
use crate::api::time::Now;
use crate::api::workload::Workload;
use crate::api::workload::key::WorkloadKey;
use crate::engine::outbox::Outbox;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub enum AnyController {
    CronJob(Box<CronRun>),
    Deployment(Box<Rollout>),
    DaemonSet(Box<Daemon>),
    Job(Box<JobRun>),
    ReplicaSet(Box<Replication>),
    StatefulSet(Box<Sequence>),
}

impl AnyController {
    /// Makes the controller of a workload. `stored`: its record.
    pub fn new(workload: &Workload, stored: Option<StoredWorkload>, now: Now, outbox: &mut Outbox) -> AnyController {
        match workload {
            Workload::CronJob(of) => AnyController::CronJob(Box::new(CronRun::new(of.clone(), stored, now, outbox))),
            Workload::Deployment(of) => {
                AnyController::Deployment(Box::new(Rollout::new(of.clone(), stored, now, outbox)))
            }
            Workload::DaemonSet(of) => {
                let base = stored.map(|stored| stored.base);
                AnyController::DaemonSet(Box::new(Daemon::new(of.clone(), base, now, outbox)))
            }
            Workload::Job(of) => AnyController::Job(Box::new(JobRun::new(of.clone(), stored, now, outbox))),
            Workload::ReplicaSet(of) => {
                let base = stored.map(|stored| stored.base);
                AnyController::ReplicaSet(Box::new(Replication::new(of.clone(), base, now, outbox)))
            }
            Workload::StatefulSet(of) => {
                AnyController::StatefulSet(Box::new(Sequence::new(of.clone(), stored, now, outbox)))
            }
        }
    }

    pub fn get(&self) -> &dyn Controller {
        match self {
            AnyController::CronJob(run) => &**run,
            AnyController::Deployment(rollout) => &**rollout,
            AnyController::DaemonSet(daemon) => &**daemon,
            AnyController::Job(run) => &**run,
            AnyController::ReplicaSet(replication) => &**replication,
            AnyController::StatefulSet(sequence) => &**sequence,
        }
    }

    pub fn get_mut(&mut self) -> &mut dyn Controller {
        match self {
            AnyController::CronJob(run) => &mut **run,
            AnyController::Deployment(rollout) => &mut **rollout,
            AnyController::DaemonSet(daemon) => &mut **daemon,
            AnyController::Job(run) => &mut **run,
            AnyController::ReplicaSet(replication) => &mut **replication,
            AnyController::StatefulSet(sequence) => &mut **sequence,
        }
    }

    /// Returns the CronJob that has created this Job.
    pub fn creator(&self) -> Option<&WorkloadKey> {
        if let AnyController::Job(run) = self { run.job().created_by.as_ref() } else { None }
    }

    /// Takes a new version of the manifest. Its kind and name are those of this controller.
    pub fn change(&mut self, workload: &Workload) {
        match (self, workload) {
            (AnyController::Deployment(rollout), Workload::Deployment(of)) => rollout.change(of.clone()),
            (AnyController::DaemonSet(daemon), Workload::DaemonSet(of)) => daemon.change(of.clone()),
            (AnyController::ReplicaSet(replication), Workload::ReplicaSet(of)) => replication.change(of.clone()),
            (AnyController::StatefulSet(sequence), Workload::StatefulSet(of)) => sequence.change(of.clone()),
            (AnyController::Job(run), Workload::Job(of)) => run.change(of.clone()),
            (AnyController::CronJob(run), Workload::CronJob(of)) => run.change(of.clone()),
            (
                AnyController::CronJob(_)
                | AnyController::Deployment(_)
                | AnyController::DaemonSet(_)
                | AnyController::Job(_)
                | AnyController::ReplicaSet(_)
                | AnyController::StatefulSet(_),
                _,
            ) => {}
        }
    }
}
