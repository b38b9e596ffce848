//! L4: selects the run of a container whose log a request asks for, or explains why there is none. kubectl and
//! `wherry logs` follow the same rules.

use crate::api::k8s::{ContainerState, ContainerStatus, PodStatus};

/// Why a container does not have the requested log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoLog {
    /// No earlier run has ended.
    NoPrevious,
    /// The first run has not started.
    Waiting { reason: String, message: String },
    /// The pod ended before the container started: it was rejected, for example.
    PodEnded { reason: String, message: String },
    /// The container has ended without ever running.
    NeverRan,
}

impl NoLog {
    /// Returns the message in a kubelet's words.
    pub fn describe(&self, container: &str, pod: &str) -> String {
        let of = format!("container {container:?} in pod {pod:?}");
        match self {
            NoLog::NoPrevious => format!("previous terminated {of} not found"),
            NoLog::Waiting { reason, .. } => format!("{of} is waiting to start: {}", waits_for(reason)),
            NoLog::PodEnded { reason, message } => format!("{of} has never run: {}", both(reason, message)),
            NoLog::NeverRan => format!("{of} is terminated"),
        }
    }

    /// Returns the message of `wherry logs`, which follows the names of the pod and the container.
    pub fn explain(&self) -> String {
        match self {
            NoLog::NoPrevious => "there is no previous terminated container".to_owned(),
            NoLog::Waiting { reason, message } => format!("it is waiting to start: {}", both(reason, message)),
            NoLog::PodEnded { reason, message } => format!("it has never run: {}", both(reason, message)),
            NoLog::NeverRan => "it ended without ever running".to_owned(),
        }
    }
}

fn both(reason: &str, message: &str) -> String {
    if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") }
}

fn waits_for(reason: &str) -> &str {
    match reason {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        other => other,
    }
}

/// Returns the number of the run: with `previous`, of the last run that has ended; otherwise, of the current or
/// latest run. `number` returns the run of the container with this id, if the runtime has the container.
///
/// # Errors
/// There is no such run.
pub fn run(
    pod: &PodStatus,
    container: &str,
    previous: bool,
    number: impl Fn(&str) -> Option<u32>,
) -> Result<u32, NoLog> {
    let lists = [&pod.init_container_statuses, &pod.container_statuses, &pod.ephemeral_container_statuses];
    let Some(status) = lists.into_iter().flatten().flatten().find(|status| status.name == container) else {
        return Err(if previous { NoLog::NoPrevious } else { not_started(pod, &ContainerState::default()) });
    };
    let state = status.state.clone().unwrap_or_default();
    let last = ended(status.last_state.as_ref());
    if previous {
        let id = last.ok_or(NoLog::NoPrevious)?;
        return Ok(number(&id).unwrap_or_else(|| before(status, &state, &id)));
    }
    let newest = u32::try_from(status.restart_count).unwrap_or_default();
    if state.running.is_some() {
        return Ok(status.container_id.as_deref().and_then(|id| number(plain(id))).unwrap_or(newest));
    }
    match (ended(Some(&state)), last) {
        (Some(id), _) if !id.is_empty() => Ok(number(&id).unwrap_or(newest)),
        (_, Some(id)) => Ok(number(&id).unwrap_or_else(|| before(status, &state, &id))),
        (Some(_), None) if status.container_id.as_ref().is_some_and(|id| !id.is_empty()) => Ok(newest),
        (Some(_), None) => Err(NoLog::NeverRan),
        (None, None) => Err(not_started(pod, &state)),
    }
}

/// Returns the id of the container that this state shows as terminated, without the name of the runtime.
fn ended(state: Option<&ContainerState>) -> Option<String> {
    let end = state?.terminated.as_ref()?;
    Some(plain(end.container_id.as_deref().unwrap_or_default()).to_owned())
}

fn plain(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, id)| id)
}

/// Returns the number of the last run that has ended, for a run that the runtime no longer has. While the next run
/// waits to start, the restart count is still that of the last run.
fn before(status: &ContainerStatus, state: &ContainerState, last: &str) -> u32 {
    let count = u32::try_from(status.restart_count).unwrap_or_default();
    let newest = plain(status.container_id.as_deref().unwrap_or_default());
    let waits = state.waiting.is_some() && (newest.is_empty() || newest == last || last.is_empty());
    if waits { count } else { count.saturating_sub(1) }
}

