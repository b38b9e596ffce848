//! The state machine of one pod (W). Only the worker knows whether containers of the pod run or can still be started.
//!
//! ```text
//! Waiting -> Sync -> Terminating -> Terminated -> Finished -> Forgotten
//! ```
//!
//! `step` compares the desired with the observed state and emits the next effects. It runs after every event of the pod
//! and is idempotent.
//!
//! Each state in `state` carries its own data. Each concern that outlives a state is a small state machine with its
//! own tests: `admission`, `ops` (operations in flight; `requests` begins those of several states), `preparation` and
//! `sandbox`, `container_start`, `pull`, `container_backoff`, `stops`, `replacing`, `restarting`, `volumes`,
//! `resize`, `demand`, `history`, `pod_record`, `outdated`, `ending`, `removals`, `deadline`, `sharing`,
//! `termination_messages`, `retry`, `timer`, and `engine::probe`. Their functions take what they need as arguments,
//! and do not import the worker.
//!
//! The worker composes them: `admitting` follows the node's decision, `sync` plans, `starts` carries out the steps
//! that start something, `pulling` those of a pull and `stopping_round` those of stops, `following`, `new_images` and
//! `resizing` change a running pod, `killing` and `terminate` end it, `cleanup` removes the rest, `completions`
//! handles the results of operations, `recording` writes the pod's record, `showing` builds the worker's own status.

mod admission;
mod admitting;
mod cleanup;
mod completions;
pub mod connections;
mod container_backoff;
mod container_start;
mod containers;
mod deadline;
mod demand;
mod devices;
pub mod earlier;
mod ending;
mod ephemeral;
mod following;
pub mod history;
mod hooks;
mod in_place;
mod killing;
mod measure;
mod needed_image;
mod new_images;
mod ops;
mod outdated;
mod pod_record;
mod preparation;
mod probing;
mod pull;
mod pulling;
mod recording;
mod removals;
mod replacing;
mod requests;
pub mod resize;
mod resizing;
pub mod restart;
pub mod restarting;
mod retry;
mod sandbox;
mod sharing;
mod showing;
mod starts;
mod state;
mod stopping_round;
mod stops;
mod sync;
mod terminate;
mod termination_messages;
mod timer;
pub mod volumes;
mod worker_status;

use crate::api::facts::ContainerFact;
use crate::api::k8s;
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::time::{Now, Wall};
use crate::engine::admission::Admission;
use crate::engine::admission::pod_requests::PodRequests;
use crate::engine::context::Context;
use crate::engine::effect::Measure;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::placement::Placement;
use crate::engine::pod::record::{Record, Snapshot};
use crate::engine::pod::status::{self};
pub use admission::PodAdmission;
use containers::Containers;
use deadline::ActiveDeadline;
use demand::Demand;
use earlier::Earlier;
use ending::{End, Ending};
use history::History;
use in_place::InPlace;
use measure::Measured;
use ops::Operations;
use pod_record::PodRecord;
use removals::Removals;
use resize::Resize;
pub use resize::Verdict as ResizeVerdict;
pub use sandbox::LATE;
use sandbox::Sandbox;
use serde::Serialize;
pub use sharing::waits_for_foreign_objects;
pub use state::State;
use state::{Sync, Terminated, Terminating};
use std::rc::Rc;
use std::time::Duration;
use stops::Stops;
use timer::Timer;
use volumes::Volumes;
pub use worker_status::{NextPull, NextStart, PullProgress, WorkerStatus};

#[derive(Debug, Serialize)]
pub struct Worker {
    pub uid: Uid,
    pub name: FullName,
    /// None for an orphan, which only the runtime knows (W21).
    pub pod: Option<Rc<Pod>>,
    pub state: State,
    pub ending: Ending,
    pub demand: Demand,
    pub admission: PodAdmission,
    pub shown: Shown,
    /// The part of the pod's history that the record contains.
    pub history: History,
    pub record: PodRecord,
    deadline: Option<ActiveDeadline>,
    ops: Operations,
    pub sandbox: Sandbox,
    pub containers: Containers,
    stops: Stops,
    pub volumes: Volumes,
    pub in_place: InPlace,
    removals: Removals,
    measured: Measured,
    /// When `step` is due without an event.
    pub timer: Timer,
}

