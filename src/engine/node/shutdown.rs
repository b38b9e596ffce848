//! Graceful shutdown in the engine: handles logind's signals and answers, kills one group of pods after another (S4),
//! and holds back starts meanwhile (A3, W6). `shutdown_views` provides the data for the API.

use super::Engine;
use crate::api::names::Uid;
use crate::api::priority;
use crate::api::shutdown::Groups;
use crate::engine::context::Owner;
use crate::engine::effect::{Effect, RecordChange, Severity, TimerKey};
use crate::engine::event::{Answer, LogindEvent};
use crate::engine::op::{OpError, OpId};
use crate::engine::pod::kill::{Kill, TerminationSource};
use crate::engine::pod::worker::Worker;
use crate::engine::shutdown::lock::{self, Ask};
use crate::engine::shutdown::record;
use crate::engine::shutdown::{Current, Phase, Progress};
use std::collections::BTreeSet;
use std::time::Duration;

/// The minimum grace period (W4).
pub(super) const LEAST: Duration = Duration::from_secs(1);

/// The interval between two attempts to write the record while the shutdown is in progress.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

impl Engine {
    /// Reads the record of the last shutdown at the start. `text`: None if there is no record.
    pub(super) fn take_shutdown_record(&mut self, text: Option<&str>) {
        let record = text.and_then(|text| match record::read(text) {
            Ok(record) => Some(record),
            Err(why) => {
                let message = format!("record {} is unusable; moving it aside: {why}", record::KEY);
                self.outbox.tell_of_node(Severity::Warning, "BadRecord", message);
                let key = record::KEY.to_owned();
                self.outbox.record(Owner::ShutdownRecord, RecordChange::SetAside { key });
                None
            }
        });
        let before = record.clone();
        if self.shutdown.found(record, &self.config.boot_id, &self.config.shutdown, self.now) {
            self.release(TerminationSource::Shutdown, None);
        } else if self.config.shutdown.is_off() {
            // The feature was turned off during a shutdown, which continues.
            self.outbox.push(Effect::UseLogind(true));
        }
        if self.shutdown.last != before {
            self.keep_shutdown();
        }
        self.arm_shutdown();
    }

    pub(super) fn logind(&mut self, event: LogindEvent) {
        let requests = match event {
            LogindEvent::Inherited => self.shutdown.lock.inherited(),
            LogindEvent::Up => self.shutdown.lock.up(),
            LogindEvent::Down { why } => self.shutdown.lock.down(why),
            LogindEvent::Preparing(true) => return self.shutdown_announced(),
            LogindEvent::Preparing(false) => vec![Ask::Preparing(false)],
        };
        self.carry_out(requests);
    }

    pub(super) fn logind_timer(&mut self) {
        let requests = self.shutdown.lock.timer(self.now.boot);
        self.carry_out(requests);
    }

    pub(super) fn logind_answered(&mut self, op: OpId, result: Result<Answer, OpError>) {
        if self.shutdown.lock.owns(op) {
            let down = self.shutdown.is_on();
            let requests = self.shutdown.lock.answered(result, down, self.now.boot);
            self.carry_out(requests);
        } else if result == Ok(Answer::Locked) {
            let requests = self.shutdown.lock.taken_late();
            self.carry_out(requests);
        }
    }

    pub(super) fn lock_stored(&mut self, op: OpId, result: Result<Answer, OpError>) {
        if let Some(why) = self.shutdown.lock.store.answered(op, result.map(drop), self.now.boot) {
            let message =
                format!("failed to update the inhibitor lock in systemd's descriptor store: {why}; Wherry retries");
            self.outbox.tell_of_node(Severity::Warning, "FailedStore", message);
        }
        self.arm_logind();
    }

    pub(super) fn shutdown_record_kept(&mut self, result: Result<Answer, OpError>) {
        if let Err(e) = result {
            let message = format!("failed to write the record of the node shutdown: {e}");
            self.outbox.tell_of_node(Severity::Warning, "FailedRecord", message);
            if self.shutdown.is_on() {
                self.shutdown.keep_at = Some(self.now.boot + KEEP_AGAIN);
                self.arm_shutdown();
            }
        }
    }

    /// The configuration was reloaded. A shutdown in progress continues with its own settings until logind cancels it
    /// or the node is down. The new settings apply after it.
    pub(super) fn configure_shutdown(&mut self) {
        if !self.shutdown.is_on() {
            let requests = self.shutdown.lock.configure(self.config.shutdown.clone());
            self.carry_out(requests);
            self.use_logind();
        }
    }

