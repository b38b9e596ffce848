//! Compares Wherry with recordings of a kubelet for the same manifests (tests/fixtures/kubelet): the same requests to
//! the runtime, the same pods in /pods, the same sequence of states, the same end. Intended differences are in
//! `MARKED`, with their rules.

use crate::support::agent::{Agent, cgroup_mounts, patience};
use crate::support::http;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NAMES: [&str; 21] = [
    // Its deadline runs from its start, so it starts alone.
    "14-deadline",
    SIDECAR,
    "01-plain",
    "02-two",
    "03a-exit0-always",
    "04c-exit3-never",
    "05-image-never",
    "07-cmd-notfound",
    "08-oom",
    "09a-qos-burstable",
    "09b-qos-guaranteed",
    "10-hostnet",
    "11a-secctx",
    "12-env",
    "13a-termmsg-file",
    "15a-init-ok",
    "16a-volumes",
    "17a-liveness",
    "18a-hooks",
    "20b-hostaliases",
    "21-sharepid",
];

/// The pod whose sidecar ends when the test lets it (`end_sidecar`), so that a slow machine has enough time to start the
/// main container before.
const SIDECAR: &str = "15d-sidecar";

/// The number of pods at the beginning of `NAMES` that run before the next one starts.
const STARTS_ALONE: usize = 1;

/// An intended difference.
struct Marked {
    /// Its rule in docs/behaviour*.md.
    rule: &'static str,
    /// Changes the status of a kubelet into that of Wherry.
    status: fn(&mut Value),
}

/// Differences outside of the status: D4, no `-<node>` suffix of names (`fixture`); W10, W21, W4, the annotations
/// `io.wherry.*` (`without_own`).
const MARKED: [Marked; 1] = [Marked {
    rule: "W3: no terminal phase while a container runs; the deadline's reason and message are there",
    status: |status| {
        let of = status["containerStatuses"].as_array().expect("statuses");
        let running = of.iter().any(|c| c["state"]["running"].is_object());
        if status["phase"] == "Failed" && running {
            status["phase"] = "Running".into();
            for condition in status["conditions"].as_array_mut().expect("conditions") {
                if ["Ready", "ContainersReady"].contains(&condition["type"].as_str().expect("a type")) {
                    *condition = json!({"type": condition["type"], "status": "True"});
                }
            }
        }
    },
}];

/// States that a kubelet or a watch shows by chance: a container that ended within milliseconds was still shown as running
/// until a relist. The first end of the sidecar is over within milliseconds, and a watch on a loaded machine shows the
/// restart at once; its second end is compared.
const BY_CHANCE: [(&str, usize); 2] = [("13a-termmsg-file", 0), (SIDECAR, 5)];