fn not_started(pod: &PodStatus, state: &ContainerState) -> NoLog {
    let has_ended = matches!(pod.phase.as_deref(), Some("Failed" | "Succeeded"));
    if let Some(reason) = pod.reason.clone().filter(|_| has_ended) {
        return NoLog::PodEnded { reason, message: pod.message.clone().unwrap_or_default() };
    }
    let waiting = state.waiting.clone().unwrap_or_default();
    let reason = waiting.reason.filter(|reason| !reason.is_empty()).unwrap_or_else(|| "ContainerCreating".to_owned());
    NoLog::Waiting { reason, message: waiting.message.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn choice(pod: Value, previous: bool) -> Result<u32, String> {
        let pod: PodStatus = serde_json::from_value(pod).unwrap();
        let number = |id: &str| id.strip_prefix('c').and_then(|n| n.parse().ok());
        run(&pod, "main", previous, number).map_err(|why| why.describe("main", "web"))
    }

    fn both_runs(state: Value, last: Value, id: &str, count: u32) -> (Result<u32, String>, Result<u32, String>) {
        let one = json!({"name": "main", "state": state, "lastState": last, "containerID": id, "restartCount": count});
        let pod = json!({"phase": "Running", "containerStatuses": [one]});
        (choice(pod.clone(), false), choice(pod, true))
    }

    fn end(id: &str) -> Value {
        json!({"terminated": {"containerID": format!("containerd://{id}"), "exitCode": 1,
            "startedAt": "2026-11-20T14:46:39Z"}})
    }

    fn waits(reason: &str) -> Value {
        json!({"waiting": {"reason": reason}})
    }

    #[test]
    fn l4_the_previous_run_is_the_last_that_has_ended() {
        let none = || Err("previous terminated container \"main\" in pod \"web\" not found".to_owned());
        let runs = json!({"running": {}});
        assert_eq!(both_runs(runs.clone(), json!({}), "containerd://c0", 0), (Ok(0), none()));
        assert_eq!(both_runs(runs.clone(), end("c3"), "containerd://c4", 4), (Ok(4), Ok(3)));
        assert_eq!(both_runs(end("c4"), end("c3"), "containerd://c4", 4), (Ok(4), Ok(3)));
        // In CrashLoopBackOff, the run that crashed is both the latest and the previous one.
        assert_eq!(both_runs(waits("CrashLoopBackOff"), end("c0"), "containerd://c0", 0), (Ok(0), Ok(0)));
        assert_eq!(both_runs(waits("CrashLoopBackOff"), end("c4"), "containerd://c4", 4), (Ok(4), Ok(4)));
        // The next container is created and has not started.
        assert_eq!(both_runs(waits("ContainerCreating"), end("c4"), "containerd://c5", 5), (Ok(4), Ok(4)));
    }

    #[test]
    fn l4_a_run_that_the_runtime_does_not_have_any_more_is_counted() {
        let runs = json!({"running": {}});
        assert_eq!(both_runs(runs, end("gone"), "containerd://c4", 4), (Ok(4), Ok(3)));
        assert_eq!(both_runs(waits("CrashLoopBackOff"), end("gone"), "containerd://gone", 4), (Ok(4), Ok(4)));
        assert_eq!(both_runs(waits("ContainerCreating"), end("gone"), "", 4), (Ok(4), Ok(4)));
        assert_eq!(both_runs(waits("ContainerCreating"), end("gone"), "containerd://c5", 5), (Ok(4), Ok(4)));
    }

    #[test]
    fn l4_a_container_that_has_not_run_says_why() {
        let why = |state: Value| both_runs(state, json!({}), "", 0).0.unwrap_err();
        let waiting = "container \"main\" in pod \"web\" is waiting to start: ";
        assert_eq!(why(waits("ContainerCreating")), format!("{waiting}ContainerCreating"));
        assert_eq!(why(waits("ErrImagePull")), format!("{waiting}image can't be pulled"));
        assert_eq!(why(waits("ImagePullBackOff")), format!("{waiting}trying and failing to pull image"));
        assert_eq!(why(json!({})), format!("{waiting}ContainerCreating"));
        let rejected = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough",
            "containerStatuses": [{"name": "main", "state": waits("ContainerCreating")}]});
        let why = choice(rejected, false).unwrap_err();
        assert_eq!(why, "container \"main\" in pod \"web\" has never run: OutOfcpu: Node didn't have enough");
        let none = json!({"phase": "Pending"});
        assert_eq!(choice(none.clone(), false).unwrap_err(), format!("{waiting}ContainerCreating"));
        assert!(choice(none, true).unwrap_err().starts_with("previous terminated"));
    }
}
