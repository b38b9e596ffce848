//! `wherry describe`: shows the details of a pod in the layout of `kubectl describe pod`, with Wherry's own state
//! added.

use crate::api::kube::pod_row::{flag, human, list, text};
use crate::commands::events::{age, of_pod};
use crate::commands::output::{Failure, document, shown};
use crate::commands::select::PodTarget;
use crate::commands::table::Table;
use crate::commands::{client, containers};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// Maximum number of events shown; the agent keeps no more for a pod.
const EVENTS: usize = 50;
const EVENT_HEADER: [&str; 5] = ["Type", "Reason", "Age", "From", "Message"];
const CONDITION_HEADER: [&str; 4] = ["Type", "Status", "Reason", "Message"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Json,
    Yaml,
}

pub fn run(out: &mut dyn Write, socket: &Path, target: &PodTarget, format: Option<Format>) -> Result<u8, Failure> {
    let mut pods = client::get_json(socket, "/pods?verbose=1")?;
    let events = client::get_json(socket, "/events")?;
    let found = target.find(&mut pods).map_err(|e| {
        let gone = list(&events, "/items").iter().any(|e| {
            let of = |name: &str| text(e, &format!("/involvedObject/{name}"));
            of("kind") == "Pod" && target.is(of("namespace"), of("name"), of("uid"))
        });
        Failure::message(if gone { format!("{e}\nit existed earlier: see wherry events {target}") } else { e })
    })?;
    show(out, found, &events, format, Timestamp::now())
}

fn show(
    out: &mut dyn Write,
    pods: Vec<Value>,
    events: &Value,
    format: Option<Format>,
    now: Timestamp,
) -> Result<u8, Failure> {
    let last = |pod: &Value| {
        let mut events = of_pod(events, text(pod, "/metadata/uid"));
        events.drain(..events.len().saturating_sub(EVENTS));
        events
    };
    if let Some(format) = format {
        let whole = |mut pod: Value| {
            let events = last(&pod);
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            pod["events"] = Value::Array(events);
            pod
        };
        let mut pods: Vec<Value> = pods.into_iter().map(whole).collect();
        let value =
            if pods.len() == 1 { pods.remove(0) } else { json!({"apiVersion": "v1", "kind": "List", "items": pods}) };
        document(out, &value, format == Format::Yaml)?;
        return Ok(0);
    }
    for (i, pod) in pods.iter().enumerate() {
        if i > 0 {
            writeln!(out, "\n")?;
        }
        Description { pod, now }.print(out, &last(pod))?;
    }
    Ok(0)
}

struct Description<'a> {
    pod: &'a Value,
    now: Timestamp,
}

/// Lines of `label: value`, with the values aligned in one column.
#[derive(Default)]
struct Lines(Vec<(String, String)>);

impl Lines {
    fn add(&mut self, label: &str, value: impl Into<String>) {
        self.0.push((label.to_owned(), value.into()));
    }

    /// Adds a line unless the value is empty.
    fn some(&mut self, label: &str, value: &str) {
        if !value.is_empty() {
            self.add(label, value);
        }
    }

    /// Adds a line for each value: the first next to the label, the others below it.
    fn many(&mut self, label: &str, values: Vec<String>) {
        if values.is_empty() {
            self.add(label, "<none>");
        }
        for (i, value) in values.into_iter().enumerate() {
            self.0.push((if i == 0 { label.to_owned() } else { String::new() }, value));
        }
    }

    fn print(&self, out: &mut dyn Write, indent: usize) -> io::Result<()> {
        let width = self.0.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0) + 3;
        for (label, value) in &self.0 {
            let mut label = if label.is_empty() { String::new() } else { format!("{}:", shown(label)) };
            // Further lines of a value are indented within its column, so that none of them looks like a label or
            // another value.
            for (i, part) in value.split('\n').enumerate() {
                let further = if i == 0 { "" } else { "  " };
                let line = format!("{:indent$}{label:<width$}{further}{}", "", shown(part));
                writeln!(out, "{}", line.trim_end())?;
                label.clear();
            }
        }
        Ok(())
    }
}

