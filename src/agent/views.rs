//! The form in which the server shows the engine's state: pods as Kubernetes objects, the node's status, health.

use crate::adapters::server::health::Check;
use crate::api::cluster::expectation::Expectation;
use crate::api::k8s::{self, ObjectMeta, Time};
use crate::api::names::{FullName, Uid};
use crate::engine::node::{PodView, SHUTTING_DOWN, Summary};
use crate::engine::pod::worker::WorkerStatus;
use serde::Serialize;
use std::borrow::Cow;

/// A pod as an item of a PodList. It borrows its data, so that a large list needs no second copy.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    metadata: Cow<'a, ObjectMeta>,
    spec: Option<Cow<'a, k8s::PodSpec>>,
    status: &'a k8s::PodStatus,
    /// With `?verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    wherry: Option<Own<'a>>,
}

/// Wherry's own data about a pod, for which the API has no field.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Own<'a> {
    /// The file of the manifest.
    path: &'a str,
    document: u32,
    digest: &'a str,
    desired: bool,
    log_directory: String,
    /// For a pod of an API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_server: Option<Expectation>,
    #[serde(flatten)]
    worker_status: WorkerStatus,
}

impl<'a> Own<'a> {
    pub fn new(
        view: &PodView<'a>,
        worker_status: WorkerStatus,
        log_directory: String,
        without_server: Option<Expectation>,
    ) -> Own<'a> {
        let pod = view.pod;
        let (path, document) = (pod.source.path.as_str(), pod.source.document);
        Own { path, document, digest: &pod.digest, desired: view.desired, log_directory, without_server, worker_status }
    }
}

fn item<'a>(view: &PodView<'a>, wherry: Option<Own<'a>>) -> Item<'a> {
    let object = &view.pod.object;
    let mut metadata = Cow::Borrowed(&object.metadata);
    if let Some((at, grace)) = view.deletion {
        let metadata = metadata.to_mut();
        metadata.deletion_timestamp = at.timestamp().map(Time);
        metadata.deletion_grace_period_seconds = Some(grace);
    }
    let spec = object.spec.as_ref().map(with_dns_policy);
    Item { metadata, spec, status: view.status, wherry }
}

/// A kubelet shows the default policy too. (The spec does not have it, so that only a pod that names a policy gets a
/// warning.)
fn with_dns_policy(spec: &k8s::PodSpec) -> Cow<'_, k8s::PodSpec> {
    let mut spec = Cow::Borrowed(spec);
    if spec.dns_policy.is_none() {
        spec.to_mut().dns_policy = Some("ClusterFirst".to_owned());
    }
    spec
}

/// The pod as a JSON object.
pub fn pod_value(view: &PodView<'_>) -> serde_json::Value {
    // The types have no keys that JSON lacks.
    serde_json::to_value(item(view, None)).unwrap_or_default()
}

/// Appends the pod as a JSON object.
pub fn write_pod(view: &PodView<'_>, wherry: Option<Own<'_>>, out: &mut Vec<u8>) {
    let item = item(view, wherry);
    if let Err(e) = serde_json::to_writer(&mut *out, &item) {
        // The types have no keys that JSON lacks, and writing to a Vec does not fail.
        log::error!("pod={} failed to write the pod as JSON: {e}", view.pod.name);
    }
}

/// A line of a watch: the change (`ADDED`, `MODIFIED`), and the pod.
pub fn write_change(kind: &str, view: &PodView<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    write_pod(view, None, out);
    out.extend_from_slice(b"}\n");
}

/// A line of a watch: the pod is gone. The object has only the fields that identify it.
pub fn write_gone(uid: &Uid, name: &FullName, out: &mut Vec<u8>) {
    let metadata = serde_json::json!({ "namespace": &*name.namespace, "name": &*name.name, "uid": uid.as_str() });
    let line = serde_json::json!({ "type": "DELETED", "object": { "metadata": metadata } });
    out.extend_from_slice(line.to_string().as_bytes());
    out.push(b'\n');
}

/// The line that ends the initial list of a watch.
pub const BOOKMARK: &[u8] = b"{\"type\":\"BOOKMARK\",\"object\":{}}\n";

/// S4: the check in `/readyz` for a shutdown.
pub fn shutdown_check(shutting_down: bool) -> Check {
    Check { name: "shutdown", failure: shutting_down.then(|| SHUTTING_DOWN.to_owned()) }
}

/// Why the runtime is not ready, if that is known. A runtime that has not answered yet is not ready either.
pub fn runtime_not_ready(summary: &Summary) -> Option<String> {
    let silent = || (summary.runtime_up && !summary.runtime_answered).then(|| "it has not answered yet".to_owned());
    let reported = || summary.runtime.as_ref().and_then(|fact| fact.runtime_not_ready.clone());
    summary.runtime_error.clone().or_else(silent).or_else(reported)
}

/// Whether the pod is in the phase Running although not all of its containers are ready. A pod that crashes repeatedly
/// stays in that phase.
pub fn is_unready(status: &k8s::PodStatus) -> bool {
    let is_ready = |c: &k8s::PodCondition| c.type_ == "Ready" && c.status == "True";
    status.phase.as_deref() == Some("Running") && !status.conditions.iter().flatten().any(is_ready)
}

/// Whether `kubectl get pods` would show Running: a container runs, and none is waiting or has failed.
pub fn is_running(status: &k8s::PodStatus) -> bool {
    let states: Vec<_> = status.container_statuses.iter().flatten().filter_map(|c| c.state.as_ref()).collect();
    let completed = |t: &k8s::ContainerStateTerminated| t.exit_code == 0;
    status.phase.as_deref() == Some("Running")
        && states.iter().any(|s| s.running.is_some())
        && states.iter().all(|s| s.waiting.is_none() && s.terminated.as_deref().is_none_or(completed))
}

/// Maximum number of pods listed by name.
const MAX_UNREADY: usize = 20;

/// One sentence for each pod that is not as it should be, with the reason; after `MAX_UNREADY` pods only the number of
/// the others. `warning` returns the last warning of a pod, used if its status gives no reason.
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

/// The first waiting container gives the reason. A pod that has ended or is healthy waits for nothing.
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
        assert_eq!(error(true, false, None, None).as_deref(), Some("it has not answered yet"));
        // A fact from the previous connection does not count.
        assert_eq!(error(true, false, fact(None), None).as_deref(), Some("it has not answered yet"));
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
