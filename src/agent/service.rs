//! Notifications to systemd: readiness, the status (`systemctl status wherry`), reloads, and the watchdog. Without
//! systemd, all of this does nothing.
//!
//! Wherry is ready when the manifests have been read and the runtime has responded or is known to be unavailable, so
//! a missing runtime does not delay units that start after Wherry. The event loop itself feeds the watchdog, so
//! systemd restarts a stuck agent. A slow runtime does not block the loop: its responses arrive in the same poll as
//! everything else.

use super::event_recorder::EventRecorder;
use super::logging::LogDeduplicator;
use super::views;
use crate::adapters::systemd::{self, Notification};
use crate::api::time::{Boot, Now};
use crate::engine::node::Engine;
use crate::event_loop::JobId;
use std::time::Duration;

/// A runtime that accepts the connection but does not respond delays readiness at most this long.
const READY_BY: Duration = Duration::from_secs(10);
/// Minimum time between two status notifications.
const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// A notification that systemd did not accept is sent again after this time.
const AGAIN: Duration = Duration::from_secs(1);

/// The state of the notifications.
pub(super) struct Service {
    /// Whether the service manager expects notifications.
    there: bool,
    ready: bool,
    /// Whether the runtime has responded or is known to be unavailable.
    pub(super) runtime_told: bool,
    /// The deadline for readiness.
    ready_by: Boot,
    /// Whether a reload has ended and systemd has not been notified of it yet.
    reloaded: bool,
    /// The first error of the configuration at the last reload.
    pub(super) reload_error: Option<String>,
    /// The most recent job that reads the configuration.
    pub(super) reload: Option<JobId>,
    /// The last status sent.
    status: String,
    /// Whether anything has happened since the status was last computed.
    changed: bool,
    not_before: Boot,
    /// Half the watchdog period.
    pace: Option<Duration>,
    alive_at: Boot,
}

impl Service {
    pub(super) fn new(now: Boot) -> Service {
        Service {
            there: systemd::is_there(),
            ready: false,
            runtime_told: false,
            ready_by: now + READY_BY,
            reloaded: false,
            reload_error: None,
            reload: None,
            status: String::new(),
            changed: true,
            not_before: now,
            pace: systemd::watchdog().map(|period| period / 2),
            alive_at: now,
        }
    }

