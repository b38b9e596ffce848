//! A pod whose UID somebody else uses (W21): a kubelet that has the same manifest, or another root directory.
//!
//! The worker makes no sandbox while a pod of others runs under the UID, and what is named after the UID (the log directory,
//! its links, the cgroup) stays where it is as long as the runtime has anything of theirs. The worker removes the containers
//! and sandboxes that carry wherry's own annotation, each by its id, with the logs of these containers.

use super::{State, Worker};
use crate::engine::context::Context;
use crate::engine::effect::Severity;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::plan;
use std::time::Duration;

/// The status reason, and the reason of the event.
const REASON: &str = "UIDInUse";
/// A look at what others have is good for so long.
const FRESH: Duration = Duration::from_secs(2);

impl Worker {
    /// Once for each of theirs that runs.
    pub(super) fn tell_of_strangers(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        let Some(stranger) = entry.strangers().running() else { return };
        if self.stranger_told.as_ref() != Some(&stranger.what) {
            self.stranger_told = Some(stranger.what.clone());
            if let Some((_, message)) = self.waits_for_strangers(entry) {
                ctx.tell(self.pod.as_ref(), None, (Severity::Warning, REASON), message);
            }
        }
    }

    /// Why the pod has no sandbox, as its status says it: reason and message.
    pub fn waits_for_strangers(&self, entry: &Entry) -> Option<(&'static str, String)> {
        let pod = self.pod.as_ref()?;
        let stranger = entry.strangers().running()?;
        if !matches!(self.state, State::Sync) || plan::ready_sandbox(entry.facts()).is_some() {
            return None;
        }
        let remedy = match pod.has_own_uid() {
            true => format!("remove metadata.uid from {}", pod.source.path),
            false => format!("remove {}", pod.source.path),
        };
        let message = format!(
            "the UID {} is in use by {}; wherry leaves that alone, and starts this pod when it no longer runs. Stop or remove it \
             where it was started, or {remedy}",
            self.uid,
            stranger.in_words(),
        );
        Some((REASON, message))
    }

    /// True if it is known what others have under the UID now; else that is read first.
    pub(super) fn knows_strangers(&mut self, entry: &mut Entry, ctx: &Context<'_>) -> bool {
        let needed = *self.look_since.get_or_insert(ctx.generation);
        let recent = |at| ctx.now.boot.since(at) < FRESH;
        if entry.usable() && entry.looked().is_some_and(|(generation, at)| generation >= needed || recent(at)) {
            self.look_since = None;
            return true;
        }
        if !entry.is_busy() {
            entry.want_read();
        }
        false
    }
}