/// The pod's status and placement that were published last.
#[derive(Debug, Default, Serialize)]
pub struct Shown {
    pub status: k8s::PodStatus,
    pub placement: Placement,
}

impl Shown {
    /// Returns true if all containers have ended, and none starts again.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }
}

impl Worker {
    /// Creates the worker of a pod. It waits until the node reports that the full name is free.
    pub fn new(pod: Rc<Pod>, start_time: Wall, now: Now) -> Worker {
        let mut worker = Worker::bare(pod.uid.clone(), pod.name.clone(), now);
        worker.demand.desired = true;
        worker.history = History::new(start_time);
        worker.deadline = pod.active_deadline().map(|whole| ActiveDeadline::new(whole, now.boot));
        worker.shown.status = status::waiting();
        worker.admission.requests = Rc::new(PodRequests::of(&pod));
        worker.pod = Some(pod);
        worker
    }

    /// Takes over from `previous`, the worker of the pod that had the same UID before.
    pub fn inherit(&mut self, previous: &Worker) {
        if !self.record.exists() {
            self.record = previous.record.inherited();
        }
        self.history.bind(self.history.is_bound() || previous.history.is_bound());
        // E5: evictions are counted across restarts of the pod.
        self.history.evicted.clone_from(&previous.history.evicted);
        // C5: for the API server, it is still the same pod.
        if self.is_from_api_server() {
            self.history.start_time = previous.history.start_time;
            self.history.earlier = Earlier::of(&previous.shown.status);
            // W29: the pod's object keeps the ephemeral containers. Each was started once, so none of them starts
            // again.
            self.history.begun_ephemeral.clone_from(&previous.history.begun_ephemeral);
        }
    }

    /// Creates the worker of a recorded pod, from a previous run (W25). It continues the termination if one was in
    /// progress (W4, W7).
    pub fn revive(record: Record, now: Now, boot_id: &str) -> Worker {
        let age = record.age(now.boot, boot_id);
        let Record { pod, terminal, history, snapshot } = record;
        let Snapshot { written, active, rejected, again, waits_for, termination, resizing } = snapshot;
        let mut worker = Worker::new(pod, history.start_time, now);
        worker.history = history;
        let passed = active.saturating_add(age.unwrap_or_default());
        let whole = worker.pod.as_ref().and_then(|p| p.active_deadline());
        worker.deadline = whole.map(|whole| ActiveDeadline::after(whole, passed, now.boot));
        worker.record = PodRecord::read(again);
        if !worker.history.waiting {
            worker.measured.started_before();
        }
        (worker.demand.replaced, worker.demand.waits_for) = (again, waits_for);
        worker.in_place.resize = Resize::resumed(resizing);
        if let Some(cause) = rejected {
            worker.admission.decision = Admission::Rejected(cause);
        }
        if let Some(t) = termination {
            // The wall clock may have been set, so use the boot clock within the same boot. The rest never exceeds
            // the whole period.
            let left = match (age, &written) {
                (Some(age), Some(written)) => t.grace_deadline.since(written.wall).saturating_sub(age),
                _ => t.grace_deadline.since(now.wall),
            };
            let whole = t.grace_deadline.since(t.began);
            worker.state = State::Terminating(Terminating::resumed(now.boot, whole, left.min(whole)));
            worker.measured.kill_began();
            worker.ending.cause = t.cause;
        }
        if let Some(status) = terminal {
            if !matches!(worker.state, State::Terminating(_)) {
                worker.state = State::Terminating(Terminating::new(now.boot, worker.grace_period()));
            }
            worker.ending.end = End::Terminal { recorded: true };
            worker.shown.status = status;
        }
        worker
    }

