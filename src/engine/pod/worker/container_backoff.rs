//! The back-offs of a pod's containers: after they exit (W10) or after an error (W9), and the waiting reasons shown
//! during a back-off.

use crate::api::facts::ContainerFact;
use crate::api::names::ContainerId;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now};
use crate::engine::config::RestartBackoff;
use crate::engine::pod::backoff;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A waiting reason and its message.
pub type Shown = (Reason, String);

/// How long the error (or the terminated state) is shown before the reason of the back-off replaces it. In a kubelet,
/// the next sync replaces it.
const FLIP: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize)]
struct ContainerBackoff {
    /// The container whose end started the back-off; None after a failed attempt to start one.
    after: Option<ContainerId>,
    until: Boot,
    /// None: the status shows the container's terminated state.
    first: Option<Shown>,
    /// Replaces `first` from this time on.
    then: Option<(Boot, Shown)>,
}

#[derive(Debug, Default, Serialize)]
pub struct ContainerBackoffs {
    by_name: BTreeMap<String, ContainerBackoff>,
    /// Waiting reason and message after a failed start, by container.
    start_errors: BTreeMap<ContainerId, Shown>,
}

impl ContainerBackoffs {
    /// Returns true if the container of that name waits for its back-off.
    pub fn holds(&self, name: &str, now: Boot) -> bool {
        self.by_name.get(name).is_some_and(|b| b.until > now)
    }

    /// Returns the waiting reason of the container of that name.
    pub fn shown(&self, name: &str, now: Boot) -> Option<Shown> {
        let backoff = self.by_name.get(name)?;
        match &backoff.then {
            Some((at, shown)) if *at <= now => Some(shown.clone()),
            _ => backoff.first.clone(),
        }
    }

    /// Returns the next time at which a back-off ends or a shown reason changes.
    pub fn next(&self, now: Boot) -> Option<Boot> {
        let times = self.by_name.values().flat_map(|b| [b.then.as_ref().map(|(at, _)| *at), Some(b.until)]);
        times.flatten().filter(|at| *at > now).min()
    }

    /// Returns for each container name the end of the back-off, and whether the end of a container started it.
    pub fn all(&self) -> impl Iterator<Item = (&str, Boot, bool)> {
        self.by_name.iter().map(|(name, b)| (name.as_str(), b.until, b.after.is_some()))
    }

    /// Keeps the container from starting before `until`. If `shown` is given, the status shows that reason meanwhile.
    pub fn hold(&mut self, name: &str, until: Boot, shown: Option<Shown>) {
        self.insert(name, ContainerBackoff { after: None, until, first: shown, then: None });
    }

    /// Like `hold`, but the status shows `first` for the time `FLIP`, and `then` after that.
    pub fn hold_with_reasons(&mut self, name: &str, until: Boot, now: Boot, first: Shown, then: Shown) {
        let then = Some((now + FLIP, then));
        self.insert(name, ContainerBackoff { after: None, until, first: Some(first), then });
    }

    /// Ends the delays that this error caused. Returns true if there was one.
    pub fn release(&mut self, reason: &Reason) -> bool {
        let before = self.by_name.len();
        self.by_name.retain(|_, b| b.first.as_ref().is_none_or(|(first, _)| first != reason));
        self.by_name.len() < before
    }

    fn insert(&mut self, name: &str, backoff: ContainerBackoff) {
        self.by_name.insert(name.to_owned(), backoff);
    }

    /// Notes the reason why the start of this container failed.
    pub fn start_failed(&mut self, id: ContainerId, shown: Shown) {
        self.start_errors.insert(id, shown);
    }

    pub fn start_error(&self, id: &ContainerId) -> Option<&Shown> {
        self.start_errors.get(id)
    }

