//! The controller of a Job: it creates pods until enough of them have succeeded, or too many have failed. Its parts:
//! `counting` counts the results of pods (in a `tally`, after `failure` has judged them), `outcome` decides whether the
//! Job has ended, `pods` creates and deletes pods, and `expiry` removes the manifest after the end.

mod counting;
mod expiry;
pub mod failure;
mod outcome;
pub mod phase;
mod pods;
pub mod shown;
pub mod tally;

use super::controller::{Controller, ControllerState};
use super::cron::created::{CreatedEnd, CreatedJob};
use super::inputs::WorkloadInputs;
use super::progress::RolloutCondition;
use super::record::{self, StoredOwn, StoredWorkload};
use super::revision::{NO_HASH, Replica};
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now, Wall};
use crate::api::workload::head::WorkloadHead;
use crate::api::workload::job::{Completions, Job};
use crate::api::workload::replica;
use crate::engine::effect::{Severity, Subject};
use crate::engine::outbox::Outbox;
use phase::{JobPhase, Removal, StoredCreatedJob, StoredJob};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tally::JobTally;

/// *(ours)* If the clock of the machine is set by more than this, the start time follows it.
const CLOCK_JUMP: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
pub struct JobRun {
    #[serde(skip)]
    job: Rc<Job>,
    state: ControllerState,
    tally: JobTally,
    phase: JobPhase,
    /// When the Job became active. None while it is suspended.
    started: Option<JobStart>,
    /// Whether the Job is suspended; None if it never was.
    suspension: Option<RolloutCondition>,
    /// When the last pod failed. Without a limit for each index, the next pod waits for the delay after it.
    last_failure: Option<Boot>,
    /// When the last pod of each index failed.
    last_failures: BTreeMap<u32, Boot>,
    counts: JobCounts,
    removal: Removal,
}

/// When the Job became active, and for how long it has been active. It may have started before the machine did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct JobStart {
    wall: Wall,
    /// How long it had been active at the time `since`.
    before: Duration,
    since: Boot,
}

impl JobStart {
    fn active_for(&self, now: Boot) -> Duration {
        self.before + now.since(self.since)
    }

    /// Returns when it will have been active for this time.
    fn reaches(&self, whole: Duration) -> Boot {
        self.since + whole.saturating_sub(self.before)
    }
}

/// The numbers of pods in the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobCounts {
    pub active: u32,
    pub ready: u32,
    pub terminating: u32,
}

impl Controller for JobRun {
    fn head(&self) -> &WorkloadHead {
        &self.job.head
    }

    fn state(&self) -> &ControllerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ControllerState {
        &mut self.state
    }

    fn revision_of(&self, pod: &Pod) -> Option<String> {
        replica::belongs_to(pod, &self.head().key).then(|| NO_HASH.to_owned())
    }

    /// A pod that was deleted in an earlier run does not count: it may belong to an earlier Job of this name.
    fn adopt(&mut self, hash: &str, pod: &Rc<Pod>, is_deleted: bool, now: Now) {
        if is_deleted {
            self.tally.disregard(&pod.uid);
        }
        self.state.adopt(hash, pod, is_deleted, now);
    }

    /// Pods that have ended are forgotten later, once they are counted (`forget_pods`).
    fn observe(&mut self, inputs: &WorkloadInputs<'_>) -> bool {
        self.state.history.observe(inputs);
        false
    }

    fn step(&mut self, room: &mut usize, inputs: &mut WorkloadInputs<'_>) -> bool {
        if self.is_not_stored() {
            return false;
        }
        self.state.set_only_template(&self.job.head.template, inputs.now.wall);
        self.count_results(inputs);
        self.suspend_or_resume(inputs);
        self.follow_clock(inputs.now);
        if self.phase == JobPhase::Active
            && let Some(end) = self.outcome(inputs)
        {
            self.set_phase(JobPhase::Ending(end));
        }
        let mut changed = match &self.phase {
            JobPhase::Active => self.manage_pods(room, inputs),
            // The pods of a Job that has failed have failed with it.
            JobPhase::Ending(end) | JobPhase::Ended(end, _) => self.end_pods(!end.is_success, inputs),
        };
        self.finish(inputs);
        changed |= self.forget_pods();
        self.count_pods();
        self.expire(inputs.now, inputs.outbox);
        self.state.due = self.next_step(inputs.now);
        changed
    }

    fn record(&self) -> String {
        let started = self.started.map(|started| started.wall.0);
        let created_by = self.job.created_by.as_ref();
        let created_job = created_by
            .map(|by| StoredCreatedJob { cron_job: by.name.name.to_string(), object: json!(self.job.object) });
        let stored = StoredJob { tally: self.tally.stored(), phase: self.phase.clone(), started, created_job };
        record::write(&self.state.stored(self.head()), &StoredOwn::Job(Box::new(stored)))
    }
}

impl JobRun {
    /// Makes the controller of a Job. `stored`: its record.
    pub fn new(job: Rc<Job>, stored: Option<StoredWorkload>, now: Now, outbox: &mut Outbox) -> JobRun {
        let (base, own) = stored.map(|stored| (stored.base, stored.own)).unzip();
        let mut run = JobRun {
            state: ControllerState::new(&job.head, base, now.wall, outbox),
            job,
            tally: JobTally::default(),
            phase: JobPhase::Active,
            started: None,
            suspension: None,
            last_failure: None,
            last_failures: BTreeMap::new(),
            counts: JobCounts::default(),
            removal: Removal::default(),
        };
        if let Some(StoredOwn::Job(stored)) = own {
            run.restore(*stored, now, outbox);
        }
        run
    }

