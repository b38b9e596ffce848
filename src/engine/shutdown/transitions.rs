//! The transitions of a graceful shutdown: on logind's signals and responses, on timers, and from one group to the
//! next (S4). The state machine calls logind and writes its record through the outbox. It returns everything that
//! concerns the workers as an `Order`.

#[cfg(test)]
mod tests;

use super::lock::{self, LockRequest};
use super::pods::{LEAST, Pods, pods_in_words};
use super::record;
use super::{Current, Phase, Progress, Shutdown};
use crate::api::names::Uid;
use crate::api::reason::Reason;
use crate::api::shutdown::Groups;
use crate::api::time::{Boot, Now};
use crate::engine::effect::{Effect, RecordChange, Severity};
use crate::engine::event::{Answer, LogindEvent};
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use std::collections::BTreeSet;
use std::time::Duration;

/// The interval between two attempts to write the record while the shutdown is in progress.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

/// What a transition needs besides the shutdown's own state.
pub struct Context<'a> {
    pub now: Now,
    /// The configured groups.
    pub groups: &'a Groups,
    pub boot_id: &'a str,
    /// The manifests were read and a list has shown the pods without a record, so each running pod has a worker.
    pub knows_its_pods: bool,
    pub outbox: &'a mut Outbox,
}

/// What the node has to do with its workers.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// S4: kill the pods of a group.
    Kill(Kill),
    /// The lock is released: the sandboxes whose stop was postponed are stopped now.
    StopSandboxes,
    /// S6: the shutdown is over. The pods that waited for its end continue.
    Continue,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Kill {
    pub pods: BTreeSet<Uid>,
    /// The time until the end of the group's period. None without a lock: each pod gets the minimum (S7).
    period: Option<Duration>,
}

impl Kill {
    /// Returns the grace period with which a pod is killed. `own`: the pod's own grace period.
    pub fn grace(&self, own: Duration) -> Duration {
        match self.period {
            None => LEAST,
            Some(period) => own.min(period).max(LEAST),
        }
    }
}

impl Shutdown {
    /// Reads the record of the last shutdown at the start. `text`: None if there is no record.
    pub fn record_found(&mut self, text: Option<&str>, ctx: &mut Context<'_>) -> Option<Order> {
        let record = text.and_then(|text| match record::read(text) {
            Ok(record) => Some(record),
            Err(why) => {
                let message = format!("record {} is unusable: {why}; moving it aside", record::KEY);
                ctx.outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
                let key = record::KEY.to_owned();
                ctx.outbox.record(Owner::ShutdownRecord, RecordChange::SetAside { key });
                None
            }
        });
        let before = record.clone();
        let over = self.found(record, ctx.boot_id, ctx.groups, ctx.now);
        if !over && ctx.groups.is_off() {
            // The feature was turned off during a shutdown. The shutdown continues, so logind is still needed.
            ctx.outbox.push(Effect::UseLogind(true));
        }
        if self.last != before {
            self.keep(ctx);
        }
        over.then_some(Order::Continue)
    }

    pub fn logind(&mut self, event: LogindEvent, ctx: &mut Context<'_>) -> Option<Order> {
        let requests = match event {
            LogindEvent::Inherited => self.lock.inherited(),
            LogindEvent::Up => self.lock.up(),
            LogindEvent::Down { why } => self.lock.down(why),
            LogindEvent::Preparing(true) => {
                self.announced(ctx);
                return None;
            }
            LogindEvent::Preparing(false) => vec![LockRequest::Preparing(false)],
        };
        self.carry_out(requests, ctx)
    }

    pub fn logind_is_due(&mut self, ctx: &mut Context<'_>) -> Option<Order> {
        let requests = self.lock.call_due(ctx.now.boot);
        self.carry_out(requests, ctx)
    }

    pub fn logind_answered(
        &mut self,
        op: OpId,
        result: Result<Answer, OpError>,
        ctx: &mut Context<'_>,
    ) -> Option<Order> {
        if self.lock.owns(op) {
            let down = self.is_on();
            let requests = self.lock.answered(result, down, ctx.now.boot);
            self.carry_out(requests, ctx)
        } else if result == Ok(Answer::Locked) {
            let requests = self.lock.taken_late();
            self.carry_out(requests, ctx)
        } else {
            None
        }
    }

