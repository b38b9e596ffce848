//! `wherry drain` and `wherry undrain` (W27). A request becomes events for the engine. The client gets each pod's
//! outcome once the records are durable, so that the answer survives a kill of the agent.

use crate::api::control::{DrainOutcome, DrainRequest, Drained, DrainedPod};
use crate::api::names::{FullName, Uid};
use crate::api::time::Now;
use crate::engine::effect::Effect;
use crate::engine::event::Event;
use crate::engine::node::Engine;
use crate::engine::pod::kill::{Kill, KillId, TerminationSource};
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest grace period that a client may request: a week, in seconds.
const LONGEST_GRACE: u64 = 7 * 24 * 3600;

/// The drains whose pods have not ended yet.
#[derive(Debug, Default)]
pub(super) struct Drains {
    last: u64,
    open: BTreeMap<KillId, FullName>,
}

impl Drains {
    fn next(&mut self, name: &FullName) -> KillId {
        self.last += 1;
        self.open.insert(KillId(self.last), name.clone());
        KillId(self.last)
    }

    /// W5: no part of the pod runs any more.
    pub fn ended(&mut self, id: KillId) {
        if let Some(name) = self.open.remove(&id) {
            log::info!("pod={name} reason=Drained the drained pod has stopped");
        }
    }
}

/// Drains the pods of a request and appends the engine's effects to `effects`.
///
/// # Errors
/// An HTTP status and a message. In this case nothing was done.
pub(super) fn drain(
    engine: &mut Engine,
    drains: &mut Drains,
    body: &[u8],
    now: Now,
    effects: &mut Vec<Effect>,
) -> Result<Drained, (u16, String)> {
    let request = read(engine, body)?;
    let grace = request.grace_period_seconds;
    if grace.is_some_and(|s| s > LONGEST_GRACE) {
        return Err((400, format!("gracePeriodSeconds is at most {LONGEST_GRACE}")));
    }
    let kill = Kill { by: TerminationSource::Drain, message: None, grace: grace.map(Duration::from_secs) };
    let one = |uid: &Uid| {
        let Some(name) = engine.pod(uid).map(|view| view.pod.name.clone()) else { return not_found(uid) };
        let id = drains.next(&name);
        effects.extend(engine.step(Event::Kill { id, uid: uid.clone(), kill: kill.clone() }, now));
        // An undesired pod may have been forgotten in this step.
        pod(uid, &name, outcome_of_drain(engine, uid, now))
    };
    Ok(Drained { pods: uids(&request).iter().map(one).collect() })
}

/// Ends the drain of the pods of a request.
///
/// # Errors
/// As in `drain`.
pub(super) fn undrain(
    engine: &mut Engine,
    body: &[u8],
    now: Now,
    effects: &mut Vec<Effect>,
) -> Result<Drained, (u16, String)> {
    let request = read(engine, body)?;
    let one = |uid: &Uid| {
        let Some(name) = engine.pod(uid).map(|view| view.pod.name.clone()) else { return not_found(uid) };
        if !engine.worker_status(uid, now.boot).is_some_and(|worker_status| worker_status.drained) {
            return pod(uid, &name, DrainOutcome::NotDrained);
        }
        effects
            .extend(engine.step(Event::Release { by: TerminationSource::Drain, uids: Some(vec![uid.clone()]) }, now));
        let held = engine.shutting_down() || engine.is_held_back(uid);
        let outcome = if held { DrainOutcome::Waits } else { DrainOutcome::Starts };
        pod(uid, &name, outcome)
    };
    Ok(Drained { pods: uids(&request).iter().map(one).collect() })
}

fn read(engine: &Engine, body: &[u8]) -> Result<DrainRequest, (u16, String)> {
    // D1: until then the set of pods is unknown.
    if !engine.sources_ready() {
        return Err((503, "the manifests have not been read yet; try again in a moment".to_owned()));
    }
    let request: DrainRequest = serde_json::from_slice(body)
        .map_err(|e| (400, format!("invalid request: {e}; expected {{\"uids\": [...]}}")))?;
    if request.uids.is_empty() {
        return Err((400, "the request names no pods; expected {\"uids\": [...]}".to_owned()));
    }
    Ok(request)
}

fn uids(request: &DrainRequest) -> Vec<Uid> {
    request.uids.iter().map(|uid| Uid::from(uid.as_str())).collect()
}

