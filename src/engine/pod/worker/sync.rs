//! Sync: starts and restarts containers until the pod is killed or ends by itself (W1, W9 to W13).

use super::container_backoff::ContainerBackoff;
use super::measure::{container_type, measure_start_error};
use super::probing::Doomed;
use super::{ActiveOp, Record, State, Terminating, Worker};
use crate::api::facts::{ContainerState, ImageFact, PodFacts};
use crate::api::names::ContainerId;
use crate::api::pod::Pod;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::{CreateContainer, FilesCall, Measure, RuntimeCall, Severity};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::backoff;
use crate::engine::pod::plan::{self, Next, PlanInput};
use crate::engine::pod::status::Cause;
use std::rc::Rc;
use std::time::Duration;

/// Healthy pods wake up together, at multiples of this, or of half of `syncFrequency` if that is less.
const GRID: Duration = Duration::from_secs(30);
/// Minimum time between the starts of two sandboxes of a pod.
const SANDBOX_LIFE: Duration = Duration::from_secs(10);

impl Worker {
    pub(super) fn step_sync(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        let Some(pod) = self.pod.clone() else { return };
        if let Some(deadline) = self.deadline {
            if deadline <= ctx.now.boot {
                let message = "Pod was active on the node longer than the specified deadline";
                ctx.tell(Some(&pod), None, (Severity::Normal, "DeadlineExceeded"), message.into());
                let cause = Cause { reason: "DeadlineExceeded".into(), message: message.into(), by: None };
                self.kill(pod.grace_period(), Some(cause), entry, ctx);
                return;
            }
            self.wake_at(deadline);
            self.keep_active_time(ctx);
        }
        // P5: never act on a status that is older than the worker's own last change.
        if !entry.usable() {
            return;
        }
        self.measure_first_sync(&pod, ctx);
        self.give_up_post_start(entry, ctx);
        self.know_own_sandbox(&pod, entry.facts());
        self.note_running(&pod, entry, ctx);
        // A pod that runs already takes room, so it counts as admitted.
        if entry.facts().sandboxes.iter().any(|s| s.ready) || entry.running().next().is_some() {
            self.admit();
        }
        self.hold_the_ended(&pod, entry, ctx);
        // The stop of a doomed container does not wait for a long pull or hook of another container.
        let busy = !matches!(
            self.op,
            None | Some((_, ActiveOp::Pull { .. } | ActiveOp::PostStart { .. } | ActiveOp::MountVolumes))
        );
        let dooming = !busy && ctx.up && self.stop_doomed(entry, ctx);
        if self.op.is_some() || self.stopping() {
            return;
        }
        if ctx.up && !dooming {
            self.advance(&pod, entry, ctx);
        }
        self.measure_sync(ctx);
        if matches!(self.state, State::Sync) {
            self.schedule(ctx);
        }
    }

    /// A pod with a fixed UID replaces an empty sandbox that this worker did not create. A cancelled call may have created
    /// it late for another version of the pod.
    fn know_own_sandbox(&mut self, pod: &Pod, facts: &PodFacts) {
        let Some(ready) = plan::ready_sandbox(facts) else { return };
        if self.own_sandbox.as_ref() == Some(&ready.id) || facts.containers.iter().any(|c| c.sandbox == ready.id) {
            return;
        }
        if pod.has_own_uid() {
            self.first_attempt = self.first_attempt.max(ready.attempt.saturating_add(1));
        }
    }