    pub fn lock_stored(&mut self, op: OpId, result: Result<Answer, OpError>, ctx: &mut Context<'_>) {
        if let Some(why) = self.lock.store.answered(op, result.map(drop), ctx.now.boot) {
            let message =
                format!("failed to update the inhibitor lock in systemd's descriptor store: {why}; Wherry retries");
            ctx.outbox.emit_node_event(Severity::Warning, Reason::FailedStore, message);
        }
    }

    pub fn record_kept(&mut self, result: Result<Answer, OpError>, ctx: &mut Context<'_>) {
        if let Err(e) = result {
            let message = format!("failed to write the record of the node shutdown: {e}");
            ctx.outbox.emit_node_event(Severity::Warning, Reason::FailedRecord, message);
            if self.is_on() {
                self.keep_at = Some(ctx.now.boot + KEEP_AGAIN);
            }
        }
    }

    /// Applies a reloaded configuration. A shutdown in progress continues with its own settings until logind cancels
    /// it or the node is down. The new settings apply after it.
    pub fn configure(&mut self, ctx: &mut Context<'_>) -> Option<Order> {
        if self.is_on() {
            return None;
        }
        let requests = self.lock.configure(ctx.groups.clone());
        let order = self.carry_out(requests, ctx);
        use_logind(ctx);
        order
    }

    fn carry_out(&mut self, requests: Vec<LockRequest>, ctx: &mut Context<'_>) -> Option<Order> {
        let mut order = None;
        for request in requests {
            match request {
                LockRequest::Call(call) => {
                    let op = ctx.outbox.ops.begin(Owner::Logind);
                    self.lock.began(op);
                    ctx.outbox.push(Effect::Logind { op, call, timeout: lock::TIMEOUT });
                }
                LockRequest::Release => ctx.outbox.push(Effect::ReleaseLock),
                LockRequest::Store => {
                    let op = ctx.outbox.begin(Owner::LockStore, |op| Effect::StoreLock { op });
                    self.lock.store.began(op);
                }
                LockRequest::Unlocked => self.lost_lock(ctx),
                LockRequest::DelayRead(delay) => {
                    if self.delay_is(delay) {
                        self.keep(ctx);
                    }
                }
                LockRequest::Preparing(true) => {
                    self.begins(ctx);
                }
                LockRequest::Preparing(false) => order = order.or(self.called_off(ctx)),
                LockRequest::Report(Ok(message)) => {
                    ctx.outbox.emit_node_event(Severity::Normal, Reason::ShutdownArmed, message)
                }
                LockRequest::Report(Err(message)) => {
                    ctx.outbox.emit_node_event(Severity::Warning, Reason::ShutdownNotArmed, message)
                }
            }
        }
        order
    }

    /// S2: handles the signal PrepareForShutdown(true). The groups share logind's current delay.
    fn announced(&mut self, ctx: &mut Context<'_>) {
        let goes_on = self.in_doubt.is_some();
        if self.begins(ctx) && !goes_on && self.progress.as_ref().is_some_and(|p| !p.unlocked) {
            let request = self.lock.read_for_shutdown();
            if request.is_some() {
                self.waits_for_delay(ctx.now.boot);
            }
            self.carry_out(request.into_iter().collect(), ctx);
        }
    }

    /// S7: continues without a lock. logind does not have Wherry's lock, and grants none during a shutdown.
    fn lost_lock(&mut self, ctx: &mut Context<'_>) {
        let Some(progress) = &mut self.progress else { return };
        if progress.unlocked || progress.released {
            return;
        }
        progress.lose_lock();
        report_unlocked(ctx);
    }

