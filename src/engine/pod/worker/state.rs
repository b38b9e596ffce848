//! The states of a worker, each with the data that only this state has.

use super::container_start::{Instance, Starting};
use super::needed_image::NeededImage;
use super::ops::Operations;
use super::outdated::Outdated;
use super::preparation::Preparation;
use super::pull::Pull;
use super::retry::Retry;
use crate::api::facts::ImageFact;
use crate::api::mount::Mount;
use crate::api::time::{Boot, Now, Wall};
use crate::engine::event::Prepared;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::plan::next_step::Next;
use crate::engine::slots::Class;
use serde::Serialize;
use std::time::Duration;

/// W4: the minimum grace period.
const SHORTEST_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize)]
pub enum State {
    /// Another pod with the same full name has not finished yet (W8), or the pod is not admitted (A3, A4).
    Waiting,
    Sync(Sync),
    Terminating(Terminating),
    Terminated(Terminated),
    Finished(Finished),
    /// Nothing of the pod is left; the node drops the worker.
    Forgotten(Forgotten),
}

/// The worker starts and restarts containers.
#[derive(Debug, Default, Serialize)]
pub struct Sync {
    /// The pod needs a sandbox, and admission has not checked yet whether it fits.
    pub(super) wants_room: bool,
    /// W8: the manifest changed; the old version runs until its record can be written.
    pub(super) outdated: Option<Outdated>,
    pub(super) preparation: Preparation,
    pub(super) starting: Starting,
}

/// The worker stops the containers and then the sandbox.
#[derive(Debug, Serialize)]
pub struct Terminating {
    pub began: Boot,
    /// The end of the grace period, which counts from the first request and only shrinks (W4).
    pub grace_deadline: Boot,
    /// Failed attempts to stop the sandbox.
    pub(super) sandbox: Retry,
    /// A status read after the last stop shows no running container.
    pub(super) all_stopped: bool,
    pub(super) connections: Connections,
}

/// New connections to a pod that ends (Y29).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Connections {
    /// Nothing was stopped yet.
    #[default]
    Unchecked,
    /// Services lead to the pod. The stops wait until that ends, but no longer than this time.
    Awaited { until: Boot },
    /// Stops do not wait for services.
    Over,
}

/// Nothing runs; the worker removes volumes and cgroup.
#[derive(Debug, Default, Serialize)]
pub struct Terminated {
    /// Only files of the pod are left; nothing of it is known to have run under this root directory.
    pub(super) only_files: bool,
    pub(super) cgroup: CgroupRemoval,
    /// A status was published in this state, with the ends of all containers.
    pub(super) shown: bool,
}

/// The removal of the pod's cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum CgroupRemoval {
    /// The first attempt is still due.
    #[default]
    NotTried,
    /// An attempt is in flight or succeeded, or another owner of the UID keeps the cgroup (W21).
    Tried { retry: Retry },
    /// The attempt failed, or a cancelled sandbox call may create the cgroup once more (W26).
    Again { at: Boot, retry: Retry },
}

impl CgroupRemoval {
    pub(super) fn retry(self) -> Retry {
        match self {
            CgroupRemoval::NotTried => Retry::default(),
            CgroupRemoval::Tried { retry } | CgroupRemoval::Again { retry, .. } => retry,
        }
    }
}

/// The pod is kept for its status and logs while it is desired. Otherwise everything of it is removed (W23).
#[derive(Debug, Serialize)]
pub struct Finished {
    pub(super) only_files: bool,
    /// The final status is published.
    pub(super) shown: bool,
    pub(super) cgroup: CgroupRemoval,
    pub(super) directory: Directory,
    /// The number of failures to remove the record.
    pub(super) record_failures: u32,
}

/// The pod's directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Directory {
    Present,
    /// W21, W26: until this time, the empty directory stays as a marker that something of the pod may still appear.
    KeptAsMarker {
        until: Boot,
    },
    Removed,
}

#[derive(Debug, Serialize)]
pub struct Forgotten {
    pub(super) directory: Directory,
}

impl Terminating {
    pub(super) fn new(began: Boot, grace: Duration) -> Terminating {
        let grace_deadline = began + grace.max(SHORTEST_GRACE);
        let (sandbox, connections) = (Retry::default(), Connections::default());
        Terminating { began, grace_deadline, sandbox, all_stopped: false, connections }
    }

    /// Continues a termination that a previous run began. `whole` is the grace period, and `left` is the rest of it.
    pub(super) fn resumed(now: Boot, whole: Duration, left: Duration) -> Terminating {
        let passed = u64::try_from(whole.saturating_sub(left).as_nanos()).unwrap_or(u64::MAX);
        Terminating { began: Boot(now.0.saturating_sub(passed)), ..Terminating::new(now, left) }
    }

