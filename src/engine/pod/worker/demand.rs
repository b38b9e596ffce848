//! What the sources of pods and the node demand of a pod: whether it is desired, and under which conditions it runs
//! again after its end (W6).

use crate::api::pod::Pod;
use crate::engine::effect::Effect;
use crate::engine::outbox::Outbox;
use crate::engine::pod::kill::{KillId, TerminationSource};
use serde::Serialize;
use std::collections::BTreeSet;
use std::rc::Rc;

#[derive(Debug, Default, Serialize)]
pub struct Demand {
    /// A manifest or the API server desires the pod.
    pub desired: bool,
    /// The pod became undesired or was replaced. If it is desired again, it starts again.
    pub replaced: bool,
    /// The pod to start under this UID after this worker has finished.
    pub successor: Option<Rc<Pod>>,
    /// The pod has to run again, but only after these causes are over.
    pub waits_for: BTreeSet<TerminationSource>,
    /// W5: the kills to answer when nothing of the pod runs any more.
    pub kills: Vec<KillId>,
}

impl Demand {
    /// W27: returns true if the pod is not started until `undrain`.
    pub fn is_drained(&self) -> bool {
        self.waits_for.contains(&TerminationSource::Drain)
    }

    /// A11: returns true if the pod is not started while the node is cordoned.
    pub fn is_evicted_through_api(&self) -> bool {
        self.waits_for.contains(&TerminationSource::ApiEviction)
    }

    /// A10: makes a drained pod of a cordoned node wait for `uncordon` after `undrain`.
    pub fn wait_for_uncordon(&mut self) {
        self.waits_for.insert(TerminationSource::ApiEviction);
    }

    /// W5: answers the requesters of the kills, because nothing of the pod runs any more.
    pub fn answer_kills(&mut self, outbox: &mut Outbox) {
        self.kills.drain(..).for_each(|id| outbox.push(Effect::Killed { id }));
    }

    /// W6: returns true if at least one cause of the pod's kills is not over yet.
    pub fn is_held_back(&self) -> bool {
        !self.waits_for.is_empty()
    }

    /// Returns true if the pod runs again, after its end and after the causes that it waits for.
    pub fn runs_again(&self) -> bool {
        self.desired && (self.successor.is_some() || !self.waits_for.is_empty())
    }

    /// C5: returns true if the pod runs again after a shutdown, so that its phase on the API server stays.
    pub fn keeps_phase(&self, from_api_server: bool) -> bool {
        self.waits_for.contains(&TerminationSource::Shutdown) || from_api_server && self.runs_again()
    }

    /// Returns true if the finished pod is kept, because it is desired and does not start again yet (W23).
    pub fn stays(&self) -> bool {
        self.desired && (self.successor.is_none() || !self.waits_for.is_empty())
    }

    /// Returns the pod that starts once this one has ended.
    pub fn next(&self) -> Option<&Pod> {
        self.successor.as_deref().filter(|_| self.desired && self.waits_for.is_empty())
    }

    /// Ends the pod for good: it does not run again, whatever it waited for. Returns false if it would not have run
    /// again anyway.
    pub fn end(&mut self) -> bool {
        let before = (self.replaced, self.successor.take().is_some(), std::mem::take(&mut self.waits_for).is_empty());
        self.replaced = false;
        before != (false, false, true)
    }

    pub fn waits_only_for(&self, source: TerminationSource) -> bool {
        self.waits_for.len() == 1 && self.waits_for.contains(&source)
    }

    /// Notes that a cause is over. A pod that waits for no other cause starts again, as `current` if there is no
    /// other version. Returns false if the pod did not wait for the cause.
    pub fn release(&mut self, source: TerminationSource, current: Option<&Rc<Pod>>) -> bool {
        if !self.waits_for.remove(&source) {
            return false;
        }
        if self.waits_for.is_empty() && self.desired {
            self.replaced = true;
            self.successor = self.successor.take().or_else(|| current.cloned());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use crate::api::document::context::Context;

    fn pod() -> Rc<Pod> {
        let text = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: m, image: i:1}]}}";
        let context = Context::new("lab", "2027-01-15T08:00:00Z");
        Rc::new(document::read(text.as_bytes(), "/m/a.yaml", context).0.remove(0))
    }

    #[test]
    fn w6_a_pod_runs_again_when_the_last_cause_is_over() {
        let (drain, shutdown) = (TerminationSource::Drain, TerminationSource::Shutdown);
        let waits_for = BTreeSet::from([drain, shutdown]);
        let mut demand = Demand { desired: true, waits_for, ..Demand::default() };
        assert!(demand.stays() && demand.runs_again() && !demand.waits_only_for(drain));
        assert!(!demand.release(TerminationSource::Eviction, Some(&pod())));
        assert!(demand.release(shutdown, Some(&pod())) && demand.successor.is_none());
        assert!(demand.waits_only_for(drain) && demand.next().is_none());
        assert!(demand.release(drain, Some(&pod())));
        assert!(demand.next().is_some() && demand.replaced && !demand.stays());
    }

    #[test]
    fn c5_a_pod_that_ends_for_good_does_not_run_again() {
        let mut demand = Demand { desired: true, ..Demand::default() };
        assert!(!demand.end());
        demand.waits_for.insert(TerminationSource::Shutdown);
        assert!(demand.release(TerminationSource::Shutdown, Some(&pod())) && demand.runs_again());
        assert!(demand.end() && !demand.runs_again() && !demand.replaced && demand.desired);
    }

    #[test]
    fn w23_a_finished_pod_stays_while_it_is_desired() {
        let mut demand = Demand { desired: true, ..Demand::default() };
        assert!(demand.stays() && !demand.runs_again());
        demand.successor = Some(pod());
        assert!(!demand.stays() && demand.runs_again());
        demand.desired = false;
        assert!(!demand.stays() && !demand.runs_again() && demand.next().is_none());
    }
}
