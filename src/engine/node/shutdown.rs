//! The node's side of graceful shutdown (`engine/shutdown`): carries out its orders on the workers (S4, S6), and shows
//! it to the API.

use super::Engine;
use crate::api::names::Uid;
use crate::api::shutdown::view::{PlanView, ShutdownView};
use crate::api::time::Boot;
use crate::engine::pod::kill::{Kill, TerminationSource};
use crate::engine::shutdown::Shutdown;
use crate::engine::shutdown::pods::Pods;
use crate::engine::shutdown::transitions::{self, Context, Order};

impl Engine {
    /// Passes an event to the shutdown's state machine, and carries out its order. Returns true if workers have to be
    /// stepped.
    pub(super) fn with_shutdown(
        &mut self,
        f: impl FnOnce(&mut Shutdown, &Pods<'_>, &mut Context<'_>) -> Option<Order>,
    ) -> bool {
        let knows_its_pods = self.knows_its_pods();
        let pods = Pods { workers: &self.workers, pleg: &self.pleg, now: self.now.boot };
        let mut ctx = Context {
            now: self.now,
            groups: &self.config.shutdown,
            boot_id: &self.config.fixed.boot_id,
            knows_its_pods,
            outbox: &mut self.outbox,
        };
        match f(&mut self.shutdown, &pods, &mut ctx) {
            None => return false,
            Some(Order::Kill(kill)) => self.kill_group(&kill),
            // Each worker stops the sandbox of its pod if the pod has ended.
            Some(Order::StopSandboxes) => self.touch_all(),
            Some(Order::Continue) => self.continue_after_shutdown(),
        }
        true
    }

    /// Advances the shutdown. Returns true if workers have to be stepped, because their pods were killed or may
    /// continue.
    pub(super) fn step_shutdown(&mut self) -> bool {
        let held_starts = self.shutdown.holds_starts();
        let ordered = self.with_shutdown(|shutdown, pods, ctx| shutdown.step(pods, ctx));
        let may_start_again = held_starts && !self.shutdown.holds_starts();
        if may_start_again {
            self.touch_all();
        }
        ordered || may_start_again
    }

    fn kill_group(&mut self, kill: &transitions::Kill) {
        for uid in &kill.pods {
            self.with_worker(uid, |worker, entry, ctx| {
                let grace = kill.grace(worker.grace_period());
                let kill = Kill { by: TerminationSource::Shutdown, message: None, grace: Some(grace) };
                worker.kill_for(None, &kill, entry, ctx);
            });
        }
        self.steps.touch_all(kill.pods.iter().cloned());
    }

    /// S6: lets the pods that waited for the end of the shutdown continue.
    fn continue_after_shutdown(&mut self) {
        self.release(TerminationSource::Shutdown, None);
        let rejected =
            self.workers.values().filter(|w| w.admission.is_rejected_for_now(w.pod.as_ref())).map(|w| w.uid.clone());
        for uid in rejected.collect::<Vec<Uid>>() {
            self.with_worker(&uid, |worker, _, _| worker.reopen_admission());
        }
        let first: Vec<Uid> = self.desired.names().firsts().cloned().collect();
        for uid in first {
            self.begin(&uid);
        }
        self.touch_all();
    }

    /// Returns true during a shutdown of the node.
    pub fn shutting_down(&self) -> bool {
        self.shutdown.is_on()
    }

    pub fn shutdown(&self, now: Boot) -> ShutdownView {
        self.shutdown.view(&self.config.shutdown, &self.workers, now)
    }

    pub fn shutdown_plan(&self) -> PlanView {
        self.shutdown.plan(&self.config.shutdown, &self.workers)
    }
}
