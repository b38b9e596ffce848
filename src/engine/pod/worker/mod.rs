//! One pod's machine (W): it alone knows whether containers of the pod run or may still be started.
//!
//! ```text
//! Waiting -> Sync -> Terminating -> Terminated -> Finished -> Forgotten
//! ```
//!
//! `step` looks at what is desired and what was observed and emits what to do next; it is called after every event that
//! concerns the pod, and calling it once more changes nothing. `sync` starts and restarts, `terminate` stops and verifies,
//! `cleanup` takes away what is left; `done` takes the answers.

mod cleanup;
mod done;
mod holds;
mod stops;
mod sync;
mod terminate;

use crate::api::facts::ImageFact;
use crate::api::names::{ContainerId, FullName, SandboxId, Uid};
use crate::api::pod::Pod;
use crate::api::time::{Boot, Now, Wall};
use crate::engine::context::Context;
use crate::engine::effect::{Effect, RecordChange};
use crate::engine::op::OpId;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::record::{self, Termination};
use crate::engine::pod::status::{self, Cause};
use holds::{Hold, PullBackoff};
use k8s_openapi::api::core::v1 as core;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use stops::Stops;

#[derive(Debug)]
pub enum State {
    /// Another pod of its full name has not finished yet (W8).
    Waiting,
    Sync,
    Terminating(Terminating),
    /// Nothing runs; the cgroup is being removed.
    Terminated,
    Finished,
    /// Nothing is left of it: the node drops the worker.
    Forgotten,
}

#[derive(Debug)]
pub struct Terminating {
    pub began: Boot,
    /// When the grace period ends: it counts from the first request and only shrinks (W4).
    pub cut: Boot,
    sandbox_tries: u32,
    sandbox_retry_at: Option<Boot>,
}

/// The one changing operation in flight.
#[derive(Debug)]
enum Doing {
    PreparePod {
        attempt: u32,
    },
    RunSandbox {
        began: Boot,
        attempt: u32,
    },
    StopSandbox {
        id: SandboxId,
    },
    ImageStatus {
        index: usize,
        attempt: u32,
    },
    Pull {
        index: usize,
        attempt: u32,
        image: String,
        began: Boot,
    },
    PrepareContainer {
        index: usize,
        attempt: u32,
        image: ImageFact,
    },
    Create {
        index: usize,
        attempt: u32,
        level: u32,
    },
    Start {
        index: usize,
        id: ContainerId,
    },
    /// `log_path`: of a dead one, to go with it.
    RemoveContainer {
        id: ContainerId,
        log_path: Option<String>,
    },
    RemoveSandbox {
        id: SandboxId,
    },
}

/// Operations beside it: they change nothing that a plan depends on, or count as one with others (stops).
#[derive(Debug)]
enum Beside {
    Stop {
        id: ContainerId,
    },
    Record,
    RecordRemoved,
    Message {
        id: ContainerId,
    },
    RemoveCgroup,
    RemovePodFiles,
    /// Nobody waits for it.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    None,
    Writing,
    Durable,
}

