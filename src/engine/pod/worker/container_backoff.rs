//! The back-off of a container after its end (W10) or after an error (W9), and the waiting reason shown meanwhile.

use crate::api::names::ContainerId;
use crate::api::time::Boot;
use serde::Serialize;
use std::time::Duration;

/// A waiting reason and its message.
pub type Shown = (String, String);

#[derive(Debug, Serialize)]
pub struct ContainerBackoff {
    /// The container whose end started the back-off; None after a failed attempt to start one.
    pub after: Option<ContainerId>,
    pub until: Boot,
    /// None: the status shows the container's terminated state.
    first: Option<Shown>,
    /// Replaces `first` from this time on, as in a kubelet from its next sync on.
    then: Option<(Boot, Shown)>,
}

impl ContainerBackoff {
    /// How long `first` (or the terminated state) is shown before the reason of the back-off.
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

    /// The next time at which the back-off ends or the shown reason changes.
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
