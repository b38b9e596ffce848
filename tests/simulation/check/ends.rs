//! Each end of a container that a published status shows is reported once in a run of the engine.

use super::Checks;
use std::collections::BTreeSet;
use wherry::api::names::Uid;
use wherry::api::time::Wall;
use wherry::engine::effect::ContainerEnd;
use wherry_engine::api::k8s;

/// In the current run of the engine: the pods and the ids of their containers, without the name of the runtime, which may still be
/// unknown. (A lost container has no id.)
#[derive(Default)]
pub struct Ends {
    reported: BTreeSet<(Uid, String)>,
    /// The runtime may report a later time for such an end afterwards.
    of_previous_run: BTreeSet<(Uid, String)>,
    /// Shown by a status that this step has published.
    shown: Vec<(Uid, String)>,
}

impl Checks {
    /// An end was reported. `started`: the start of the current run.
    pub fn end_reported(&mut self, of: &ContainerEnd, started: Wall) {
        let Some(id) = id_of(&of.end) else { return };
        if !self.clock_set && is_of_previous_run(&of.end, started) {
            self.fail("an end of a previous run is not reported again", format!("{} {id}", of.pod.uid));
        }
        if !self.ends.reported.insert((of.pod.uid.clone(), id.to_owned())) {
            self.fail("each end of a container is reported once", format!("{} {id}", of.pod.uid));
        }
    }

    /// A status was published. An end that it dates before `started` belongs to a previous run. If the clock was set, the run to
    /// which an end belongs is unknown.
    pub fn ends_shown(&mut self, uid: &Uid, status: &k8s::PodStatus, started: Wall) {
        let states = status.container_statuses.iter().flatten().map(|c| c.state.as_ref());
        for end in states.filter_map(|state| state?.terminated.as_ref()) {
            let Some(id) = id_of(end) else { continue };
            let shown = (uid.clone(), id.to_owned());
            if self.clock_set || is_of_previous_run(end, started) {
                self.ends.of_previous_run.insert(shown);
            } else {
                self.ends.shown.push(shown);
            }
        }
    }

    /// At the end of a step.
    pub fn shown_ends_are_reported(&mut self) {
        for shown in std::mem::take(&mut self.ends.shown) {
            if !self.ends.reported.contains(&shown) && !self.ends.of_previous_run.contains(&shown) {
                self.fail("each shown end of a container is reported", format!("{} {}", shown.0, shown.1));
            }
        }
    }

    pub(super) fn forget_ends(&mut self) {
        self.ends = Ends::default();
    }
}

/// `ID` of `containerd://ID`.
fn id_of(end: &k8s::ContainerStateTerminated) -> Option<&str> {
    let id = end.container_id.as_deref()?;
    Some(id.split_once("://").map_or(id, |(_, id)| id))
}

fn is_of_previous_run(end: &k8s::ContainerStateTerminated, started: Wall) -> bool {
    end.finished_at.as_ref().is_some_and(|at| Some(at.0) < started.timestamp())
}