/// A recording, adapted to this node. `host` is the directory of the host paths.
fn fixture(name: &str, host: &Path) -> Value {
    let path = directory().join(format!("{name}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    // The recorded machine was idle. Here the deadline leaves a slow machine enough time to start the pod.
    let deadline = format!("\"activeDeadlineSeconds\": {}", patience(60).as_secs());
    let text = text
        .replace(": unknown\"", "\"")
        .replace("\"activeDeadlineSeconds\": 5", &deadline)
        .replace("sleep 12; exit 1", "until [ -e /end ]; do sleep 1; done; exit 1")
        .replace("@O@", &host.to_string_lossy());
    let recorded: Value = serde_json::from_str(&text).expect("JSON");
    let metadata = &recorded["pod"]["metadata"];
    let (pod, uid) = (metadata["name"].as_str().expect("a name"), metadata["uid"].as_str().expect("a uid"));
    let short = pod.strip_suffix("-lab").expect("the node's name behind the pod's");
    let text = text
        .replace(pod, short)
        .replace(uid, "UID")
        .replace("\"nodeName\": \"lab\"", "\"nodeName\": \"node\"")
        .replace("\"value\": \"lab\"", "\"value\": \"node\"");
    let mut recorded: Value = serde_json::from_str(&text).expect("JSON");
    for part in ["pod", "sandbox", "containers", "states"] {
        general(&mut recorded[part]);
    }
    let states = recorded["states"].as_array_mut().expect("states");
    for (_, state) in BY_CHANCE.iter().filter(|(of, _)| *of == name) {
        states.remove(*state);
    }
    for status in states {
        MARKED.iter().for_each(|m| (m.status)(status));
    }
    recorded["sandbox"]["dns_config"] = host_dns();
    let manifest = recorded["manifest"].clone();
    for container in recorded["containers"].as_array_mut().expect("containers") {
        let name = container["metadata"]["name"].as_str().expect("a name").to_owned();
        let resources = &mut container["linux"]["resources"];
        resources["hugepage_limits"] = huge_pages();
        if resources["hugepage_limits"] == json!([]) {
            resources.as_object_mut().expect("resources").remove("hugepage_limits");
        }
        // On cgroup v2 a kubelet sets memory.oom.group, so that all processes of a container are killed together, and no swap.
        if cgroup_mounts().iter().any(|m| m.join("cgroup.controllers").exists() && m.ends_with("cgroup")) {
            resources["unified"] = json!({"memory.oom.group": "1", "memory.swap.max": "0"});
            resources.as_object_mut().expect("resources").remove("memory_swap_limit_in_bytes");
        }
        if let Some(score) = resources["oom_score_adj"].as_i64().filter(|s| (3..1000).contains(s)) {
            resources["oom_score_adj"] = scaled(score, requested(&manifest, &name)).into();
        }
    }
    recorded
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kubelet")
}

/// The memory request of a container in a recording, in bytes; 0 if it has none.
fn requested(manifest: &Value, container: &str) -> i64 {
    let mut all = ["initContainers", "containers"].iter().flat_map(|list| manifest["spec"][list].as_array()).flatten();
    let of = all.find(|c| c["name"] == container).map_or(&Value::Null, |c| &c["resources"]);
    let memory = of["requests"]["memory"].as_str().or(of["limits"]["memory"].as_str());
    memory.map_or(0, |m| m.strip_suffix("Mi").and_then(|m| m.parse::<i64>().ok()).expect("in MiB") << 20)
}

/// Adapts an OOM score to this machine. The recorded machine had 24 GiB, and the score depends on the requested share.
fn scaled(score: i64, requested: i64) -> i64 {
    let info = fs::read_to_string("/proc/meminfo").expect("meminfo");
    let total = info.lines().find_map(|l| l.strip_prefix("MemTotal:")).expect("MemTotal");
    let total: i64 = total.trim().trim_end_matches(" kB").parse().expect("a number");
    let of = |total: i64| (1000 - 1000 * requested / total).clamp(3, 999);
    assert_eq!(score, of(24 << 30), "of {requested} bytes");
    of(total << 10)
}

fn host_dns() -> Value {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let words = |kind: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|l| l.trim().strip_prefix(kind));
        lines.flat_map(|l| l.split_whitespace()).map(str::to_string).collect()
    };
    let mut dns = json!({"servers": words("nameserver "), "searches": words("search "), "options": words("options ")});
    dns.as_object_mut().expect("an object").retain(|_, v| *v != json!([]));
    dns
}

fn huge_pages() -> Value {
    let entries = fs::read_dir("/sys/kernel/mm/hugepages").map(|d| d.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let mut sizes: Vec<u64> = entries
        .iter()
        .filter_map(|e| e.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok())
        .collect();
    sizes.sort_unstable();
    let name = |kib: &u64| if *kib >= 1 << 20 { format!("{}GB", kib >> 20) } else { format!("{}MB", kib >> 10) };
    sizes.iter().map(|s| json!({"page_size": name(s)})).collect()
}

/// Replaces times, ids and random names by fixed words, and removes null fields, which mean the same as absent ones.
fn general(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|k, v| !v.is_null() && k != "lastTransitionTime" && k != "startTime");
            fields.values_mut().for_each(general);
        }
        Value::Array(items) => items.iter_mut().for_each(general),
        Value::String(text) => {
            if let Some(fixed) = fixed(text) {
                *text = fixed;
            }
        }
        _ => {}
    }
}