    /// Drops the back-off of this name: its newest container has ended and does not restart, or it gets another
    /// image.
    pub fn forget(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// Starts the back-off of a container that has ended and will restart. The back-off counts from the container's
    /// end (W10). Returns the message of the BackOff event if a back-off begins now.
    pub fn ended(
        &mut self,
        pod: &Pod,
        name: &str,
        dead: &ContainerFact,
        limits: RestartBackoff,
        now: Now,
    ) -> Option<String> {
        // The back-off after another error (for example a missing image) stays. But if the start itself failed, its
        // error ended the container, and a new back-off begins.
        let start_failed = self.start_errors.contains_key(&dead.id);
        let holds = |b: &ContainerBackoff| b.after.as_ref() == Some(&dead.id) || b.until > now.boot && !start_failed;
        if self.by_name.get(name).is_some_and(holds) {
            return None;
        }
        let (delay, _) = backoff::after(dead, limits);
        // The wall clock may have been set, so never wait longer than the whole delay from now.
        let left = delay.saturating_sub(now.wall.since(dead.finished_at)).min(delay);
        let until = now.boot + left;
        // Take the error only once: a later error, for example of the image, has a back-off of its own.
        let error = self.start_errors.remove(&dead.id);
        let after = Some(dead.id.clone());
        if delay.is_zero() {
            self.insert(name, ContainerBackoff { after, until, first: error, then: None });
            return None;
        }
        let id = format!("{}_{}({})", pod.name.name, pod.name.namespace, pod.uid);
        let message = format!("back-off {} restarting failed container={name} pod={id}", backoff::in_words(delay));
        let then = Some((now.boot + FLIP, (Reason::CrashLoopBackOff, message)));
        self.insert(name, ContainerBackoff { after, until, first: error, then });
        Some(format!("Back-off restarting failed container {name} in pod {id}"))
    }

    /// Drops the back-offs and errors of running containers, except the errors that a container `keeps` because it is
    /// being stopped for them.
    pub fn forget_running(
        &mut self,
        name_runs: impl Fn(&str) -> bool,
        id_runs: impl Fn(&ContainerId) -> bool,
        keeps: impl Fn(&ContainerId) -> bool,
    ) {
        self.by_name.retain(|name, _| !name_runs(name));
        self.start_errors.retain(|id, _| !id_runs(id) || keeps(id));
    }

    /// Drops the errors of containers that no longer exist.
    pub fn forget_gone(&mut self, containers: &[ContainerFact]) {
        self.start_errors.retain(|id, _| containers.iter().any(|c| c.id == *id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Boot {
        Boot(0) + Duration::from_secs(seconds)
    }

    fn shown(reason: Reason) -> Shown {
        (reason, String::new())
    }

    #[test]
    fn w9_a_back_off_after_an_error_ends_at_its_time() {
        let mut backoffs = ContainerBackoffs::default();
        backoffs.hold("main", at(10), Some(shown(Reason::InvalidImageName)));
        assert!(backoffs.holds("main", at(9)) && !backoffs.holds("main", at(10)) && !backoffs.holds("other", at(9)));
        assert_eq!(backoffs.shown("main", at(11)), Some(shown(Reason::InvalidImageName)));
        assert_eq!((backoffs.next(at(9)), backoffs.next(at(10))), (Some(at(10)), None));
    }

    #[test]
    fn w10_the_reason_changes_a_second_after_a_failed_pull() {
        let mut backoffs = ContainerBackoffs::default();
        backoffs.hold_with_reasons("main", at(10), at(0), shown(Reason::ErrImagePull), shown(Reason::ImagePullBackOff));
        assert_eq!(backoffs.next(at(0)), Some(at(1)));
        assert_eq!(backoffs.shown("main", at(0)), Some(shown(Reason::ErrImagePull)));
        assert_eq!(backoffs.shown("main", at(1)), Some(shown(Reason::ImagePullBackOff)));
        assert_eq!(backoffs.next(at(1)), Some(at(10)));
    }

    #[test]
    fn a_container_that_runs_has_no_back_off_but_may_keep_the_error_for_which_it_is_stopped() {
        let mut backoffs = ContainerBackoffs::default();
        backoffs.hold("main", at(10), None);
        backoffs.start_failed("a".into(), shown(Reason::PostStartHookError));
        backoffs.start_failed("b".into(), shown(Reason::PostStartHookError));
        backoffs.forget_running(|name| name == "main", |_| true, |id| id.as_str() == "a");
        assert!(!backoffs.holds("main", at(0)));
        assert!(backoffs.start_error(&"a".into()).is_some() && backoffs.start_error(&"b".into()).is_none());
        backoffs.forget_gone(&[]);
        assert!(backoffs.start_error(&"a".into()).is_none());
    }
}