fn not_found(uid: &Uid) -> DrainedPod {
    let (namespace, name) = Default::default();
    DrainedPod { uid: uid.to_string(), namespace, name, outcome: DrainOutcome::NotFound }
}

fn pod(uid: &Uid, name: &FullName, outcome: DrainOutcome) -> DrainedPod {
    let (namespace, name) = (name.namespace.to_string(), name.name.to_string());
    DrainedPod { uid: uid.to_string(), namespace, name, outcome }
}

fn outcome_of_drain(engine: &Engine, uid: &Uid, now: Now) -> DrainOutcome {
    let (Some(view), Some(worker_status)) = (engine.pod(uid), engine.worker_status(uid, now.boot)) else {
        return DrainOutcome::Undesired;
    };
    match (view.desired, worker_status.drained, engine.is_finished(uid)) {
        (false, _, _) => DrainOutcome::Undesired,
        (true, false, _) => DrainOutcome::Completed,
        (true, true, true) => DrainOutcome::Down,
        (true, true, false) => DrainOutcome::Ending,
    }
}

#[cfg(test)]
mod tests {
    use super::super::retry::lab::{at, node, pod};
    use super::*;

    struct Lab {
        engine: Engine,
        drains: Drains,
        effects: Vec<Effect>,
    }

    impl Lab {
        fn new(names: &[&str]) -> Lab {
            let engine = node(names.iter().map(|name| pod(name, 1)).collect());
            Lab { engine, drains: Drains::default(), effects: Vec::new() }
        }

        fn drain(&mut self, body: &str) -> Result<Vec<DrainOutcome>, (u16, String)> {
            drain(&mut self.engine, &mut self.drains, body.as_bytes(), at(3), &mut self.effects).map(outcomes)
        }

        fn undrain(&mut self, body: &str) -> Result<Vec<DrainOutcome>, (u16, String)> {
            undrain(&mut self.engine, body.as_bytes(), at(4), &mut self.effects).map(outcomes)
        }

        fn asks(&self, names: &[&str]) -> String {
            let uids = names.iter().map(|name| pod(name, 1).uid.to_string()).collect();
            serde_json::to_string(&DrainRequest { uids, grace_period_seconds: None }).unwrap()
        }

        fn records(&self, what: &str) -> usize {
            self.effects
                .iter()
                .filter(|e| matches!(e, Effect::Record { .. }) && format!("{e:?}").contains(what))
                .count()
        }
    }

    fn outcomes(drained: Drained) -> Vec<DrainOutcome> {
        drained.pods.into_iter().map(|p| p.outcome).collect()
    }

    #[test]
    fn w27_each_pod_has_its_own_outcome_and_a_record_at_once() {
        let mut lab = Lab::new(&["a", "b"]);
        let body = lab.asks(&["a", "nobody", "b"]);
        let ending = DrainOutcome::Ending;
        assert_eq!(lab.drain(&body).unwrap(), [ending, DrainOutcome::NotFound, ending]);
        assert_eq!(lab.records("waitsFor"), 2);
        assert_eq!(lab.engine.summary(at(3).boot).drained, 2);
        // A second drain changes nothing.
        assert_eq!(lab.drain(&lab.asks(&["a"])).unwrap(), [ending]);
        assert_eq!(lab.records("waitsFor"), 2);
        assert_eq!(lab.undrain(&body).unwrap(), [DrainOutcome::Starts, DrainOutcome::NotFound, DrainOutcome::Starts]);
        assert_eq!(lab.undrain(&lab.asks(&["b"])).unwrap(), [DrainOutcome::NotDrained]);
        assert_eq!(lab.engine.summary(at(4).boot).drained, 0);
    }

    #[test]
    fn w27_what_cannot_be_done_says_why_and_does_nothing() {
        let mut lab = Lab::new(&["a"]);
        for (body, why) in [
            ("", "invalid request"),
            ("{\"uids\": 1}", "invalid request"),
            ("{}", "the request names no pods"),
            ("{\"uids\": [\"u\"], \"gracePeriodSeconds\": 604801}", "gracePeriodSeconds is at most 604800"),
        ] {
            let (status, said) = lab.drain(body).unwrap_err();
            assert!(status == 400 && said.contains(why), "{body}: {status} {said}");
        }
        assert_eq!(lab.undrain("{}").unwrap_err().0, 400);
        assert!(lab.effects.is_empty());
        lab.engine = Engine::new(Default::default());
        assert_eq!(lab.drain("{\"uids\": [\"u\"]}").unwrap_err().0, 503, "D1");
    }
}