    /// Starts the next changing operation, if any.
    fn advance(&mut self, pod: &Rc<Pod>, entry: &mut Entry, ctx: &mut Context<'_>) {
        let now = ctx.now.boot;
        let next = {
            let backoffs = &self.backoffs;
            let stopped = &self.stopped;
            let refused = &self.refused;
            plan::next(&PlanInput {
                pod,
                facts: entry.facts(),
                first_attempt: self.first_attempt,
                strangers: entry.strangers(),
                first_free: &|name| refused.get(name).map_or(0, |attempt| attempt.saturating_add(1)),
                held: &|name| backoffs.get(name).is_some_and(|h| h.until > now),
                stopped: &|id| stopped.contains(id),
                in_doubt: entry.in_doubt(now),
                started: &|c| pod.container(&c.name).is_none_or(|spec| self.probes.started(spec, &c.id)),
            })
        };
        match next {
            Next::Ended => {
                self.ended = true;
                self.state = State::Terminating(Terminating::new(now, pod.grace_period()));
                return;
            }
            Next::Nothing => {}
            Next::StopContainers(ids) => {
                self.tell_of_a_dead_sandbox(pod, entry.facts(), ctx);
                for c in entry.running().filter(|c| ids.contains(&c.id)) {
                    let message = format!("Stopping container {}", c.name);
                    let grace_deadline = now + pod.grace_period();
                    self.doomed.entry(c.id.clone()).or_insert(Doomed { message, grace_deadline });
                }
                self.stop_doomed(entry, ctx);
                return;
            }
            Next::StopSandbox(id) => {
                self.tell_of_a_dead_sandbox(pod, entry.facts(), ctx);
                if !self.sandbox_waits(ctx) {
                    self.stop_sandbox(id, ctx);
                }
            }
            // A2: the pod started in a previous run and nothing of it runs any more, so it must be admitted again.
            Next::RunSandbox { .. } if !self.is_admitted() => self.wants_room = true,
            // W21: two pods with the same UID would share cgroup and logs.
            Next::RunSandbox { .. } if entry.strangers().running().is_some() => self.tell_of_strangers(entry, ctx),
            Next::RunSandbox { .. } | Next::Create { .. } | Next::Start { .. } => {
                if self.may_start(pod, &next, entry, ctx) {
                    self.start_next(pod, next, entry, ctx);
                }
            }
        }
        self.stops_are_over(ctx);
        // A pod that queues for a slot must take it at once, or it loses its place. So start no removal now.
        if self.op.is_none() && !ctx.slots.waits(&self.uid) {
            self.clear_away(entry, ctx);
        }
    }

    /// W13: reports each dead sandbox once.
    fn tell_of_a_dead_sandbox(&mut self, pod: &Rc<Pod>, facts: &PodFacts, ctx: &mut Context<'_>) {
        if let Some(dead) = facts.sandboxes.first().filter(|s| !s.ready)
            && self.sandbox_told.as_ref() != Some(&dead.id)
        {
            self.sandbox_told = Some(dead.id.clone());
            let message = "Pod sandbox changed, it will be killed and re-created.".to_string();
            ctx.tell(Some(pod), None, (Severity::Normal, "SandboxChanged"), message);
        }
    }

    /// A sandbox call failed recently, or the last sandbox is too young to be replaced.
    fn sandbox_waits(&self, ctx: &Context<'_>) -> bool {
        self.sandbox_hold.is_some_and(|until| until > ctx.now.boot)
    }

    /// Whether other parts permit a sandbox now: the node, the runtime's network, a shutdown (A3), and other owners' pods
    /// under the same UID (W21). All of these can change while the directory and the cgroup are created.
    pub(super) fn may_run_sandbox(&self, pod: &Pod, entry: &Entry, ctx: &Context<'_>) -> bool {
        ctx.may_start
            && (ctx.network_ready || pod.host_network())
            && !(ctx.shutting_down && entry.facts().sandboxes.is_empty())
            && entry.strangers().running().is_none()
    }

    /// P6, W9: nothing starts while the runtime, its network or PLEG is unhealthy. The node steps every
    /// worker when that changes.
    fn may_start(&mut self, pod: &Pod, next: &Next, entry: &Entry, ctx: &mut Context<'_>) -> bool {
        if !ctx.may_start || !self.volumes_may_be_mounted(ctx) {
            return false;
        }
        if matches!(next, Next::RunSandbox { .. }) {
            if !self.may_run_sandbox(pod, entry, ctx) {
                return false;
            }
            let until = self.sandbox_ran.map(|at| at + SANDBOX_LIFE);
            self.sandbox_hold = self.sandbox_hold.max(until);
            if self.sandbox_waits(ctx) {
                return false;
            }
        }
        // The container only waits for a pull slot.
        if let Next::Create { index, attempt } = next
            && self.pull_wanted == Some((*index, *attempt))
        {
            return true;
        }
        let slots = match next {
            Next::RunSandbox { .. } => &mut ctx.slots.sandboxes,
            _ => &mut ctx.slots.containers,
        };
        slots.take(&self.uid, ctx.now.boot)
    }