fn fixed(text: &str) -> Option<String> {
    let hex = |t: &str, n| t.len() == n && t.bytes().all(|b| b.is_ascii_hexdigit());
    // The end of an error without a gRPC code, which containerd 2 leaves out.
    if let Some(error) = text.strip_suffix(": unknown") {
        return Some(error.to_owned());
    }
    let time = text.len() >= 20 && text.starts_with("20") && text.as_bytes()[10] == b'T' && text.ends_with('Z');
    if time {
        return Some("TIME".into());
    }
    if text.strip_prefix("sha256:").is_some_and(|t| hex(t, 64)) {
        return Some("IMAGE".into());
    }
    if text.strip_prefix("containerd://").is_some_and(|t| hex(t, 64)) {
        return Some("containerd://ID".into());
    }
    let (directory, file) = text.rsplit_once('/')?;
    (directory.contains("/containers/") && hex(file, 8)).then(|| format!("{directory}/FILE"))
}

/// A value of Wherry or its runtime in the words of the recordings.
fn ours(agent: &Agent, uid: &str, ip: &str, value: &Value) -> Value {
    let mut text = value.to_string();
    let log = agent.dir.join("log/pods");
    for (from, to) in [
        (uid, "UID"),
        (&agent.root().to_string_lossy(), "ROOT/root"),
        (&log.to_string_lossy(), "ROOT/podlogs"),
        (&agent.cgroup, "/labkubelet"),
    ] {
        text = text.replace(from, to);
    }
    if !ip.is_empty() {
        text = text.replace(&format!("\"{ip}\""), "\"IP\"");
    }
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    general(&mut value);
    value
}

/// R3: the recorded kubelet, 1.32, does not show the resources of containers; from 1.33 on a kubelet does.
fn without_resources(mut status: Value) -> Value {
    for list in ["initContainerStatuses", "containerStatuses"] {
        let containers = status.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.remove("resources");
            container.remove("allocatedResources");
        }
    }
    status
}

/// Removes Wherry's own annotations.
fn without_own(mut config: Value) -> Value {
    let annotations = config["annotations"].as_object_mut().expect("annotations");
    let before = annotations.len();
    annotations.retain(|k, _| !k.starts_with("io.wherry."));
    let own = before - annotations.len();
    let is_container = config.get("image").is_some();
    assert_eq!(
        own,
        if is_container { 3 } else { 2 },
        "the owner; the grace period, or the back-off's level and the boot"
    );
    // The recordings are of containerd 1.6, which drops this unknown field.
    if let Some(image) = config.get_mut("image").and_then(Value::as_object_mut) {
        image.remove("user_specified_image");
    }
    config
}

/// The order of `envs` is random in a kubelet. Addresses and the node's storage differ between machines.
fn sort_envs(config: &mut Value) {
    let Some(envs) = config.get_mut("envs").and_then(Value::as_array_mut) else { return };
    for env in envs.iter_mut() {
        let value = env["value"].as_str().unwrap_or_default();
        if value.parse::<std::net::IpAddr>().is_ok() {
            env["value"] = "ADDRESS".into();
        } else if env["key"] == "LEPH" && value.parse::<u64>().is_ok_and(|bytes| bytes > 1 << 20) {
            env["value"] = "ALLOCATABLE".into();
        }
    }
    envs.sort_by_key(|e| e["key"].to_string());
}

/// All objects of a watch by pod, in order. The watch ends with the agent.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, Vec<Value>>>>);