    fn use_logind(&mut self) {
        self.outbox.push(Effect::UseLogind(!self.config.shutdown.is_off()));
    }

    fn carry_out(&mut self, requests: Vec<Ask>) {
        for ask in requests {
            match ask {
                Ask::Call(call) => {
                    let op = self.outbox.ops.begin(Owner::Logind);
                    self.shutdown.lock.began(op);
                    self.outbox.push(Effect::Logind { op, call, timeout: lock::TIMEOUT });
                }
                Ask::Release => self.outbox.push(Effect::ReleaseLock),
                Ask::Store => {
                    let op = self.outbox.ops.begin(Owner::LockStore);
                    self.shutdown.lock.store.began(op);
                    self.outbox.push(Effect::StoreLock { op });
                }
                Ask::Unlocked => self.shutdown_unlocked(),
                Ask::DelayRead(delay) => {
                    if self.shutdown.delay_is(delay) {
                        self.keep_shutdown();
                    }
                }
                Ask::Preparing(true) => {
                    self.shutdown_begins();
                }
                Ask::Preparing(false) => self.shutdown_called_off(),
                Ask::Told(Ok(message)) => self.outbox.tell_of_node(Severity::Normal, "ShutdownArmed", message),
                Ask::Told(Err(message)) => self.outbox.tell_of_node(Severity::Warning, "ShutdownNotArmed", message),
            }
        }
        self.arm_logind();
    }

    fn arm_logind(&mut self) {
        if let Some(at) = self.shutdown.lock.arm() {
            self.outbox.push(Effect::Timer { key: TimerKey::Logind, at });
        }
    }

    /// S2: PrepareForShutdown(true) was received. The groups share logind's current delay.
    fn shutdown_announced(&mut self) {
        let goes_on = self.shutdown.in_doubt.is_some();
        if self.shutdown_begins() && !goes_on && self.shutdown.progress.as_ref().is_some_and(|p| !p.unlocked) {
            let ask = self.shutdown.lock.read_for_shutdown();
            if ask.is_some() {
                self.shutdown.waits_for_delay(self.now.boot);
            }
            self.carry_out(ask.into_iter().collect());
        }
    }

    /// S7: logind does not have our lock, and grants none during a shutdown.
    fn shutdown_unlocked(&mut self) {
        let Some(progress) = &mut self.shutdown.progress else { return };
        if progress.unlocked || progress.released {
            return;
        }
        progress.lose_lock();
        self.tell_unlocked();
    }

    /// S4: begins the shutdown. A repeated signal changes nothing. True if it begins now.
    fn shutdown_begins(&mut self) -> bool {
        let off = self.config.shutdown.is_off() && self.shutdown.in_doubt.is_none();
        if self.shutdown.progress.is_some() || off {
            return false;
        }
        let before = self.shutdown.in_doubt.and(self.shutdown.last.as_ref()).map(|last| last.began);
        self.shutdown.begin(&self.config.shutdown, &self.config.boot_id, self.now);
        self.shutdown.undecided |= !self.knows_its_pods();
        self.keep_shutdown();
        let message = match before {
            None => "Shutdown manager detected shutdown event".into(),
            Some(began) => {
                let ago = self.now.boot.since(began).as_secs_f64();
                format!("continuing the shutdown that began {ago:.1}s ago")
            }
        };
        self.outbox.tell_of_node(Severity::Normal, "NodeShutdown", message);
        if self.shutdown.progress.as_ref().is_some_and(|p| p.unlocked) {
            self.tell_unlocked();
        }
        true
    }

    fn tell_unlocked(&mut self) {
        let message =
            "no inhibitor lock is held, so logind does not wait; killing all pods with the minimum grace period";
        self.outbox.tell_of_node(Severity::Warning, "NodeShutdown", message.into());
    }

    /// S6: logind cancelled the shutdown.
    fn shutdown_called_off(&mut self) {
        if !self.shutdown.is_on() {
            return;
        }
        let seen = self.shutdown.progress.is_some();
        if seen {
            self.outbox.tell_of_node(
                Severity::Normal,
                "NodeShutdown",
                "Shutdown manager detected shutdown cancellation".into(),
            );
        }
        self.shutdown_over();
        let (lock, groups) = (&mut self.shutdown.lock, self.config.shutdown.clone());
        let requests = if seen { lock.take_anew(groups) } else { lock.begin_anew(groups) };
        self.carry_out(requests);
        self.use_logind();
    }