#[derive(Debug)]
pub struct Worker {
    pub uid: Uid,
    pub name: FullName,
    /// None for what only the runtime knows (W21).
    pub pod: Option<Rc<Pod>>,
    pub state: State,
    /// A manifest asks for it.
    pub desired: bool,
    /// W6: what to start under this UID once this worker is finished.
    pub restart: Option<Rc<Pod>>,
    /// Its end was asked for by whoever desires pods: should it be desired again, it starts anew (W6).
    replaced: bool,
    pub status: core::PodStatus,
    /// Why it was killed, for the status.
    pub cause: Option<Cause>,
    /// All containers ended and none is to run again: a terminal phase may be shown (W3).
    ended: bool,
    /// The status as it was when the pod was over is shown.
    over_shown: bool,
    /// W7: the records know it as terminal; it is never started, and shown as it was.
    terminal: bool,
    pub start_time: Wall,
    qos_class: &'static str,
    made: Boot,
    ran: bool,
    deadline: Option<Boot>,
    op: Option<(OpId, Doing)>,
    beside: BTreeMap<OpId, Beside>,
    record: Record,
    /// The record could not be written: tried again then.
    record_retry: Option<Boot>,
    /// How often it could not be removed.
    record_kept: u32,
    /// The image found for the container that is being started: (index, attempt, image).
    image: Option<(usize, u32, ImageFact)>,
    holds: BTreeMap<String, Hold>,
    start_errors: BTreeMap<ContainerId, String>,
    /// No call about sandboxes before: one failed, or the last one did not live long.
    sandbox_hold: Option<Boot>,
    sandbox_ran: Option<Boot>,
    /// Nobody knows what became of the call for this attempt (W2): the sandbox may turn up later.
    lost_sandbox: Option<u32>,
    /// The first attempt of this worker's own: what turns up from before is not its sandbox.
    first_attempt: u32,
    /// The last sandbox that this worker made.
    own_sandbox: Option<SandboxId>,
    /// The dead sandbox of which was told.
    sandbox_told: Option<SandboxId>,
    /// The image is not there and a pull's turn is waited for: (index, attempt).
    pull_wanted: Option<(usize, u32)>,
    stops: Stops,
    pulls: BTreeMap<String, PullBackoff>,
    stopped: BTreeSet<SandboxId>,
    messages: BTreeMap<ContainerId, String>,
    retry_at: Option<Boot>,
    retries: u32,
    cgroup_tried: bool,
    terminal_recorded: bool,
    files_removed: bool,
    wake: Option<Boot>,
    armed: Option<Boot>,
}

impl Worker {
    /// A worker for a pod; it waits until the node says that its full name is free.
    pub fn new(pod: Rc<Pod>, start_time: Wall, now: Now) -> Worker {
        let mut worker = Worker::bare(pod.uid.clone(), pod.name.clone(), now);
        worker.qos_class = crate::api::qos::Qos::of(pod.spec()).as_str();
        worker.desired = true;
        worker.start_time = start_time;
        // The start may lie far back, or (a clock set back) ahead: never more than the whole deadline from now.
        worker.deadline = pod.active_deadline().map(|d| now.boot + d.saturating_sub(now.wall.since(start_time)));
        worker.status = status::waiting();
        worker.pod = Some(pod);
        worker
    }

    /// A worker for a pod of the time before (W25): its end goes on where it was (W4, W7).
    pub fn revive(record: record::Record, now: Now) -> Worker {
        let mut worker = Worker::new(record.pod, record.start_time, now);
        worker.record = Record::Durable;
        worker.ran = true;
        if let Some(t) = record.termination {
            // Clocks are set: what is left is never more than the whole.
            let left = t.cut.since(now.wall).min(t.cut.since(t.began));
            worker.state = State::Terminating(Terminating::new(now.boot, left));
            worker.replaced = t.cause.is_none();
            worker.cause = t.cause;
        }
        if let Some(status) = record.terminal {
            if !matches!(worker.state, State::Terminating(_)) {
                worker.state = State::Terminating(Terminating::new(now.boot, worker.grace_period()));
            }
            worker.replaced = false;
            worker.terminal = true;
            worker.terminal_recorded = true;
            worker.ended = true;
            worker.status = status;
        }
        worker
    }

    /// A sandbox of this attempt may turn up in the runtime after the worker is gone.
    pub fn lost_sandbox(&self) -> Option<u32> {
        self.lost_sandbox
    }

    /// Sandboxes with a lower attempt are not this worker's.
    pub fn begin_at(&mut self, attempt: u32) {
        self.first_attempt = attempt;
    }

    /// A worker for what only the runtime knows: it is stopped and removed.
    pub fn orphan(uid: Uid, name: FullName, grace: Duration, now: Now) -> Worker {
        let mut worker = Worker::bare(uid, name, now);
        worker.state = State::Terminating(Terminating::new(now.boot, grace));
        worker
    }