    /// Creates the worker of an orphan, which it stops and removes.
    pub fn orphan(uid: Uid, name: FullName, grace: Duration, now: Now) -> Worker {
        let mut worker = Worker::bare(uid, name, now);
        worker.state = State::Terminating(Terminating::new(now.boot, grace));
        worker.measured.kill_began();
        worker
    }

    /// Creates the worker of a pod of which only files, and perhaps volumes, are left.
    pub fn leftover(uid: Uid, name: FullName, now: Now) -> Worker {
        let mut worker = Worker::bare(uid, name, now);
        worker.state = State::Terminated(Terminated::only_files());
        worker
    }

    fn bare(uid: Uid, name: FullName, now: Now) -> Worker {
        Worker {
            uid,
            name,
            pod: None,
            state: State::Waiting,
            ending: Ending::default(),
            demand: Demand::default(),
            admission: PodAdmission::default(),
            shown: Shown::default(),
            history: History::new(now.wall),
            record: PodRecord::none(),
            deadline: None,
            ops: Operations::default(),
            sandbox: Sandbox::default(),
            containers: Containers::default(),
            stops: Stops::default(),
            volumes: Volumes::default(),
            in_place: InPlace::default(),
            removals: Removals::default(),
            measured: Measured::new(now.boot),
            timer: Timer::default(),
        }
    }

    /// Returns true if the pod waits, and nothing of it was started or found running. A pod found running is admitted
    /// while it waits for its name.
    pub fn never_began(&self) -> bool {
        matches!(self.state, State::Waiting) && self.history.waiting && !self.admission.is_admitted()
    }

    /// Lets the pod start, because its full name is free. Returns true if the pod was waiting for that.
    pub fn begin(&mut self) -> bool {
        let waited = matches!(self.state, State::Waiting);
        if waited {
            self.state = State::Sync(Sync::default());
            // The record still says that the pod waits.
            if self.history.waiting {
                self.record.outdate();
            }
            self.history.begin();
        }
        waited
    }

    /// Makes the pod wait again (see `State::wait_again`), because a running pod has the full name, or the pod is not
    /// admitted.
    pub fn wait_again(&mut self) -> bool {
        self.state.wait_again(&self.ops)
    }

    pub fn ops(&self) -> &Operations {
        &self.ops
    }