impl Seen {
    fn watch(agent: &Agent) -> Seen {
        let seen = Seen::default();
        let (all, socket) = (seen.clone(), agent.socket.clone());
        let (begun, begins) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = http::lines_unix(&socket, "/pods?watch=1", |line| {
                let change: Value = serde_json::from_str(line).expect("a line is JSON");
                if change["type"] == "BOOKMARK" {
                    let _ = begun.send(());
                }
                let Some(name) = change["object"]["metadata"]["name"].as_str() else { return };
                let mut object = change["object"].clone();
                if change["type"] == "DELETED" {
                    object = Value::Null;
                }
                all.0.lock().expect("lock").entry(name.into()).or_default().push(object);
            });
        });
        begins.recv_timeout(patience(60)).expect("the watch begins");
        seen
    }

    fn of(&self, pod: &str) -> Vec<Value> {
        self.0.lock().expect("lock").get(pod).cloned().unwrap_or_default()
    }

    /// The distinct statuses of a pod before its removal, in the words of the recordings.
    fn states(&self, agent: &Agent, pod: &str) -> Vec<Value> {
        let mut states: Vec<Value> = Vec::new();
        for object in self.of(pod).iter().filter(|o| !o.is_null()) {
            let uid = object["metadata"]["uid"].as_str().expect("a uid");
            let ip = object["status"]["podIP"].as_str().unwrap_or_default();
            let state = without_resources(ours(agent, uid, ip, &object["status"]));
            if states.last() != Some(&state) {
                states.push(state);
            }
        }
        states
    }
}

/// The number of elements of `wanted` that are in `states` in this order. On a busy machine the runtime can create a container
/// before the status without it is published; the next status then stands for that one too.
fn in_order(wanted: &[Value], states: &[Value]) -> usize {
    let mut found = 0;
    for state in states {
        let before_creation = |wanted: &Value| wanted != state && *wanted == without_new_ids(state);
        while wanted.get(found).is_some_and(before_creation) {
            found += 1;
        }
        if wanted.get(found) == Some(state) {
            found += 1;
        }
    }
    found
}

/// The status before the runtime created the containers that wait in it.
fn without_new_ids(state: &Value) -> Value {
    let mut before = state.clone();
    for list in ["initContainerStatuses", "containerStatuses"] {
        for container in before[list].as_array_mut().into_iter().flatten() {
            if container["state"]["waiting"].is_object() {
                container.as_object_mut().expect("a status").remove("containerID");
            }
        }
    }
    before
}

/// The end of a container as the agent has logged it. A watch shows the newest state: of a pod that is gone at once after
/// the end of its last container, it may show neither of them.
fn logged_end(log: &str, pod: &str, container: &str) -> Option<Value> {
    let of_container = format!("/{pod} container={container} reason=");
    let (before, after) = log
        .lines()
        .rev()
        .find_map(|line| line.split_once(&of_container).filter(|(_, after)| after.contains(" exit_code=")))?;
    let mut words = after.split(' ');
    let (reason, code) = (words.next()?, words.find_map(|word| word.strip_prefix("exit_code="))?);
    // A status has times in whole seconds.
    let finished = format!("{}Z", before.get(..19)?);
    Some(json!({ "reason": reason, "exitCode": code.parse::<i64>().ok()?, "finishedAt": finished }))
}

/// The statuses of all containers of a pod, init containers first.
fn container_statuses(pod: &Value) -> Vec<Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists.iter().flat_map(|list| pod["status"][list].as_array()).flatten().cloned().collect()
}

struct Pod {
    file: &'static str,
    recorded: Value,
    name: String,
    /// Configs as the runtime reports them, by container name; "" is the sandbox.
    configs: BTreeMap<String, Value>,
}