    fn bare(uid: Uid, name: FullName, now: Now) -> Worker {
        Worker {
            uid,
            name,
            pod: None,
            state: State::Waiting,
            desired: false,
            restart: None,
            replaced: false,
            status: core::PodStatus::default(),
            cause: None,
            ended: false,
            over_shown: false,
            terminal: false,
            start_time: now.wall,
            qos_class: "",
            made: now.boot,
            ran: false,
            deadline: None,
            op: None,
            beside: BTreeMap::new(),
            record: Record::None,
            record_retry: None,
            record_kept: 0,
            image: None,
            holds: BTreeMap::new(),
            start_errors: BTreeMap::new(),
            sandbox_hold: None,
            sandbox_ran: None,
            lost_sandbox: None,
            first_attempt: 0,
            own_sandbox: None,
            sandbox_told: None,
            pull_wanted: None,
            stops: Stops::default(),
            pulls: BTreeMap::new(),
            stopped: BTreeSet::new(),
            messages: BTreeMap::new(),
            retry_at: None,
            retries: 0,
            cgroup_tried: false,
            terminal_recorded: false,
            files_removed: false,
            wake: None,
            armed: None,
        }
    }

    /// Its full name is free: it may start. True if it waited for that.
    pub fn begin(&mut self) -> bool {
        let waited = matches!(self.state, State::Waiting);
        if waited {
            self.state = State::Sync;
        }
        waited
    }

    /// Something that runs has its full name: a worker that has asked for nothing yet waits again. True if it does.
    pub fn wait_again(&mut self) -> bool {
        match self.state {
            State::Waiting => true,
            State::Sync if self.op.is_none() => {
                self.state = State::Waiting;
                true
            }
            _ => false,
        }
    }

    /// Asks for the pod's end within `grace` (W4, W5). What was asked for before goes on, only sooner.
    pub fn kill(&mut self, grace: Duration, cause: Option<Cause>, entry: &mut Entry, ctx: &mut Context<'_>) {
        let before = self.termination(ctx);
        match &mut self.state {
            // W8: it never started anything. One of which something may run goes the whole way.
            State::Waiting if self.record == Record::None && entry.shows_nothing() => self.state = State::Finished,
            State::Waiting | State::Sync => {
                self.state = State::Terminating(Terminating::new(ctx.now.boot, grace));
                self.cancel_op(ctx);
                // Nothing to stop: a call that was lost may have made something by now.
                if entry.facts().sandboxes.is_empty() || self.lost_sandbox.is_some() {
                    entry.want_read();
                }
            }
            State::Terminating(t) => t.shrink(grace),
            State::Terminated | State::Finished | State::Forgotten => return,
        }
        if cause.is_some() {
            self.cause = cause;
        }
        // W4: a restart of wherry goes on with what is left.
        let now = self.termination(ctx);
        if now != before && self.record != Record::None {
            self.put_record(now.as_ref(), None, ctx);
        }
    }

    /// It is not desired any more, or otherwise: it ends, and starts anew should it be desired (W6).
    pub fn replace(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        self.replaced = true;
        self.kill(self.grace_period(), None, entry, ctx);
    }

    /// Would it have to start anew to be what `pod` says (W6, D3)?
    pub fn is_other_than(&self, pod: &Pod) -> bool {
        let same = self.pod.as_ref().is_some_and(|p| p.digest == pod.digest);
        !same || !self.desired || self.replaced || self.restart.is_some()
    }

    fn termination(&self, ctx: &Context<'_>) -> Option<Termination> {
        let State::Terminating(t) = &self.state else { return None };
        let ago = i64::try_from(ctx.now.boot.since(t.began).as_nanos()).unwrap_or(0);
        let began = Wall(ctx.now.wall.0.saturating_sub(ago));
        Some(Termination { began, cut: began + t.cut.since(t.began), cause: self.cause.clone() })
    }

    fn put_record(
        &mut self,
        termination: Option<&Termination>,
        terminal: Option<&core::PodStatus>,
        ctx: &mut Context<'_>,
    ) {
        let Some(pod) = &self.pod else { return };
        let value = record::write(pod, self.start_time, termination, terminal);
        let op = ctx.record(&self.uid, RecordChange::Put { key: record::key(&self.uid), value });
        self.beside.insert(op, Beside::Record);
    }

