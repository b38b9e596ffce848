//! Formats a pod in the agent's JSON as a row of a table, as `kubectl get pods` does.
//!
//! The JSON is not parsed into the types of the API, because that would make the binary about half as large again.

use jiff::Timestamp;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub namespace: String,
    pub name: String,
    pub ready: String,
    pub status: String,
    pub restarts: String,
    pub age: String,
    pub ip: String,
    pub node: String,
    pub uid: String,
}

impl Row {
    pub fn new(pod: &Value, now: Timestamp) -> Row {
        let summary = Summary::of(pod);
        let restarts = match summary.last_restart {
            Some(at) if summary.restarts > 0 => format!("{} ({} ago)", summary.restarts, since(at, now)),
            _ => summary.restarts.to_string(),
        };
        let or = |s: &str, other: &str| if s.is_empty() { other.to_owned() } else { s.to_owned() };
        Row {
            namespace: text(pod, "/metadata/namespace").to_owned(),
            name: text(pod, "/metadata/name").to_owned(),
            ready: format!("{}/{}", summary.ready, summary.total),
            status: summary.status,
            restarts,
            age: first_seen(pod).map_or("<unknown>".to_owned(), |at| since(at, now)),
            ip: or(text(pod, "/status/podIP"), "<none>"),
            node: or(text(pod, "/spec/nodeName"), "<none>"),
            uid: text(pod, "/metadata/uid").to_owned(),
        }
    }
}

impl Row {
    /// Returns the row of a removed pod, of which only the name and the UID are known.
    pub fn gone(pod: &Value) -> Row {
        let none = || "-".to_owned();
        Row {
            namespace: text(pod, "/metadata/namespace").to_owned(),
            name: text(pod, "/metadata/name").to_owned(),
            ready: none(),
            status: "Deleted".into(),
            restarts: none(),
            age: none(),
            ip: none(),
            node: none(),
            uid: text(pod, "/metadata/uid").to_owned(),
        }
    }

    /// Reports whether the rows are the same, except for parts that only time changes.
    pub fn shows_the_same(&self, other: &Row) -> bool {
        let count = |row: &Row| row.restarts.split(' ').next().unwrap_or_default().to_owned();
        let rest = |row: &Row| Row { age: String::new(), restarts: count(row), ..row.clone() };
        rest(self) == rest(other)
    }
}

/// Returns the creation time or, for a static pod without one, the time when it was first seen.
fn first_seen(pod: &Value) -> Option<Timestamp> {
    ["/metadata/creationTimestamp", "/metadata/annotations/kubernetes.io~1config.seen", "/status/startTime"]
        .iter()
        .find_map(|path| text(pod, path).parse().ok())
}

struct Summary {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    status: String,
}

impl Summary {
    fn of(pod: &Value) -> Summary {
        let sidecars: Vec<&str> = list(pod, "/spec/initContainers")
            .iter()
            .filter(|c| text(c, "/restartPolicy") == "Always")
            .map(|c| text(c, "/name"))
            .collect();
        let phase = text(pod, "/status/phase");
        let reason = text(pod, "/status/reason");
        let mut summary = Summary {
            ready: 0,
            total: list(pod, "/spec/containers").len() + sidecars.len(),
            restarts: 0,
            last_restart: None,
            status: if reason.is_empty() { phase } else { reason }.to_owned(),
        };
        let initializing = summary.init_containers(pod, &sidecars);
        if !initializing || condition(pod, "Initialized") {
            summary.containers(pod, &sidecars);
        }
        // kubectl shows how the containers ended, but the reason why the node ended the pod is more useful.
        if phase == "Failed" && !reason.is_empty() {
            summary.status = reason.to_owned();
        }
        let over = matches!(phase, "Succeeded" | "Failed");
        if let "ContainerCreating" | "PodInitializing" = summary.status.as_str()
            && let Some(pull) = pull(pod)
        {
            summary.status = pull;
        }
        if !text(pod, "/metadata/deletionTimestamp").is_empty() && !over {
            summary.status = "Terminating".into();
        }
        summary
    }

