//! Handles the results of a worker's operations. Each handler only records the result; the step that follows decides.

use super::container_backoff::{ContainerBackoff, PullBackoff};
use super::measure::measure_start_error;
use super::{ActiveOp, BackgroundOp, LATE, Record, State, Worker};
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::ContainerId;
use crate::api::pod::Pod;
use crate::api::time::Wall;
use crate::engine::context::Context;
use crate::engine::effect::{CgroupCall, FilesCall, Measure, Severity};
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::{backoff, plan};
use std::rc::Rc;
use std::time::Duration;

/// Delay before a failed write of a record is retried.
const RECORD_RETRY: Duration = Duration::from_secs(60);
/// The same for a pod whose replacement waits for the write; doubled with each failure.
const OUTDATED_RETRY: Duration = Duration::from_secs(5);
/// Maximum number of retries to remove a record.
const RECORD_TRIES: u32 = 3;

type Outcome = Result<Answer, OpError>;

impl Worker {
    pub fn done(&mut self, op: OpId, result: Outcome, entry: &mut Entry, ctx: &mut Context<'_>) {
        if let Some(background) = self.background.remove(&op) {
            return self.background_done(op, background, result, entry, ctx);
        }
        match self.op.take() {
            Some((o, active)) if o == op => self.active_done(active, result, entry, ctx),
            other => self.op = other,
        }
    }

    fn background_done(
        &mut self,
        op: OpId,
        background: BackgroundOp,
        result: Outcome,
        entry: &mut Entry,
        ctx: &mut Context<'_>,
    ) {
        match background {
            // Whether the container has stopped is known after the next status read (W2).
            BackgroundOp::Stop { id } => {
                if let Err(e) = &result
                    && !e.is_not_found()
                {
                    let message = format!("error killing pod: failed to stop container {id}: {e}");
                    ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedKillPod"), message);
                }
                entry.changed_somehow(ctx.generation);
            }
            BackgroundOp::Record => match result {
                // If several writes are in flight, the last one counts.
                Ok(_)
                    if self.background.values().any(|b| matches!(b, BackgroundOp::Record))
                        || self.record == Record::Stale => {}
                Ok(_) => self.record = Record::Durable,
                Err(e) => self.record_failed(&e, ctx),
            },
            BackgroundOp::Message { id } => {
                if let Ok(Answer::Message(text)) = result {
                    self.messages.insert(id, text);
                }
            }
            BackgroundOp::RemovePodFiles => match result {
                Ok(_) => self.files_removed = true,
                Err(e) => self.files_not_removed(e.message(), ctx),
            },
            BackgroundOp::RecordRemoved => {
                // A record that remains belongs to a pod of which nothing else exists. The next start removes it.
                if result.is_err() && self.record_kept < RECORD_TRIES {
                    self.record_kept += 1;
                    self.record = Record::Durable;
                    self.cleanup_failed(ctx);
                }
            }
            BackgroundOp::PreStop { container } => self.pre_stop_done(&container, result.map(drop), ctx),
            BackgroundOp::Probe => self.probed(op, result, ctx),
            BackgroundOp::Unmount => self.volumes_unmounted(result.map(drop), ctx),
            BackgroundOp::RemoveCgroup => self.cgroup_removed(result.map(drop), ctx),
            BackgroundOp::Other => {}
        }
    }

    /// The disk may be full or worn out. That must not stop the pod.
    fn record_failed(&mut self, e: &OpError, ctx: &mut Context<'_>) {
        let (wait, message) = match self.outdated.as_mut().filter(|_| matches!(self.state, State::Sync)) {
            Some(outdated) => {
                let wait = OUTDATED_RETRY.saturating_mul(1 << outdated.failures.min(4)).min(RECORD_RETRY);
                let wait = ctx.rng.jitter(wait);
                outdated.failures = outdated.failures.saturating_add(1);
                let message = format!(
                    "the manifest changed, but the old version continues to run, because the new version could not start: \
                     failed to write the pod's record: {e}; make the root directory writable, or free space on its disk; \
                     retrying in {} s",
                    wait.as_secs()
                );
                (wait, message)
            }
            None => {
                let message = format!("failed to write the pod's record: {e}; the pod continues to run");
                (ctx.rng.jitter(RECORD_RETRY), message)
            }
        };
        ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedRecord"), message);
        self.record = Record::Durable;
        self.record_retry = Some(ctx.now.boot + wait);
    }