impl Description<'_> {
    fn of(&self, path: &str) -> &str {
        text(self.pod, path)
    }

    fn print(&self, out: &mut dyn Write, events: &[Value]) -> Result<(), Failure> {
        self.head().print(out, 0)?;
        for (title, of) in [
            ("Init Containers", "/spec/initContainers"),
            ("Containers", "/spec/containers"),
            ("Ephemeral Containers", "/spec/ephemeralContainers"),
        ] {
            let specs = list(self.pod, of);
            if !specs.is_empty() {
                writeln!(out, "{title}:")?;
            }
            for spec in specs {
                self.container(out, spec)?;
            }
        }
        let conditions: Vec<[&str; 4]> = list(self.pod, "/status/conditions")
            .iter()
            .map(|c| [text(c, "/type"), text(c, "/status"), text(c, "/reason"), text(c, "/message")])
            .collect();
        section(out, "Conditions", &CONDITION_HEADER, &conditions)?;
        let rows: Vec<[String; 5]> = events
            .iter()
            .map(|e| {
                let of = |path: &str| text(e, path).to_owned();
                [
                    of("/type"),
                    of("/reason"),
                    age(e, self.now),
                    of("/source/component"),
                    of("/message").trim().to_owned(),
                ]
            })
            .collect();
        section(out, "Events", &EVENT_HEADER, &rows)?;
        Ok(())
    }

    fn head(&self) -> Lines {
        let mut lines = Lines::default();
        lines.add("Name", self.of("/metadata/name"));
        lines.add("Namespace", self.of("/metadata/namespace"));
        lines.add("UID", self.of("/metadata/uid"));
        lines.some("Priority Class", self.of("/spec/priorityClassName"));
        lines.add("Node", or_none(self.of("/spec/nodeName")));
        lines.add("Source", format!("{} (document {})", self.of("/wherry/path"), self.pod["wherry"]["document"]));
        lines.add("Digest", self.of("/wherry/digest"));
        lines.add("Start Time", date(self.of("/status/startTime")));
        lines.many("Labels", pairs(&self.pod["metadata"]["labels"], "=", |_| true));
        // The annotations about the source are omitted: `Source` shows their content.
        lines.many(
            "Annotations",
            pairs(&self.pod["metadata"]["annotations"], ": ", |k| !k.starts_with("kubernetes.io/config.")),
        );
        lines.add("Status", self.status());
        lines.some("Reason", self.of("/status/reason"));
        lines.some("Message", self.of("/status/message"));
        lines.add("IP", or_none(self.of("/status/podIP")));
        let ips = list(self.pod, "/status/podIPs").iter().map(|ip| text(ip, "/ip").to_owned()).collect();
        lines.many("IPs", ips);
        lines.add("Host Network", if flag(self.pod, "/spec/hostNetwork") { "true" } else { "false" });
        lines.add("Restart Policy", self.of("/spec/restartPolicy"));
        lines.add("Grace Period", format!("{}s", self.pod["spec"]["terminationGracePeriodSeconds"]));
        lines.add("QoS Class", or_none(self.of("/status/qosClass")));
        self.own(&mut lines);
        lines
    }

    /// Returns the phase, or how long a pod has been terminating, as kubectl words it.
    fn status(&self) -> String {
        let phase = self.of("/status/phase");
        match self.of("/metadata/deletionTimestamp").parse::<Timestamp>() {
            Ok(at) if !matches!(phase, "Succeeded" | "Failed") => {
                format!("Terminating (lasts {})", human(self.now.as_second() - at.as_second()))
            }
            _ => phase.to_owned(),
        }
    }

    /// Adds the state of the pod's worker, and what it waits for.
    fn own(&self, lines: &mut Lines) {
        let own = &self.pod["wherry"];
        let mut worker = text(own, "/state").to_owned();
        if let Some(left) = own["graceLeftSeconds"].as_u64() {
            worker.push_str(&format!(", grace left {left}s"));
        }
        match text(own, "/doing") {
            "" => {}
            doing => worker.push_str(&format!(", {doing}")),
        }
        if own["desired"] == false {
            let of_server = self.pod["metadata"]["annotations"]["kubernetes.io/config.source"] == "api";
            worker.push_str(if of_server { ", its object is deleted" } else { ", no manifest defines it" });
        }
        lines.add("Worker", worker);
        let mut waits: Vec<String> = Vec::new();
        for b in list(own, "/backOff") {
            let what = if flag(b, "/afterEnd") { "start" } else { "try" };
            waits.push(format!("{}: next {what} in {}", text(b, "/container"), seconds(b)));
        }
        for b in list(own, "/pullBackOff") {
            let failures = b["failures"].as_u64().unwrap_or(0);
            waits.push(format!("{}: next pull in {} (failed attempts: {failures})", text(b, "/image"), seconds(b)));
        }
        waits.extend(list(own, "/waitsFor").iter().filter_map(Value::as_str).map(str::to_owned));
        if !waits.is_empty() {
            lines.many("Waits For", waits);
        }
        if let Some(expectation) = own.get("withoutServer") {
            lines.many("Without Server", without_server(expectation));
        }
    }

    fn container(&self, out: &mut dyn Write, spec: &Value) -> io::Result<()> {
        let name = text(spec, "/name");
        writeln!(out, "  {}:", shown(name))?;
        let status = containers::status(self.pod, name);
        let mut lines = Lines::default();
        lines.some("Container ID", text(status, "/containerID"));
        lines.add("Image", text(spec, "/image"));
        lines.some("Target", text(spec, "/targetContainerName"));
        lines.some("Image ID", text(status, "/imageID"));
        let ports = |field: &str| -> Vec<String> {
            let ports = list(spec, "/ports").iter();
            let number = |p: &Value| p[field].as_u64().unwrap_or(0);
            ports.map(|p| format!("{}/{}", number(p), text(p, "/protocol"))).collect()
        };
        lines.add("Port", or_none(&ports("containerPort").join(", ")));
        lines.add("Host Port", or_none(&ports("hostPort").join(", ")));
        for (label, field) in [("Command", "/command"), ("Args", "/args")] {
            let words: Vec<String> = list(spec, field).iter().filter_map(Value::as_str).map(word).collect();
            if !words.is_empty() {
                lines.many(label, words);
            }
        }
        state(&mut lines, "State", &status["state"]);
        let back_off = list(self.pod, "/wherry/backOff").iter().find(|b| text(b, "/container") == name);
        if let Some(b) = back_off {
            lines.add(if flag(b, "/afterEnd") { "  Next Start" } else { "  Next Try" }, format!("in {}", seconds(b)));
        }
        if status["lastState"].as_object().is_some_and(|s| !s.is_empty()) {
            state(&mut lines, "Last State", &status["lastState"]);
        }
        lines.add("Ready", if flag(status, "/ready") { "True" } else { "False" });
        lines.add("Restart Count", status["restartCount"].as_u64().unwrap_or(0).to_string());
        for (label, field) in [("Limits", "limits"), ("Requests", "requests")] {
            let amounts = pairs(&spec["resources"][field], ": ", |_| true);
            if !amounts.is_empty() {
                lines.many(label, amounts);
            }
        }
        let env = list(spec, "/env").iter().map(|e| format!("{}: {}", text(e, "/name"), text(e, "/value"))).collect();
        lines.many("Environment", env);
        lines.print(out, 4)
    }
}

