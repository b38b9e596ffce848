//! Graceful shutdown in the composition: logind's words in, kills of one group of pods after another out (S4), and all that is
//! held back meanwhile (A3, W6).

use super::Engine;
use crate::api::names::Uid;
use crate::api::priority;
use crate::api::shutdown::view::{GroupView, PlanGroup, PlanPod, PlanView, ProgressView, ShutdownView};
use crate::api::shutdown::{Group, Groups};
use crate::api::time::{Boot, Wall};
use crate::engine::context::Owner;
use crate::engine::effect::{Effect, Notice, RecordChange, Severity, TimerKey};
use crate::engine::event::{Answer, LogindEvent};
use crate::engine::op::{OpError, OpId};
use crate::engine::pod::kill::{Kill, Killer};
use crate::engine::pod::worker::Worker;
use crate::engine::shutdown::lock::{self, Ask};
use crate::engine::shutdown::record;
use crate::engine::shutdown::{Current, Progress};
use std::collections::BTreeSet;
use std::time::Duration;

/// The shortest grace period there is (W4).
const LEAST: Duration = Duration::from_secs(1);

/// A record that could not be written is written again so long after, while the shutdown goes on.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

impl Engine {
    /// At start, the record of the last shutdown: None if there is none.
    pub(super) fn take_shutdown_record(&mut self, text: Option<&str>) {
        let record = text.and_then(|text| match record::read(text) {
            Ok(record) => Some(record),
            Err(why) => {
                let message = format!("record {} is of no use and is set aside: {why}", record::KEY);
                self.tell_of_node(Severity::Warning, "BadRecord", message);
                let op = self.ops.begin(Owner::ShutdownRecord);
                let key = record::KEY.to_owned();
                self.out.push(Effect::Record { op, change: RecordChange::SetAside { key } });
                None
            }
        });
        let before = record.clone();
        let off = self.config.shutdown.is_off();
        if self.shutdown.found(record, &self.config.boot_id, off, self.now) {
            self.release(Killer::Shutdown, None);
        }
        if self.shutdown.last != before {
            self.keep_shutdown();
        }
        self.arm_shutdown();
    }

    pub(super) fn logind(&mut self, event: LogindEvent) {
        let hurried = self.shutdown.is_on();
        let asks = match event {
            LogindEvent::Inherited => self.shutdown.lock.inherited(),
            LogindEvent::Up => self.shutdown.lock.up(hurried),
            LogindEvent::Down { why } => self.shutdown.lock.down(why),
            LogindEvent::Preparing(preparing) => vec![Ask::Preparing(preparing)],
        };
        self.carry_out(asks);
    }

    pub(super) fn logind_timer(&mut self) {
        let asks = self.shutdown.lock.timer(self.now.boot);
        self.carry_out(asks);
    }

    pub(super) fn logind_answered(&mut self, op: OpId, result: Result<Answer, OpError>) {
        if self.shutdown.lock.owns(op) {
            let asks = self.shutdown.lock.answered(result, self.now.boot);
            self.carry_out(asks);
        }
    }

    pub(super) fn shutdown_record_kept(&mut self, result: Result<Answer, OpError>) {
        if let Err(e) = result {
            let message = format!("the record of the node's shutdown could not be written: {e}");
            self.tell_of_node(Severity::Warning, "FailedRecord", message);
            if self.shutdown.is_on() {
                self.shutdown.keep_at = Some(self.now.boot + KEEP_AGAIN);
                self.arm_shutdown();
            }
        }
    }

    /// Other settings: a shutdown in progress goes on as it was begun.
    pub(super) fn configure_shutdown(&mut self) {
        let asks = self.shutdown.lock.configure(self.config.shutdown.clone());
        self.carry_out(asks);
        if self.config.shutdown.is_off() {
            self.shutdown_over();
        }
    }