    /// W2: pulls, creates and starts do not hold up a termination; what became of them is looked up.
    fn cancel_op(&mut self, ctx: &mut Context<'_>) {
        if let Some((op, Doing::RunSandbox { .. } | Doing::Pull { .. } | Doing::Create { .. } | Doing::Start { .. })) =
            &self.op
        {
            ctx.out.push(Effect::Cancel { op: *op });
        }
    }

    /// The pod's own grace period.
    pub fn grace_period(&self) -> Duration {
        self.pod.as_ref().map_or(Duration::from_secs(1), |p| p.grace_period())
    }

    /// Looks at where things stand and asks for what is next. Calling it again changes nothing.
    pub fn step(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        self.wake = None;
        self.forget_what_is_gone(entry);
        // A state change is followed at once by the new state's own step.
        loop {
            let before = std::mem::discriminant(&self.state);
            match self.state {
                State::Waiting | State::Forgotten => {}
                State::Sync => self.step_sync(entry, ctx),
                State::Terminating(_) => self.step_terminating(entry, ctx),
                State::Terminated => self.step_terminated(ctx),
                State::Finished => self.step_finished(entry, ctx),
            }
            if std::mem::discriminant(&self.state) == before {
                break;
            }
        }
        self.read_messages(entry, ctx);
        let starting = match &self.op {
            Some((_, Doing::Pull { .. })) | None => false,
            Some(_) => true,
        };
        if !starting {
            ctx.starts.release(&self.uid);
        }
        if !matches!(self.op, Some((_, Doing::Pull { .. }))) {
            ctx.pulls.release(&self.uid);
        }
        if !matches!(self.state, State::Sync) {
            ctx.starts.leave(&self.uid);
            ctx.pulls.leave(&self.uid);
        }
        self.update_status(entry, ctx);
        self.record_terminal(ctx);
    }

    /// When `step` is due without an event; Some only when it changed since the last call.
    pub fn take_timer(&mut self) -> Option<Option<Boot>> {
        (self.armed != self.wake).then(|| {
            self.armed = self.wake;
            self.wake
        })
    }

    /// The timer fired: it is not armed any more.
    pub fn timer_fired(&mut self) {
        self.armed = None;
    }

    fn wake_at(&mut self, at: Boot) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }

    /// No container runs and none is coming.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Terminated | State::Finished | State::Forgotten)
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished | State::Forgotten)
    }

    pub fn is_forgotten(&self) -> bool {
        matches!(self.state, State::Forgotten)
    }

    /// Has it ever asked the runtime for something, or does the runtime have something of it?
    pub fn has_begun(&self) -> bool {
        !matches!(self.state, State::Waiting)
    }

    fn update_status(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        let Some(pod) = &self.pod else { return };
        // What was not looked at yet is not shown as if it were not there, nor what is being removed as never there.
        let going = self.is_finished() && (!self.desired || self.restart.is_some());
        if self.terminal || going && self.over_shown || !entry.known() {
            return;
        }
        // A container's end is shown together with its termination message.
        if self.beside.values().any(|b| matches!(b, Beside::Message { .. })) {
            return;
        }
        let new = if matches!(self.state, State::Waiting) {
            status::waiting()
        } else {
            let holds = &self.holds;
            let now = ctx.now.boot;
            status::of(&status::View {
                pod,
                facts: entry.facts(),
                ips: entry.ips(),
                start_time: self.start_time,
                qos_class: self.qos_class,
                waiting: &|name| holds.get(name).and_then(|h| h.shown(now)),
                messages: &self.messages,
                cause: self.cause.as_ref(),
                over: self.ended || self.is_over(),
                runtime: ctx.runtime_name,
                previous: &self.status,
                now: ctx.now.wall,
            })
        };
        self.over_shown = self.is_finished();
        if new != self.status {
            self.status = new;
            ctx.out.push(Effect::Publish { uid: self.uid.clone(), name: self.name.clone() });
        }
    }
}