    /// Shortens the grace period, which counts from the beginning of the termination.
    pub(super) fn shrink(&mut self, grace: Duration) {
        self.end_until(self.began + grace.max(SHORTEST_GRACE));
    }

    pub(super) fn end_until(&mut self, deadline: Boot) {
        let before = self.grace_deadline;
        self.grace_deadline = self.grace_deadline.min(deadline);
        if self.grace_deadline < before {
            self.connections = Connections::Over;
        }
    }

    /// Returns the beginning and the end of the grace period by the wall clock.
    pub(super) fn in_wall_time(&self, now: Now) -> (Wall, Wall) {
        let ago = i64::try_from(now.boot.since(self.began).as_nanos()).unwrap_or(0);
        let began = Wall(now.wall.0.saturating_sub(ago));
        (began, began + self.grace_deadline.since(self.began))
    }
}

impl Terminated {
    /// Returns the state of a pod of which only files are left.
    pub(super) fn only_files() -> Terminated {
        Terminated { only_files: true, ..Terminated::default() }
    }
}

impl Finished {
    /// Returns the state of a pod that never started anything.
    pub(super) fn unstarted() -> Finished {
        Finished::after(Terminated {
            cgroup: CgroupRemoval::Tried { retry: Retry::default() },
            ..Terminated::default()
        })
    }

    pub(super) fn after(terminated: Terminated) -> Finished {
        Finished {
            only_files: terminated.only_files,
            shown: false,
            cgroup: terminated.cgroup,
            directory: Directory::Present,
            record_failures: 0,
        }
    }
}