    fn carry_out(&mut self, asks: Vec<Ask>) {
        for ask in asks {
            match ask {
                Ask::Call(call) => {
                    let op = self.ops.begin(Owner::Logind);
                    self.shutdown.lock.began(op);
                    self.out.push(Effect::Logind { op, call, timeout: lock::TIMEOUT });
                }
                Ask::Timer(at) => self.out.push(Effect::Timer { key: TimerKey::Logind, at }),
                Ask::Release => self.out.push(Effect::ReleaseLock),
                Ask::Preparing(true) => self.shutdown_begins(),
                Ask::Preparing(false) => self.shutdown_called_off(),
                Ask::Told(Ok(message)) => self.tell_of_node(Severity::Normal, "ShutdownArmed", message),
                Ask::Told(Err(message)) => self.tell_of_node(Severity::Warning, "ShutdownNotArmed", message),
            }
        }
    }

    /// S4. A second word of the same changes nothing.
    fn shutdown_begins(&mut self) {
        if self.shutdown.progress.is_some() || self.config.shutdown.is_off() {
            return;
        }
        let before = self.shutdown.in_doubt.and(self.shutdown.last.as_ref()).map(|last| last.began);
        self.shutdown.begin(&self.config.shutdown, &self.config.boot_id, self.now);
        self.shutdown.undecided |= !self.knows_its_pods();
        self.keep_shutdown();
        let message = match before {
            None => "Shutdown manager detected shutdown event".into(),
            Some(began) => {
                let ago = self.now.boot.since(began).as_secs_f64();
                format!("going on with the shutdown that began {ago:.1}s ago")
            }
        };
        self.tell_of_node(Severity::Normal, "NodeShutdown", message);
        if self.shutdown.progress.as_ref().is_some_and(|p| p.unlocked) {
            let message =
                "there is no inhibitor lock: nobody waits for the pods, they are killed with the shortest grace period";
            self.tell_of_node(Severity::Warning, "NodeShutdown", message.into());
        }
    }

    /// S6
    fn shutdown_called_off(&mut self) {
        if !self.shutdown.is_on() {
            return;
        }
        let seen = self.shutdown.progress.is_some();
        if seen {
            self.tell_of_node(
                Severity::Normal,
                "NodeShutdown",
                "Shutdown manager detected shutdown cancellation".into(),
            );
        }
        self.shutdown_over();
        let lock = &mut self.shutdown.lock;
        let asks = if seen { lock.take_anew() } else { lock.begin_anew() };
        self.carry_out(asks);
    }

    pub(super) fn shutdown_timer(&mut self) {
        self.shutdown.armed = None;
        if self.shutdown.keep_at.is_some_and(|at| at <= self.now.boot) {
            self.keep_shutdown();
        }
    }

    /// What waited for its end goes on.
    fn shutdown_over(&mut self) {
        if !self.shutdown.is_on() {
            return;
        }
        self.shutdown.over(self.now);
        self.keep_shutdown();
        self.release(Killer::Shutdown, None);
        let rejected = self.workers.values().filter(|w| w.is_rejected_for_now()).map(|w| w.uid.clone());
        for uid in rejected.collect::<Vec<Uid>>() {
            self.with_worker(&uid, |worker, _, ctx| worker.ask_again(ctx));
        }
        let first: Vec<Uid> = self.names.values().filter_map(|queue| queue.front().cloned()).collect();
        for uid in first {
            self.begin(&uid);
        }
        self.touch_all();
        self.arm_shutdown();
    }

    /// What is desired was read, and a list told what runs without a record: each pod that runs has a worker that began.
    fn knows_its_pods(&self) -> bool {
        self.sources_ready && self.pleg.was_compared()
    }