    fn active_done(&mut self, active: ActiveOp, result: Outcome, entry: &mut Entry, ctx: &mut Context<'_>) {
        // A failed call may have changed something, unless it was never sent.
        let changing = !matches!(
            active,
            ActiveOp::PreparePod { .. }
                | ActiveOp::MakeCgroup { .. }
                | ActiveOp::PrepareContainer { .. }
                | ActiveOp::ImageStatus { .. }
                | ActiveOp::Pull { .. }
                | ActiveOp::PostStart { .. }
                | ActiveOp::MountVolumes
        );
        if changing && matches!(&result, Err(e) if e.may_have_acted()) {
            entry.changed_somehow(ctx.generation);
        }
        if changing && matches!(&result, Err(OpError::Unknown(_))) {
            entry.doubt(ctx.now.boot + ctx.config.request_timeout * 2);
        }
        let syncing = matches!(self.state, State::Sync);
        let pod = self.pod.clone();
        match (active, result) {
            (ActiveOp::StopSandbox { id }, Ok(_)) => {
                self.stopped.insert(id);
                entry.changed_somehow(ctx.generation);
            }
            (ActiveOp::StopSandbox { id }, Err(e)) => {
                if e.is_not_found() {
                    self.stopped.insert(id);
                } else {
                    let message = format!("error killing pod: failed to stop sandbox {id}: {e}");
                    ctx.tell(pod.as_ref(), None, (Severity::Warning, "FailedKillPod"), message);
                    // A lost connection does not count as a try (W2).
                    if !matches!(e, OpError::NotSent(_)) {
                        self.sandbox_stop_failed(ctx);
                    }
                    self.sandbox_hold = Some(ctx.now.boot + ctx.after_error());
                }
            }
            (ActiveOp::RunSandbox { began, attempt }, result) => {
                match &result {
                    Err(OpError::Unknown(_)) => self.lost_sandbox = Some(attempt),
                    // A cancelled call holds the name and may still create a sandbox. Do not wait for it: take
                    // the next attempt number.
                    Err(e) if e.is_name_taken() => self.first_attempt = attempt.saturating_add(1),
                    _ => {}
                }
                if matches!(&result, Err(e) if matches!(e, OpError::Unknown(_)) || e.is_name_taken()) {
                    self.may_be_late(ctx.now.boot + LATE);
                }
                self.sandbox_ran(began, result, entry, ctx);
            }
            // The status of another owner's container is not a valid answer. Read the pod instead.
            (ActiveOp::Start { .. }, Ok(Answer::Container(fact))) if !is_ours(&fact.owner, ctx) => {
                entry.changed_somehow(ctx.generation);
            }
            (ActiveOp::Create { index, attempt, level }, Ok(Answer::Created(id))) => {
                self.created(index, attempt, level, id, entry, ctx);
            }
            (ActiveOp::Start { index, id }, Ok(Answer::Container(fact))) => self.started(index, id, fact, entry, ctx),
            (ActiveOp::RemoveContainer { id, log_path }, Ok(_)) => {
                entry.forget_container(&id, ctx.generation);
                self.retries = 0;
                if let Some(log_path) = log_path {
                    let op = ctx.files(&self.uid, FilesCall::RemoveContainerFiles { id, log_path });
                    self.background.insert(op, BackgroundOp::Other);
                }
            }
            (ActiveOp::RemoveSandbox { id }, Ok(_)) => {
                entry.forget_sandbox(&id, ctx.generation);
                self.retries = 0;
            }
            (ActiveOp::RemoveContainer { id, .. }, Err(e)) if e.is_not_found() => {
                entry.forget_container(&id, ctx.generation)
            }
            (ActiveOp::RemoveSandbox { id }, Err(e)) if e.is_not_found() => entry.forget_sandbox(&id, ctx.generation),
            (ActiveOp::RemoveContainer { id, .. }, Err(e)) => {
                self.removal_failed(&format!("container {id}"), [id.clone()].into_iter(), &e, ctx);
            }
            (ActiveOp::RemoveSandbox { id }, Err(e)) => {
                let containers = entry.facts().containers.iter();
                let ended = containers.filter(|c| c.sandbox == id && c.state == ContainerState::Exited);
                self.removal_failed(&format!("sandbox {id}"), ended.map(|c| c.id.clone()), &e, ctx);
            }
            // The results below do not matter to a pod that is being stopped.
            _ if !syncing => {}
            (ActiveOp::MountVolumes, result) => self.volumes_mounted(result.map(drop), ctx),
            (ActiveOp::PostStart { .. }, Ok(_)) => {}
            (ActiveOp::PostStart { index, id, .. }, Err(e)) => {
                if let Some(pod) = pod {
                    self.post_start_failed(&pod, index, id, &e, ctx);
                }
            }
            (ActiveOp::PreparePod { attempt }, Ok(_)) => {
                if let Some(pod) = pod {
                    let op = ctx.cgroup(&self.uid, CgroupCall::Make { pod });
                    self.op = Some((op, ActiveOp::MakeCgroup { attempt }));
                }
            }
            (ActiveOp::MakeCgroup { attempt }, Ok(_)) => {
                if let Some(pod) = pod.filter(|pod| self.may_run_sandbox(pod, entry, ctx)) {
                    let call = crate::engine::effect::RuntimeCall::RunSandbox { pod, attempt };
                    let op = ctx.runtime(&self.uid, call);
                    self.op = Some((op, ActiveOp::RunSandbox { began: ctx.now.boot, attempt }));
                }
            }
            (ActiveOp::PreparePod { .. } | ActiveOp::MakeCgroup { .. }, Err(e)) => self.sandbox_failed(&e, ctx),
            (ActiveOp::ImageStatus { index, attempt }, Ok(Answer::Image(found))) => {
                self.image_found(index, attempt, found, ctx);
            }
            (ActiveOp::Pull { index, attempt, image, began }, result) => {
                self.pulled(index, attempt, image, ctx.now.boot.since(began), result, ctx);
            }
            // If nothing may start now, the container is prepared again later.
            (ActiveOp::PrepareContainer { index, attempt, image }, Ok(Answer::Prepared { termination_file })) => {
                if ctx.may_start {
                    self.create((index, attempt), image, termination_file, entry, ctx);
                }
            }
            (active, result) => {
                if let (Some(pod), Err(e)) = (pod, result) {
                    self.start_failed(&pod, active, &e, ctx);
                }
            }
        }
    }

