//! What systemd is told of the service: that it is ready, what it is at (`systemctl status wherry`), that it reads its
//! configuration again, and that its loop goes round (the watchdog). Without systemd nothing of this is done.
//!
//! Ready means that the manifests were read and the runtime has answered, or is known to be away: who waits for wherry is not
//! kept by a runtime that is not there. The loop itself feeds the watchdog, so a loop that is stuck is restarted, and a slow
//! runtime is no reason: it is waited for in the same poll as everything else.

use super::{Agent, views};
use crate::adapters::systemd::{self, Said};
use crate::api::time::{Boot, Now};
use std::time::Duration;

/// A runtime that takes the connection and says nothing is not waited for any longer.
const READY_BY: Duration = Duration::from_secs(10);
/// The status is told at most this often.
const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// A message that systemd did not take is sent again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// Who is told, and what was told so far.
pub(super) struct Service {
    /// There is somebody to be told.
    there: bool,
    ready: bool,
    /// The runtime has answered, or was found to be away.
    pub(super) runtime_told: bool,
    /// At the latest.
    ready_by: Boot,
    /// A reload has ended, and systemd has not been told.
    reloaded: bool,
    /// What was wrong with the configuration when it was last read again.
    pub(super) reload_error: Option<String>,
    /// The last one told.
    status: String,
    /// Something happened since it was looked at.
    changed: bool,
    not_before: Boot,
    /// Half the watchdog's period.
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
            status: String::new(),
            changed: true,
            not_before: now,
            pace: systemd::watchdog().map(|period| period / 2),
            alive_at: now,
        }
    }

    /// The status may be another one now.
    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        let ready_by = (!self.ready).then_some(self.ready_by);
        let status = self.changed.then_some(self.not_before);
        let alive = self.pace.map(|_| self.alive_at);
        [ready_by, status, alive].into_iter().flatten().min().filter(|_| self.there)
    }

    /// The configuration is about to be read again. (Before it is ready for the first time, systemd does not want to know.)
    fn begin_reload(&mut self) -> Option<Said<'static>> {
        self.ready.then_some(Said::Reloading)
    }

    /// All was read again: systemd learns it with the next `Said::Ready`.
    pub(super) fn end_reload(&mut self) {
        self.reloaded = self.ready;
    }

    /// What is due: nothing, as a rule.
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
            // There is also what only time changes (the runtime has not been seen for minutes).
            self.changed = true;
        }
        if due.ready || (self.changed && self.not_before <= now) {
            self.changed = false;
            self.not_before = now + STATUS_PAUSE;
            due.look = true;
        }
        due
    }

    /// Is it another status than the last?
    fn news(&mut self, status: &str) -> bool {
        if status == self.status {
            return false;
        }
        status.clone_into(&mut self.status);
        true
    }

    /// It was not told: all of it is due again, in a moment.
    fn failed(&mut self, due: &Due, now: Boot) {
        if due.ready {
            // (This ends a reload as well.)
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
    /// The status is to be looked at.
    look: bool,
    /// It is to be told.
    status: Option<String>,
}

impl Due {
    fn said(&self) -> Vec<Said<'_>> {
        let ready = self.ready.then_some(Said::Ready);
        let alive = self.alive.then_some(Said::Alive);
        [ready, self.status.as_deref().map(Said::Status), alive].into_iter().flatten().collect()
    }
}

/// What a status is made of.
#[derive(Debug, Default)]
struct Activity {
    shutting_down: bool,
    /// What the node waits for, a sentence each.
    waiting: Vec<String>,
    /// Pods that are wanted, those that run, and what those that do not are waiting for.
    wanted: usize,
    running: usize,
    unready: Vec<String>,
    /// Pods that the node did not take.
    rejected: usize,
    manifest_errors: usize,
    reload_error: Option<String>,
}

impl Activity {
    /// `4 of 5 pods running; pod default/web: main: ImagePullBackOff; 2 errors in manifests`
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
            parts.push(format!("the configuration of before is in force, the one on disk has errors: {error}"));
        }
        parts.join("; ")
    }
}

impl Agent {
    /// Once a turn, when all is settled.
    pub(super) fn tell_service(&mut self, now: Now) {
        let engine = &self.engine;
        let read = || engine.checks(now.boot).iter().any(|c| c.name == "manifests" && c.result.is_ok());
        let mut due = self.service.due(read, now.boot);
        if due.look {
            let line = self.doing(now).line();
            let news = self.service.news(&line);
            // Who waits for it to be ready sees at once how.
            due.status = (news || due.ready).then_some(line);
        }
        let said = due.said();
        if !said.is_empty()
            && let Err(e) = systemd::tell(&said)
        {
            self.service.failed(&due, now.boot);
            self.systemd_failed(&e, now);
        }
    }

