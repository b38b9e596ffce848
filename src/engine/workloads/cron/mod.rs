//! The controller of a CronJob: at each time of its schedule it asks for a Job, and it removes old ones. Its parts:
//! `planning` decides, `zone` knows the time zone, `created` is what it sees of its Jobs. `Workloads` carries out what
//! it asks for, because a Job is a workload of its own.

pub mod created;
mod planning;
pub mod record;
pub mod shown;
mod zone;

use super::controller::{Controller, ControllerState};
use super::inputs::WorkloadInputs;
use super::record::{StoredOwn, StoredWorkload, write};
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now, Wall};
use crate::api::workload::cron_job::CronJob;
use crate::api::workload::head::WorkloadHead;
use crate::api::workload::job::Job;
use crate::api::workload::key::WorkloadKey;
use crate::engine::effect::{Severity, Subject};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::outbox::Outbox;
use record::StoredCron;
use serde::Serialize;
use std::collections::BTreeSet;
use std::rc::Rc;
use zone::Zone;

#[derive(Debug, Serialize)]
pub struct CronRun {
    #[serde(skip)]
    cron: Rc<CronJob>,
    state: ControllerState,
    zone: Zone,
    /// The times of the schedule after this one count.
    since: Wall,
    /// The time for which the last Job was created.
    last: Option<Wall>,
    /// When the last Job succeeded.
    last_success: Option<Wall>,
    /// The Jobs that have not ended.
    active: BTreeSet<WorkloadKey>,
    /// The time for which an event says that no Job was created.
    reported: Option<Wall>,
}

/// What the controller of a CronJob asks for.
#[derive(Debug)]
pub enum CronAction {
    Create(Box<Job>),
    Remove(WorkloadKey),
}

impl Controller for CronRun {
    fn head(&self) -> &WorkloadHead {
        &self.cron.head
    }

    fn state(&self) -> &ControllerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ControllerState {
        &mut self.state
    }

    /// Its Jobs have pods, it has none.
    fn revision_of(&self, _: &Pod) -> Option<String> {
        None
    }

    /// A CronJob is stepped with its Jobs (`plan`).
    fn step(&mut self, _: &mut usize, _: &mut WorkloadInputs<'_>) -> bool {
        false
    }

    fn record(&self) -> String {
        let number = |at: Option<Wall>| at.map(|at| at.0);
        let (last, last_success) = (number(self.last), number(self.last_success));
        let stored = StoredCron { since: Some(self.since.0), last, last_success };
        write(&self.state.stored(self.head()), &StoredOwn::CronJob(stored))
    }
}

impl CronRun {
    /// Makes the controller of a CronJob. `stored`: its record.
    pub fn new(cron: Rc<CronJob>, stored: Option<StoredWorkload>, now: Now, outbox: &mut Outbox) -> CronRun {
        let (base, own) = stored.map(|stored| (stored.base, stored.own)).unzip();
        let stored = if let Some(StoredOwn::CronJob(stored)) = own { stored } else { StoredCron::default() };
        let state = ControllerState::new(&cron.head, base, now.wall, outbox);
        CronRun {
            since: stored.since.map_or(state.created, Wall),
            state,
            zone: Zone::of(cron.time_zone()),
            cron,
            last: stored.last.map(Wall),
            last_success: stored.last_success.map(Wall),
            active: BTreeSet::new(),
            reported: None,
        }
    }

    /// Takes a new version of the manifest. Jobs that exist stay as they are.
    pub fn change(&mut self, cron: Rc<CronJob>) {
        self.state.change(&self.cron.head, &cron.head);
        if cron.time_zone() != self.cron.time_zone() {
            self.zone = Zone::of(cron.time_zone());
        }
        self.cron = cron;
    }

    /// Takes the file of a time zone. `name`: the zone that was read; the CronJob may have another one by now.
    pub fn time_zone_read(
        &mut self,
        name: Option<&str>,
        result: Result<Answer, OpError>,
        now: Boot,
        outbox: &mut Outbox,
    ) {
        if name != self.cron.time_zone() {
            return;
        }
        if let Some(why) = self.zone.read(name, result, now) {
            let message = format!("invalid timeZone: {:?}: {why}", name.unwrap_or("that of the machine"));
            outbox.emit(self.subject(), Severity::Warning, Reason::UnknownTimeZone, message);
        }
        self.state.due = self.zone.retry();
    }

    fn subject(&self) -> Subject {
        Subject::workload(&self.head().key)
    }

    /// Reports that a Job was created, or why not.
    pub fn report_created(&self, name: &str, failure: Option<&str>, outbox: &mut Outbox) {
        match failure {
            None => self.emit(Severity::Normal, Reason::SuccessfulCreate, format!("Created job {name}"), outbox),
            Some(why) => {
                self.emit(Severity::Warning, Reason::FailedCreate, format!("Error creating job: {why}"), outbox)
            }
        }
    }

    fn emit(&self, severity: Severity, reason: Reason, message: String, outbox: &mut Outbox) {
        outbox.emit(self.subject(), severity, reason, message);
    }
}
