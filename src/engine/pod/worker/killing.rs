//! Kills of a pod and the restart after them (W4 to W6).

use super::Worker;
use super::ending::End;
use super::outdated::Outdated;
use super::state::Finished;
use super::state::State;
use super::state::Terminating;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::engine::context::Context;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::kill::{Kill, KillId, TerminationSource};
use crate::engine::pod::placement::Placement;
use std::time::Duration;

impl Worker {
    /// Kills a desired pod for a cause other than its manifest (W5). The pod runs again when the cause is over (W6),
    /// unless `lets_run_again` rules that out.
    pub fn kill_for(&mut self, id: Option<KillId>, kill: &Kill, entry: &mut Entry, ctx: &mut Context<'_>) {
        self.demand.kills.extend(id);
        let cause = kill.cause();
        let (severity, reason) = kill.by.notice();
        // A pod that completed by itself keeps its status.
        let is_open = !self.state.is_over() && self.ending.end == End::Open;
        if is_open && !(kill.by == TerminationSource::Shutdown && self.ends_for_good()) {
            let marked = match kill.by.lets_run_again(self.is_from_api_server()) {
                // After a restart of Wherry a requester repeats its request; report it only once.
                true => self.demand.waits_for.insert(kill.by),
                false => {
                    self.demand.end();
                    false
                }
            };
            if marked || self.ending.cause.as_ref() != Some(&cause) {
                ctx.outbox.emit_event(self.pod.as_ref(), None, severity, reason, cause.message.clone());
            }
            self.kill(kill.grace.unwrap_or(self.grace_period()), Some(cause), entry, ctx);
            if marked {
                self.record.update();
            }
            return;
        }
        if let Some(grace) = kill.grace {
            self.kill(grace, None, entry, ctx);
        }
        // The pod keeps the reason of its end (W5).
        if kill.by.holds_back_ended() && self.demand.runs_again() {
            let marked = match kill.by.lets_run_again(self.is_from_api_server()) {
                true => self.demand.waits_for.insert(kill.by),
                false => self.end_for_good(ctx),
            };
            if marked {
                ctx.outbox.emit_event(self.pod.as_ref(), None, severity, reason, cause.message);
                match self.record.exists() {
                    // The record was already removed together with the other files.
                    false => self.record.keep(),
                    true => self.record.update(),
                }
            }
        }
    }

    /// C5: prevents a pod that has ended from running again after a shutdown. The server learns the pod's phase now.
    /// Returns false if the pod would not have run again anyway.
    fn end_for_good(&mut self, ctx: &mut Context<'_>) -> bool {
        ctx.outbox.publish(&self.uid, &self.name);
        self.demand.end()
    }

    /// Returns true if a terminating pod of the API server was killed for a reason other than a shutdown. A shutdown
    /// that follows does not make it run again.
    fn ends_for_good(&self) -> bool {
        let killed = self.ending.cause.as_ref().is_some_and(|cause| cause.by != Some(TerminationSource::Shutdown));
        killed && self.is_from_api_server() && matches!(self.state, State::Terminating(_))
    }

    /// W4: shortens the grace period of a terminating pod to `grace`, if that is shorter.
    pub fn shorten(&mut self, grace: Duration, entry: &mut Entry, ctx: &mut Context<'_>) {
        if matches!(self.state, State::Terminating(_)) {
            self.kill(grace, None, entry, ctx);
        }
    }

    pub fn placement(&self, cordoned: bool) -> Placement {
        let drained = self.demand.is_drained();
        match self.state {
            _ if !self.is_shown() => Placement::Removed,
            State::Waiting if self.admission.is_held_by_cordon(&self.state) => Placement::Unscheduled,
            State::Finished(_) if drained || self.demand.is_evicted_through_api() => Placement::Successor { drained },
            State::Finished(_) if cordoned && !self.demand.runs_again() => Placement::Gone,
            _ => Placement::Bound,
        }
    }

    /// C2: ends a pod that has ended on the API server. A controller may have created a replacement, so the pod must
    /// not run here any more.
    pub fn end_as_at_server(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        if self.demand.end() {
            self.record.update();
        }
        if matches!(self.state, State::Waiting | State::Sync(_)) && self.admission.rejection().is_none() {
            self.kill(self.grace_period(), None, entry, ctx);
        }
    }

