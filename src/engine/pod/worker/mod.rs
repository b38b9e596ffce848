//! One pod's machine (W): it alone knows whether containers of the pod run or may still be started.
//!
//! ```text
//! Waiting -> Sync -> Terminating -> Terminated -> Finished -> Forgotten
//! ```
//!
//! `step` looks at what is desired and what was observed and emits what to do next; it is called after every event that
//! concerns the pod, and calling it once more changes nothing. `admission` is what the node says
//! of it, `sync` starts and restarts, `terminate` stops and verifies,
//! `cleanup` takes away what is left; `hooks`, `probing` and `volumes` are for pods that have such; `done` takes the answers.

mod admission;
mod cleanup;
mod completions;
mod container_backoff;
mod deadline;
mod hooks;
mod killing;
mod measure;
mod probing;
mod queries;
mod sharing;
mod stops;
mod sync;
mod terminate;
mod volumes;
mod worker_status;

use crate::api::facts::{ContainerFact, ContainerState, ImageFact};
use crate::api::names::{ContainerId, FullName, SandboxId, Uid};
use crate::api::pod::{Pod, is_sidecar};
use crate::api::time::{Boot, Now, Wall};
use crate::engine::admission::Admission;
use crate::engine::admission::pod_requests::PodRequests;
use crate::engine::context::Context;
use crate::engine::effect::{Effect, Measure};
use crate::engine::op::OpId;
use crate::engine::pleg::cache::{Entry, Generation};
use crate::engine::pod::kill::{KillId, TerminationSource};
use crate::engine::pod::record::{self, Preempted};
use crate::engine::pod::status::{self, Cause};
use crate::engine::probe::Probes;
use crate::engine::slots::Class;
pub use cleanup::LATE;
use container_backoff::{ContainerBackoff, PullBackoff, Shown};
use k8s_openapi::api::core::v1 as core;
use measure::Measured;
use probing::Doomed;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use stops::Stops;
use volumes::Volumes;
pub use worker_status::{NextPull, NextStart, WorkerStatus};

#[derive(Debug, Serialize)]
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

#[derive(Debug, Serialize)]
pub struct Terminating {
    pub began: Boot,
    /// When the grace period ends: it counts from the first request and only shrinks (W4).
    pub grace_deadline: Boot,
    sandbox_tries: u32,
    sandbox_retry_at: Option<Boot>,
    /// A status read after the last stop shows that no container runs.
    all_stopped: bool,
}

