//! `wherry retry` (A3): considers a rejected pod for admission again at once, and answers with the outcome.

use crate::api::names::Uid;
use crate::api::time::Now;
use crate::engine::admission::Admission;
use crate::engine::effect::Effect;
use crate::engine::event::Event;
use crate::engine::node::Engine;
use crate::engine::pod::status::Cause;

/// Returns an HTTP status and a message: 200 if the pod was retried, whatever the outcome. Appends the engine's effects
/// to `effects`.
pub(super) fn retry(engine: &mut Engine, uid: Option<&str>, now: Now, effects: &mut Vec<Effect>) -> (u16, String) {
    let Some(uid) = uid.filter(|uid| !uid.is_empty()).map(Uid::from) else {
        return (400, "the request names no pod; expected /retry?uid=UID".to_owned());
    };
    let Some(view) = engine.pod(&uid) else {
        return (404, format!("there is no pod with the UID {uid}"));
    };
    let name = view.pod.name.clone();
    let Admission::Rejected(cause) = view.admission else {
        let phase = view.status.phase.as_deref().unwrap_or("Unknown");
        let reason = view.status.reason.as_deref().map_or(String::new(), |reason| format!(", {reason}"));
        let drained = engine.worker_status(&uid, now.boot).is_some_and(|worker_status| worker_status.drained);
        let remedy = if drained { "; `wherry undrain` lets it run again" } else { "" };
        return (409, format!("pod {name} is not rejected, it is {phase}{reason}{remedy}"));
    };
    if *cause == Cause::node_shutdown() {
        return (
            409,
            format!(
                "pod {name} is rejected because the node is shutting down; Wherry retries it when the shutdown is over"
            ),
        );
    }
    effects.extend(engine.step(Event::Retry { uid: uid.clone() }, now));
    let outcome = outcome(engine, &uid, now);
    log::info!("pod={name} reason=Retried outcome={outcome:?}");
    (200, format!("pod {name} was retried: {outcome}"))
}

/// The state after the retry, as a sentence.
fn outcome(engine: &Engine, uid: &Uid, now: Now) -> String {
    match engine.pod(uid).map(|view| view.admission) {
        Some(Admission::Admitted) => "it is admitted".to_owned(),
        Some(Admission::Waits(why)) => format!("it must wait, {why}"),
        Some(Admission::Rejected(cause)) => format!("it is rejected again ({}): {}", cause.reason, cause.message),
        Some(Admission::Open) if engine.shutting_down() => {
            "it is considered when the node's shutdown is over".to_owned()
        }
        Some(Admission::Open) | None => {
            let waits_for =
                engine.worker_status(uid, now.boot).map(|worker_status| worker_status.waits_for).unwrap_or_default();
            match waits_for.is_empty() {
                true => "it is considered when its turn comes".to_owned(),
                false => format!("it is considered when its turn comes; it waits for {}", waits_for.join("; ")),
            }
        }
    }
}

/// A small node, for tests of requests on the control socket.
#[cfg(test)]
pub(super) mod lab {
    use super::*;
    use crate::api::document::{self, Context};
    use crate::api::facts::Listed;
    use crate::api::pod::Pod;
    use crate::api::shutdown::Groups;
    use crate::api::time::{Boot, Wall};
    use crate::engine::config::EngineConfig;
    use crate::engine::effect::RuntimeCall;
    use crate::engine::event::Answer;
    use std::rc::Rc;
    use std::time::Duration;

    pub fn at(seconds: u64) -> Now {
        let passed = Duration::from_secs(seconds);
        Now { boot: Boot(0) + passed, wall: Wall(1_800_000_000_000_000_000) + passed }
    }