    /// Returns true if an init container blocks the pod; the status is then that of the init container.
    fn init_containers(&mut self, pod: &Value, sidecars: &[&str]) -> bool {
        let count = list(pod, "/spec/initContainers").len();
        for (i, c) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.count_restarts(c);
            let sidecar = sidecars.contains(&text(c, "/name"));
            let exit_code = c.pointer("/state/terminated/exitCode").and_then(Value::as_i64);
            let waiting = text(c, "/state/waiting/reason");
            if exit_code == Some(0) {
                continue;
            }
            if sidecar && flag(c, "/started") {
                self.ready += usize::from(flag(c, "/ready"));
                continue;
            }
            self.status = if exit_code.is_some() {
                format!("Init:{}", ended(c))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{i}/{count}")
            };
            return true;
        }
        false
    }

    /// Shows the reason of the first container that has one, as kubectl does.
    fn containers(&mut self, pod: &Value, sidecars: &[&str]) {
        self.restarts = 0;
        self.last_restart = None;
        for c in list(pod, "/status/initContainerStatuses") {
            if sidecars.contains(&text(c, "/name")) {
                self.count_restarts(c);
            }
        }
        let mut running = false;
        for c in list(pod, "/status/containerStatuses").iter().rev() {
            self.count_restarts(c);
            let waiting = text(c, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.status = waiting.to_owned();
            } else if is_object(c, "/state/terminated") {
                self.status = ended(c);
            } else if flag(c, "/ready") && is_object(c, "/state/running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" && running {
            self.status = if condition(pod, "Ready") { "Running" } else { "NotReady" }.into();
        }
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += container.pointer("/restartCount").and_then(Value::as_i64).unwrap_or(0);
        let at = text(container, "/lastState/terminated/finishedAt").parse().ok();
        self.last_restart = self.last_restart.max(at);
    }
}

/// Returns the progress of a pull, from the agent's own status: `Pulling (12s)`, or the position in the queue.
fn pull(pod: &Value) -> Option<String> {
    let pull = pod.pointer("/wherry/pull")?;
    let seconds = pull.get("seconds").and_then(Value::as_i64).unwrap_or(0);
    Some(match pull.get("ahead").and_then(Value::as_u64) {
        Some(ahead) => format!("PullQueued ({ahead} ahead)"),
        None => format!("Pulling ({})", human(seconds)),
    })
}

/// Returns the reason, signal or exit code of a terminated container.
fn ended(container: &Value) -> String {
    let number =
        |name: &str| container.pointer(&format!("/state/terminated/{name}")).and_then(Value::as_i64).unwrap_or(0);
    match text(container, "/state/terminated/reason") {
        "" if number("signal") != 0 => format!("Signal:{}", number("signal")),
        "" => format!("ExitCode:{}", number("exitCode")),
        reason => reason.to_owned(),
    }
}

fn condition(pod: &Value, kind: &str) -> bool {
    list(pod, "/status/conditions").iter().any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
}

pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

pub fn flag(value: &Value, path: &str) -> bool {
    value.pointer(path).and_then(Value::as_bool).unwrap_or(false)
}

pub fn is_object(value: &Value, path: &str) -> bool {
    value.pointer(path).is_some_and(Value::is_object)
}

pub fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    value.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the time from `at` to `now` in kubectl's format, with about three digits.
pub fn since(at: Timestamp, now: Timestamp) -> String {
    human(now.as_second() - at.as_second())
}

pub fn human(seconds: i64) -> String {
    // The clock may have been set back.
    let s = seconds.max(0);
    let (minutes, hours, days) = (s / 60, s / 3600, s / 86_400);
    let two = |a: i64, a_unit: &str, b: i64, b_unit: &str| {
        if b == 0 { format!("{a}{a_unit}") } else { format!("{a}{a_unit}{b}{b_unit}") }
    };
    match s {
        0..120 => format!("{s}s"),
        120..600 => two(minutes, "m", s % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-11-20T15:00:00Z".parse().unwrap()
    }

    /// Returns a pod with these containers (state, ready, restarts).
    fn pod(phase: &str, states: &[(Value, bool, i64)]) -> Value {
        let containers: Vec<Value> = (0..states.len()).map(|i| json!({"name": format!("c{i}")})).collect();
        let statuses: Vec<Value> = states
            .iter()
            .enumerate()
            .map(|(i, (state, ready, restarts))| {
                json!({"name": format!("c{i}"), "state": state, "ready": ready, "restartCount": restarts,
                       "lastState": {"terminated": {"finishedAt": "2026-11-20T14:59:40Z"}}})
            })
            .collect();
        json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u", "creationTimestamp": null,
                         "annotations": {"kubernetes.io/config.seen": "2026-11-20T14:46:39.757474826Z"}},
            "spec": {"nodeName": "lab", "containers": containers},
            "status": {"phase": phase, "containerStatuses": statuses, "podIP": "10.0.0.8"},
        })
    }

    fn running() -> Value {
        json!({"running": {"startedAt": "2026-11-20T14:50:00Z"}})
    }

    fn terminated(reason: &str, code: i64) -> Value {
        json!({"terminated": {"reason": reason, "exitCode": code}})
    }

    fn status(pod: &Value) -> String {
        Row::new(pod, now()).status
    }

    #[test]
    fn a_running_pod_shows_what_kubectl_shows() {
        let row = Row::new(&pod("Running", &[(running(), true, 3), (running(), false, 0)]), now());
        let expected = Row {
            namespace: "default".into(),
            name: "web".into(),
            ready: "1/2".into(),
            status: "Running".into(),
            restarts: "3 (20s ago)".into(),
            age: "13m".into(),
            ip: "10.0.0.8".into(),
            node: "lab".into(),
            uid: "u".into(),
        };
        assert_eq!(row, expected);
    }

    #[test]
    fn the_status_is_that_of_the_container_with_a_reason() {
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(status(&pod("Running", &[(waiting.clone(), false, 4), (running(), true, 0)])), "CrashLoopBackOff");
        assert_eq!(status(&pod("Running", &[(terminated("OOMKilled", 137), false, 0)])), "OOMKilled");
        assert_eq!(status(&pod("Failed", &[(terminated("Error", 3), false, 0)])), "Error");
        assert_eq!(status(&pod("Failed", &[(terminated("", 3), false, 0)])), "ExitCode:3");
        let signal = json!({"terminated": {"signal": 9, "exitCode": 137}});
        assert_eq!(status(&pod("Failed", &[(signal, false, 0)])), "Signal:9");
        assert_eq!(status(&pod("Succeeded", &[(terminated("Completed", 0), false, 0)])), "Completed");
        assert_eq!(status(&pod("Pending", &[])), "Pending");
    }

    #[test]
    fn a_pod_of_which_one_container_completed_is_running_or_not_ready() {
        let mut p = pod("Running", &[(terminated("Completed", 0), false, 0), (running(), true, 0)]);
        assert_eq!(status(&p), "NotReady");
        p["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        assert_eq!(status(&p), "Running");
    }

    #[test]
    fn a_pods_own_reason_and_its_deletion_come_first() {
        let mut p = pod("Failed", &[]);
        p["status"]["reason"] = json!("DeadlineExceeded");
        assert_eq!(status(&p), "DeadlineExceeded");
        let mut p = pod("Running", &[(running(), true, 0)]);
        p["metadata"]["deletionTimestamp"] = json!("2026-11-20T14:59:59Z");
        assert_eq!(status(&p), "Terminating");
        p["status"]["phase"] = json!("Failed");
        assert_eq!(status(&p), "Failed");
    }

    #[test]
    fn a3_a4_the_decision_of_admission_is_the_status() {
        let with_reason = |phase: &str, reason: &str, states: &[(Value, bool, i64)]| {
            let mut p = pod(phase, states);
            p["status"]["reason"] = json!(reason);
            status(&p)
        };
        for reason in ["OutOfcpu", "OutOfexample.com/gpu", "NodeAffinity", "NodePorts", "NodeShutdown"] {
            assert_eq!(with_reason("Failed", reason, &[]), reason);
        }
        assert_eq!(with_reason("Pending", "WaitingForRoom", &[]), "WaitingForRoom");
        // The pod was preempted: its status shows the preemption, not how its containers ended (A8).
        let ended = [(terminated("Error", 137), false, 0), (terminated("Completed", 0), false, 0)];
        assert_eq!(with_reason("Failed", "Preempting", &ended), "Preempting");
        assert_eq!(with_reason("Failed", "", &ended), "Error");
        // The status shows the preemption already while the pod terminates.
        assert_eq!(with_reason("Running", "Preempting", &[(running(), true, 0)]), "Preempting");
    }

    #[test]
    fn blocking_init_containers_are_shown() {
        let mut p = pod("Pending", &[(json!({"waiting": {"reason": "PodInitializing"}}), false, 0)]);
        p["spec"]["initContainers"] = json!([{"name": "i1"}, {"name": "i2"}]);
        p["status"]["initContainerStatuses"] = json!([
            {"name": "i1", "state": terminated("Completed", 0), "restartCount": 2},
            {"name": "i2", "state": running(), "restartCount": 1},
        ]);
        assert_eq!(Row::new(&p, now()).restarts, "3");
        assert_eq!(status(&p), "Init:1/2");
        p["status"]["initContainerStatuses"][1]["state"] = terminated("Error", 1);
        assert_eq!(status(&p), "Init:Error");
        p["status"]["initContainerStatuses"][1]["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(status(&p), "Init:CrashLoopBackOff");
    }

    #[test]
    fn a_pull_and_its_place_in_the_queue_are_shown_while_the_container_is_created() {
        let mut p = pod("Pending", &[(json!({"waiting": {"reason": "ContainerCreating"}}), false, 0)]);
        p["wherry"] = json!({"pull": {"image": "i:1", "seconds": 12}});
        assert_eq!(status(&p), "Pulling (12s)");
        p["wherry"]["pull"]["ahead"] = json!(2);
        assert_eq!(status(&p), "PullQueued (2 ahead)");
        p["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "ImagePullBackOff"}});
        assert_eq!(status(&p), "ImagePullBackOff");
    }

    #[test]
    fn a_sidecar_counts_as_a_container() {
        let mut p = pod("Running", &[(running(), true, 1)]);
        p["spec"]["initContainers"] = json!([{"name": "s", "restartPolicy": "Always"}]);
        p["status"]["initContainerStatuses"] =
            json!([{"name": "s", "state": running(), "restartCount": 2, "started": true, "ready": true}]);
        let row = Row::new(&p, now());
        assert_eq!((row.ready.as_str(), row.status.as_str(), row.restarts.as_str()), ("2/2", "Running", "3 (20s ago)"));
    }

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (28_740, "7h59m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (315_360_000, "10y"),
        ] {
            assert_eq!(human(seconds), text);
        }
    }

    #[test]
    fn a_pod_without_anything_is_a_row_all_the_same() {
        let row = Row::new(&json!({}), now());
        assert_eq!((row.ready.as_str(), row.age.as_str(), row.ip.as_str()), ("0/0", "<unknown>", "<none>"));
    }
}