impl Pod {
    /// Reads the configs of new objects in the runtime.
    fn read_configs(&mut self, agent: &Agent) {
        let mut cri = agent.cri();
        let namespace = self.recorded["pod"]["metadata"]["namespace"].as_str().expect("a namespace");
        let config = |info: &BTreeMap<String, String>| -> Option<Value> {
            let info: Value = serde_json::from_str(info.get("info")?).ok()?;
            Some(info["config"].clone())
        };
        let ours = |labels: &std::collections::HashMap<String, String>| labels["io.kubernetes.pod.name"] == self.name;
        let labels = |l: &BTreeMap<String, String>| l.clone().into_iter().collect();
        for sandbox in cri.sandboxes(namespace).iter().filter(|s| ours(&labels(&s.labels))) {
            if !self.configs.contains_key("")
                && let Ok(status) = cri.sandbox_status(&sandbox.id)
                && let Some(config) = config(&status.info)
            {
                self.configs.insert(String::new(), config);
            }
        }
        let containers = cri.containers(namespace);
        for container in containers.iter().filter(|c| c.labels["io.kubernetes.pod.name"] == self.name) {
            if !self.configs.contains_key(&container.metadata.name)
                && let Ok(status) = cri.container_status(&container.id)
                && let Some(config) = config(&status.info)
            {
                self.configs.insert(container.metadata.name.clone(), config);
            }
        }
    }

    fn complete(&self) -> bool {
        self.configs.len() == 1 + self.recorded["containers"].as_array().map_or(0, Vec::len)
    }

