//! Decides when a CronJob creates a Job, and which Jobs it removes, with the events of the CronJob controller.

use super::created::{CreatedEnd, CreatedJob};
use super::{CronAction, CronRun};
use crate::api::ordered::OrderSlice;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now, Wall};
use crate::api::workload::cron_job::Concurrency;
use crate::api::workload::key::WorkloadKey;
use crate::api::workload::schedule::Schedule;
use crate::engine::effect::Severity;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::BTreeSet;
use std::time::Duration;

/// *(ours)* The clock is read again after this time at the latest, so that a clock that was set is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// *(ours)* If the last time that counts is later than now by more than this, the clock was wrong then.
const CLOCK_ERROR: Duration = Duration::from_secs(600);
/// With more missed times, an event says so.
const MANY: usize = 100;
/// *(ours)* The maximum number of Jobs of a CronJob that are active at once.
const MAX_ACTIVE: usize = 100;

/// A time of the schedule that has come.
struct DueTime {
    at: Timestamp,
    zone: TimeZone,
}

impl CronRun {
    /// Compares the schedule with the clock, and with the Jobs that it has created.
    pub fn plan(&mut self, jobs: &[CreatedJob], now: Now, outbox: &mut Outbox) -> Vec<CronAction> {
        self.note_ends(jobs, outbox);
        let mut actions = self.remove_old(jobs, outbox);
        self.state.due = None;
        if let Some(due) = self.due_time(now, outbox) {
            self.start(&due, jobs, now, &mut actions, outbox);
        }
        actions
    }

    /// Reports the Jobs that have ended, and those that a user has removed.
    fn note_ends(&mut self, jobs: &[CreatedJob], outbox: &mut Outbox) {
        let active: BTreeSet<WorkloadKey> =
            jobs.iter().filter(|job| job.end.is_none()).map(|job| job.key.clone()).collect();
        let before = std::mem::replace(&mut self.active, active);
        for gone in before.difference(&self.active) {
            let name = &gone.name.name;
            match jobs.iter().find(|job| job.key == *gone).and_then(|job| job.end) {
                Some(CreatedEnd { is_success, .. }) => {
                    let condition = if is_success { "Complete" } else { "Failed" };
                    let message = format!("Saw completed job: {name}, condition: {condition}");
                    self.emit(Severity::Normal, Reason::SawCompletedJob, message, outbox);
                }
                None => {
                    let message = format!("Active job went missing: {name}");
                    self.emit(Severity::Normal, Reason::MissingJob, message, outbox);
                }
            }
        }
        if before != self.active {
            self.state.shown_changed();
        }
        let succeeded = jobs.iter().filter_map(|job| job.end).filter(|end| end.is_success);
        let last_success = succeeded.map(|end| end.at).max().max(self.last_success);
        if last_success != self.last_success {
            self.last_success = last_success;
            self.state.record_changed();
            self.state.shown_changed();
        }
    }

    /// Removes the oldest Jobs above the limits of the history, and those whose time after the end has passed.
    fn remove_old(&self, jobs: &[CreatedJob], outbox: &mut Outbox) -> Vec<CronAction> {
        let mut removed = Vec::new();
        for success in [true, false] {
            let of_end = |job: &&CreatedJob| job.end.is_some_and(|end| end.is_success == success);
            let mut ended: Vec<&CreatedJob> = jobs.iter().filter(of_end).collect();
            ended.order_by_key(|job| (job.created, job.key.clone()));
            let surplus = ended.len().saturating_sub(self.cron.history_limit(success));
            for (i, job) in ended.into_iter().enumerate() {
                if i < surplus || job.is_expired {
                    removed.push(self.remove(&job.key, outbox));
                }
            }
        }
        removed
    }

    fn remove(&self, job: &WorkloadKey, outbox: &mut Outbox) -> CronAction {
        let message = format!("Deleted job {}", job.name.name);
        self.emit(Severity::Normal, Reason::SuccessfulDelete, message, outbox);
        CronAction::Remove(job.clone())
    }

