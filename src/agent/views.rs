//! What the server reports about the state of the node and its pods: health, readiness, what a pod waits for.

use crate::adapters::server::health::Check;
use crate::api::k8s;
use crate::api::names::Uid;
use crate::engine::node::{PodView, SHUTTING_DOWN, Summary};

/// Returns the check for a shutdown in `/readyz` (S4).
pub fn shutdown_check(shutting_down: bool) -> Check {
    Check { name: "shutdown", failure: shutting_down.then(|| SHUTTING_DOWN.to_owned()) }
}

/// Returns why the runtime is not ready, if that is known. A runtime that has not responded yet is not ready either.
pub fn runtime_not_ready(summary: &Summary) -> Option<String> {
    let silent = || (summary.runtime_up && !summary.runtime_answered).then(|| "it has not responded yet".to_owned());
    let reported = || summary.runtime.as_ref().and_then(|fact| fact.runtime_not_ready.clone());
    summary.runtime_error.clone().or_else(silent).or_else(reported)
}

/// Reports whether the pod is in the phase Running although it is not ready. A pod that crashes repeatedly stays in
/// that phase.
pub fn is_unready(status: &k8s::PodStatus) -> bool {
    let is_ready = |c: &k8s::PodCondition| c.type_ == "Ready" && c.status == "True";
    status.phase.as_deref() == Some("Running") && !status.conditions.iter().flatten().any(is_ready)
}

/// Reports whether `kubectl get pods` would show Running: at least one container is running, and none is waiting or
/// has failed.
pub fn is_running(status: &k8s::PodStatus) -> bool {
    let states: Vec<_> = status.container_statuses.iter().flatten().filter_map(|c| c.state.as_ref()).collect();
    let completed = |t: &k8s::ContainerStateTerminated| t.exit_code == 0;
    status.phase.as_deref() == Some("Running")
        && states.iter().any(|s| s.running.is_some())
        && states.iter().all(|s| s.waiting.is_none() && s.terminated.as_deref().is_none_or(completed))
}

/// Maximum number of pods listed by name.
const MAX_UNREADY: usize = 20;

/// Returns a sentence with the reason for each pod that is not as it should be. After `MAX_UNREADY` pods, only the
/// number of the remaining pods is given. `warning` returns the last warning of a pod, which is used if its status
/// gives no reason.
pub fn unready<'a>(pods: &[PodView<'_>], warning: impl Fn(&Uid) -> Option<&'a str>) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut more = 0;
    for view in pods {
        match what_it_waits_for(view.status, warning(&view.pod.uid)) {
            Some(what) if sentences.len() < MAX_UNREADY => {
                sentences.push(format!("pod {}: {what}", view.pod.name));
            }
            Some(_) => more += 1,
            None => {}
        }
    }
    if more > 0 {
        sentences.push(format!("{more} more pods"));
    }
    sentences
}