    /// The differences from the recording.
    fn compare(&self, agent: &Agent, seen: &Seen) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: String, ours: &Value, recorded: &Value| {
            if ours != recorded {
                differences.push(format!("{} {what}\n{}", self.file, difference(ours, recorded)));
            }
        };
        let states = seen.states(agent, &self.name);
        let wanted = self.recorded["states"].as_array().expect("states");
        let found = in_order(wanted, &states);
        if let Some(missing) = wanted.get(found) {
            let near = states.iter().min_by_key(|s| difference(s, missing).len()).unwrap_or(&Value::Null);
            compare(format!("state {found} of {}, the nearest of ours", wanted.len()), near, missing);
        }
        let object = seen.of(&self.name).pop().unwrap_or_default();
        let uid = object["metadata"]["uid"].as_str().unwrap_or("?").to_string();
        for part in ["metadata", "spec"] {
            compare(part.into(), &ours(agent, &uid, "", &object[part]), &self.recorded["pod"][part]);
        }
        let config = |name: &str| {
            let config = self.configs.get(name).unwrap_or_else(|| panic!("{} has no {name:?}", self.file));
            let mut config = without_own(ours(agent, &uid, "", config));
            sort_envs(&mut config);
            config
        };
        compare("sandbox".into(), &config(""), &self.recorded["sandbox"]);
        for recorded in self.recorded["containers"].as_array().expect("containers") {
            let name = recorded["metadata"]["name"].as_str().expect("a name");
            let ours = config(name);
            let mut recorded = recorded.clone();
            sort_envs(&mut recorded);
            // Our attempt may be lower or higher than the recorded one.
            let attempt = ours["metadata"]["attempt"].as_u64().unwrap_or(0);
            if recorded["metadata"]["attempt"].as_u64().unwrap_or(0) != attempt {
                recorded["metadata"] = ours["metadata"].clone();
                recorded["log_path"] = format!("{name}/{attempt}.log").into();
                recorded["annotations"]["io.kubernetes.container.restartCount"] = attempt.to_string().into();
            }
            compare(format!("container {name}"), &ours, &recorded);
        }
        differences
    }

    /// Whether the containers that had ended before the recorded removal neither run nor restart within the next 5 s.
    fn is_calm(&self, seen: &Seen) -> bool {
        let Some(last) = seen.of(&self.name).pop() else { return false };
        let statuses = container_statuses(&last);
        let over = last["status"]["phase"] == "Failed" || last["status"]["phase"] == "Succeeded";
        let recorded = self.recorded["removal"].as_object().expect("removal");
        recorded.iter().all(|(container, end)| {
            let name = container.rsplit_once('-').expect("an attempt").0;
            let Some(status) = statuses.iter().find(|s| s["name"] == name) else { return false };
            if end["afterUnlink"] == true {
                return status["state"]["running"].is_object();
            }
            // An init container that has succeeded.
            if status["ready"] == true && status["state"]["terminated"].is_object() {
                return true;
            }
            let waiting = &status["state"]["waiting"];
            if waiting["reason"] != "CrashLoopBackOff" {
                return over || waiting.is_object() && !status["lastState"]["terminated"].is_object();
            }
            let message = waiting["message"].as_str().unwrap_or_default();
            let delay = message.split(' ').nth(1).and_then(|d| d.parse::<jiff::SignedDuration>().ok());
            let ended = status["lastState"]["terminated"]["finishedAt"].as_str();
            let ended = ended.and_then(|at| at.parse::<jiff::Timestamp>().ok());
            let (Some(delay), Some(ended)) = (delay, ended) else { panic!("{}: {status}", self.file) };
            (ended + delay).duration_since(jiff::Timestamp::now()) > jiff::SignedDuration::from_secs(6)
        })
    }

    /// Compares the containers' ends after the removal of the manifest.
    fn compare_end(&self, agent: &Agent, seen: &Seen, removed: &str) -> Vec<String> {
        let last = seen.of(&self.name).into_iter().rev().find(|o| !o.is_null()).expect("it was shown");
        let (statuses, log) = (container_statuses(&last), agent.log());
        let mut differences = Vec::new();
        for (container, recorded) in self.recorded["removal"].as_object().expect("removal") {
            let name = container.rsplit_once('-').expect("an attempt").0;
            let status = statuses.iter().find(|s| s["name"] == name).expect("its status");
            let end = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
            let end = end.into_iter().find(|t| t.is_object()).cloned();
            let end = end.or_else(|| logged_end(&log, &self.name, name)).unwrap_or_default();
            let after = end["finishedAt"].as_str().is_some_and(|at| at >= removed);
            let ours = json!({"code": end["exitCode"], "reason": end["reason"], "afterUnlink": after});
            if ours != *recorded {
                differences.push(format!("{} the end of {name}\n{}", self.file, difference(&ours, recorded)));
            }
        }
        let of_pod = format!("/{} ", self.name);
        for line in log.lines().filter(|l| l.contains(&of_pod) && l.contains("error killing pod")) {
            differences.push(format!("{} an error while it was stopped\n  {line}", self.file));
        }
        for status in &statuses {
            let name = status["name"].as_str().expect("a name");
            let stop = format!("Stopping container {name}\"");
            let stops = log.lines().filter(|l| l.contains(&of_pod) && l.contains(&stop)).count();
            if stops > 1 {
                differences.push(format!("{} {name} was stopped {stops} times", self.file));
            }
        }
        differences
    }
}

/// Lets the sidecar end once the watch has shown that it is ready beside the main container.
fn end_sidecar(agent: &Agent, seen: &Seen, pods: &[Pod]) {
    let pod = pods.iter().find(|pod| pod.file == SIDECAR).expect("the pod");
    let statuses = seen.of(&pod.name).last().map(container_statuses).unwrap_or_default();
    let ready = |name: &str| statuses.iter().find(|s| s["name"] == name && s["ready"] == true);
    if let (Some(side), Some(_)) = (ready("side"), ready("main")) {
        let (_, id) = side["containerID"].as_str().expect("an id").split_once("://").expect("a runtime");
        // Its end may not be shown yet.
        let _ = agent.cri().exec_if_running(id, &["touch", "/end"]);
    }
}