    fn start_next(&mut self, pod: &Rc<Pod>, next: Next, entry: &mut Entry, ctx: &mut Context<'_>) {
        self.keep_record(ctx);
        if !self.mount_volumes(pod, ctx) {
            return;
        }
        match next {
            Next::RunSandbox { attempt } => {
                ctx.measure(Measure::StartedPod);
                let op = ctx.files(&self.uid, FilesCall::PreparePod { pod: pod.clone() });
                self.op = Some((op, ActiveOp::PreparePod { attempt }));
            }
            Next::Create { index, attempt } => match &self.image {
                Some((i, a, image)) if (*i, *a) == (index, attempt) => {
                    // The pod's record is durable before its first container exists (W25).
                    if self.record == Record::Durable {
                        let image = image.clone();
                        self.prepare(pod, index, attempt, &image, entry, ctx);
                    }
                }
                _ if self.pull_wanted == Some((index, attempt)) => self.pull(pod, index, attempt, ctx),
                _ => self.look_for_image(pod, index, attempt, ctx),
            },
            Next::Start { index, id } => {
                let op = ctx.runtime(&self.uid, RuntimeCall::StartContainer { id: id.clone() });
                self.op = Some((op, ActiveOp::Start { index, id }));
            }
            _ => {}
        }
    }

    fn look_for_image(&mut self, pod: &Rc<Pod>, index: usize, attempt: u32, ctx: &mut Context<'_>) {
        ctx.measure(Measure::StartedContainer { container_type: container_type(pod, index) });
        let spec = pod.at(index);
        let asked = spec.image.as_deref().unwrap_or_default();
        match crate::api::image::normalize(asked) {
            Ok(image) => {
                let op = ctx.runtime(&self.uid, RuntimeCall::ImageStatus { image });
                self.op = Some((op, ActiveOp::ImageStatus { index, attempt }));
            }
            Err(message) => {
                ctx.tell(Some(pod), Some(&spec.name), (Severity::Warning, "InspectFailed"), message.clone());
                self.hold_error(pod, index, "InvalidImageName", message, ctx);
            }
        }
    }

    /// Handles the image status: uses the image, pulls it, or waits.
    pub(super) fn image_found(&mut self, index: usize, attempt: u32, found: Option<ImageFact>, ctx: &mut Context<'_>) {
        let Some(pod) = self.pod.clone() else { return };
        let spec = pod.at(index);
        let image = spec.image.clone().unwrap_or_default();
        let policy = spec.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
        match (policy, found) {
            ("Never", None) => {
                let message = format!("Container image \"{image}\" is not present with pull policy of Never");
                ctx.tell(Some(&pod), Some(&spec.name), (Severity::Warning, "ErrImageNeverPull"), message.clone());
                self.hold_error(&pod, index, "ErrImageNeverPull", message, ctx);
            }
            ("IfNotPresent" | "Never", Some(found)) => {
                let message = format!("Container image \"{image}\" already present on machine");
                ctx.tell(Some(&pod), Some(&spec.name), (Severity::Normal, "Pulled"), message);
                self.image = Some((index, attempt, found));
            }
            _ => self.pull(&pod, index, attempt, ctx),
        }
    }

    fn pull(&mut self, pod: &Rc<Pod>, index: usize, attempt: u32, ctx: &mut Context<'_>) {
        let spec = pod.at(index);
        let image = spec.image.clone().unwrap_or_default();
        self.pull_wanted = None;
        if let Some(b) = self.pulls.get(&image).filter(|b| b.until > ctx.now.boot) {
            measure_start_error(pod, index, "ImagePullBackOff", ctx);
            let shown = ("ImagePullBackOff".to_string(), format!("Back-off pulling image \"{image}\": {}", b.error));
            self.backoffs.insert(spec.name.clone(), ContainerBackoff::new(None, b.until, Some(shown), None));
            return;
        }
        if !ctx.slots.pulls.take(&self.uid, ctx.now.boot) {
            self.pull_wanted = Some((index, attempt));
            return;
        }
        ctx.tell(Some(pod), Some(&spec.name), (Severity::Normal, "Pulling"), format!("Pulling image \"{image}\""));
        let name = crate::api::image::normalize(&image).unwrap_or_else(|_| image.clone());
        let op = ctx.runtime(&self.uid, RuntimeCall::PullImage { pod: pod.clone(), image: name });
        self.op = Some((op, ActiveOp::Pull { index, attempt, image, began: ctx.now.boot }));
    }

