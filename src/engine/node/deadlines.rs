//! When the engine is due without an event from outside, and what is due then.
//!
//! The deadline of each part follows from its state, so nothing has to be set or cleared when the state changes. The
//! pods' deadlines are kept sorted, because there are many.

use super::due::{Due, Part};
use crate::api::time::{Boot, Now};
use crate::engine::effect::Effect;
use crate::engine::log_rotation::LogRotation;
use crate::engine::node::Engine;

impl Engine {
    /// Returns the time of the next `Event::Due`, which may already have passed. Any event may change it.
    pub fn next_deadline(&self) -> Option<Boot> {
        let parts = Part::ALL.into_iter().filter_map(|part| self.deadline_of(part));
        parts.chain(self.steps.next_deadline()).chain(self.pleg.rereads().next()).min()
    }

    /// Returns everything that has a deadline, together with the deadline.
    pub fn deadlines(&self) -> Vec<(Due, Boot)> {
        let parts = Part::ALL.into_iter().filter_map(|part| Some((Due::Part(part), self.deadline_of(part)?)));
        let pods = self.steps.deadlines().map(|(uid, at)| (Due::Pod(uid.clone()), at));
        let rereads = self.pleg.rereads().all().map(|(uid, at)| (Due::Reread(uid.clone()), at));
        parts.chain(pods).chain(rereads).collect()
    }

    fn deadline_of(&self, part: Part) -> Option<Boot> {
        match part {
            Part::Relist => self.pleg.next_relist(self.runtime.is_up(), self.config.relist_period),
            Part::RuntimeStatus => self.runtime.next_status(),
            Part::Shutdown => self.shutdown.next_deadline(self.knows_its_pods()),
            Part::Admission => self.admission.victims.next_deadline(),
            Part::Logind => self.shutdown.next_logind_call(),
            Part::Leftovers => self.leftovers.orphaned_directories.next_deadline(self.now.boot),
            Part::Images => self.reclaim.images.next_deadline(),
            Part::Eviction => self.reclaim.eviction.next_deadline(),
            Part::Logs => self.reclaim.logs.next_deadline(),
            Part::Slots => {
                let reads_at = self.pleg.reads.begins_at().filter(|_| self.runtime.is_up());
                self.shared.slots.next_deadline().into_iter().chain(reads_at).min()
            }
            Part::Cluster => self.cluster.member().and_then(|member| member.next_deadline()),
            Part::Manifests => self.desired.files.next_deadline(),
            Part::Workloads => {
                // Nothing is due while files are settling.
                let earliest = self.desired.files.settle_until().unwrap_or_default();
                self.workloads.next_deadline().map(|at| at.max(earliest))
            }
            Part::Claims => self.shared.claims.next_deadline(),
            Part::Services => self.shared.services.next_deadline().filter(|_| self.knows_its_pods()),
        }
    }

    /// Handles what is due now.
    pub(super) fn handle_due(&mut self) {
        let now = self.now.boot;
        for part in Part::ALL {
            if self.deadline_of(part).is_some_and(|at| at <= now) {
                self.part_is_due(part);
            }
        }
        self.steps.touch_due(now);
        for uid in self.pleg.due_rereads(now) {
            self.pleg.read_soon(&uid);
        }
    }

    fn part_is_due(&mut self, part: Part) {
        match part {
            Part::Relist => self.relist(),
            Part::RuntimeStatus => self.read_runtime_status(),
            Part::Shutdown => {
                self.with_shutdown(|shutdown, _, ctx| {
                    shutdown.is_due(ctx);
                    None
                });
            }
            Part::Logind => {
                self.with_shutdown(|shutdown, _, ctx| shutdown.logind_is_due(ctx));
            }
            Part::Images => self.images_are_due(),
            Part::Eviction => self.eviction_is_due(),
            Part::Logs => self.with_logs(LogRotation::check_due),
            // Every step handles these parts anyway.
            Part::Admission
            | Part::Leftovers
            | Part::Slots
            | Part::Cluster
            | Part::Manifests
            | Part::Workloads
            | Part::Claims
            | Part::Services => {}
        }
    }

    /// Handles one part or pod as if it were due. Tests use this to make a part due early, or to step without a
    /// change.
    #[doc(hidden)]
    pub fn step_early(&mut self, due: &Due, now: Now) -> Vec<Effect> {
        self.begin_step(now);
        match due {
            Due::Part(part) => self.part_is_due(*part),
            Due::Pod(uid) => self.steps.touch(uid.clone()),
            Due::Reread(uid) => self.pleg.read_soon(uid),
        }
        self.end_step()
    }
}