    /// Returns true if the API server has bound the pod to this node.
    pub fn is_from_api_server(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.is_from_api_server())
    }

    /// Returns the pod's own grace period.
    pub fn grace_period(&self) -> Duration {
        self.pod.as_ref().map_or(Duration::from_secs(1), |p| p.grace_period())
    }

    /// Compares the desired with the observed state and emits the next effects. It is idempotent.
    pub fn step(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        self.timer.clear();
        self.forget_gone(entry);
        self.record.retry(ctx.now.boot, &mut self.timer);
        self.write_record(ctx);
        if self.admission.rejection().is_some() {
            self.wait_again();
        }
        // After a change of the state, the step of the new state runs at once.
        loop {
            let before = std::mem::discriminant(&self.state);
            match self.state {
                State::Waiting | State::Forgotten(_) => {}
                State::Sync(_) => self.step_sync(entry, ctx),
                State::Terminating(_) => self.step_terminating(entry, ctx),
                State::Terminated(_) => self.step_terminated(entry, ctx),
                State::Finished(_) => self.step_finished(entry, ctx),
            }
            self.write_record(ctx);
            if std::mem::discriminant(&self.state) == before {
                break;
            }
        }
        if let Some(pod) = &self.pod {
            let (state, timer) = (&self.state, &mut self.timer);
            probing::request(&mut self.containers.probes, pod, state, &mut self.ops, timer, entry, ctx);
        }
        if self.pod.is_some() && !self.ending.end.is_terminal() {
            let (ops, timer) = (&mut self.ops, &mut self.timer);
            self.containers.messages.read(&self.uid, ops, timer, entry, ctx);
        }
        ctx.slots.release_others(&self.uid, self.state.start_class(&self.ops));
        if !self.state.is_sync() {
            ctx.slots.leave(&self.uid);
        }
        self.update_status(entry, ctx);
        if self.ending.record_terminal(&self.state, &self.demand, &self.ops, &mut self.record) {
            ctx.outbox.note_end(&self.uid);
        }
        if self.state.is_over() {
            self.demand.answer_kills(ctx.outbox);
        }
    }

    /// Returns true if lists show the pod. A removed pod is shown until nothing of it runs.
    pub fn is_shown(&self) -> bool {
        self.demand.desired || !self.state.is_finished()
    }

    /// Publishes the pod's status if it has changed.
    fn update_status(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        let waits = matches!(self.state, State::Waiting);
        if self.status_stays(entry, waits) {
            return;
        }
        // The end of a container is published together with its termination message.
        let unread = |c: &ContainerFact| self.containers.messages.lack(c);
        if self.ops.is_reading_message() || !waits && entry.facts().containers.iter().any(unread) {
            return self.measured.status_waits(ctx);
        }
        let new = match &self.pod {
            _ if waits => self.admission.status_before(),
            Some(pod) => self.status_of(pod, entry, ctx),
            None => return,
        };
        match &mut self.state {
            // The worker waited only for this status.
            State::Terminated(terminated) if !terminated.shown => {
                terminated.shown = true;
                if self.ops.background_is_empty() {
                    self.timer.wake_at(ctx.now.boot);
                }
            }
            State::Finished(finished) => finished.shown = true,
            _ => {}
        }
        let waited = self.measured.status_waited(ctx);
        if new != self.shown.status {
            self.shown.status = new;
            ctx.outbox.measure(Measure::PodStatusDuration(waited));
            ctx.outbox.publish(&self.uid, &self.name);
        }
    }

    /// Returns true if no new status is published: before the first status read, for an orphan, for a terminal pod, and
    /// while the objects of a finished pod are being removed.
    fn status_stays(&self, entry: &Entry, waits: bool) -> bool {
        let is_being_removed = match &self.state {
            State::Finished(finished) => finished.shown && !self.demand.stays(),
            State::Forgotten(_) => true,
            _ => false,
        };
        self.pod.is_none() || self.ending.end.is_terminal() || is_being_removed || !entry.known() && !waits
    }

    fn status_of(&self, pod: &Pod, entry: &Entry, ctx: &Context<'_>) -> k8s::PodStatus {
        let now = ctx.now.boot;
        let hooked = self.ops.post_start();
        // During a shutdown the sandboxes are stopped later. A terminal phase that was shown stays.
        let shown_over = self.shown.has_ended();
        let over = self.ending.end != End::Open
            || self.state.is_over()
            || self.state.is_quiet() && (ctx.hurried || shown_over);
        let creating = status::waiting_at_first(pod);
        status::of(&status::View {
            pod,
            facts: entry.facts(),
            ips: entry.ips(),
            start_time: self.history.start_time,
            qos_class: self.admission.requests.qos.as_str(),
            starting: &|id| match hooked == Some(id) {
                true => Some((creating.clone(), String::new())),
                false => self.containers.backoffs.start_error(id).filter(|_| self.stops.has_planned_stop(id)).cloned(),
            },
            started: &|spec, c| self.containers.probes.started(spec, &c.id),
            ready: &|spec, c| self.containers.probes.ready(spec, &c.id),
            waiting: &|name| {
                let shown = self.containers.backoffs.shown(name, now);
                shown.or_else(|| self.history.without_target(pod, entry.facts(), name))
            },
            messages: self.containers.messages.all(),
            cause: self.ending.cause.as_ref(),
            waits: sharing::waits_for_foreign_objects(pod, &self.state, entry),
            begun_ephemeral: &self.history.begun_ephemeral,
            restarting: &self.history.restarting,
            earlier: &self.history.earlier,
            resize: &self.in_place.resize,
            over,
            runtime: status::StatusRuntime {
                name: ctx.runtime_name,
                stop_signals: ctx.runtime_features.stop_signals,
                recursive_read_only: ctx.handler_features(pod).recursive_read_only_mounts,
            },
            previous: &self.shown.status,
            now: ctx.now.wall,
        })
    }
}