    fn sandbox_ran(
        &mut self,
        began: crate::api::time::Boot,
        result: Outcome,
        entry: &mut Entry,
        ctx: &mut Context<'_>,
    ) {
        match result {
            Ok(Answer::Sandbox(fact)) if is_ours(&fact.owner, ctx) => {
                // The hold ends, but `sandbox_ran` limits how often a sandbox that dies at once is replaced.
                self.sandbox_hold = None;
                self.sandbox_ran = Some(began);
                self.own_sandbox = Some(fact.id.clone());
                entry.put_sandbox(fact, ctx.generation);
            }
            Ok(_) => entry.changed_somehow(ctx.generation),
            Err(e) if matches!(self.state, State::Sync) => {
                self.sandbox_failed(&e, ctx);
            }
            Err(_) => {}
        }
    }

    fn sandbox_failed(&mut self, e: &OpError, ctx: &mut Context<'_>) {
        ctx.measure(Measure::StartedPodError);
        if runtime_is_gone(e, ctx) {
            self.sandbox_hold = Some(ctx.now.boot + ctx.rng.jitter(Duration::from_secs(1)));
            return;
        }
        self.sandbox_hold = Some(ctx.now.boot + ctx.after_error());
        let message = format!("Failed to create pod sandbox: {e}");
        ctx.tell(self.pod.as_ref(), None, (Severity::Warning, "FailedCreatePodSandBox"), message);
    }

    fn created(
        &mut self,
        index: usize,
        attempt: u32,
        level: u32,
        id: ContainerId,
        entry: &mut Entry,
        ctx: &mut Context<'_>,
    ) {
        let Some(pod) = self.pod.clone() else { return };
        let spec = pod.at(index);
        let message = format!("Created container: {}", spec.name);
        ctx.tell(Some(&pod), Some(&spec.name), (Severity::Normal, "Created"), message);
        let sandbox = plan::ready_sandbox(entry.facts()).map(|s| s.id.clone());
        let fact = ContainerFact {
            id,
            sandbox: sandbox.unwrap_or_else(|| "".into()),
            name: spec.name.clone(),
            attempt,
            state: ContainerState::Created,
            created_at: ctx.now.wall,
            started_at: Wall(0),
            finished_at: Wall(0),
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: spec.image.clone().unwrap_or_default(),
            image_ref: String::new(),
            backoff_level: level,
            grace_seconds: None,
            pre_stop: None,
            termination_file: None,
            fallback_to_logs: false,
            log_path: String::new(),
            owner: Some(ctx.config.owner.clone()),
            pid: None,
        };
        entry.put_container(fact, ctx.generation);
    }

    fn started(
        &mut self,
        index: usize,
        id: ContainerId,
        fact: ContainerFact,
        entry: &mut Entry,
        ctx: &mut Context<'_>,
    ) {
        let Some(pod) = self.pod.clone() else { return };
        let name = &pod.at(index).name;
        ctx.tell(Some(&pod), Some(name), (Severity::Normal, "Started"), format!("Started container {name}"));
        if self.extras.probes {
            self.started_here.insert(id.clone());
        }
        if self.extras.hooks && matches!(self.state, State::Sync) {
            self.begin_post_start(&pod, index, &id, entry, ctx);
        }
        let link = FilesCall::LinkLog { pod: pod.clone(), container: name.clone(), id, attempt: fact.attempt };
        let op = ctx.files(&self.uid, link);
        self.background.insert(op, BackgroundOp::Other);
        entry.put_container(fact, ctx.generation);
    }