    /// S4: begins the shutdown. A repeated signal changes nothing. Returns true if the shutdown begins now.
    fn begins(&mut self, ctx: &mut Context<'_>) -> bool {
        let off = ctx.groups.is_off() && self.in_doubt.is_none();
        if self.progress.is_some() || off {
            return false;
        }
        let before = self.in_doubt.and(self.last.as_ref()).map(|last| last.began);
        self.begin(ctx.groups, ctx.boot_id, ctx.now);
        self.undecided |= !ctx.knows_its_pods;
        self.keep(ctx);
        let message = match before {
            None => "Shutdown manager detected shutdown event".into(),
            Some(began) => {
                let ago = ctx.now.boot.since(began).as_secs_f64();
                format!("continuing the shutdown that began {ago:.1}s ago")
            }
        };
        ctx.outbox.emit_node_event(Severity::Normal, Reason::NodeShutdown, message);
        if self.progress.as_ref().is_some_and(|p| p.unlocked) {
            report_unlocked(ctx);
        }
        true
    }

    /// S6: ends a shutdown that logind has cancelled.
    fn called_off(&mut self, ctx: &mut Context<'_>) -> Option<Order> {
        if !self.is_on() {
            return None;
        }
        let seen = self.progress.is_some();
        if seen {
            let message = "Shutdown manager detected shutdown cancellation";
            ctx.outbox.emit_node_event(Severity::Normal, Reason::NodeShutdown, message.into());
        }
        self.ends(ctx);
        let (lock, groups) = (&mut self.lock, ctx.groups.clone());
        let requests = if seen { lock.take_anew(groups) } else { lock.begin_anew(groups) };
        self.carry_out(requests, ctx);
        use_logind(ctx);
        Some(Order::Continue)
    }

    /// Retries the write of the record if that is due. `step` continues the shutdown.
    pub fn is_due(&mut self, ctx: &mut Context<'_>) {
        if self.keep_at.is_some_and(|at| at <= ctx.now.boot) {
            self.keep(ctx);
        }
    }

    fn ends(&mut self, ctx: &mut Context<'_>) {
        self.over(ctx.now);
        self.keep(ctx);
    }

    /// Advances the shutdown by one step. The node carries out the order, steps its workers, and calls this function
    /// again until it returns no order, so that the stops of a group are requested before those of the next one.
    pub fn step(&mut self, pods: &Pods<'_>, ctx: &mut Context<'_>) -> Option<Order> {
        if !self.is_on() {
            return None;
        }
        let now = ctx.now.boot;
        if self.in_doubt.is_some_and(|until| until <= now) {
            // logind has not confirmed in time that the shutdown is in progress.
            self.ends(ctx);
            let requests = self.lock.begin_anew(ctx.groups.clone());
            self.carry_out(requests, ctx);
            use_logind(ctx);
            return Some(Order::Continue);
        }
        while ctx.knows_its_pods {
            match self.step_group(pods, ctx) {
                Group::Unchanged => break,
                Group::Ended => {}
                Group::Begun(kill) if kill.pods.is_empty() => {}
                Group::Begun(kill) => return Some(Order::Kill(kill)),
            }
        }
        // The groups whose time is over have now begun as well. So the pods of the other groups may start containers
        // again.
        if ctx.knows_its_pods && self.progress.is_some() {
            self.undecided = false;
        }
        self.release_when_done(ctx).then_some(Order::StopSandboxes)
    }

    /// S4: releases the lock when all groups are done, or at the end of the last period.
    fn release_when_done(&mut self, ctx: &mut Context<'_>) -> bool {
        let now = ctx.now.boot;
        let Some(progress) = &mut self.progress else { return false };
        let late = !progress.unlocked && progress.end() <= now;
        let releases = !progress.released && (progress.is_done() || late);
        if releases {
            progress.released = true;
            let took = now.since(progress.began).as_secs_f64();
            let requests = self.lock.release();
            self.carry_out(requests, ctx);
            let message = format!("the node may shut down, {took:.1}s after the start of the shutdown");
            ctx.outbox.emit_node_event(Severity::Normal, Reason::NodeShutdown, message);
            self.ended(ctx.now);
            self.keep(ctx);
        }
        releases
    }

