//! The state machine of one pod (W). Only the worker knows whether containers of the pod run or can still be started.
//!
//! ```text
//! Waiting -> Sync -> Terminating -> Terminated -> Finished -> Forgotten
//! ```
//!
//! `step` compares the desired with the observed state and emits the next effects. It runs after every event of the pod and
//! is idempotent. The submodules: `admission` keeps the node's decision, `sync` starts and restarts containers, `terminate`
//! stops them and verifies that, `cleanup` removes the rest, `completions` handles the results of operations. `hooks`,
//! `probing` and `volumes` are for pods that use these.

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
    /// Another pod with the same full name has not finished yet (W8).
    Waiting,
    Sync,
    Terminating(Terminating),
    /// Nothing runs; the worker removes volumes and cgroup.
    Terminated,
    Finished,
    /// Nothing of the pod is left; the node drops the worker.
    Forgotten,
}

#[derive(Debug, Serialize)]
pub struct Terminating {
    pub began: Boot,
    /// The end of the grace period, which counts from the first request and only shrinks (W4).
    pub grace_deadline: Boot,
    sandbox_tries: u32,
    sandbox_retry_at: Option<Boot>,
    /// A status read after the last stop shows no running container.
    all_stopped: bool,
}

/// The changing operation in flight; there is at most one.
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
    /// The container is running. `cancelled`: it no longer runs, and the hook was cancelled.
    PostStart {
        index: usize,
        id: ContainerId,
        cancelled: bool,
    },
    MountVolumes,
    /// `log_path`: the log of a dead container, removed together with it.
    RemoveContainer {
        id: ContainerId,
        log_path: Option<String>,
    },
    RemoveSandbox {
        id: SandboxId,
    },
}

/// Operations next to the active one. They change nothing that a plan depends on, or count as one together (stops).
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
    /// Nothing waits for it.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Record {
    None,
    /// The record says that the pod waits, which is no longer true.
    Stale,
    Writing,
    Durable,
}

#[derive(Debug, Serialize)]
struct Outdated {
    /// The number of consecutive failures to write the record.
    failures: u32,
}

/// Optional features that the pod uses. Unused features cost nothing.
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
    /// None for an orphan, which only the runtime knows (W21).
    pub pod: Option<Rc<Pod>>,
    pub state: State,
    /// A manifest desires the pod.
    pub desired: bool,
    /// W6: the pod to start under this UID after this worker has finished.
    pub restart: Option<Rc<Pod>>,
    /// The pod was undesired or replaced. If it is desired again, it starts again (W6).
    replaced: bool,
    /// W8: the manifest changed; the old version runs until its record can be written.
    outdated: Option<Outdated>,
    /// The value of `replaced` in the last record.
    recorded_again: bool,
    pub status: core::PodStatus,
    /// Why the pod was killed, for the status.
    pub cause: Option<Cause>,
    admission: Admission,
    /// A1: the position among the pods that take room: first come, first served.
    pub place: u64,
    /// The pod needs a sandbox, and admission has not checked yet whether it fits.
    wants_room: bool,
    /// A2; for an orphan one pod.
    pub requests: Rc<PodRequests>,
    /// W6: the pod is to run again, but only after these causes are over.
    waits_for: BTreeSet<TerminationSource>,
    /// A8: for the record.
    pub preempted: Option<Preempted>,
    /// W5: the requesters to answer when nothing of the pod runs any more.
    askers: Vec<KillId>,
    /// Only files of the pod are left; nothing of it is known to have run under this root directory.
    only_files: bool,
    /// The full name was free once, so something of the pod may have been started.
    begun: bool,
    /// All containers ended and none restarts, so the status may show a terminal phase (W3).
    ended: bool,
    /// The final status of the pod is published.
    over_shown: bool,
    /// W7: the record is terminal. The pod is never started and keeps its status.
    terminal: bool,
    pub start_time: Wall,
    qos_class: &'static str,
    made: Boot,
    measured: Measured,
    ran: bool,
    deadline: Option<Boot>,
    /// When the record is next due to be written with the active time.
    active_due: Option<Boot>,
    op: Option<(OpId, ActiveOp)>,
    background: BTreeMap<OpId, BackgroundOp>,
    record: Record,
    /// When a failed write of the record is retried.
    record_retry: Option<Boot>,
    /// The number of failures to remove the record.
    record_kept: u32,
    /// The image for the container that is being started: (index, attempt, image).
    image: Option<(usize, u32, ImageFact)>,
    backoffs: BTreeMap<String, ContainerBackoff>,
    /// Waiting reason and message after a failed start.
    start_errors: BTreeMap<ContainerId, Shown>,
    extras: Extras,
    probes: Probes,
    /// Containers that this worker started itself, rather than found running.
    started_here: BTreeSet<ContainerId>,
    /// Running containers that the worker kills to restart them.
    doomed: BTreeMap<ContainerId, Doomed>,
    /// Containers whose preStop hook has started (W4: it runs once).
    pre_stopped: BTreeSet<ContainerId>,
    volumes: Volumes,
    /// No sandbox operation before this time, because one failed or the last sandbox died soon.
    sandbox_hold: Option<Boot>,
    sandbox_ran: Option<Boot>,
    /// The outcome of the call for this attempt is unknown (W2): the sandbox may appear later.
    lost_sandbox: Option<u32>,
    /// A cancelled sandbox call of this or a previous run may create the pod's cgroup until then (W26).
    late: Option<Boot>,
    /// The pod's directory stays until then as the marker for `late`.
    keeps_directory: Option<Boot>,
    /// The first attempt number of this worker's own. A sandbox with a lower number is not its sandbox.
    first_attempt: u32,
    /// The last sandbox that this worker created.
    own_sandbox: Option<SandboxId>,
    /// The dead sandbox that was last reported in an event.
    sandbox_told: Option<SandboxId>,
    /// The running object of another owner that was last reported in an event (W21).
    stranger_told: Option<String>,
    /// A status read that began at this generation or later must show the objects of other owners under the UID.
    look_since: Option<Generation>,
    /// By container: the last attempt number that the runtime refused because the name was taken.
    refused: BTreeMap<String, u32>,
    /// The image is missing and the pull waits for a slot: (index, attempt).
    pull_wanted: Option<(usize, u32)>,
    stops: Stops,
    pulls: BTreeMap<String, PullBackoff>,
    stopped: BTreeSet<SandboxId>,
    messages: BTreeMap<ContainerId, String>,
    retry_at: Option<Boot>,
    retries: u32,
    cgroup_tried: bool,
    /// When the removal of the cgroup is retried for a pod that stays, because it failed or the cgroup may appear late.
    cgroup_again: Option<Boot>,
    cgroup_tries: u32,
    terminal_recorded: bool,
    files_removed: bool,
    wake: Option<Boot>,
    armed: Option<Boot>,
}