/// Formats what will happen to a pod of the cluster while the API server is unavailable
/// (`api::cluster::expectation`).
fn without_server(expectation: &Value) -> Vec<String> {
    let names = |of: &str| {
        let names = expectation["reboot"][of].as_array()?;
        Some(names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
    };
    let reboot = match (names("pulls"), names("waits")) {
        (Some(images), _) => format!("starts if it can pull {images} (imagePullPolicy: Always)"),
        (_, Some(objects)) => format!("waits for the API server: {objects} not on the disk"),
        (None, None) if expectation["reboot"] == "ends" => "ends (restartPolicy: Never)".to_owned(),
        (None, None) => "starts".to_owned(),
    };
    let absence = match expectation["tokenSeconds"].as_u64() {
        None => "keeps running".to_owned(),
        Some(0) => "keeps running, with an expired token".to_owned(),
        Some(left) => format!("keeps running; its token expires in {}", human(i64::try_from(left).unwrap_or(i64::MAX))),
    };
    let back = match expectation["unreachable"]["deleted"].as_u64() {
        None => "stays".to_owned(),
        Some(seconds) => {
            format!("deleted if the node was unreachable for longer than {seconds}s (spec.tolerations)")
        }
    };
    vec![format!("reboot: {reboot}"), format!("outage: {absence}"), format!("return: {back}")]
}

/// Adds a container state with its reason, exit code and times, which are indented below it.
fn state(lines: &mut Lines, label: &str, state: &Value) {
    if let Some(waiting) = state.get("waiting").filter(|w| w.is_object()) {
        lines.add(label, "Waiting");
        lines.some("  Reason", text(waiting, "/reason"));
        lines.some("  Message", text(waiting, "/message"));
    } else if let Some(running) = state.get("running").filter(|r| r.is_object()) {
        lines.add(label, "Running");
        lines.add("  Started", date(text(running, "/startedAt")));
    } else if let Some(t) = state.get("terminated").filter(|t| t.is_object()) {
        lines.add(label, "Terminated");
        lines.some("  Reason", text(t, "/reason"));
        lines.some("  Message", text(t, "/message").trim_end());
        lines.add("  Exit Code", t["exitCode"].to_string());
        match t["signal"].as_u64() {
            Some(signal) if signal > 0 => lines.add("  Signal", signal.to_string()),
            _ => {}
        }
        lines.add("  Started", date(text(t, "/startedAt")));
        lines.add("  Finished", date(text(t, "/finishedAt")));
    } else {
        lines.add(label, "Waiting");
    }
}

fn section<T: AsRef<str>, const N: usize>(
    out: &mut dyn Write,
    title: &str,
    header: &[&'static str; N],
    rows: &[[T; N]],
) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "{title}:  <none>");
    }
    writeln!(out, "{title}:")?;
    let rule = header.map(|h| "-".repeat(h.len()));
    // The first cell of each row carries the indent. The column widths include it.
    let indented = |cells: Vec<&str>| -> Vec<String> {
        cells.into_iter().enumerate().map(|(i, c)| if i == 0 { format!("  {c}") } else { c.to_owned() }).collect()
    };
    let mut all = vec![indented(header.to_vec()), indented(rule.iter().map(String::as_str).collect())];
    all.extend(rows.iter().map(|row| indented(row.iter().map(AsRef::as_ref).collect())));
    let rows: Vec<&[String]> = all.iter().map(Vec::as_slice).collect();
    Table::new(&[""; N]).print(out, false, &rows)
}