    /// Makes the controller of a new Job of a CronJob. Its first record has the template, which no manifest has.
    pub fn created(job: Rc<Job>, now: Now, outbox: &mut Outbox) -> JobRun {
        let mut run = JobRun::new(job, None, now, outbox);
        run.state.set_only_template(&run.job.head.template, now.wall);
        run
    }

    /// Continues as the record says. *(ours)* Delays after failures start again.
    fn restore(&mut self, stored: StoredJob, now: Now, outbox: &mut Outbox) {
        match JobTally::restore(stored.tally) {
            Ok(tally) => self.tally = tally,
            Err(why) => {
                let message = format!("the results of {} are lost: {why}", self.job.head.key);
                outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
            }
        }
        self.drop_indexes();
        self.phase = stored.phase;
        let started = stored.started.map(Wall);
        self.started = started.map(|wall| JobStart { wall, before: now.wall.since(wall), since: now.boot });
        if self.job.is_suspended() && started.is_none() {
            self.suspension.get_or_insert_default().set("True", "JobSuspended", "Job suspended".to_owned(), now);
        }
        self.last_failure = Some(now.boot);
        self.last_failures = self.tally.indexes_with_failures().map(|index| (index, now.boot)).collect();
    }

    /// Takes a new version of the manifest.
    pub fn change(&mut self, job: Rc<Job>) {
        self.state.change(&self.job.head, &job.head);
        self.job = job;
        self.drop_indexes();
    }

    /// Forgets the results of indexes that the Job no longer has.
    fn drop_indexes(&mut self) {
        if let Completions::Indexed(number) = self.job.completions() {
            self.tally.truncate(number);
        }
    }

    /// Returns true for a Job of a CronJob before its first record is written. If its pods started now, a restart would
    /// forget the Job and create it again.
    fn is_not_stored(&self) -> bool {
        self.job.created_by.is_some() && self.started.is_none() && !self.state.is_recorded()
    }

    /// Returns what the CronJob sees that has created this Job.
    pub fn as_created(&self, now: Now) -> CreatedJob {
        let end = match &self.phase {
            JobPhase::Ended(end, at) => Some(CreatedEnd { is_success: end.is_success, at: *at }),
            JobPhase::Active | JobPhase::Ending(_) => None,
        };
        let is_expired = self.expires(now).is_some_and(|at| at <= now.boot);
        CreatedJob { key: self.head().key.clone(), created: self.state.created, end, is_expired }
    }

    pub fn job(&self) -> &Rc<Job> {
        &self.job
    }

    pub fn tally(&self) -> &JobTally {
        &self.tally
    }

    pub fn phase(&self) -> &JobPhase {
        &self.phase
    }

    pub fn counts(&self) -> &JobCounts {
        &self.counts
    }

    pub fn started(&self) -> Option<Wall> {
        self.started.map(|started| started.wall)
    }

    pub fn suspension(&self) -> Option<&RolloutCondition> {
        self.suspension.as_ref()
    }

    fn subject(&self) -> Subject {
        Subject::workload(&self.head().key)
    }

    fn set_phase(&mut self, phase: JobPhase) {
        self.phase = phase;
        self.changed();
    }

    fn changed(&mut self) {
        self.state.record_changed();
        self.state.shown_changed();
    }

    /// Reports a change of `spec.suspend`. A resumed Job starts its deadline again.
    fn suspend_or_resume(&mut self, inputs: &mut WorkloadInputs<'_>) {
        if self.phase != JobPhase::Active {
            return;
        }
        let was_suspended = self.suspension.as_ref().is_some_and(RolloutCondition::is_true);
        let (status, condition, message, reason) = match (self.job.is_suspended(), was_suspended) {
            (true, false) => ("True", "JobSuspended", "Job suspended", Reason::Suspended),
            (false, true) => ("False", "JobResumed", "Job resumed", Reason::Resumed),
            (true, true) => return,
            (false, false) => return self.start(inputs.now),
        };
        self.suspension.get_or_insert_default().set(status, condition, message.to_owned(), inputs.now);
        inputs.outbox.emit(self.subject(), Severity::Normal, reason, message.to_owned());
        self.started = None;
        self.changed();
        if !self.job.is_suspended() {
            self.start(inputs.now);
        }
    }

    fn start(&mut self, now: Now) {
        if self.started.is_none() {
            self.started = Some(JobStart { wall: now.wall, before: Duration::ZERO, since: now.boot });
            self.changed();
        }
    }

    /// *(ours)* Moves the start time if the clock was set. A machine without a clock of its own starts in the past, and
    /// a restart of Wherry must not find that the deadline was years ago.
    fn follow_clock(&mut self, now: Now) {
        let Some(started) = self.started.as_mut().filter(|_| self.phase == JobPhase::Active) else { return };
        let (active_for, by_wall) = (started.active_for(now.boot), now.wall.since(started.wall));
        if now.wall < started.wall || active_for.abs_diff(by_wall) > CLOCK_JUMP {
            started.wall = now.wall.minus(active_for);
            self.changed();
        }
    }

    /// Returns when a step is due without an event: at the end of a delay, at the deadline, or after the end.
    fn next_step(&self, now: Now) -> Option<Boot> {
        if self.phase != JobPhase::Active {
            return self.expires(now);
        }
        let delays = self.last_failures.keys().filter_map(|index| self.index_delayed_until(*index));
        let delays = delays.chain(self.delayed_until()).filter(|at| *at > now.boot);
        delays.chain(self.deadline()).min()
    }

    /// Returns the pods that are not deleted.
    fn replicas(&self) -> impl Iterator<Item = (&Uid, &Replica)> {
        self.state.history.revisions.iter().flat_map(|revision| &revision.replicas)
    }
}