    /// Steps the shutdown as far as it goes now. True if workers are to be stepped: their pods were killed, or may go on.
    pub(super) fn step_shutdown(&mut self) -> bool {
        if !self.shutdown.is_on() {
            return false;
        }
        if self.shutdown.in_doubt.is_some_and(|until| until <= self.now.boot) {
            // Nobody says that it goes on.
            self.shutdown_over();
            let asks = self.shutdown.lock.begin_anew();
            self.carry_out(asks);
            return true;
        }
        // One group at a time: its stops are asked for before the next one's.
        let mut killed = false;
        while self.knows_its_pods() && !killed && self.step_group() {
            let current = self.shutdown.progress.as_ref().and_then(|p| p.current.as_ref());
            killed = current.is_some_and(|c| !c.pods.is_empty());
        }
        // Those whose time was over meanwhile have begun too: the others may go on.
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
            let asks = self.shutdown.lock.release();
            self.carry_out(asks);
            self.tell_of_node(
                Severity::Normal,
                "NodeShutdown",
                format!("the node may go down, {took:.1}s after the begin"),
            );
            self.shutdown.ended(self.now);
            self.keep_shutdown();
            // Their sandboxes' turn.
            self.touch_all();
            killed = true;
        }
        self.arm_shutdown();
        killed
    }

    /// The next change of the group that is being stopped; false if there is none now.
    fn step_group(&mut self) -> bool {
        let now = self.now.boot;
        let Some(progress) = &self.shutdown.progress else { return false };
        if progress.is_done() {
            return false;
        }
        let Some(current) = &progress.current else {
            self.begin_group();
            return true;
        };
        // (What is left of their sandboxes goes with the machine.)
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
            self.tell_of_node(severity, "NodeShutdown", format!("priority {}: {message}", priority_of_group(progress)));
        }
        if let Some(progress) = &mut self.shutdown.progress {
            progress.group += 1;
            progress.current = None;
        }
        true
    }

    /// Nothing of it runs any more: the runtime shows it, or the pidfds of all that it still shows running have told. (With many
    /// containers that end at one time a runtime is a second behind.)
    fn has_ended(&self, uid: &Uid) -> bool {
        let (Some(worker), Some(entry)) = (self.workers.get(uid), self.cache.get(uid)) else { return true };
        let told = || entry.running().all(|c| self.watches.has_ended(uid, c.id.as_str()));
        let sure = || worker.is_only_stopping() && entry.usable() && !entry.in_doubt(self.now.boot);
        worker.is_quiet() || sure() && told()
    }

    /// S4: its pods are killed.
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
            self.tell_of_node(Severity::Normal, "NodeShutdown", message);
        }
        for uid in &uids {
            self.with_worker(uid, |worker, entry, ctx| {
                let grace = if unlocked { LEAST } else { worker.grace_period().min(period).max(LEAST) };
                let kill = Kill { by: Killer::Shutdown, message: None, grace: Some(grace) };
                worker.kill_for(None, &kill, entry, ctx);
            });
        }
        self.dirty.extend(uids.iter().cloned());
        if let Some(progress) = &mut self.shutdown.progress {
            progress.current = Some(Current { began: now, until, pods: uids });
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
        let op = self.ops.begin(Owner::ShutdownRecord);
        self.out.push(Effect::Record { op, change });
    }

    fn arm_shutdown(&mut self) {
        let at = match (&self.shutdown.progress, self.shutdown.in_doubt) {
            (Some(progress), _) => progress.next(),
            (None, doubt) => doubt,
        };
        let at = at.into_iter().chain(self.shutdown.keep_at).min();
        if at != self.shutdown.armed {
            self.shutdown.armed = at;
            self.out.push(Effect::Timer { key: TimerKey::Shutdown, at });
        }
    }

    pub(super) fn tell_of_node(&mut self, severity: Severity, reason: &'static str, message: String) {
        self.out.push(Effect::Notice(Notice { pod: None, container: None, severity, reason, message }));
    }

    /// Is the node being shut down?
    pub fn shutting_down(&self) -> bool {
        self.shutdown.is_on()
    }

    pub fn shutdown(&self, now: Boot) -> ShutdownView {
        let lock = &self.shutdown.lock;
        let groups = &self.config.shutdown;
        let mut of_group = vec![0; groups.iter().len()];
        for worker in self.workers.values().filter(|w| !w.is_over() && !w.never_began()) {
            if let Some(n) = of_group.get_mut(groups.index_of(priority_of(worker))) {
                *n += 1;
            }
        }
        let view = |((group, granted), pods): ((&Group, Duration), u64)| GroupView {
            priority: group.priority,
            period_seconds: group.period.as_secs(),
            granted_seconds: granted.as_secs(),
            pods,
        };
        let last = self.shutdown.last.as_ref();
        let seconds = |at: Wall| at.0 as f64 / 1e9;
        ShutdownView {
            enabled: !groups.is_off(),
            armed: lock.is_armed(),
            problem: lock.problem(),
            delay_seconds: lock.delay().map(|d| d.as_secs_f64()),
            needed_seconds: groups.sum().as_secs(),
            groups: groups.iter().zip(lock.granted()).zip(of_group).map(view).collect(),
            in_progress: self.shutdown.progress.as_ref().map(|p| ProgressView {
                since_seconds: now.since(p.began).as_secs_f64(),
                group: p.groups.get(p.group).map(|g| g.priority),
                left_seconds: p.end().since(now).as_secs_f64(),
                released: p.released,
            }),
            started_seconds: last.map_or(0.0, |r| seconds(r.started)),
            ended_seconds: last.map_or(0.0, |r| seconds(r.ended)),
            started_at: last.and_then(|r| r.started.whole_seconds()),
            ended_at: last.and_then(|r| r.ended.whole_seconds()),
        }
    }

    pub fn shutdown_plan(&self) -> PlanView {
        let lock = &self.shutdown.lock;
        let groups = &self.config.shutdown;
        let mut from = Duration::ZERO;
        let mut plan = Vec::new();
        for (index, (group, granted)) in groups.iter().zip(lock.granted()).enumerate() {
            let of_it = self.workers.values().filter(|w| is_stopped_with(w, groups, index));
            let mut pods: Vec<PlanPod> = of_it
                .map(|w| PlanPod {
                    namespace: w.name.namespace.to_string(),
                    name: w.name.name.to_string(),
                    uid: w.uid.to_string(),
                    priority: priority_of(w),
                    grace_seconds: w.grace_period().min(granted).max(LEAST).as_secs(),
                    own_grace_seconds: w.grace_period().as_secs(),
                })
                .collect();
            pods.sort_by(|a, b| (a.priority, &a.namespace, &a.name).cmp(&(b.priority, &b.namespace, &b.name)));
            let until = if pods.is_empty() { from } else { from + granted };
            plan.push(PlanGroup {
                priority: group.priority,
                from_seconds: from.as_secs(),
                until_seconds: until.as_secs(),
                period_seconds: group.period.as_secs(),
                granted_seconds: granted.as_secs(),
                pods,
            });
            from = until;
        }
        PlanView {
            enabled: !groups.is_off(),
            armed: lock.is_armed(),
            delay_seconds: lock.delay().map(|d| d.as_secs_f64()),
            needed_seconds: groups.sum().as_secs(),
            groups: plan,
        }
    }
}

/// Something of it may run, and it belongs to that group.
fn is_stopped_with(worker: &Worker, groups: &Groups, group: usize) -> bool {
    !worker.is_over() && !worker.never_began() && groups.index_of(priority_of(worker)) == group
}

fn priority_of_group(progress: &Progress) -> i32 {
    progress.groups.get(progress.group).map_or(0, |g| g.priority)
}

/// What only the runtime knows has none.
fn priority_of(worker: &Worker) -> i32 {
    worker.pod.as_ref().map_or(0, |pod| priority::of(pod.spec()))
}

fn pods(n: usize) -> String {
    if n == 1 { "1 pod".into() } else { format!("{n} pods") }
}

fn have(n: usize) -> String {
    if n == 1 { "1 pod has".into() } else { format!("{n} pods have") }
}