/// Returns what the pod waits for, or None if it has ended or is healthy. The first waiting container determines the
/// reason.
fn what_it_waits_for(status: &k8s::PodStatus, warning: Option<&str>) -> Option<String> {
    let phase = status.phase.as_deref().unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed") {
        return None;
    }
    let words = |parts: &[Option<&str>]| {
        parts.iter().flatten().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join(": ")
    };
    for c in status.container_statuses.iter().flatten() {
        if let Some(waiting) = c.state.as_ref().and_then(|s| s.waiting.as_ref()) {
            let message = waiting.message.as_deref().or(warning);
            return Some(words(&[Some(&c.name), waiting.reason.as_deref(), message]));
        }
    }
    let why = words(&[status.reason.as_deref(), status.message.as_deref()]);
    let why = Some(why).filter(|w| !w.is_empty());
    (phase == "Pending" || why.is_some()).then(|| words(&[Some(phase), why.as_deref().or(warning)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::facts::RuntimeFact;

    #[test]
    fn s4_a_shutdown_fails_its_check() {
        assert_eq!(shutdown_check(false).failure, None);
        assert_eq!(shutdown_check(true).failure.as_deref(), Some("node is shutting down"));
    }

    #[test]
    fn a_runtime_that_has_not_answered_is_not_ready() {
        let fact = |why: Option<&str>| {
            Some(RuntimeFact { runtime_not_ready: why.map(str::to_owned), ..RuntimeFact::default() })
        };
        let error = |up, answered, runtime, error: Option<&str>| {
            let runtime_error = error.map(str::to_owned);
            let summary =
                Summary { runtime_up: up, runtime_answered: answered, runtime, runtime_error, ..Summary::default() };
            runtime_not_ready(&summary)
        };
        assert_eq!(error(false, false, None, None), None, "not connected yet: said by `connected`");
        assert_eq!(error(false, false, None, Some("refused")).as_deref(), Some("refused"));
        assert_eq!(error(true, false, None, None).as_deref(), Some("it has not responded yet"));
        // A fact from the previous connection is ignored.
        assert_eq!(error(true, false, fact(None), None).as_deref(), Some("it has not responded yet"));
        assert_eq!(error(true, true, fact(None), None), None);
        assert_eq!(error(true, true, fact(Some("starting")), None).as_deref(), Some("starting"));
    }

    #[test]
    fn a_pod_runs_if_its_containers_do() {
        let state = |waiting: bool, running: bool, exit_code: Option<i32>| k8s::ContainerStatus {
            state: Some(k8s::ContainerState {
                waiting: waiting.then(Default::default),
                running: running.then(Default::default),
                terminated: exit_code
                    .map(|exit_code| Box::new(k8s::ContainerStateTerminated { exit_code, ..Default::default() })),
            }),
            ..Default::default()
        };
        let (waits, runs) = (|| state(true, false, None), || state(false, true, None));
        let (completed, failed) = (|| state(false, false, Some(0)), || state(false, false, Some(1)));
        let pod = |phase: &str, containers: Vec<k8s::ContainerStatus>, ready: &str| k8s::PodStatus {
            phase: Some(phase.into()),
            container_statuses: Some(containers),
            conditions: Some(vec![k8s::PodCondition {
                type_: "Ready".into(),
                status: ready.into(),
                ..Default::default()
            }]),
            ..Default::default()
        };
        for (phase, containers, expected) in [
            ("Running", vec![runs(), runs()], true),
            ("Running", vec![runs(), completed()], true),
            ("Running", vec![waits()], false),
            ("Running", vec![runs(), waits()], false),
            ("Running", vec![runs(), failed()], false),
            ("Running", vec![completed()], false),
            ("Pending", vec![runs()], false),
            ("Running", vec![], false),
        ] {
            assert_eq!(is_running(&pod(phase, containers.clone(), "True")), expected, "{phase} {containers:?}");
        }
        assert!(
            is_unready(&pod("Running", vec![waits()], "False")) && !is_unready(&pod("Running", vec![runs()], "True"))
        );
        assert!(
            !is_unready(&pod("Failed", vec![failed()], "False"))
                && is_unready(&k8s::PodStatus { phase: Some("Running".into()), ..Default::default() })
        );
    }

    #[test]
    fn a_waiting_pod_shows_its_reason() {
        let waiting = k8s::ContainerStateWaiting { reason: Some("ErrImagePull".into()), message: Some("no".into()) };
        let container = k8s::ContainerStatus {
            name: "main".into(),
            state: Some(k8s::ContainerState { waiting: Some(Box::new(waiting)), ..Default::default() }),
            ..Default::default()
        };
        let pod = |phase: &str, containers| k8s::PodStatus {
            phase: Some(phase.into()),
            container_statuses: Some(containers),
            ..Default::default()
        };
        assert_eq!(
            what_it_waits_for(&pod("Running", vec![container.clone()]), Some("old")).unwrap(),
            "main: ErrImagePull: no"
        );
        assert_eq!(what_it_waits_for(&pod("Pending", vec![]), None).unwrap(), "Pending");
        assert_eq!(what_it_waits_for(&pod("Pending", vec![]), Some("no room")).unwrap(), "Pending: no room");
        assert_eq!(what_it_waits_for(&pod("Running", vec![]), Some("of before")), None);
        assert_eq!(what_it_waits_for(&pod("Failed", vec![container]), None), None);
    }
}
