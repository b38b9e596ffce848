//! The pull of an image by a worker: `pull` holds the state, and this module requests its steps and handles their
//! results.

use super::Worker;
use super::container_start::{Instance, StartError, Starting};
use super::containers::Containers;
use super::measure::measure_start_error;
use super::needed_image::NeededImage;
use super::ops::{ActiveOp, Operations};
use super::pull::{Pull, PullStep};
use super::state::State;
use crate::api::image;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::registry_credentials::Keyring;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::RuntimeCall;
use crate::engine::event::Answer;
use crate::engine::op::{Code, OpError};
use crate::engine::pod::backoff;
use std::rc::Rc;

type Outcome = Result<Answer, OpError>;

impl Worker {
    /// Begins to collect the credentials for a pull, unless the image is in back-off.
    pub(super) fn pull(&mut self, pod: &Rc<Pod>, of: Instance, needed: NeededImage, ctx: &mut Context<'_>) {
        let spec = pod.at(of.index);
        let image = needed.spec(pod, of.index).0.to_owned();
        let now = ctx.now.boot;
        if let Some(b) = self.containers.failures.of_pull(&image, now) {
            measure_start_error(pod, of.index, Reason::ImagePullBackOff, ctx);
            let shown = (Reason::ImagePullBackOff, format!("Back-off pulling image \"{image}\": {}", b.error));
            self.containers.backoffs.hold(&spec.name, b.until, Some(shown));
            return self.state.set_starting(Starting::Nothing);
        }
        let repository = image::repository(&image).unwrap_or_default();
        if let State::Sync(sync) = &mut self.state {
            sync.starting.begin_pull(of, needed, Pull::new(image, repository, now));
        }
        continue_pull(pod, of, &mut self.state, &mut self.ops, ctx);
    }

    /// Handles the result of an attempt to pull the image. `began` is the time when the pull got its slot.
    pub(super) fn pulled(
        &mut self,
        of: Instance,
        needed: NeededImage,
        image: String,
        began: Boot,
        result: Outcome,
        ctx: &mut Context<'_>,
    ) {
        let Some(pod) = self.pod.clone() else { return };
        // The image in the spec has changed in the meantime.
        if needed.spec(&pod, of.index).0 != image {
            return;
        }
        let now = ctx.now.boot;
        let name = &pod.at(of.index).name;
        match result {
            Ok(Answer::Image(Some(found))) => {
                let wanted = self.state.pull_of(of).map_or(began, |pull| pull.wanted);
                let [took, waited] = [began, wanted].map(|at| backoff::in_milliseconds(now.since(at)));
                let message = format!(
                    "Successfully pulled image \"{image}\" in {took} ({waited} including waiting). Image size: {} \
                     bytes.",
                    found.size
                );
                ctx.emit_normal(Some(&pod), Some(name), Reason::Pulled, message);
                self.containers.failures.pulled(&image);
                self.state.image_is_present(of, needed, found);
            }
            Ok(_) => {
                let message = "the image is missing after a successful pull".to_string();
                let e = StartError { reason: Reason::ImageInspectError, message };
                self.containers.hold_error(&pod, of.index, e, &mut self.state, &mut self.timer, ctx);
            }
            Err(e) => {
                let Some(pull) = self.state.pull_of(of) else { return };
                pull.attempt_failed(in_words(&e), !matches!(e, OpError::Answered { .. }));
                if pull.next() == PullStep::Fail {
                    let error = pull.error();
                    self.state.set_starting(Starting::Nothing);
                    self.containers.pull_failed(&pod, of, image, error, ctx);
                }
            }
        }
    }
}

impl Containers {
    fn pull_failed(&mut self, pod: &Rc<Pod>, of: Instance, image: String, error: String, ctx: &mut Context<'_>) {
        let name = &pod.at(of.index).name;
        let (reason, message) = judge(&image, &error);
        measure_start_error(pod, of.index, reason.clone(), ctx);
        ctx.emit_warning(Some(pod), Some(name), Reason::Failed, format!("Failed to pull image \"{image}\": {error}"));
        ctx.emit_warning(Some(pod), Some(name), Reason::Failed, format!("Error: {reason}"));
        let backing = format!("Back-off pulling image \"{image}\"");
        ctx.emit_normal(Some(pod), Some(name), Reason::BackOff, backing.clone());
        ctx.emit_warning(Some(pod), Some(name), Reason::Failed, "Error: ImagePullBackOff".into());
        let error = format!("{reason}: {message}");
        let then = (Reason::ImagePullBackOff, format!("{backing}: {error}"));
        let until = self.failures.pull_failed(image, error, ctx.now.boot);
        self.backoffs.hold_with_reasons(name, until, ctx.now.boot, (reason, message), then);
    }

