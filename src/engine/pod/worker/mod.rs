//! One pod's machine (W): it alone knows whether containers of the pod run or may still be started.
//!
//!     Waiting -> Sync -> Terminating -> Terminated -> Finished -> Forgotten
//!
//! `step` looks at what is desired and what was observed and emits what to do next; it is called after every event that
//! concerns the pod, and calling it once more changes nothing. `sync` starts and restarts, `terminate` stops and verifies,
//! `cleanup` takes away what is left; `done` takes the answers.

mod cleanup;
mod done;
mod holds;
mod sync;
mod terminate;

use crate::api::facts::ImageFact;
use crate::api::names::{ContainerId, FullName, SandboxId, Uid};
use crate::api::pod::Pod;
use crate::api::time::{Boot, Wall};
use crate::engine::context::Context;
use crate::engine::effect::Effect;
use crate::engine::op::OpId;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::status::{self, Cause};
use holds::{Hold, PullBackoff};
use k8s_openapi::api::core::v1 as core;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

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
    /// Rounds of stops that left something running.
    rounds: u32,
    /// The containers that were asked to stop in this round.
    asked: BTreeSet<ContainerId>,
    sandbox_tries: u32,
    retry_at: Option<Boot>,
}

/// The one changing operation in flight.
#[derive(Debug)]
enum Doing {
    PreparePod { attempt: u32 },
    RunSandbox { began: Boot },
    StopSandbox { id: SandboxId },
    ImageStatus { index: usize, attempt: u32 },
    Pull { index: usize, attempt: u32, image: String, began: Boot },
    PrepareContainer { index: usize, attempt: u32, image: ImageFact },
    Create { index: usize, attempt: u32, level: u32 },
    Start { index: usize, id: ContainerId },
    RemoveContainer { id: ContainerId },
}

/// Operations beside it: they change nothing that a plan depends on, or count as one with others (stops).
#[derive(Debug)]
enum Beside {
    Stop {
        id: ContainerId,
        cut: Boot,
    },
    Record,
    Message {
        id: ContainerId,
    },
    RemoveContainer {
        id: ContainerId,
        log_path: String,
    },
    RemoveSandbox {
        id: SandboxId,
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
    pub status: core::PodStatus,
    /// Why it was killed, for the status.
    pub cause: Option<Cause>,
    pub start_time: Wall,
    qos_class: &'static str,
    made: Boot,
    ran: bool,
    deadline: Option<Boot>,
    op: Option<(OpId, Doing)>,
    beside: BTreeMap<OpId, Beside>,
    record: Record,
    /// The image found for the container that is being started: (index, attempt, image).
    image: Option<(usize, u32, ImageFact)>,
    holds: BTreeMap<String, Hold>,
    start_errors: BTreeMap<ContainerId, String>,
    sandbox_hold: Option<Boot>,
    pulls: BTreeMap<String, PullBackoff>,
    stopped: BTreeSet<SandboxId>,
    messages: BTreeMap<ContainerId, String>,
    retry_at: Option<Boot>,
    retries: u32,
    cgroup_tried: bool,
    files_removed: bool,
    record_removed: bool,
    wake: Option<Boot>,
    armed: Option<Boot>,
}

impl Worker {
    /// A worker for a pod; it waits until the node says that its full name is free.
    pub fn new(pod: Rc<Pod>, start_time: Wall, recorded: bool, ctx: &Context<'_>) -> Worker {
        let mut worker = Worker::bare(pod.uid.clone(), pod.name.clone(), ctx);
        worker.qos_class = crate::api::qos::Qos::of(pod.spec()).as_str();
        worker.desired = true;
        worker.start_time = start_time;
        worker.record = if recorded { Record::Durable } else { Record::None };
        // The start may lie far back, or (a clock set back) ahead: never more than the whole deadline from now.
        worker.deadline =
            pod.active_deadline().map(|d| ctx.now.boot + d.saturating_sub(ctx.now.wall.since(start_time)));
        worker.status = status::waiting();
        worker.pod = Some(pod);
        worker
    }

    /// A worker for what only the runtime knows: it is stopped and removed.
    pub fn orphan(uid: Uid, name: FullName, grace: Duration, ctx: &Context<'_>) -> Worker {
        let mut worker = Worker::bare(uid, name, ctx);
        worker.state = State::Terminating(Terminating::new(ctx.now.boot, grace));
        worker
    }

    fn bare(uid: Uid, name: FullName, ctx: &Context<'_>) -> Worker {
        Worker {
            uid,
            name,
            pod: None,
            state: State::Waiting,
            desired: false,
            restart: None,
            status: core::PodStatus::default(),
            cause: None,
            start_time: ctx.now.wall,
            qos_class: "",
            made: ctx.now.boot,
            ran: false,
            deadline: None,
            op: None,
            beside: BTreeMap::new(),
            record: Record::None,
            image: None,
            holds: BTreeMap::new(),
            start_errors: BTreeMap::new(),
            sandbox_hold: None,
            pulls: BTreeMap::new(),
            stopped: BTreeSet::new(),
            messages: BTreeMap::new(),
            retry_at: None,
            retries: 0,
            cgroup_tried: false,
            files_removed: false,
            record_removed: false,
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

    /// W23: something turned up running for a pod that is finished: it is stopped as an orphan's.
    pub fn runs_again(&mut self, now: Boot) {
        if matches!(self.state, State::Finished) {
            self.state = State::Terminating(Terminating::new(now, Duration::from_secs(1)));
        }
    }

    /// Asks for the pod's end within `grace` (W4, W5). What was asked for before goes on, only sooner.
    pub fn kill(&mut self, grace: Duration, cause: Option<Cause>, ctx: &mut Context<'_>) {
        match &mut self.state {
            // W8: it never started anything.
            State::Waiting => self.state = State::Finished,
            State::Sync => {
                self.state = State::Terminating(Terminating::new(ctx.now.boot, grace));
                self.cancel_op(ctx);
            }
            State::Terminating(t) => t.shrink(grace),
            State::Terminated | State::Finished | State::Forgotten => return,
        }
        if cause.is_some() {
            self.cause = cause;
        }
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
                over: self.is_over(),
                runtime: ctx.runtime_name,
                previous: &self.status,
                now: ctx.now.wall,
            })
        };
        if new != self.status {
            self.status = new;
            ctx.out.push(Effect::Publish { uid: self.uid.clone(), name: self.name.clone() });
        }
    }
}