    pub(super) fn shutdown_timer(&mut self) {
        self.shutdown.armed = None;
        if self.shutdown.keep_at.is_some_and(|at| at <= self.now.boot) {
            self.keep_shutdown();
        }
    }

    /// Ends the shutdown: pods that waited for its end continue.
    fn shutdown_over(&mut self) {
        if !self.shutdown.is_on() {
            return;
        }
        self.shutdown.over(self.now);
        self.keep_shutdown();
        self.release(TerminationSource::Shutdown, None);
        let rejected = self.workers.values().filter(|w| w.is_rejected_for_now()).map(|w| w.uid.clone());
        for uid in rejected.collect::<Vec<Uid>>() {
            self.with_worker(&uid, |worker, _, ctx| worker.ask_again(ctx));
        }
        let first: Vec<Uid> = self.desired.names().firsts().cloned().collect();
        for uid in first {
            self.begin(&uid);
        }
        self.touch_all();
        self.arm_shutdown();
    }

    /// True if the manifests were read and a list has shown the pods without a record: each running pod has a worker.
    fn knows_its_pods(&self) -> bool {
        self.desired.is_known() && self.pleg.was_compared()
    }

    /// Advances the shutdown as far as possible now. True if workers have to be stepped, because their pods were killed
    /// or may continue.
    pub(super) fn step_shutdown(&mut self) -> bool {
        if !self.shutdown.is_on() {
            return false;
        }
        if self.shutdown.in_doubt.is_some_and(|until| until <= self.now.boot) {
            // logind has not confirmed in time that the shutdown is in progress.
            self.shutdown_over();
            let requests = self.shutdown.lock.begin_anew(self.config.shutdown.clone());
            self.carry_out(requests);
            self.use_logind();
            return true;
        }
        // One group at a time: its stops are requested before those of the next one.
        let mut killed = false;
        while self.knows_its_pods() && !killed && self.step_group() {
            let phase = self.shutdown.progress.as_ref().map(|p| &p.phase);
            killed = matches!(phase, Some(Phase::Stopping(c)) if !c.pods.is_empty());
        }
        // Groups whose time was over have begun too. The remaining pods may start containers again.
        let decided = !killed && self.knows_its_pods() && self.shutdown.progress.is_some();
        if decided && std::mem::take(&mut self.shutdown.undecided) {
            self.touch_all();
            killed = true;
        }
        let now = self.now.boot;
        let Some(progress) = &mut self.shutdown.progress else { return killed };
        let late = !progress.unlocked && progress.end() <= now;
        if !progress.released && (progress.is_done() || late) {
            progress.released = true;
            let took = now.since(progress.began).as_secs_f64();
            let requests = self.shutdown.lock.release();
            self.carry_out(requests);
            self.outbox.tell_of_node(
                Severity::Normal,
                "NodeShutdown",
                format!("the node may shut down, {took:.1}s after the start of the shutdown"),
            );
            self.shutdown.ended(self.now);
            self.keep_shutdown();
            // The postponed sandboxes are stopped now.
            self.touch_all();
            killed = true;
        }
        self.arm_shutdown();
        killed
    }

    /// Advances the group that is being stopped. False if nothing changes now.
    fn step_group(&mut self) -> bool {
        let now = self.now.boot;
        let Some(progress) = &self.shutdown.progress else { return false };
        if progress.is_done() {
            return false;
        }
        let current = match &progress.phase {
            Phase::Asking { until } if now < *until => return false,
            Phase::Asking { .. } => {
                self.begin_group();
                // Later groups may start containers again.
                self.touch_all();
                return true;
            }
            Phase::Next => {
                self.begin_group();
                return true;
            }
            Phase::Stopping(current) => current,
        };
        // (The power-off takes care of their sandboxes.)
        let left: Vec<&Uid> = current.pods.iter().filter(|uid| !self.has_ended(uid)).collect();
        if !left.is_empty() && now < current.until {
            return false;
        }
        if !current.pods.is_empty() {
            let took = now.since(current.began).as_secs_f64();
            let (severity, message) = match left.as_slice() {
                [] => (Severity::Normal, format!("{} ended after {took:.1}s", pods(current.pods.len()))),
                late => (
                    Severity::Warning,
                    format!("{} not ended in {took:.1}s: {}", have(late.len()), self.names_of(late)),
                ),
            };
            self.outbox.tell_of_node(
                severity,
                "NodeShutdown",
                format!("priority {}: {message}", priority_of_group(progress)),
            );
        }
        if let Some(progress) = &mut self.shutdown.progress {
            progress.group += 1;
            progress.phase = Phase::Next;
        }
        true
    }