    fn prepare(
        &mut self,
        pod: &Rc<Pod>,
        index: usize,
        attempt: u32,
        image: &ImageFact,
        entry: &Entry,
        ctx: &mut Context<'_>,
    ) {
        let spec = pod.at(index);
        if let Err(message) = may_run_as(pod, index, image) {
            self.image = None;
            return self.hold_error(pod, index, "CreateContainerConfigError", message, ctx);
        }
        let call = FilesCall::PrepareContainer {
            pod: pod.clone(),
            container: spec.name.clone(),
            ips: entry.ips().to_vec(),
            attempt,
        };
        let op = ctx.files(&self.uid, call);
        self.op = Some((op, ActiveOp::PrepareContainer { index, attempt, image: image.clone() }));
    }

    pub(super) fn create(
        &mut self,
        (index, attempt): (usize, u32),
        image: ImageFact,
        termination_file: String,
        entry: &Entry,
        ctx: &mut Context<'_>,
    ) {
        let Some(pod) = self.pod.clone() else { return };
        let Some(sandbox) = plan::ready_sandbox(entry.facts()) else { return };
        let name = &pod.at(index).name;
        let level = match plan::newest(entry.facts(), name) {
            Some(unused) if unused.state == ContainerState::Created => unused.backoff_level,
            Some(dead) if dead.attempt < attempt => backoff::after(dead, ctx.config.max_restart_backoff).1,
            _ => 0,
        };
        let call = CreateContainer {
            pod: pod.clone(),
            container: name.clone(),
            sandbox: sandbox.id.clone(),
            sandbox_attempt: sandbox.attempt,
            attempt,
            backoff_level: level,
            image,
            ips: entry.ips().to_vec(),
            termination_file,
        };
        self.image = None;
        let op = ctx.runtime(&self.uid, RuntimeCall::CreateContainer(Box::new(call)));
        self.op = Some((op, ActiveOp::Create { index, attempt, level }));
    }

    /// Retries the container after a delay (W9). The status shows this waiting reason meanwhile.
    pub(super) fn hold_error(
        &mut self,
        pod: &Rc<Pod>,
        index: usize,
        reason: &'static str,
        message: String,
        ctx: &mut Context<'_>,
    ) {
        measure_start_error(pod, index, reason, ctx);
        let name = &pod.at(index).name;
        let said = match reason {
            "CreateContainerError" | "CreateContainerConfigError" | "RunContainerError" => format!("Error: {message}"),
            _ => format!("Error: {reason}"),
        };
        ctx.tell(Some(pod), Some(name), (Severity::Warning, "Failed"), said);
        let until = ctx.now.boot + ctx.after_error();
        self.backoffs
            .insert(name.clone(), ContainerBackoff::new(None, until, Some((reason.to_string(), message)), None));
        self.image = None;
    }