    fn pulled(
        &mut self,
        index: usize,
        attempt: u32,
        image: String,
        took: Duration,
        result: Outcome,
        ctx: &mut Context<'_>,
    ) {
        let Some(pod) = self.pod.clone() else { return };
        let name = &pod.at(index).name;
        match result {
            Ok(Answer::Image(Some(found))) => {
                let message = format!("Successfully pulled image \"{image}\" in {}ms", took.as_millis());
                ctx.tell(Some(&pod), Some(name), (Severity::Normal, "Pulled"), message);
                self.pulls.remove(&image);
                self.pull_wanted = None;
                self.image = Some((index, attempt, found));
            }
            Ok(_) => {
                let message = "the image is missing after a successful pull".to_string();
                self.hold_error(&pod, index, "ImageInspectError", message, ctx);
            }
            Err(e) => {
                measure_start_error(&pod, index, "ErrImagePull", ctx);
                let failures = self.pulls.get(&image).map_or(0, |b| b.failures) + 1;
                let until = ctx.now.boot + backoff::pull(failures);
                let failed = format!("Failed to pull image \"{image}\": {e}");
                ctx.tell(Some(&pod), Some(name), (Severity::Warning, "Failed"), failed);
                ctx.tell(Some(&pod), Some(name), (Severity::Warning, "Failed"), "Error: ErrImagePull".into());
                let backing = format!("Back-off pulling image \"{image}\"");
                ctx.tell(Some(&pod), Some(name), (Severity::Normal, "BackOff"), backing.clone());
                ctx.tell(Some(&pod), Some(name), (Severity::Warning, "Failed"), "Error: ImagePullBackOff".into());
                let error = format!("ErrImagePull: {e}");
                let first = ("ErrImagePull".to_string(), e.to_string());
                let then = ("ImagePullBackOff".to_string(), format!("{backing}: {error}"));
                let flip = ctx.now.boot + ContainerBackoff::FLIP;
                self.backoffs.insert(name.clone(), ContainerBackoff::new(None, until, Some(first), Some((flip, then))));
                self.pulls.insert(image, PullBackoff { failures, until, error });
            }
        }
    }

    fn start_failed(&mut self, pod: &Rc<Pod>, active: ActiveOp, e: &OpError, ctx: &mut Context<'_>) {
        // Another object holds the name, perhaps without pod labels and so not in any list. The next
        // attempt uses another number.
        if let ActiveOp::Create { index, attempt, .. } = &active
            && e.is_name_taken()
        {
            self.refused.insert(pod.at(*index).name.clone(), *attempt);
        }
        let (index, reason) = match &active {
            ActiveOp::ImageStatus { index, .. } => (*index, "ImageInspectError"),
            ActiveOp::PrepareContainer { index, .. } => (*index, "CreateContainerConfigError"),
            ActiveOp::Create { index, .. } => (*index, "CreateContainerError"),
            ActiveOp::Start { index, .. } => (*index, "RunContainerError"),
            _ => return,
        };
        if runtime_is_gone(e, ctx) {
            // This is not an error of the container, although a kubelet counts it as one.
            measure_start_error(pod, index, reason, ctx);
            let name = pod.at(index).name.clone();
            let until = ctx.now.boot + ctx.rng.jitter(Duration::from_secs(1));
            self.backoffs.insert(name, ContainerBackoff::new(None, until, None, None));
            self.image = None;
            return;
        }
        if let (ActiveOp::Start { id, .. }, OpError::Answered { .. }) = (active, e) {
            // The runtime shows the container as ended (then its back-off applies) or still as created.
            self.start_errors.insert(id, (reason.to_string(), e.message().to_string()));
        }
        self.hold_error(pod, index, reason, e.message().to_string(), ctx);
    }
}

/// Whether the object belongs to this root directory (W21).
fn is_ours(owner: &Option<String>, ctx: &Context<'_>) -> bool {
    owner.as_ref() == Some(&ctx.config.owner)
}

/// The call was not sent because the connection was lost. The node reports that and steps every worker when the connection
/// is back. Any other error gets an event and a back-off, also if nothing was sent.
fn runtime_is_gone(e: &OpError, ctx: &Context<'_>) -> bool {
    matches!(e, OpError::NotSent(_)) && !ctx.up
}