    /// A pod that requests this many cpus.
    pub fn pod(name: &str, cpus: u32) -> Rc<Pod> {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: m, image: i:1, \
             resources: {{requests: {{cpu: {cpus}}}}}}}]}}}}"
        );
        let context = Context { node_name: "lab", seen: "2027-01-15T08:00:00Z" };
        Rc::new(document::read(text.as_bytes(), &format!("/m/{name}.yaml"), context).0.remove(0))
    }

    /// The configuration of the node `lab` with this many cpus and graceful shutdown.
    pub fn config(cpus: u64) -> EngineConfig {
        let shutdown = Groups::from_total(Duration::from_secs(30), Duration::from_secs(10));
        let mut config = EngineConfig { shutdown, ..EngineConfig::default() };
        config.node.name = "lab".into();
        config.node.allocatable.set("cpu", cpus * 1000);
        config
    }

    /// A node with four cpus on which nothing runs yet.
    pub fn node(desired: Vec<Rc<Pod>>) -> Engine {
        let mut engine = Engine::new(config(4));
        engine.step(Event::Desired(desired), at(1));
        let effects = engine.step(Event::RuntimeUp, at(1));
        let list = effects.iter().find_map(|e| match e {
            Effect::Runtime { op, call: RuntimeCall::List, .. } => Some(*op),
            _ => None,
        });
        engine.step(Event::Done { op: list.unwrap(), result: Ok(Answer::Listed(Listed::default())) }, at(2));
        engine
    }
}

#[cfg(test)]
mod tests {
    use super::lab::{at, config, node, pod};
    use super::*;
    use crate::engine::event::LogindEvent;

    fn ask(engine: &mut Engine, uid: &str) -> (u16, String, usize) {
        let mut effects = Vec::new();
        let (status, words) = retry(engine, Some(uid), at(3), &mut effects);
        (status, words, effects.len())
    }

    #[test]
    fn a3_a_retry_tells_what_came_of_it() {
        let (first, second) = (pod("first", 1), pod("second", 4));
        let mut engine = node(vec![first, second.clone()]);
        let (status, words, effects) = ask(&mut engine, second.uid.as_str());
        let why = "Node didn't have enough resource: cpu, requested: 4000, used: 1000, capacity: 4000";
        assert_eq!(words, format!("pod default/second was retried: it is rejected again (OutOfcpu): {why}"));
        assert_eq!(status, 200);
        assert!(effects > 0, "it is recorded, counted and told");

        engine.step(Event::Configure(Box::new(config(5))), at(3));
        assert_eq!(engine.summary(at(3).boot).rejected, 1, "room alone is no retry");
        let (status, words, effects) = ask(&mut engine, second.uid.as_str());
        assert_eq!((status, words.as_str()), (200, "pod default/second was retried: it is admitted"));
        assert!(effects > 0);
        let (status, words, effects) = ask(&mut engine, second.uid.as_str());
        assert_eq!((status, words.as_str()), (409, "pod default/second is not rejected, it is Pending"));
        assert_eq!(effects, 0);
    }

    #[test]
    fn a3_who_cannot_be_tried_again_changes_nothing() {
        let mut engine = node(vec![pod("small", 1)]);
        assert_eq!(ask(&mut engine, "nobody"), (404, "there is no pod with the UID nobody".into(), 0));
        for none in [None, Some("")] {
            assert_eq!(retry(&mut engine, none, at(3), &mut Vec::new()).0, 400);
        }
        engine.step(Event::Logind(LogindEvent::Preparing(true)), at(3));
        let late = pod("late", 1);
        engine.step(Event::Desired(vec![pod("small", 1), late.clone()]), at(3));
        let words = "pod default/late is rejected because the node is shutting down; \
                     Wherry retries it when the shutdown is over";
        assert_eq!(ask(&mut engine, late.uid.as_str()), (409, words.into(), 0));
    }

    #[test]
    fn s4_what_is_tried_again_in_a_shutdown_is_looked_at_after_it() {
        let big = pod("big", 5);
        let mut engine = node(vec![big.clone()]);
        engine.step(Event::Logind(LogindEvent::Preparing(true)), at(3));
        let (status, words, _) = ask(&mut engine, big.uid.as_str());
        let expected = "pod default/big was retried: it is considered when the node's shutdown is over";
        assert_eq!((status, words.as_str()), (200, expected));
    }
}