impl Worker {
    /// A worker for a pod. It waits until the node reports that the full name is free.
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

    /// A worker for a pod of a previous run (W25). It continues the termination if one was in progress (W4, W7).
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
            // The wall clock may be set: in the same boot, use the boot clock. The rest never exceeds the whole period.
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

    /// The attempt of a sandbox that may appear in the runtime after the worker is gone.
    pub fn lost_sandbox(&self) -> Option<u32> {
        self.lost_sandbox
    }

    /// W26: a cancelled call may create the pod's cgroup until then, even if the runtime shows nothing of the pod.
    pub fn may_be_late(&mut self, until: Boot) {
        self.late = self.late.max(Some(until));
    }

    /// How long the directory of a forgotten pod stays as a marker.
    pub fn kept_directory(&self) -> Option<Boot> {
        self.keeps_directory
    }

    /// Sets the first attempt of this worker. Sandboxes with a lower attempt are not its own.
    pub fn begin_at(&mut self, attempt: u32) {
        self.first_attempt = attempt;
    }

    /// A worker for an orphan, which it stops and removes.
    pub fn orphan(uid: Uid, name: FullName, grace: Duration, now: Now) -> Worker {
        let mut worker = Worker::bare(uid, name, now);
        worker.state = State::Terminating(Terminating::new(now.boot, grace));
        worker.measured = Measured::killed(now.boot);
        worker
    }

    /// A worker for a pod of which only files, and perhaps volumes, are left.
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

    /// The pod waits, and nothing of it was started or found running. A pod found running is admitted
    /// while it waits for its name.
    pub fn never_began(&self) -> bool {
        matches!(self.state, State::Waiting) && !self.begun && !self.is_admitted()
    }

    /// The pod started in this or a previous run of Wherry.
    pub fn was_begun(&self) -> bool {
        self.begun
    }

    /// The full name is free: the pod may start. Returns true if it was waiting for that.
    pub fn begin(&mut self) -> bool {
        let waited = matches!(self.state, State::Waiting);
        if waited {
            self.state = State::Sync;
            // The record still says that the pod waits.
            if !self.begun && self.record != Record::None {
                self.record = Record::Stale;
            }
            self.begun = true;
        }
        waited
    }

    /// A running pod has the full name: a worker without an operation in flight waits again. Returns true if it waits.
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

    /// Compares the desired with the observed state and emits the next effects. It is idempotent.
    pub fn step(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        self.wake = None;
        self.forget_what_is_gone(entry);
        self.retry_record(ctx);
        if self.rejection().is_some() {
            self.go_back();
        }
        // After a state change the new state's step runs at once.
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

    /// When `step` is due without an event; Some only if the time changed since the last call.
    pub fn take_timer(&mut self) -> Option<Option<Boot>> {
        (self.armed != self.wake).then(|| {
            self.armed = self.wake;
            self.wake
        })
    }

    /// The timer fired and is no longer armed.
    pub fn timer_fired(&mut self) {
        self.armed = None;
    }

    fn wake_at(&mut self, at: Boot) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }

    /// No container runs or can still start.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Terminated | State::Finished | State::Forgotten)
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished | State::Forgotten)
    }

    pub fn is_forgotten(&self) -> bool {
        matches!(self.state, State::Forgotten)
    }

    /// A call that creates or removes something is in flight, so its outcome is still open.
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

    /// The pod may have started something, or the runtime shows something of it.
    pub fn has_begun(&self) -> bool {
        !matches!(self.state, State::Waiting)
    }

    /// The limit against which the operation in flight counts.
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
        // Publish nothing before the first status read, nor while the objects of a finished pod are being removed.
        let going = self.is_finished() && !self.stays();
        let waits = matches!(self.state, State::Waiting);
        if self.terminal || going && self.over_shown || !entry.known() && !waits {
            return;
        }
        // The end of a container is published together with its termination message.
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
            // During a shutdown the sandboxes are stopped later. A terminal phase that was shown stays.
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