/// The one changing operation in flight.
#[derive(Debug, Serialize)]
enum ActiveOp {
    PreparePod {
        attempt: u32,
    },
    MakeCgroup {
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
    /// Its container is running; `cancelled`: not any more.
    PostStart {
        index: usize,
        id: ContainerId,
        cancelled: bool,
    },
    MountVolumes,
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
#[derive(Debug, Serialize)]
enum BackgroundOp {
    Stop {
        id: ContainerId,
    },
    Record,
    RecordRemoved,
    Message {
        id: ContainerId,
    },
    PreStop {
        container: String,
    },
    Probe,
    Unmount,
    RemoveCgroup,
    RemovePodFiles,
    /// Nobody waits for it.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Record {
    None,
    /// It says that the pod waits, and it does not any more.
    Stale,
    Writing,
    Durable,
}

#[derive(Debug, Serialize)]
struct Outdated {
    /// How often in a row the record could not be written.
    failures: u32,
}

/// What its pod asks for beside plain containers: what it does not have costs it nothing.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Extras {
    probes: bool,
    hooks: bool,
    sidecars: bool,
    volumes: bool,
}

impl Extras {
    fn of(pod: &Pod) -> Extras {
        Extras {
            probes: crate::engine::probe::any(pod),
            hooks: pod.all_containers().any(|c| c.lifecycle.is_some()),
            sidecars: pod.init_containers().iter().any(is_sidecar),
            volumes: pod.spec().volumes.as_ref().is_some_and(|v| !v.is_empty()),
        }
    }
}

#[derive(Debug, Serialize)]
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
    /// W8: its manifest changed, and it runs on until its record can be written.
    outdated: Option<Outdated>,
    /// The last record said so.
    recorded_again: bool,
    pub status: core::PodStatus,
    /// Why it was killed, for the status.
    pub cause: Option<Cause>,
    admission: Admission,
    /// A1: its place among those that ask for room: first come, first served.
    pub place: u64,
    /// It is to have a sandbox, and nobody has looked yet whether it fits.
    wants_room: bool,
    /// A2; of what only the runtime knows: one pod.
    pub requests: Rc<PodRequests>,
    /// W6: it is to run again, but not before these are over.
    waits_for: BTreeSet<TerminationSource>,
    /// A8: for its record.
    pub preempted: Option<Preempted>,
    /// W5: whom to tell when nothing of it runs any more.
    askers: Vec<KillId>,
    /// Nothing of it ever ran that is known to be ours.
    only_files: bool,
    /// Its full name was free once: something of it may have been started.
    begun: bool,
    /// All containers ended and none is to run again: a terminal phase may be shown (W3).
    ended: bool,
    /// The status as it was when the pod was over is shown.
    over_shown: bool,
    /// W7: the records know it as terminal; it is never started, and shown as it was.
    terminal: bool,
    pub start_time: Wall,
    qos_class: &'static str,
    made: Boot,
    measured: Measured,
    ran: bool,
    deadline: Option<Boot>,
    /// The record is to say how much of it has passed.
    active_due: Option<Boot>,
    op: Option<(OpId, ActiveOp)>,
    background: BTreeMap<OpId, BackgroundOp>,
    record: Record,
    /// The record could not be written: tried again then.
    record_retry: Option<Boot>,
    /// How often it could not be removed.
    record_kept: u32,
    /// The image found for the container that is being started: (index, attempt, image).
    image: Option<(usize, u32, ImageFact)>,
    backoffs: BTreeMap<String, ContainerBackoff>,
    /// Why a start failed: the waiting reason and its message.
    start_errors: BTreeMap<ContainerId, Shown>,
    extras: Extras,
    probes: Probes,
    /// Containers that this worker started, not found running.
    started_here: BTreeSet<ContainerId>,
    /// Running containers that are to be killed and start anew.
    doomed: BTreeMap<ContainerId, Doomed>,
    /// Their preStop hooks have begun (W4: once).
    pre_stopped: BTreeSet<ContainerId>,
    volumes: Volumes,
    /// No call about sandboxes before: one failed, or the last one did not live long.
    sandbox_hold: Option<Boot>,
    sandbox_ran: Option<Boot>,
    /// Nobody knows what became of the call for this attempt (W2): the sandbox may turn up later.
    lost_sandbox: Option<u32>,
    /// A call for a sandbox that was given up, here or in an earlier life, may make the pod's cgroup until then (W26).
    late: Option<Boot>,
    /// Its directory stays as the mark of that.
    keeps_directory: Option<Boot>,
    /// The first attempt of this worker's own: what turns up from before is not its sandbox.
    first_attempt: u32,
    /// The last sandbox that this worker made.
    own_sandbox: Option<SandboxId>,
    /// The dead sandbox of which was told.
    sandbox_told: Option<SandboxId>,
    /// What others run under the UID, and the last event was about (W21).
    stranger_told: Option<String>,
    /// A look at what others have under the UID is needed, no older than this.
    look_since: Option<Generation>,
    /// By container: the last number that the runtime refused because the name was taken.
    refused: BTreeMap<String, u32>,
    /// The image is not there and a pull's turn is waited for: (index, attempt).
    pull_wanted: Option<(usize, u32)>,
    stops: Stops,
    pulls: BTreeMap<String, PullBackoff>,
    stopped: BTreeSet<SandboxId>,
    messages: BTreeMap<ContainerId, String>,
    retry_at: Option<Boot>,
    retries: u32,
    cgroup_tried: bool,
    /// When it is tried again: something was left in it, or it may turn up late. Of one that stays.
    cgroup_again: Option<Boot>,
    cgroup_tries: u32,
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
        worker.deadline = pod.active_deadline().map(|d| now.boot + d);
        worker.status = status::waiting();
        worker.extras = Extras::of(&pod);
        worker.requests = Rc::new(PodRequests::of(&pod));
        worker.pod = Some(pod);
        worker
    }

    /// A worker for a pod of the time before (W25): its end goes on where it was (W4, W7).
    pub fn revive(record: record::Record, now: Now, boot_id: &str) -> Worker {
        let age = record.age(now.boot, boot_id);
        let mut worker = Worker::new(record.pod, record.start_time, now);
        let passed = record.active.saturating_add(age.unwrap_or_default());
        worker.was_active(passed, now.boot);
        worker.record = Record::Durable;
        worker.begun = !record.waiting;
        worker.ran = !record.waiting;
        worker.replaced = record.again;
        worker.recorded_again = record.again;
        worker.waits_for = record.waits_for;
        worker.preempted = record.preempted;
        worker.pre_stopped = record.pre_stopped.into_iter().collect();
        if let Some(cause) = record.rejected {
            worker.admission = Admission::Rejected(cause);
        }
        if let Some(t) = record.termination {
            // Clocks are set: in the same boot the wall clock is not asked, and what is left is never more than the whole.
            let left = match (age, &record.kept) {
                (Some(age), Some(kept)) => t.grace_deadline.since(kept.wall).saturating_sub(age),
                _ => t.grace_deadline.since(now.wall),
            };
            let left = left.min(t.grace_deadline.since(t.began));
            worker.state = State::Terminating(Terminating::new(now.boot, left));
            worker.measured = Measured::killed(now.boot);
            worker.cause = t.cause;
        }
        if let Some(status) = record.terminal {
            if !matches!(worker.state, State::Terminating(_)) {
                worker.state = State::Terminating(Terminating::new(now.boot, worker.grace_period()));
            }
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

    /// W26: a call that was given up may make the pod's cgroup until then, whatever the runtime shows.
    pub fn may_be_late(&mut self, until: Boot) {
        self.late = self.late.max(Some(until));
    }

    /// What is left of it, gone by now: its directory, until then.
    pub fn kept_directory(&self) -> Option<Boot> {
        self.keeps_directory
    }

    /// Sandboxes with a lower attempt are not this worker's.
    pub fn begin_at(&mut self, attempt: u32) {
        self.first_attempt = attempt;
    }

    /// A worker for what only the runtime knows: it is stopped and removed.
    pub fn orphan(uid: Uid, name: FullName, grace: Duration, now: Now) -> Worker {
        let mut worker = Worker::bare(uid, name, now);
        worker.state = State::Terminating(Terminating::new(now.boot, grace));
        worker.measured = Measured::killed(now.boot);
        worker
    }

    /// Of a pod of which nothing is left but files, and volumes maybe.
    pub fn leftover(uid: Uid, name: FullName, now: Now) -> Worker {
        let mut worker = Worker::bare(uid, name, now);
        worker.state = State::Terminated;
        worker.only_files = true;
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
            outdated: None,
            recorded_again: false,
            status: core::PodStatus::default(),
            cause: None,
            admission: Admission::Open,
            place: 0,
            wants_room: false,
            requests: Rc::new(PodRequests::default()),
            waits_for: BTreeSet::new(),
            preempted: None,
            askers: Vec::new(),
            only_files: false,
            begun: false,
            ended: false,
            over_shown: false,
            terminal: false,
            start_time: now.wall,
            qos_class: "",
            made: now.boot,
            measured: Measured::default(),
            ran: false,
            deadline: None,
            active_due: None,
            op: None,
            background: BTreeMap::new(),
            record: Record::None,
            record_retry: None,
            record_kept: 0,
            image: None,
            backoffs: BTreeMap::new(),
            start_errors: BTreeMap::new(),
            extras: Extras::default(),
            probes: Probes::default(),
            started_here: BTreeSet::new(),
            doomed: BTreeMap::new(),
            pre_stopped: BTreeSet::new(),
            volumes: Volumes::default(),
            sandbox_hold: None,
            sandbox_ran: None,
            lost_sandbox: None,
            late: None,
            keeps_directory: None,
            first_attempt: 0,
            own_sandbox: None,
            sandbox_told: None,
            stranger_told: None,
            look_since: None,
            refused: BTreeMap::new(),
            pull_wanted: None,
            stops: Stops::default(),
            pulls: BTreeMap::new(),
            stopped: BTreeSet::new(),
            messages: BTreeMap::new(),
            retry_at: None,
            retries: 0,
            cgroup_tried: false,
            cgroup_again: None,
            cgroup_tries: 0,
            terminal_recorded: false,
            files_removed: false,
            wake: None,
            armed: None,
        }
    }

    /// It waits, and nothing of it was ever started, nor found running (that is admitted, and waits for its name).
    pub fn never_began(&self) -> bool {
        matches!(self.state, State::Waiting) && !self.begun && !self.is_admitted()
    }

    /// It began in this life of wherry or an earlier one.
    pub fn was_begun(&self) -> bool {
        self.begun
    }

    /// Its full name is free: it may start. True if it waited for that.
    pub fn begin(&mut self) -> bool {
        let waited = matches!(self.state, State::Waiting);
        if waited {
            self.state = State::Sync;
            // Its record says that it waits still.
            if !self.begun && self.record != Record::None {
                self.record = Record::Stale;
            }
            self.begun = true;
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

    /// The pod's own grace period.
    pub fn grace_period(&self) -> Duration {
        self.pod.as_ref().map_or(Duration::from_secs(1), |p| p.grace_period())
    }

    /// Looks at where things stand and asks for what is next. Calling it again changes nothing.
    pub fn step(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        self.wake = None;
        self.forget_what_is_gone(entry);
        self.retry_record(ctx);
        if self.rejection().is_some() {
            self.go_back();
        }
        // A state change is followed at once by the new state's own step.
        loop {
            let before = std::mem::discriminant(&self.state);
            match self.state {
                State::Waiting | State::Forgotten => {}
                State::Sync => self.step_sync(entry, ctx),
                State::Terminating(_) => self.step_terminating(entry, ctx),
                State::Terminated => self.step_terminated(entry, ctx),
                State::Finished => self.step_finished(entry, ctx),
            }
            if std::mem::discriminant(&self.state) == before {
                break;
            }
        }
        self.probe(entry, ctx);
        self.read_messages(entry, ctx);
        ctx.slots.release_others(&self.uid, self.start_class());
        if !matches!(self.state, State::Sync) {
            ctx.slots.leave(&self.uid);
        }
        self.update_status(entry, ctx);
        self.record_terminal(ctx);
        self.tell_askers(ctx);
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

    /// A call that makes or removes something is in flight; its answer says what came of it.
    pub fn is_changing(&self) -> bool {
        !matches!(
            &self.op,
            None | Some((
                _,
                ActiveOp::PreparePod { .. }
                    | ActiveOp::MountVolumes
                    | ActiveOp::ImageStatus { .. }
                    | ActiveOp::Pull { .. }
                    | ActiveOp::PostStart { .. }
            ))
        )
    }

    /// A call that stops this container or sandbox is in flight.
    pub fn is_stopping(&self, id: &str) -> bool {
        let sandbox = matches!(&self.op, Some((_, ActiveOp::StopSandbox { id: stopping })) if stopping.as_str() == id);
        sandbox
            || self
                .background
                .values()
                .any(|b| matches!(b, BackgroundOp::Stop { id: stopping } if stopping.as_str() == id))
    }

    /// Has it ever asked the runtime for something, or does the runtime have something of it?
    pub fn has_begun(&self) -> bool {
        !matches!(self.state, State::Waiting)
    }

    /// Which limit the operation in flight counts against.
    fn start_class(&self) -> Option<Class> {
        match &self.op.as_ref()?.1 {
            ActiveOp::PreparePod { .. } | ActiveOp::MakeCgroup { .. } | ActiveOp::RunSandbox { .. } => {
                Some(Class::Sandbox)
            }
            ActiveOp::ImageStatus { .. }
            | ActiveOp::PrepareContainer { .. }
            | ActiveOp::Create { .. }
            | ActiveOp::Start { .. } => Some(Class::Container),
            ActiveOp::Pull { .. } => Some(Class::Pull),
            ActiveOp::PostStart { .. }
            | ActiveOp::MountVolumes
            | ActiveOp::StopSandbox { .. }
            | ActiveOp::RemoveContainer { .. }
            | ActiveOp::RemoveSandbox { .. } => None,
        }
    }

    fn update_status(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        let Some(pod) = &self.pod else { return };
        // What was not looked at yet is not shown as if it were not there, nor what is being removed as never there.
        let going = self.is_finished() && !self.stays();
        let waits = matches!(self.state, State::Waiting);
        if self.terminal || going && self.over_shown || !entry.known() && !waits {
            return;
        }
        // A container's end is shown together with its termination message.
        let unread = |c: &ContainerFact| c.state == ContainerState::Exited && !self.messages.contains_key(&c.id);
        let reading = self.background.values().any(|b| matches!(b, BackgroundOp::Message { .. }));
        if reading || !waits && entry.facts().containers.iter().any(unread) {
            return self.status_waits(ctx);
        }
        let new = if waits {
            self.status_before()
        } else {
            let backoffs = &self.backoffs;
            let now = ctx.now.boot;
            let hooked = self.post_start();
            // In a shutdown sandboxes are left for later; what was shown then is not taken back.
            let shown_over = matches!(self.status.phase.as_deref(), Some("Failed" | "Succeeded"));
            let over = self.ended || self.is_over() || self.is_quiet() && (ctx.hurried || shown_over);
            let creating = if pod.init_containers().is_empty() { "ContainerCreating" } else { "PodInitializing" };
            status::of(&status::View {
                pod,
                facts: entry.facts(),
                ips: entry.ips(),
                start_time: self.start_time,
                qos_class: self.qos_class,
                starting: &|id| match hooked == Some(id) {
                    true => Some((creating.to_string(), String::new())),
                    false => self.start_errors.get(id).filter(|_| self.doomed.contains_key(id)).cloned(),
                },
                started: &|spec, c| self.probes.started(spec, &c.id),
                ready: &|spec, c| self.probes.ready(spec, &c.id),
                waiting: &|name| backoffs.get(name).and_then(|h| h.shown(now)),
                messages: &self.messages,
                cause: self.cause.as_ref(),
                waits: self.waits_for_strangers(entry),
                over,
                runtime: ctx.runtime_name,
                previous: &self.status,
                now: ctx.now.wall,
            })
        };
        self.over_shown = self.is_finished();
        let waited = self.status_waited(ctx);
        if new != self.status {
            self.status = new;
            ctx.measure(Measure::PodStatusDuration(waited));
            ctx.out.push(Effect::Publish { uid: self.uid.clone(), name: self.name.clone() });
        }
    }
}