    /// Returns the last time that has come since the last Job, and sets when the next one comes.
    fn due_time(&mut self, now: Now, outbox: &mut Outbox) -> Option<DueTime> {
        if self.cron.is_suspended() {
            return None;
        }
        let cron = self.cron.clone();
        let name = cron.time_zone();
        let owner = Owner::TimeZone { of: cron.head.key.clone(), name: name.map(str::to_owned) };
        let zone = self.zone.get(&owner, name, now.boot, outbox);
        self.state.due = self.zone.retry();
        let (zone, schedule, wall) = (zone?, cron.schedule.as_ref()?, now.wall.timestamp()?);
        self.state.due = Some(next_look(schedule, wall, &zone, now.boot));
        self.follow_clock(now);
        let at = schedule.last(self.since.timestamp()?, wall, &zone)?;
        if let Some(limit) = cron.starting_deadline()
            && now.wall.since(Wall::from(at)) > limit
        {
            let shown = at.to_zoned(zone).strftime("%a, %d %b %Y %H:%M:%S %z").to_string();
            let message = format!("Missed scheduled time to start a job: {shown}");
            self.report(at, Severity::Warning, Reason::MissSchedule, message, outbox);
            return None;
        }
        Some(DueTime { at, zone })
    }

    /// *(ours)* Begins anew if the clock was set back. In a cluster, nothing would be due until it has caught up.
    fn follow_clock(&mut self, now: Now) {
        if self.since.since(now.wall) > CLOCK_ERROR {
            self.since = now.wall;
            self.state.record_changed();
        }
    }

    /// Asks for the Job of a time, unless an earlier one that is active forbids it.
    fn start(
        &mut self,
        due: &DueTime,
        jobs: &[CreatedJob],
        now: Now,
        actions: &mut Vec<CronAction>,
        outbox: &mut Outbox,
    ) {
        let at = due.at;
        let key = self.cron.job_key(at);
        // After a restart, the record of the Job may be newer than that of the CronJob.
        if jobs.iter().any(|known| known.key == key) {
            return self.started(at);
        }
        match self.cron.concurrency() {
            Concurrency::Forbid if !self.active.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                return self.report(at, Severity::Normal, Reason::JobAlreadyActive, message.to_owned(), outbox);
            }
            Concurrency::Allow if self.active.len() >= MAX_ACTIVE => {
                let message = format!("Not starting job because {MAX_ACTIVE} Jobs are active, which is the maximum");
                return self.report(at, Severity::Warning, Reason::JobAlreadyActive, message, outbox);
            }
            Concurrency::Replace => {
                for key in std::mem::take(&mut self.active) {
                    actions.push(self.remove(&key, outbox));
                }
            }
            Concurrency::Allow | Concurrency::Forbid => {}
        }
        self.report_many(due, now, outbox);
        self.started(at);
        actions.push(CronAction::Create(Box::new(self.cron.job(at, &due.zone))));
    }

    fn started(&mut self, at: Timestamp) {
        self.last = Some(Wall::from(at));
        self.since = Wall::from(at);
        self.state.record_changed();
        self.state.shown_changed();
    }

    /// Reports once why there is no Job for a time.
    fn report(&mut self, at: Timestamp, severity: Severity, reason: Reason, message: String, outbox: &mut Outbox) {
        if self.reported.replace(Wall::from(at)) != Some(Wall::from(at)) {
            self.emit(severity, reason, message, outbox);
        }
    }

    /// Reports that many times have passed without a Job. Only one is made up for.
    fn report_many(&self, due: &DueTime, now: Now, outbox: &mut Outbox) {
        let Some(schedule) = &self.cron.schedule else { return };
        let deadline = self.cron.starting_deadline().map(|limit| now.wall.minus(limit));
        let Some(since) = self.since.max(deadline.unwrap_or_default()).timestamp() else { return };
        let mut missed = 0;
        let mut at = schedule.next(since, &due.zone);
        while let Some(next) = at.filter(|next| *next <= due.at && missed <= MANY) {
            missed += 1;
            at = schedule.next(next, &due.zone);
        }
        if missed > MANY {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.emit(Severity::Warning, Reason::TooManyMissedTimes, message.to_owned(), outbox);
        }
    }
}

/// Returns when the schedule is compared with the clock again.
fn next_look(schedule: &Schedule, now: Timestamp, zone: &TimeZone, boot: Boot) -> Boot {
    let next = schedule.next(now, zone);
    let wait = next.map_or(LONGEST_WAIT, |next| Wall::from(next).since(Wall::from(now)));
    boot + wait.min(LONGEST_WAIT)
}