    /// Notes that the cause is over. A pod that waits for no other cause starts again.
    pub fn release(&mut self, by: TerminationSource, ctx: &mut Context<'_>) {
        if !self.demand.release(by, self.pod.as_ref()) {
            return;
        }
        if by == TerminationSource::Drain {
            let message = "Pod may run on the node again.".to_owned();
            ctx.emit_normal(self.pod.as_ref(), None, Reason::Undrained, message);
        }
        self.record.update();
    }

    /// Terminates the pod within `grace` (W4, W5). A termination in progress continues and can only become shorter.
    pub fn kill(&mut self, grace: Duration, cause: Option<Cause>, entry: &mut Entry, ctx: &mut Context<'_>) {
        let before = (self.ending.termination(&self.state, &self.demand, ctx.now), self.record.says_again());
        let by_shutdown =
            |cause: &Option<Cause>| cause.as_ref().is_some_and(|cause| cause.by == Some(TerminationSource::Shutdown));
        let repeated = by_shutdown(&self.ending.cause) && by_shutdown(&cause);
        self.end_resize();
        let had_directory = self.volumes.had_directory();
        if matches!(self.state, State::Waiting) {
            self.admission.withdraw_rejection();
        }
        match &mut self.state {
            // W8: the pod never started anything. If something of it may run, it goes through Terminating instead.
            State::Waiting if self.history.waiting && !had_directory && entry.shows_nothing() => {
                self.state = State::Finished(Finished::unstarted());
            }
            State::Waiting | State::Sync(_) => {
                self.state = State::Terminating(Terminating::new(ctx.now.boot, grace));
                self.measured.begin_work("kill", ctx);
                self.ops.cancel_for_kill(ctx);
                // The status shows nothing to stop, but a lost call may have created something meanwhile.
                if entry.facts().sandboxes.is_empty() || self.sandbox.lost.is_some() {
                    entry.want_read();
                }
            }
            // S7: after a restart of Wherry, a shutdown repeats its request with the rest of the period.
            State::Terminating(t) if repeated => t.end_until(ctx.now.boot + grace),
            State::Terminating(t) => t.shrink(grace),
            State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => return,
        }
        if cause.is_some() {
            self.ending.cause = cause;
        }
        // W4: the record shows the termination, so that a restarted Wherry continues with the rest of the grace
        // period.
        let now = (self.ending.termination(&self.state, &self.demand, ctx.now), self.demand.replaced);
        if now.0.is_some() && now != before {
            self.record.update();
        }
    }

    /// Terminates a pod that is no longer desired or has changed. If it is desired again, it starts again (W6). A
    /// `grace` of None means the pod's own grace period.
    pub fn replace(&mut self, grace: Option<Duration>, entry: &mut Entry, ctx: &mut Context<'_>) {
        self.demand.replaced = true;
        self.kill(grace.unwrap_or(self.grace_period()), None, entry, ctx);
    }

    /// W8: handles a change of the pod's manifest. Returns true if the old version has to continue for now: it runs,
    /// and only a record that was written after the change shows that the new version can start.
    pub fn outdate(&mut self, entry: &Entry) -> bool {
        let runs = !entry.known() || entry.running().next().is_some();
        let State::Sync(sync) = &mut self.state else { return false };
        if !runs || self.pod.is_none() {
            return false;
        }
        if sync.outdated.is_none() {
            sync.outdated = Some(Outdated::default());
            self.record.rewrite();
        }
        true
    }

    /// Returns true if an outdated pod may be replaced now: its record has been written again, or the pod ends for
    /// another reason.
    pub fn may_be_replaced(&self) -> bool {
        !self.state.is_sync() || self.record.is_written() && !self.record.is_being_written(&self.ops)
    }

    /// Keeps an outdated pod running if the manifest was changed back to the version with which the pod runs. Returns
    /// true if the pod was outdated.
    pub fn is_up_to_date_again(&mut self, pod: &Pod) -> bool {
        let same = self.pod.as_ref().is_some_and(|p| p.digest == pod.digest);
        match &mut self.state {
            State::Sync(sync) if same && sync.outdated.is_some() => sync.outdated = None,
            _ => return false,
        }
        self.demand.successor = None;
        true
    }

    /// Reports whether the pod has to start again to match `pod` (W6, D3).
    pub fn is_other_than(&self, pod: &Pod) -> bool {
        let same = self.pod.as_ref().is_some_and(|p| p.digest == pod.digest);
        !same || !self.demand.desired || self.demand.replaced || self.demand.successor.is_some()
    }
}
