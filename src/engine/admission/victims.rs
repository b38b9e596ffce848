//! The victims of preemption: counts each one once it has stopped (A8), and restarts it when it fits again (A9).

use super::node_snapshot::{AdmissionVerdict, NodeSnapshot};
use super::pod_requests::PodRequests;
use crate::api::names::Uid;
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::time::{Boot, Now};
use crate::engine::effect::Measure;
use crate::engine::outbox::Outbox;
use crate::engine::pod::kill::TerminationSource;
use crate::engine::pod::record::Record;
use crate::engine::pod::worker::Worker;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A9: the minimum time between two attempts to restart a victim.
const RESTART_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug, Default, Serialize)]
pub struct Victims {
    /// A8: victims that have not stopped yet, each with the resource that was short.
    stopping: BTreeMap<Uid, Rc<str>>,
    /// A9: when a victim was killed or last restarted.
    tried: BTreeMap<Uid, Boot>,
}

impl Victims {
    pub fn killed(&mut self, uid: &Uid, signal: &Rc<str>, now: Boot) {
        self.stopping.insert(uid.clone(), signal.clone());
        self.tried.insert(uid.clone(), now);
    }

    pub fn restarted(&mut self, uid: &Uid, now: Boot) {
        self.tried.insert(uid.clone(), now);
    }

    /// Restores a victim from a record of a previous process, so that it is counted and restarted.
    pub fn restore(&mut self, record: &Record, now: Now) {
        let waits = record.snapshot.waits_for.contains(&TerminationSource::Preemption);
        let Some(of) = record.history.preempted.as_ref().filter(|_| waits) else { return };
        let uid = &record.pod.uid;
        if record.snapshot.termination.is_some() && record.terminal.is_none() {
            self.stopping.insert(uid.clone(), of.signal.clone());
        }
        // If the clock was set back, wait at most the whole period from now.
        let ago = u64::try_from(now.wall.since(of.at).as_nanos()).unwrap_or(u64::MAX);
        self.tried.insert(uid.clone(), Boot(now.boot.0.saturating_sub(ago)));
    }

    /// A8: counts each victim once it has stopped.
    pub fn count(&mut self, workers: &BTreeMap<Uid, Box<Worker>>, outbox: &mut Outbox) {
        self.stopping.retain(|uid, signal| {
            let stopped = workers.get(uid).is_none_or(|w| w.state.is_over());
            if stopped {
                outbox.measure(Measure::Preempted { signal: signal.clone() });
            }
            !stopped
        });
    }

    /// A9: returns the victim that starts again now, if any. In order, each victim reserves its resources before the
    /// later ones if it fits or will fit once the terminating pods are gone, even if it was killed less than 30 s
    /// ago. A victim that does not fit beside the pods that stay reserves nothing.
    pub fn to_restart(&self, room: &NodeSnapshot<'_>, victims: Vec<&Worker>, now: Boot) -> Option<Uid> {
        // A victim may have been edited in the meantime, under the same UID.
        let requesting = victims.into_iter().filter_map(|w| match (w.demand.successor.as_deref(), w.pod.as_deref()) {
            (Some(successor), _) => Some((w, successor, Rc::new(PodRequests::of(successor)))),
            (None, pod) => Some((w, pod?, w.admission.requests.clone())),
        });
        let mut requesting: Vec<(&Worker, &Pod, Rc<PodRequests>)> = requesting.collect();
        requesting.order_by_key(|(w, _, requests)| (Reverse(requests.priority), w.history.start_time));
        let mut room = room.clone();
        for (worker, pod, requests) in requesting {
            match room.evaluate(pod, &requests) {
                AdmissionVerdict::Against { .. } => {}
                AdmissionVerdict::Fits if worker.state.is_finished() && self.may_restart_at(&worker.uid) <= now => {
                    return Some(worker.uid.clone());
                }
                AdmissionVerdict::Fits | AdmissionVerdict::Later(_) => room.reserve(&worker.name, &requests),
            }
        }
        None
    }

    fn may_restart_at(&self, uid: &Uid) -> Boot {
        self.tried.get(uid).map_or(Boot(0), |at| *at + RESTART_AFTER)
    }

    /// A9: forgets the victims that may start again now. Returns true if there were any.
    pub fn forget_passed(&mut self, now: Boot) -> bool {
        let before = self.tried.len();
        self.tried.retain(|_, at| *at + RESTART_AFTER > now);
        self.tried.len() < before
    }

    /// Forgets the victims without a worker.
    pub fn forget_gone(&mut self, workers: &BTreeMap<Uid, Box<Worker>>) {
        self.tried.retain(|uid, _| workers.contains_key(uid));
    }

    /// A9: returns when the next victim may start again.
    pub fn next_deadline(&self) -> Option<Boot> {
        self.tried.values().map(|at| *at + RESTART_AFTER).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::FullName;

    fn at(seconds: u64) -> Boot {
        Boot(0) + Duration::from_secs(seconds)
    }

    fn workers() -> BTreeMap<Uid, Box<Worker>> {
        let leftover = |uid: &str| Worker::leftover(uid.into(), FullName::new("default", uid), Now::default());
        let orphan =
            |uid: &str| Worker::orphan(uid.into(), FullName::new("default", uid), Duration::ZERO, Now::default());
        [("stopped".into(), leftover("stopped").into()), ("stopping".into(), orphan("stopping").into())].into()
    }

    #[test]
    fn a8_a_victim_counts_once_it_has_stopped() {
        let (mut victims, mut outbox) = (Victims::default(), Outbox::default());
        for uid in ["stopped", "stopping"] {
            victims.killed(&uid.into(), &"cpu".into(), at(0));
        }
        let mut count = || {
            victims.count(&workers(), &mut outbox);
            outbox.take().len()
        };
        assert_eq!([count(), count()], [1, 0]);
    }

    #[test]
    fn a9_a_victim_may_restart_30_s_after_the_last_attempt() {
        let (mut victims, uid) = (Victims::default(), Uid::from("stopped"));
        assert_eq!(victims.may_restart_at(&uid), Boot(0), "a victim of an older Wherry has no time");
        victims.killed(&uid, &"cpu".into(), at(5));
        assert_eq!(victims.may_restart_at(&uid), at(35));
        victims.restarted(&uid, at(40));
        assert_eq!(victims.may_restart_at(&uid), at(70));
        assert_eq!((victims.forget_passed(at(69)), victims.next_deadline()), (false, Some(at(70))));
        assert_eq!((victims.forget_passed(at(70)), victims.next_deadline()), (true, None));
        victims.killed(&"gone".into(), &"cpu".into(), at(70));
        victims.forget_gone(&workers());
        assert_eq!(victims.next_deadline(), None);
    }
}