    /// Notes that the status may have changed.
    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        let ready_by = (!self.ready).then_some(self.ready_by);
        let status = self.changed.then_some(self.not_before);
        let alive = self.pace.map(|_| self.alive_at);
        [ready_by, status, alive].into_iter().flatten().min().filter(|_| self.there)
    }

    /// Returns the notification that a reload starts. Before the first `Notification::Ready`, systemd does not expect
    /// one.
    fn begin_reload(&self) -> Option<Notification<'static>> {
        self.ready.then_some(Notification::Reloading)
    }

    /// Notes that a reload has ended: the next `Notification::Ready` reports it.
    pub(super) fn end_reload(&mut self) {
        self.reloaded = self.ready;
    }

    /// Sends the notifications that are due. Called once per turn of the loop, after the engine has settled.
    pub(super) fn notify(&mut self, engine: &Engine, recorder: &EventRecorder, log: &mut LogDeduplicator, now: Now) {
        let read = || engine.checks(now.boot).iter().any(|c| c.name == "manifests" && c.result.is_ok());
        let mut due = self.due(read, now.boot);
        if due.check {
            let line = Activity::of(engine, recorder, self.reload_error.clone(), now).line();
            let news = self.news(&line);
            // The first `Notification::Ready` comes with the current status.
            due.status = (news || due.ready).then_some(line);
        }
        let sent = due.notifications();
        if !sent.is_empty()
            && let Err(e) = systemd::notify(&sent)
        {
            self.failed(&due, now.boot);
            log_failure(log, &e, now.boot);
        }
    }

    /// Notifies systemd that a reload starts.
    pub(super) fn notify_reload(&self, log: &mut LogDeduplicator, now: Boot) {
        if let Some(notification) = self.begin_reload()
            && let Err(e) = systemd::notify(&[notification])
        {
            log_failure(log, &e, now);
        }
    }

    /// Returns the notifications that are due: usually none.
    fn due(&mut self, manifests_read: impl FnOnce() -> bool, now: Boot) -> Due {
        let mut due = Due::default();
        if !self.there {
            return due;
        }
        if !self.ready && (self.ready_by <= now || self.runtime_told && manifests_read()) {
            self.ready = true;
            due.ready = true;
        }
        due.ready |= std::mem::take(&mut self.reloaded);
        if let Some(pace) = self.pace
            && self.alive_at <= now
        {
            due.alive = true;
            self.alive_at = now + pace;
            // Some parts of the status, such as the age of the last relist, depend on time alone.
            self.changed = true;
        }
        if due.ready || (self.changed && self.not_before <= now) {
            self.changed = false;
            self.not_before = now + STATUS_PAUSE;
            due.check = true;
        }
        due
    }

    /// Stores the status, and reports whether it differs from the last one.
    fn news(&mut self, status: &str) -> bool {
        if status == self.status {
            return false;
        }
        status.clone_into(&mut self.status);
        true
    }

    /// Makes the notifications due again after `AGAIN`, because they could not be sent.
    fn failed(&mut self, due: &Due, now: Boot) {
        if due.ready {
            // A repeated `Notification::Ready` also ends a reload.
            self.ready = false;
            self.runtime_told = false;
            self.ready_by = now + AGAIN;
        }
        if due.status.is_some() {
            self.status.clear();
            self.changed = true;
            self.not_before = now + AGAIN;
        }
        if due.alive {
            self.alive_at = now + AGAIN;
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Due {
    ready: bool,
    alive: bool,
    /// Whether the status must be computed.
    check: bool,
    /// The status to be sent.
    status: Option<String>,
}

impl Due {
    fn notifications(&self) -> Vec<Notification<'_>> {
        let ready = self.ready.then_some(Notification::Ready);
        let alive = self.alive.then_some(Notification::Alive);
        [ready, self.status.as_deref().map(Notification::Status), alive].into_iter().flatten().collect()
    }
}

/// The content of a status.
#[derive(Debug, Default)]
struct Activity {
    shutting_down: bool,
    /// Reasons why the node is not ready, one sentence each.
    waiting: Vec<String>,
    /// The number of pods that should run, the number that do run, and why the others do not.
    wanted: usize,
    running: usize,
    unready: Vec<String>,
    /// Pods that admission rejected.
    rejected: usize,
    manifest_errors: usize,
    reload_error: Option<String>,
}

impl Activity {
    fn of(engine: &Engine, recorder: &EventRecorder, reload_error: Option<String>, now: Now) -> Activity {
        let summary = engine.summary(now.boot);
        let pods = engine.pods();
        let phase = |name: &str| pods.iter().filter(|p| p.status.phase.as_deref() == Some(name)).count();
        let running = pods.iter().filter(|p| views::is_running(p.status)).count();
        let failing = engine.checks(now.boot).into_iter().filter_map(|c| c.result.err());
        let in_files: usize = engine.manifest_problems().map(|p| p.problems.len()).sum();
        Activity {
            shutting_down: engine.shutting_down(),
            // The first reason is enough: without a runtime there is no relist either.
            waiting: failing.take(1).collect(),
            wanted: pods.len() - phase("Succeeded") - phase("Failed"),
            running,
            unready: views::unready(&pods, |uid| recorder.warning(uid)),
            rejected: summary.rejected,
            manifest_errors: in_files + engine.conflicts().len(),
            reload_error,
        }
    }

    /// Formats the status, such as `4 of 5 pods running; pod default/web: main: ImagePullBackOff; 2 errors in
    /// manifests`.
    fn line(&self) -> String {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let mut parts = Vec::new();
        if self.shutting_down {
            parts.push("the machine is shutting down".to_owned());
        }
        parts.extend(self.waiting.iter().cloned());
        parts.push(match (self.wanted, self.running) {
            (0, 0) => "no pods".to_owned(),
            (wanted, running) if wanted <= running => format!("{running} pod{} running", plural(running)),
            (wanted, running) => format!("{running} of {wanted} pods running"),
        });
        if let Some((first, more)) = self.unready.split_first() {
            let more = if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
            parts.push(format!("{first}{more}"));
        }
        if self.rejected > 0 {
            parts.push(format!("{} rejected", self.rejected));
        }
        if self.manifest_errors > 0 {
            parts.push(format!("{} error{} in manifests", self.manifest_errors, plural(self.manifest_errors)));
        }
        if let Some(error) = &self.reload_error {
            parts.push(format!("invalid configuration; keeping the previous one: {error}"));
        }
        parts.join("; ")
    }
}

pub(super) fn notify_stopping(log: &mut LogDeduplicator, now: Boot) {
    if let Err(e) = systemd::notify(&[Notification::Stopping, Notification::Status("stopping; pods keep running")]) {
        log_failure(log, &e, now);
    }
}

fn log_failure(log: &mut LogDeduplicator, why: &str, now: Boot) {
    if let Some(repeated) = log.repetitions(&format!("systemd: {why}"), now) {
        log::warn!("failed to notify systemd error={why:?} repeated={repeated}");
    }
}

/// Makes `systemctl status` show why the agent does not start.
pub fn notify_failure(why: &str) {
    // The log also contains the reason, so an error here is ignored.
    let _ = systemd::notify(&[Notification::Status(&format!("cannot start: {why}"))]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Boot {
        Boot(0) + Duration::from_secs(seconds)
    }

    fn service() -> Service {
        Service { there: true, pace: Some(Duration::from_secs(30)), ..Service::new(at(0)) }
    }

    fn due(service: &mut Service, read: bool, seconds: u64) -> Due {
        service.due(|| read, at(seconds))
    }

    #[test]
    fn the_service_is_ready_after_the_manifests_and_the_first_result_of_the_runtime() {
        let mut s = service();
        assert!(!due(&mut s, true, 0).ready);
        s.runtime_told = true;
        assert!(!due(&mut s, false, 0).ready);
        assert!(due(&mut s, true, 0).ready);
        assert!(!due(&mut s, true, 1).ready, "once");
        // A runtime that does not respond delays readiness only for a limited time.
        let mut s = service();
        assert!(s.next_deadline().is_some_and(|d| d <= at(10)));
        assert!(!due(&mut s, true, 9).ready);
        assert!(due(&mut s, true, 10).ready);
    }

    #[test]
    fn the_watchdog_hears_of_the_loop_at_half_its_period() {
        let mut s = service();
        s.runtime_told = true;
        let heard: Vec<u64> = (0..=95).filter(|t| due(&mut s, true, *t).alive).collect();
        assert_eq!(heard, [0, 30, 60, 90]);
        assert_eq!(s.next_deadline(), Some(at(120)));
        // A notification that systemd did not accept is sent again.
        let missed = Due { alive: true, ready: true, check: true, status: Some("x".into()) };
        s.failed(&missed, at(95));
        assert_eq!(s.next_deadline(), Some(at(96)));
        let again = due(&mut s, true, 96);
        assert!(again.alive && again.ready && again.check);
        // Without a watchdog, nothing wakes the loop for it.
        let mut s = Service { pace: None, ..service() };
        s.runtime_told = true;
        assert!(due(&mut s, true, 0).ready);
        assert_eq!(s.next_deadline(), None);
    }

    #[test]
    fn without_systemd_no_notification_is_due() {
        let mut s = Service { there: false, ..service() };
        s.runtime_told = true;
        assert_eq!((due(&mut s, true, 100), s.next_deadline(), s.begin_reload()), (Due::default(), None, None));
    }

    #[test]
    fn a_status_is_computed_after_a_change_and_sent_only_if_it_differs() {
        let mut s = Service { pace: None, ..service() };
        s.runtime_told = true;
        assert!(due(&mut s, true, 0).check);
        assert!(s.news("a"));
        assert!(!due(&mut s, true, 5).check, "nothing happened");
        s.changed();
        assert!(due(&mut s, true, 5).check);
        assert!(!s.news("a"));
        s.changed();
        assert!(!due(&mut s, true, 5).check, "not twice in a second");
        assert_eq!(s.next_deadline(), Some(at(6)));
        assert!(due(&mut s, true, 6).check);
    }

    #[test]
    fn a_reload_begins_and_ends() {
        let mut s = service();
        assert_eq!(s.begin_reload(), None, "systemd waits for the first READY");
        s.runtime_told = true;
        assert!(due(&mut s, true, 0).ready);
        assert_eq!(s.begin_reload(), Some(Notification::Reloading));
        assert!(!due(&mut s, true, 0).ready, "not before all was read");
        s.end_reload();
        assert!(due(&mut s, true, 0).ready);
        assert!(!due(&mut s, true, 0).ready);
    }

    #[test]
    fn a_status_has_the_running_pods_and_the_waiting_reasons() {
        let line = |doing: Activity| doing.line();
        assert_eq!(line(Activity::default()), "no pods");
        assert_eq!(line(Activity { wanted: 1, running: 1, ..Activity::default() }), "1 pod running");
        let waiting = Activity {
            waiting: vec!["no connection to the container runtime: x".into()],
            manifest_errors: 1,
            ..Activity::default()
        };
        assert_eq!(line(waiting), "no connection to the container runtime: x; no pods; 1 error in manifests");
        let some = Activity {
            shutting_down: true,
            wanted: 5,
            running: 3,
            unready: vec!["pod a/b: main: ErrImagePull".into(), "pod a/c".into()],
            rejected: 2,
            reload_error: Some("e".into()),
            ..Activity::default()
        };
        assert_eq!(
            line(some),
            "the machine is shutting down; 3 of 5 pods running; pod a/b: main: ErrImagePull (and 1 more); 2 rejected; \
             invalid configuration; keeping the previous one: e"
        );
    }
}