/// Formats the entries of a map as `key=value` (with `between` instead of `=`), sorted.
fn pairs(map: &Value, between: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let one = |(key, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{key}{between}{value}")
    };
    map.as_object().into_iter().flatten().filter(|(k, _)| wanted(k)).map(one).collect()
}

/// Formats an argument on one line.
fn word(word: &str) -> String {
    if word.contains('\n') { format!("{word:?}") } else { word.to_owned() }
}

fn seconds(back_off: &Value) -> String {
    human(back_off["seconds"].as_i64().unwrap_or(0))
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text.to_owned() }
}

/// Formats a date as kubectl does, in UTC.
fn date(at: &str) -> String {
    match at.parse::<Timestamp>() {
        // The zero time of the API means that the time is not known.
        Ok(t) if t.as_second() == 0 => "<unknown>".into(),
        Ok(t) => t.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string(),
        Err(_) => "<unknown>".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-20T15:00:00Z".parse().unwrap()
    }

    fn crashing() -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "labels": {"app": "web", "tier": "front"},
                         "annotations": {"kubernetes.io/config.source": "file"}},
            "spec": {"nodeName": "lab", "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "containers": [{
                "name": "main", "image": "busybox:1.35", "command": ["sh", "-c"], "args": ["echo a\nexit 7"],
                "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "250m", "memory": "64Mi"}}, "env": [{"name": "A", "value": "b"}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.3", "podIPs": [{"ip": "10.0.0.3"}], "qosClass": "Burstable",
                       "startTime": "2026-11-20T14:50:00Z",
                       "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady",
                                       "message": "containers with unready status: [main]"},
                                      {"type": "PodScheduled", "status": "True"}],
                       "containerStatuses": [{"name": "main", "ready": false, "restartCount": 3,
                           "containerID": "containerd://c1", "image": "busybox:1.35", "imageID": "sha256:1",
                           "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}},
                           "lastState": {"terminated": {"exitCode": 7, "reason": "Error",
                               "startedAt": "2026-11-20T14:59:40Z", "finishedAt": "2026-11-20T14:59:41Z"}}}]},
            "wherry": {"path": "/etc/wherry/manifests/web.yaml", "document": 1, "digest": "abc", "desired": true,
                       "state": "Sync", "backOff": [{"container": "main", "seconds": 17, "afterEnd": true}],
                       "pullBackOff": [], "waitsFor": []},
        })
    }

    fn events() -> Value {
        json!({"items": [
            {"involvedObject": {"kind": "Pod", "uid": "other"}, "reason": "Nope", "type": "Normal"},
            {"involvedObject": {"kind": "Pod", "uid": "u1"}, "reason": "BackOff", "type": "Warning", "count": 5,
             "message": "Back-off restarting", "source": {"component": "wherry"},
             "firstTimestamp": "2026-11-20T14:57:00Z", "lastTimestamp": "2026-11-20T14:59:57Z"},
        ]})
    }

    fn described(pods: Vec<Value>, format: Option<Format>) -> String {
        let mut out = Vec::new();
        assert_eq!(show(&mut out, pods, &events(), format, now()).unwrap(), 0);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_pod_of_a_cluster_shows_its_life_without_the_server() {
        for (reboot, token, unreachable, expected) in [
            (json!("starts"), json!(null), json!("stays"), ["starts", "keeps running", "stays"]),
            (
                json!({"pulls": ["a:1", "b"]}),
                json!(0),
                json!({"deleted": 300}),
                [
                    "starts if it can pull a:1, b (imagePullPolicy: Always)",
                    "keeps running, with an expired token",
                    "deleted if the node was unreachable for longer than 300s (spec.tolerations)",
                ],
            ),
            (
                json!({"waits": ["Secret shop/a"]}),
                json!(2820),
                json!("stays"),
                [
                    "waits for the API server: Secret shop/a not on the disk",
                    "keeps running; its token expires in 47m",
                    "stays",
                ],
            ),
            (json!("ends"), json!(null), json!("stays"), ["ends (restartPolicy: Never)", "keeps running", "stays"]),
        ] {
            let expectation = json!({"reboot": reboot, "tokenSeconds": token, "unreachable": unreachable});
            let lines = ["reboot", "outage", "return"].iter().zip(expected).map(|(of, text)| format!("{of}: {text}"));
            assert_eq!(without_server(&expectation), lines.collect::<Vec<_>>());
        }
    }

    #[test]
    fn init_and_ephemeral_containers_are_found() {
        let mut pod = crashing();
        pod["spec"]["initContainers"] = json!([{"name": "load", "image": "loader:1"}]);
        pod["spec"]["ephemeralContainers"] = json!([{"name": "debugger", "image": "tools:1"}]);
        let ended = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
        pod["status"]["initContainerStatuses"] = json!([{"name": "load", "restartCount": 4, "state": ended}]);
        let text = described(vec![pod], None);
        let sections =
            ["\nInit Containers:\n  load:\n", "\nContainers:\n  main:\n", "\nEphemeral Containers:\n  debugger:\n"];
        let places: Vec<usize> =
            sections.iter().map(|of| text.find(of).unwrap_or_else(|| panic!("{of}: {text}"))).collect();
        assert!(places.is_sorted(), "{text}");
        let init = &text[places[0]..places[1]];
        assert!(
            init.contains("loader:1") && init.contains("Exit Code:    3") && init.contains("Restart Count:  4"),
            "{init}"
        );
    }

    #[test]
    fn a_crashing_pod_shows_the_time_until_its_next_start() {
        let expected = "\
Name:            web
Namespace:       shop
UID:             u1
Node:            lab
Source:          /etc/wherry/manifests/web.yaml (document 1)
Digest:          abc
Start Time:      Fri, 20 Nov 2026 14:50:00 +0000
Labels:          app=web
                 tier=front
Annotations:     <none>
Status:          Running
IP:              10.0.0.3
IPs:             10.0.0.3
Host Network:    false
Restart Policy:  Always
Grace Period:    30s
QoS Class:       Burstable
Worker:          Sync
Waits For:       main: next start in 17s
Containers:
  main:
    Container ID:   containerd://c1
    Image:          busybox:1.35
    Image ID:       sha256:1
    Port:           80/TCP
    Host Port:      8080/TCP
    Command:        sh
                    -c
    Args:           \"echo a\\nexit 7\"
    State:          Waiting
      Reason:       CrashLoopBackOff
      Message:      back-off 20s
      Next Start:   in 17s
    Last State:     Terminated
      Reason:       Error
      Exit Code:    7
      Started:      Fri, 20 Nov 2026 14:59:40 +0000
      Finished:     Fri, 20 Nov 2026 14:59:41 +0000
    Ready:          False
    Restart Count:  3
    Limits:         cpu: 250m
                    memory: 64Mi
    Environment:    A: b
Conditions:
  Type           Status   Reason               Message
  ----           ------   ------               -------
  Ready          False    ContainersNotReady   containers with unready status: [main]
  PodScheduled   True
Events:
  Type      Reason    Age               From     Message
  ----      ------    ---               ----     -------
  Warning   BackOff   3s (x5 over 3m)   wherry   Back-off restarting
";
        assert_eq!(described(vec![crashing()], None), expected);
    }

    #[test]
    fn one_that_ends_and_one_that_waits_for_it_are_both_shown() {
        let mut old = crashing();
        old["metadata"]["deletionTimestamp"] = json!("2026-11-20T14:59:50Z");
        old["wherry"]["state"] = json!("Terminating");
        old["wherry"]["graceLeftSeconds"] = json!(20);
        old["wherry"]["desired"] = json!(false);
        old["wherry"]["doing"] = json!("stopping containers");
        let mut new = crashing();
        new["metadata"]["uid"] = json!("u2");
        new["status"] = json!({"phase": "Pending"});
        let waits = "the pod u1 of the same name, which has not finished yet";
        new["wherry"] = json!({"state": "Waiting", "desired": true, "waitsFor": [waits], "document": 1,
                               "pullBackOff": [{"image": "i:1", "seconds": 40, "failures": 3}]});
        let text = described(vec![old, new], None);
        assert!(text.contains("Status:          Terminating (lasts 10s)\n"), "{text}");
        let worker = "Worker:          Terminating, grace left 20s, stopping containers, no manifest defines it\n";
        assert!(text.contains(worker), "{text}");
        assert!(text.contains(&format!(
            "Waits For:       i:1: next pull in 40s (failed attempts: 3)\n                 {waits}\n"
        )));
        assert!(text.contains("\n\n\nName:            web\n"), "{text}");
        assert!(text.ends_with("Conditions:  <none>\nEvents:  <none>\n"), "{text}");
    }

    #[test]
    fn a3_a4_a_pod_that_is_not_admitted_shows_the_reason_and_a_remedy() {
        let mut pod = crashing();
        let why = "Node didn't have enough resource: cpu, requested: 500, used: 600, capacity: 1000";
        pod["status"] = json!({"phase": "Failed", "reason": "OutOfcpu", "message": why});
        pod["wherry"] = json!({"state": "Waiting", "desired": true, "document": 1,
                               "waitsFor": ["a new version of its manifest, or `wherry retry`"]});
        let text = described(vec![pod.clone()], None);
        let head = format!("Status:          Failed\nReason:          OutOfcpu\nMessage:         {why}\n");
        assert!(text.contains(&head), "{text}");
        assert!(text.contains("Waits For:       a new version of its manifest, or `wherry retry`\n"), "{text}");

        let why = format!("waiting for shop/old to end: {why}");
        pod["status"] = json!({"phase": "Pending", "reason": "WaitingForRoom", "message": why});
        pod["wherry"]["waitsFor"] = json!([format!("room: {why}")]);
        let text = described(vec![pod], None);
        let head = format!("Status:          Pending\nReason:          WaitingForRoom\nMessage:         {why}\n");
        assert!(text.contains(&head) && text.contains(&format!("Waits For:       room: {why}\n")), "{text}");
    }

    #[test]
    fn documents_have_the_events_too() {
        let value: Value = serde_json::from_str(&described(vec![crashing()], Some(Format::Json))).unwrap();
        assert_eq!((&value["kind"], &value["events"][0]["reason"]), (&json!("Pod"), &json!("BackOff")));
        let text = described(vec![crashing(), crashing()], Some(Format::Yaml));
        assert!(text.starts_with("apiVersion: v1\nitems:\n"), "{text}");
    }
}