/// The paths at which two values differ, one a line.
fn difference(ours: &Value, recorded: &Value) -> String {
    fn walk(path: &str, ours: &Value, recorded: &Value, out: &mut String) {
        match (ours, recorded) {
            (Value::Object(a), Value::Object(b)) => {
                let empty = Map::new();
                let keys = a.keys().chain(b.keys().filter(|k| !a.contains_key(*k)));
                let (a, b) = (if a.is_empty() { &empty } else { a }, b);
                for key in keys {
                    let of = |m: &Map<String, Value>| m.get(key).cloned().unwrap_or_default();
                    walk(&format!("{path}.{key}"), &of(a), &of(b), out);
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (i, (a, b)) in a.iter().zip(b).enumerate() {
                    walk(&format!("{path}[{i}]"), a, b, out);
                }
            }
            _ if ours != recorded => {
                out.push_str(&format!("  {path}\n    ours:     {ours}\n    recorded: {recorded}\n"));
            }
            _ => {}
        }
    }
    let mut out = String::new();
    walk("", ours, recorded, &mut out);
    out
}

#[test]
fn pods_match_the_recordings_of_a_kubelet() {
    let mut agent = Agent::start("recorded");
    agent.namespace = "default".into();
    let seen = Seen::watch(&agent);
    let host = agent.dir.join("o");
    fs::create_dir_all(host.join("hp/dir")).expect("directory");
    fs::write(host.join("hp/file"), "").expect("file");
    let mut pods: Vec<Pod> = Vec::new();
    for file in NAMES {
        let recorded = fixture(file, &host);
        agent.write(&format!("{file}.json"), &recorded["manifest"].to_string());
        let name = recorded["manifest"]["metadata"]["name"].as_str().expect("a name").to_string();
        if pods.len() < STARTS_ALONE {
            agent.wait_running(&name);
        }
        pods.push(Pod { file, recorded, name, configs: BTreeMap::new() });
    }
    // The slowest pod waits for its back-off of 10 s, or for its deadline.
    let end = Instant::now() + patience(240);
    loop {
        pods.iter_mut().filter(|p| !p.complete()).for_each(|p| p.read_configs(&agent));
        end_sidecar(&agent, &seen, &pods);
        let done = |p: &Pod| {
            let wanted = p.recorded["states"].as_array().expect("states");
            p.complete() && in_order(wanted, &seen.states(&agent, &p.name)) == wanted.len()
        };
        if pods.iter().all(done) || Instant::now() > end {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut differences: Vec<String> = pods.iter().flat_map(|p| p.compare(&agent, &seen)).collect();

    agent.wait("no container starts or ends by itself soon", |agent| {
        end_sidecar(agent, &seen, &pods);
        pods.iter().all(|pod| pod.is_calm(&seen))
    });
    // A status has times in whole seconds: an end before the removal must not share a second with the removal.
    let now = || jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let compared = now();
    while now() == compared {
        std::thread::sleep(Duration::from_millis(10));
    }
    let removed = now();
    for pod in &pods {
        fs::remove_file(agent.manifests().join(format!("{}.json", pod.file))).expect("remove");
    }
    agent.wait("all are gone", |a| a.pods().is_empty());
    for pod in &pods {
        let gone = || seen.of(&pod.name).last().is_some_and(Value::is_null);
        agent.wait("the watch says so", |_| gone());
        differences.extend(pod.compare_end(&agent, &seen, &removed));
    }
    if let Some(directory) = std::env::var_os("WHERRY_RECORD").filter(|d| !d.is_empty()) {
        for pod in &pods {
            let text = seen.states(&agent, &pod.name).iter().map(|s| format!("{s}\n")).collect::<String>();
            fs::create_dir_all(&directory).expect("directory");
            fs::write(PathBuf::from(&directory).join(pod.file), text).expect("write");
        }
    }
    let rules: Vec<&str> = MARKED.iter().map(|m| m.rule).collect();
    assert!(differences.is_empty(), "{}\nmarked: {rules:?}", differences.join("\n"));
}