impl State {
    pub fn name(&self) -> &'static str {
        match self {
            State::Waiting => "Waiting",
            State::Sync(_) => "Sync",
            State::Terminating(_) => "Terminating",
            State::Terminated(_) => "Terminated",
            State::Finished(_) => "Finished",
            State::Forgotten(_) => "Forgotten",
        }
    }

    pub fn is_sync(&self) -> bool {
        matches!(self, State::Sync(_))
    }

    pub fn is_terminating(&self) -> bool {
        matches!(self, State::Terminating(_))
    }

    /// Returns true if the pod is in Sync and its current status is unknown, because the status read is due, is in
    /// flight or has failed.
    pub fn is_unread(&self, entry: &Entry) -> bool {
        self.is_sync() && !entry.usable()
    }

    /// Sends a pod without an operation in flight back to Waiting: nothing of it runs, and nothing may start. Returns
    /// true if the pod is in Waiting after that.
    pub(super) fn wait_again(&mut self, ops: &Operations) -> bool {
        if self.is_sync() && !ops.is_active() {
            *self = State::Waiting;
        }
        matches!(self, State::Waiting)
    }

    /// Returns the class whose limit applies to the operation in flight. Between two steps of one start the pod keeps
    /// its slot.
    pub(super) fn start_class(&self, ops: &Operations) -> Option<Class> {
        match (ops.active(), self) {
            (Some(active), _) => active.start_class(),
            (None, State::Sync(sync)) if sync.preparation.has_begun() => Some(Class::Sandbox),
            (None, State::Sync(sync)) if sync.starting.has_files() => Some(Class::Container),
            (None, State::Sync(sync)) if sync.starting.pull().is_some_and(|pull| pull.began().is_some()) => {
                Some(Class::Pull)
            }
            (None, _) => None,
        }
    }

    /// Returns true if the pod may have started something, or the runtime shows something of it.
    pub fn has_begun(&self) -> bool {
        !matches!(self, State::Waiting)
    }

    /// Returns true if no container runs or can still start. The sandbox may still exist.
    pub fn is_quiet(&self) -> bool {
        self.is_over() || matches!(self, State::Terminating(t) if t.all_stopped)
    }

    /// Returns true if no container runs or can still start, and the sandbox no longer delays the termination.
    pub fn is_over(&self) -> bool {
        matches!(self, State::Terminated(_) | State::Finished(_) | State::Forgotten(_))
    }

    pub fn is_finished(&self) -> bool {
        matches!(self, State::Finished(_) | State::Forgotten(_))
    }

    pub fn is_forgotten(&self) -> bool {
        matches!(self, State::Forgotten(_))
    }

    /// W8: returns true if the manifest changed, and the old version runs until its record is written.
    pub fn is_outdated(&self) -> bool {
        matches!(self, State::Sync(sync) if sync.outdated.is_some())
    }

    /// Returns true if a pod that may be admitted needs room before it gets a sandbox.
    pub fn wants_room(&self) -> bool {
        match self {
            State::Waiting => true,
            State::Sync(sync) => sync.wants_room,
            _ => false,
        }
    }

    /// Returns the time until which the directory of a forgotten pod stays as a marker.
    pub fn kept_directory(&self) -> Option<Boot> {
        match self {
            State::Forgotten(Forgotten { directory: Directory::KeptAsMarker { until } }) => Some(*until),
            _ => None,
        }
    }

    pub(super) fn outdated_mut(&mut self) -> Option<&mut Outdated> {
        self.sync_mut()?.outdated.as_mut()
    }

    pub(super) fn sync_mut(&mut self) -> Option<&mut Sync> {
        match self {
            State::Sync(sync) => Some(sync),
            _ => None,
        }
    }

    pub(super) fn set_wants_room(&mut self, wants_room: bool) {
        if let Some(sync) = self.sync_mut() {
            sync.wants_room = wants_room;
        }
    }

    pub(super) fn set_preparation(&mut self, preparation: Preparation) {
        if let Some(sync) = self.sync_mut() {
            sync.preparation = preparation;
        }
    }

    pub(super) fn set_starting(&mut self, starting: Starting) {
        if let Some(sync) = self.sync_mut() {
            sync.starting = starting;
        }
    }

    /// Drops the preparations for any step other than `next`.
    pub(super) fn keep_preparations_for(&mut self, next: &Next) {
        let Some(sync) = self.sync_mut() else { return };
        if !matches!(next, Next::RunSandbox { .. }) {
            sync.preparation = Preparation::Nothing;
        }
        if !matches!(next, Next::Create { .. }) {
            sync.starting.forget_files();
        }
    }

    pub(super) fn forget_preparations(&mut self) {
        if let Some(sync) = self.sync_mut() {
            sync.preparation = Preparation::Nothing;
            sync.starting.forget_files();
        }
    }

    /// Continues the start with this image, which is present.
    pub(super) fn image_is_present(&mut self, of: Instance, needed: NeededImage, image: ImageFact) {
        if let Some(sync) = self.sync_mut() {
            sync.starting.image_found(of, needed, image);
        }
    }

    pub(super) fn devices_are_prepared(&mut self, of: Instance, resource: String) {
        if let Some(sync) = self.sync_mut() {
            sync.starting.devices_prepared(of, resource);
        }
    }

    pub(super) fn files_created(&mut self, of: Instance, prepared: Prepared) {
        if let Some(sync) = self.sync_mut() {
            sync.starting.files_created(of, prepared);
        }
    }

    pub(super) fn volumes_mounted(&mut self, of: Instance, mounts: Vec<Mount>) {
        if let Some(sync) = self.sync_mut() {
            sync.starting.volumes_mounted(of, mounts);
        }
    }

    /// Returns the pull for this instance.
    pub(super) fn pull_of(&mut self, of: Instance) -> Option<&mut Pull> {
        match &mut self.sync_mut()?.starting {
            Starting::Pulling { of: pulled, pull, .. } if *pulled == of => Some(pull),
            _ => None,
        }
    }

    pub(super) fn set_all_stopped(&mut self, all_stopped: bool) {
        if let State::Terminating(t) = self {
            t.all_stopped = all_stopped;
        }
    }

    pub(super) fn set_directory(&mut self, directory: Directory) {
        if let State::Finished(finished) = self {
            finished.directory = directory;
        }
    }

    pub(super) fn cgroup(&self) -> CgroupRemoval {
        match self {
            State::Terminated(terminated) => terminated.cgroup,
            State::Finished(finished) => finished.cgroup,
            _ => CgroupRemoval::NotTried,
        }
    }

    pub(super) fn set_cgroup(&mut self, removal: CgroupRemoval) {
        match self {
            State::Terminated(terminated) => terminated.cgroup = removal,
            State::Finished(finished) => finished.cgroup = removal,
            // The pod was killed once more; its cgroup is removed after that.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn w4_a_grace_period_only_shrinks_and_counts_from_its_beginning() {
        let mut t = Terminating::new(Boot(0) + 10 * S, 30 * S);
        t.shrink(60 * S);
        assert_eq!(t.grace_deadline, Boot(0) + 40 * S);
        t.shrink(5 * S);
        assert_eq!(t.grace_deadline, Boot(0) + 15 * S);
        t.shrink(Duration::ZERO);
        assert_eq!(t.grace_deadline, Boot(0) + 11 * S, "the minimum is one second");
    }
}
