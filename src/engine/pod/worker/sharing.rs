//! A pod whose UID another owner uses too (W21): a kubelet with the same manifest, or another root directory.
//!
//! While another owner's pod runs under the UID, the worker creates no sandbox. The log directory, its links and the
//! cgroup are named after the UID; they stay until the runtime has nothing of the other owner. The worker removes only
//! the containers and sandboxes with Wherry's own annotation, each by its id, together with the logs of these
//! containers.

use super::state::State;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::engine::context::Context;
use crate::engine::pleg::cache::{Entry, Generation};
use crate::engine::pod::plan::observed;
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;

/// The reason that the pod's status and the event give.
const REASON: Reason = Reason::UIDInUse;
/// W21: how long a status read of the UID counts as recent.
const FRESH: Duration = Duration::from_secs(2);

#[derive(Debug, Default, Serialize)]
pub struct Sharing {
    /// The running object of another owner that was last reported in an event.
    reported: Option<String>,
    /// The objects of other owners must come from a status read that began at this generation or later, or from a
    /// recent one.
    read_since: Option<Generation>,
}

/// Returns the reason and message for the status, if the pod has no sandbox because another owner uses its UID.
pub fn waits_for_foreign_objects(pod: &Pod, state: &State, entry: &Entry) -> Option<(Reason, String)> {
    let foreign = entry.foreign().running()?;
    if !state.is_sync() || observed::ready_sandbox(entry.facts()).is_some() {
        return None;
    }
    let remedy = match pod.has_own_uid() {
        true => format!("remove metadata.uid from {}", pod.source.path),
        false => format!("remove {}", pod.source.path),
    };
    let message = format!(
        "the UID {} is in use by {}; this pod waits until that object no longer runs. Stop or remove it where it was \
         started, or {remedy}",
        pod.uid,
        foreign.in_words(),
    );
    Some((REASON, message))
}

impl Sharing {
    /// Forgets which read was required, because a later removal needs a read of its own.
    pub fn forget_reads(&mut self) {
        self.read_since = None;
    }

    /// Reports each running object of another owner once.
    pub fn report_foreign_objects(&mut self, pod: &Rc<Pod>, state: &State, entry: &Entry, ctx: &mut Context<'_>) {
        let Some(foreign) = entry.foreign().running() else { return };
        if self.reported.as_ref() != Some(&foreign.what) {
            self.reported = Some(foreign.what.clone());
            if let Some((_, message)) = waits_for_foreign_objects(pod, state, entry) {
                ctx.emit_warning(Some(pod), None, REASON, message);
            }
        }
    }

    /// Returns true if the current objects of other owners under the UID are known; otherwise requests a status read.
    pub fn knows_foreign_objects(&mut self, entry: &mut Entry, ctx: &Context<'_>) -> bool {
        let needed = *self.read_since.get_or_insert(ctx.generation);
        let recent = |at| ctx.now.boot.since(at) < FRESH;
        if entry.usable() && entry.foreign_seen().is_some_and(|(generation, at)| generation >= needed || recent(at)) {
            self.read_since = None;
            return true;
        }
        if !entry.is_busy() {
            entry.want_read();
        }
        false
    }
}