    /// Sets the back-off of each container that ended and will restart, counted from its end (W10).
    fn hold_the_ended(&mut self, pod: &Rc<Pod>, entry: &Entry, ctx: &mut Context<'_>) {
        for (index, spec) in pod.all_containers().enumerate() {
            let Some(dead) = plan::newest(entry.facts(), &spec.name) else { continue };
            if dead.state != ContainerState::Exited {
                continue;
            }
            if !plan::restarts(pod.restart_policy_of(index), dead) {
                self.backoffs.remove(&spec.name);
                continue;
            }
            // The back-off after another error (for example a missing image) stays. An error of the start
            // itself ended the container.
            let start_failed = self.start_errors.contains_key(&dead.id);
            let held =
                |h: &ContainerBackoff| h.after.as_ref() == Some(&dead.id) || h.until > ctx.now.boot && !start_failed;
            if self.backoffs.get(&spec.name).is_some_and(held) {
                continue;
            }
            let (delay, _) = backoff::after(dead, ctx.config.max_restart_backoff);
            // The wall clock may be set: never wait longer than the whole delay from now.
            let left = delay.saturating_sub(ctx.now.wall.since(dead.finished_at)).min(delay);
            let until = ctx.now.boot + left;
            // Take the error only once: a later error, for example of the image, has a back-off of its own.
            let error = self.start_errors.remove(&dead.id);
            if delay.is_zero() {
                self.backoffs
                    .insert(spec.name.clone(), ContainerBackoff::new(Some(dead.id.clone()), until, error, None));
                continue;
            }
            let id = format!("{}_{}({})", pod.name.name, pod.name.namespace, pod.uid);
            let words = backoff::in_words(delay);
            let message = format!("back-off {words} restarting failed container={} pod={id}", spec.name);
            let shown = ("CrashLoopBackOff".to_string(), message);
            let flip = ctx.now.boot + ContainerBackoff::FLIP;
            let hold = ContainerBackoff::new(Some(dead.id.clone()), until, error, Some((flip, shown)));
            self.backoffs.insert(spec.name.clone(), hold);
            let message = format!("Back-off restarting failed container {} in pod {id}", spec.name);
            ctx.tell(Some(pod), Some(&spec.name), (Severity::Warning, "BackOff"), message);
        }
    }

    /// Drops the back-offs and errors of running containers. Measures the pod's start when all containers
    /// run for the first time.
    fn note_running(&mut self, pod: &Pod, entry: &Entry, ctx: &mut Context<'_>) {
        let facts = entry.facts();
        let running = |name: &str| plan::newest(facts, name).is_some_and(|c| c.state == ContainerState::Running);
        self.backoffs.retain(|name, _| !running(name));
        let runs =
            |id: &ContainerId| facts.containers.iter().any(|c| c.id == *id && c.state == ContainerState::Running);
        self.start_errors.retain(|id, _| !runs(id) || self.doomed.contains_key(id));
        if !self.ran && pod.containers().iter().all(|c| running(&c.name)) {
            self.ran = true;
            ctx.measure(Measure::PodStartDuration(ctx.now.boot.since(self.made)));
        }
    }

    /// Arms the next sync: at the end of the next back-off, otherwise together with the other healthy pods (W9).
    fn schedule(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now.boot;
        let backoffs: Vec<Boot> = self.backoffs.values().filter_map(|h| h.next(now)).collect();
        for at in backoffs.into_iter().chain(self.sandbox_hold.filter(|at| *at > now)) {
            self.wake_at(at);
        }
        if self.op.is_none() {
            // W9: at most 50 % after `syncFrequency`.
            let step = GRID.min(ctx.config.sync_frequency / 2);
            let latest = now + ctx.config.sync_frequency + step;
            let grid = step.as_nanos().max(1) as u64;
            self.wake_at(Boot(latest.0 / grid * grid));
        }
    }
}

/// Checks `runAsNonRoot` against the user as which the container would run.
fn may_run_as(pod: &Pod, index: usize, image: &ImageFact) -> Result<(), String> {
    let spec = pod.at(index);
    let of_pod = pod.spec().security_context.as_ref();
    let of_container = spec.security_context.as_ref();
    let non_root = of_container.and_then(|s| s.run_as_non_root).or(of_pod.and_then(|s| s.run_as_non_root));
    if non_root != Some(true) {
        return Ok(());
    }
    let user = of_container.and_then(|s| s.run_as_user).or(of_pod.and_then(|s| s.run_as_user));
    let whose = format!("(pod: \"{}_{}({})\", container: {})", pod.name.name, pod.name.namespace, pod.uid, spec.name);
    match (user, image.uid) {
        (Some(0), _) => Err(format!("container's runAsUser breaks non-root policy {whose}")),
        (Some(_), _) => Ok(()),
        (None, _) if !image.username.is_empty() => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root {whose}",
            image.username
        )),
        (None, None | Some(0)) => Err(format!("container has runAsNonRoot and image will run as root {whose}")),
        (None, Some(_)) => Ok(()),
    }
}
