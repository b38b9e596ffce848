//! What a container waits for: the back-off after its end (W10), or the next try after an error (W9), and what people are
//! shown meanwhile.

use crate::api::names::ContainerId;
use crate::api::time::Boot;
use serde::Serialize;
use std::time::Duration;

/// A waiting reason and its message.
pub type Shown = (String, String);

#[derive(Debug, Serialize)]
pub struct ContainerBackoff {
    /// The container after whose end it waits; None after an error of ours.
    pub after: Option<ContainerId>,
    pub until: Boot,
    /// None: the container's own state, terminated, is shown.
    first: Option<Shown>,
    /// From then on this is shown, as a kubelet does from its next sync on.
    then: Option<(Boot, Shown)>,
}

impl ContainerBackoff {
    /// How long the first reason (or the terminated state) can be seen before the back-off's own.
    pub const FLIP: Duration = Duration::from_secs(1);

    pub fn new(
        after: Option<ContainerId>,
        until: Boot,
        first: Option<Shown>,
        then: Option<(Boot, Shown)>,
    ) -> ContainerBackoff {
        ContainerBackoff { after, until, first, then }
    }

    pub fn shown(&self, now: Boot) -> Option<Shown> {
        match &self.then {
            Some((at, shown)) if *at <= now => Some(shown.clone()),
            _ => self.first.clone(),
        }
    }

    /// The next moment at which something about it changes.
    pub fn next(&self, now: Boot) -> Option<Boot> {
        let flip = self.then.as_ref().map(|(at, _)| *at);
        [flip, Some(self.until)].into_iter().flatten().filter(|at| *at > now).min()
    }
}

/// The back-off of an image whose pull failed.
#[derive(Debug, Serialize)]
pub struct PullBackoff {
    pub failures: u32,
    pub until: Boot,
    pub error: String,
}