    /// Advances the group that is being stopped.
    fn step_group(&mut self, pods: &Pods<'_>, ctx: &mut Context<'_>) -> Group {
        let now = ctx.now.boot;
        let Some(progress) = &mut self.progress else { return Group::Unchanged };
        if progress.is_done() {
            return Group::Unchanged;
        }
        let current = match &progress.phase {
            Phase::ReadingDelay { until } if now < *until => return Group::Unchanged,
            Phase::ReadingDelay { .. } | Phase::Next => return Group::Begun(begin_group(progress, pods, ctx)),
            Phase::Stopping(current) => current,
        };
        // Sandboxes may be left. The power-off takes care of them.
        let left: Vec<&Uid> = current.pods.iter().filter(|uid| !pods.has_ended(uid)).collect();
        if !left.is_empty() && now < current.until {
            return Group::Unchanged;
        }
        if !current.pods.is_empty() {
            let took = now.since(current.began).as_secs_f64();
            let (severity, message) = match left.as_slice() {
                [] => (Severity::Normal, format!("{} ended after {took:.1}s", pods_in_words(current.pods.len()))),
                late => {
                    (Severity::Warning, format!("{} not ended in {took:.1}s: {}", have(late.len()), pods.names(late)))
                }
            };
            let message = format!("priority {}: {message}", priority_of_group(progress));
            ctx.outbox.emit_node_event(severity, Reason::NodeShutdown, message);
        }
        progress.group += 1;
        progress.phase = Phase::Next;
        Group::Ended
    }

    /// Writes the record.
    fn keep(&mut self, ctx: &mut Context<'_>) {
        self.keep_at = None;
        let Some(last) = &self.last else { return };
        let change = RecordChange::Put { key: record::KEY.into(), value: record::write(last) };
        ctx.outbox.record(Owner::ShutdownRecord, change);
    }

    /// Returns the time of the next call to logind.
    pub fn next_logind_call(&self) -> Option<Boot> {
        self.lock.next_deadline()
    }

    /// Returns when the next step is due if no event causes one before.
    pub fn next_deadline(&self, knows_its_pods: bool) -> Option<Boot> {
        let at = match (&self.progress, self.in_doubt) {
            // The first group needs the pods to be known. The event that makes them known causes a step.
            (Some(progress), _) => progress.next(knows_its_pods),
            (None, doubt) => doubt,
        };
        at.into_iter().chain(self.keep_at).min()
    }
}

/// What happened to the current group.
enum Group {
    /// It continues.
    Unchanged,
    /// It is done; the next one has not begun.
    Ended,
    Begun(Kill),
}

/// S4: begins the next group. Returns the pods that have to be killed.
fn begin_group(progress: &mut Progress, pods: &Pods<'_>, ctx: &mut Context<'_>) -> Kill {
    let now = ctx.now.boot;
    let until = progress.until(now);
    let period = until.since(now);
    let uids = pods.of_group(&progress.groups, progress.group);
    if !uids.is_empty() {
        let (priority, pods) = (priority_of_group(progress), pods_in_words(uids.len()));
        let message = format!("priority {priority}: {pods} to stop within {:.0}s", period.as_secs_f64());
        ctx.outbox.emit_node_event(Severity::Normal, Reason::NodeShutdown, message);
    }
    progress.phase = Phase::Stopping(Current { began: now, until, pods: uids.clone() });
    Kill { pods: uids, period: (!progress.unlocked).then_some(period) }
}

fn use_logind(ctx: &mut Context<'_>) {
    ctx.outbox.push(Effect::UseLogind(!ctx.groups.is_off()));
}

fn report_unlocked(ctx: &mut Context<'_>) {
    let message = "no inhibitor lock is held, so logind does not wait; killing all pods with the minimum grace period";
    ctx.outbox.emit_node_event(Severity::Warning, Reason::NodeShutdown, message.into());
}

fn priority_of_group(progress: &Progress) -> i32 {
    progress.groups.get(progress.group).map_or(0, |g| g.priority)
}

fn have(n: usize) -> String {
    if n == 1 { "1 pod has".into() } else { format!("{n} pods have") }
}