    /// W12: retries failed pulls now, because a Secret with credentials has changed. Returns true if there was one.
    pub(super) fn release_pulls(&mut self, now: Boot) -> bool {
        let reasons = [
            Reason::ErrImagePull,
            Reason::ImagePullBackOff,
            Reason::RegistryUnavailable,
            Reason::SignatureValidationFailed,
        ];
        self.failures.release_pulls(now);
        reasons.iter().filter(|reason| self.backoffs.release(reason)).count() > 0
    }
}

/// Requests the next step of the pull.
pub fn continue_pull(pod: &Rc<Pod>, of: Instance, state: &mut State, ops: &mut Operations, ctx: &mut Context<'_>) {
    let Some(sync) = state.sync_mut() else { return };
    let Starting::Pulling { pull, needed, .. } = &mut sync.starting else { return };
    let Instance { index, attempt } = of;
    loop {
        match pull.next() {
            PullStep::ReadNodeConfig => {
                let op = ctx.read_docker_config(&pod.uid);
                return ops.start(op, ActiveOp::DockerConfig { index, attempt });
            }
            PullStep::Ask(provider) => {
                let cached = ctx.provider_cache.get(&provider.name, &pull.repository, ctx.now.boot);
                if let Some(keyring) = cached.cloned() {
                    pull.provided(Some(keyring));
                    continue;
                }
                let name = provider.name.clone();
                let op = ctx.ask_provider(&pod.uid, provider, pull.repository.clone());
                return ops.start(op, ActiveOp::AskProvider { index, attempt, name });
            }
            PullStep::Begin => {
                if !ctx.slots.pulls.take(&pod.uid, ctx.now.boot) {
                    return;
                }
                let message = format!("Pulling image \"{}\"", pull.image);
                ctx.emit_normal(Some(pod), Some(&pod.at(index).name), Reason::Pulling, message);
                pull.begin(&of_secrets(pod, ctx), ctx.now.boot);
            }
            PullStep::Try(credential) => {
                let (image, began) = (pull.image.clone(), pull.began().unwrap_or(ctx.now.boot));
                let name = image::normalize(&image).unwrap_or_else(|_| image.clone());
                let call = RuntimeCall::PullImage { pod: pod.clone(), image: name, credential };
                let needed = needed.clone();
                let op = ctx.runtime(&pod.uid, call);
                return ops.start(op, ActiveOp::Pull { index, attempt, needed, image, began });
            }
            // `pulled` has already reported the failure.
            PullStep::Fail => return,
        }
    }
}

/// Handles the read of the node's docker configuration. A failed read was logged; the pull continues with the other
/// credentials.
pub fn docker_config_read(of: Instance, result: Outcome, state: &mut State, ctx: &Context<'_>) {
    let keyring = match result {
        Ok(Answer::DockerConfig(keyring)) => keyring,
        _ => None,
    };
    if let Some(pull) = state.pull_of(of) {
        pull.node_config_read(keyring, &ctx.config.credential_providers);
    }
}

pub fn provider_asked(of: Instance, name: &str, result: Outcome, state: &mut State, ctx: &mut Context<'_>) {
    let provided = match result {
        Ok(Answer::Provided(provided)) => Some(provided),
        _ => None,
    };
    let Some(pull) = state.pull_of(of) else { return };
    if let Some(provided) = &provided {
        ctx.provider_cache.put(name, &pull.repository, provided, ctx.now.boot);
    }
    pull.provided(provided.map(|provided| provided.keyring));
}

/// Returns the credentials of the pod's Secrets. As in a kubelet, an event names the Secrets that do not exist.
fn of_secrets(pod: &Rc<Pod>, ctx: &mut Context<'_>) -> Keyring {
    let mut keyring = Keyring::default();
    let mut missing = Vec::new();
    for key in pod.image_pull_secrets() {
        match ctx.objects.data.get(&key) {
            Some(secret) => keyring.merge(secret.registry_credentials().unwrap_or_default()),
            None => missing.push(key.name.name.to_string()),
        }
    }
    if !missing.is_empty() {
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            missing.join(", ")
        );
        ctx.emit_warning(Some(pod), None, Reason::FailedToRetrieveImagePullSecret, message);
    }
    keyring
}

/// Formats the error of a pull. Like a kubelet, it omits the code Unknown.
fn in_words(e: &OpError) -> String {
    match e {
        OpError::Answered { code: Code::Other(2), message } => message.clone(),
        e => e.to_string(),
    }
}

/// Returns the waiting reason and its message. A runtime reports the two special reasons at the beginning of the
/// error.
fn judge(image: &str, error: &str) -> (Reason, String) {
    if let Some(rest) = error.strip_prefix(Reason::RegistryUnavailable.as_str()) {
        let message = format!("image pull failed for {image} because the registry is unavailable{rest}");
        return (Reason::RegistryUnavailable, message);
    }
    if let Some(rest) = error.strip_prefix(Reason::SignatureValidationFailed.as_str()) {
        let message = format!("image pull failed for {image} because the signature validation failed{rest}");
        return (Reason::SignatureValidationFailed, message);
    }
    (Reason::ErrImagePull, error.to_owned())
}