    pub(super) fn tell_reload(&mut self, now: Now) {
        if let Some(said) = self.service.begin_reload()
            && let Err(e) = systemd::tell(&[said])
        {
            self.systemd_failed(&e, now);
        }
    }

    pub(super) fn tell_stopping(&mut self, now: Now) {
        if let Err(e) = systemd::tell(&[Said::Stopping, Said::Status("stopping; pods go on running")]) {
            self.systemd_failed(&e, now);
        }
    }

    fn systemd_failed(&mut self, why: &str, now: Now) {
        if let Some(repeated) = self.standing.tell(&format!("systemd: {why}"), now.boot) {
            log::warn!("systemd is not told how the service does error={why:?} repeated={repeated}");
        }
    }

    fn doing(&self, now: Now) -> Activity {
        let summary = self.engine.summary(now.boot);
        let pods = self.engine.pods();
        let phase = |name: &str| pods.iter().filter(|p| p.status.phase.as_deref() == Some(name)).count();
        let running = pods.iter().filter(|p| views::is_running(p.status)).count();
        let failing = self.engine.checks(now.boot).into_iter().filter_map(|c| c.result.err());
        let in_files: usize = self.manifests.problems().map(|p| p.problems.len()).sum();
        Activity {
            shutting_down: self.engine.shutting_down(),
            // One is enough: without a runtime there is no relist either.
            waiting: failing.take(1).collect(),
            wanted: pods.len() - phase("Succeeded") - phase("Failed"),
            running,
            unready: views::unready(&pods, |uid| self.recorder.warning(uid)),
            rejected: summary.rejected,
            manifest_errors: in_files + summary.conflicts.len(),
            reload_error: self.service.reload_error.clone(),
        }
    }
}

/// The agent does not start, and this is why: systemctl status shows it.
pub fn tell_failure(why: &str) {
    // (The log says it too.)
    let _ = systemd::tell(&[Said::Status(&format!("cannot start: {why}"))]);
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
    fn it_is_ready_once_manifests_were_read_and_the_runtime_answered_or_is_known_to_be_away() {
        let mut s = service();
        assert!(!due(&mut s, true, 0).ready);
        s.runtime_told = true;
        assert!(!due(&mut s, false, 0).ready);
        assert!(due(&mut s, true, 0).ready);
        assert!(!due(&mut s, true, 1).ready, "once");
        // A runtime that says nothing is not waited for for ever.
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
        // What systemd did not take is said again.
        let missed = Due { alive: true, ready: true, look: true, status: Some("x".into()) };
        s.failed(&missed, at(95));
        assert_eq!(s.next_deadline(), Some(at(96)));
        let again = due(&mut s, true, 96);
        assert!(again.alive && again.ready && again.look);
        // Where nobody wants to hear, nothing wakes the loop for it.
        let mut s = Service { pace: None, ..service() };
        s.runtime_told = true;
        assert!(due(&mut s, true, 0).ready);
        assert_eq!(s.next_deadline(), None);
    }

    #[test]
    fn without_systemd_there_is_nothing_to_do() {
        let mut s = Service { there: false, ..service() };
        s.runtime_told = true;
        assert_eq!((due(&mut s, true, 100), s.next_deadline(), s.begin_reload()), (Due::default(), None, None));
    }

    #[test]
    fn a_status_is_looked_at_when_something_happened_and_told_when_it_is_another() {
        let mut s = Service { pace: None, ..service() };
        s.runtime_told = true;
        assert!(due(&mut s, true, 0).look);
        assert!(s.news("a"));
        assert!(!due(&mut s, true, 5).look, "nothing happened");
        s.changed();
        assert!(due(&mut s, true, 5).look);
        assert!(!s.news("a"));
        s.changed();
        assert!(!due(&mut s, true, 5).look, "not twice in a second");
        assert_eq!(s.next_deadline(), Some(at(6)));
        assert!(due(&mut s, true, 6).look);
    }

    #[test]
    fn a_reload_begins_and_ends() {
        let mut s = service();
        assert_eq!(s.begin_reload(), None, "systemd waits for the first READY");
        s.runtime_told = true;
        assert!(due(&mut s, true, 0).ready);
        assert_eq!(s.begin_reload(), Some(Said::Reloading));
        assert!(!due(&mut s, true, 0).ready, "not before all was read");
        s.end_reload();
        assert!(due(&mut s, true, 0).ready);
        assert!(!due(&mut s, true, 0).ready);
    }

    #[test]
    fn a_status_says_what_runs_and_what_is_waited_for() {
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
             the configuration of before is in force, the one on disk has errors: e"
        );
    }
}