    /// True if nothing of the pod runs any more, according to the runtime or to the pidfds of everything that the
    /// runtime still shows running. (The runtime may be a second late if many containers end at the same time.)
    fn has_ended(&self, uid: &Uid) -> bool {
        let (Some(worker), Some(entry)) = (self.workers.get(uid), self.pleg.cache().get(uid)) else { return true };
        let told = || self.pleg.all_processes_ended(uid);
        let sure = || worker.is_only_stopping() && entry.usable() && !entry.in_doubt(self.now.boot);
        worker.is_quiet() || sure() && told()
    }

    /// S4: kills the pods of the next group.
    fn begin_group(&mut self) {
        let now = self.now.boot;
        let Some(progress) = &self.shutdown.progress else { return };
        let (group, unlocked, until) = (progress.group, progress.unlocked, progress.until(now));
        let (period, priority) = (until.since(now), priority_of_group(progress));
        let of_it = self.workers.values().filter(|w| is_stopped_with(w, &progress.groups, group));
        let uids: BTreeSet<Uid> = of_it.map(|w| w.uid.clone()).collect();
        if !uids.is_empty() {
            let message =
                format!("priority {}: {} to stop within {:.0}s", priority, pods(uids.len()), period.as_secs_f64());
            self.outbox.tell_of_node(Severity::Normal, "NodeShutdown", message);
        }
        for uid in &uids {
            self.with_worker(uid, |worker, entry, ctx| {
                let grace = if unlocked { LEAST } else { worker.grace_period().min(period).max(LEAST) };
                let kill = Kill { by: TerminationSource::Shutdown, message: None, grace: Some(grace) };
                worker.kill_for(None, &kill, entry, ctx);
            });
        }
        self.dirty.extend(uids.iter().cloned());
        if let Some(progress) = &mut self.shutdown.progress {
            progress.phase = Phase::Stopping(Current { began: now, until, pods: uids });
        }
    }

    fn names_of(&self, uids: &[&Uid]) -> String {
        let name = |uid: &&Uid| self.workers.get(*uid).map(|w| w.name.to_string());
        let mut names: Vec<String> = uids.iter().take(5).filter_map(name).collect();
        if uids.len() > names.len() {
            names.push(format!("and {} more", uids.len() - names.len()));
        }
        names.join(", ")
    }

    fn keep_shutdown(&mut self) {
        self.shutdown.keep_at = None;
        let Some(last) = &self.shutdown.last else { return };
        let change = RecordChange::Put { key: record::KEY.into(), value: record::write(last) };
        self.outbox.record(Owner::ShutdownRecord, change);
    }

    fn arm_shutdown(&mut self) {
        let at = match (&self.shutdown.progress, self.shutdown.in_doubt) {
            // The first group needs the pods to be known. The event that makes them known causes a step.
            (Some(progress), _) => progress.next(self.knows_its_pods()),
            (None, doubt) => doubt,
        };
        let at = at.into_iter().chain(self.shutdown.keep_at).min();
        if at != self.shutdown.armed {
            self.shutdown.armed = at;
            self.outbox.push(Effect::Timer { key: TimerKey::Shutdown, at });
        }
    }
}

/// True if something of the pod may run and the pod belongs to this group.
pub(super) fn is_stopped_with(worker: &Worker, groups: &Groups, group: usize) -> bool {
    !worker.is_over() && !worker.never_began() && groups.index_of(priority_of(worker)) == group
}

fn priority_of_group(progress: &Progress) -> i32 {
    progress.groups.get(progress.group).map_or(0, |g| g.priority)
}

/// A pod that only the runtime knows has priority 0.
pub(super) fn priority_of(worker: &Worker) -> i32 {
    worker.pod.as_ref().map_or(0, |pod| priority::of(pod.spec()))
}

pub(super) fn pods(n: usize) -> String {
    if n == 1 { "1 pod".into() } else { format!("{n} pods") }
}

fn have(n: usize) -> String {
    if n == 1 { "1 pod has".into() } else { format!("{n} pods have") }
}
