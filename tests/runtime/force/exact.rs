//! Compares the node with the desired state: the runtime's lists, the records, the store of manifests, the directories
//! of pods and of logs, the links to logs, the cgroups. Each difference is a sentence.

use crate::support::agent::{Agent, container, is_running, patience, uid};
use crate::support::cri::{Container, ContainerState, PodSandboxState};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wherry::adapters::records::Records;
use wherry::engine::pod::record;

/// The annotation that identifies the version of a pod in the runtime.
pub const GENERATION: &str = "test/generation";

/// The expected state of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Life {
    /// Its containers run.
    Runs,
    /// These containers run, the others end and restart.
    Cycles(Vec<&'static str>),
    /// It has ended, in one of these phases.
    Ends(Vec<&'static str>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub generation: u64,
    pub life: Life,
}

/// The desired pods by name.
pub type Desired = BTreeMap<String, Pod>;

/// Waits until the node has the desired state. A failed write of a record is retried after 60 to 90 s.
pub fn wait_exact(agent: &Agent, desired: &Desired) {
    let end = Instant::now() + patience(400);
    loop {
        let differences = differences(agent, desired);
        if differences.is_empty() {
            return;
        }
        if Instant::now() > end {
            for pod in agent.pods() {
                eprintln!("{} {}", pod["metadata"]["name"], pod["status"]);
            }
            // On one line: a CI keeps only a short part of a log.
            panic!("{}: not as desired: {}", agent.namespace, differences.join("; "));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// All containers of this agent's root, running or not.
pub fn containers(agent: &Agent) -> Vec<Container> {
    let owner = agent.owner();
    let mut all = agent.cri().containers(&agent.namespace);
    all.retain(|c| c.annotations.get("io.wherry.owner") == Some(&owner));
    all
}

pub fn label<'a>(labels: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    labels.get(&format!("io.kubernetes.{name}")).map_or("", String::as_str)
}

pub fn runs(c: &Container) -> bool {
    c.state.enum_value() == Ok(ContainerState::CONTAINER_RUNNING)
}

pub fn is_created(c: &Container) -> bool {
    c.state.enum_value() == Ok(ContainerState::CONTAINER_CREATED)
}

fn differences(agent: &Agent, desired: &Desired) -> Vec<String> {
    let mut out = Vec::new();
    let pods = agent.pods();
    let uids = of_pods(&pods, desired, &mut out);
    of_runtime(agent, desired, &uids, &mut out);
    of_disk(agent, &uids, &mut out);
    // A finished pod has no cgroup.
    let over = |name: &String| matches!(desired[name].life, Life::Ends(_));
    let with_cgroup: BTreeSet<String> = uids.iter().filter(|(_, name)| !over(name)).map(|(u, _)| u.clone()).collect();
    same("cgroups", &agent.pod_cgroups(), &with_cgroup, &mut out);
    out
}

/// Compares `/pods`. Returns the names of the pods by UID.
fn of_pods(pods: &[Value], desired: &Desired, out: &mut Vec<String>) -> BTreeMap<String, String> {
    let name = |p: &Value| p["metadata"]["name"].as_str().unwrap_or_default().to_string();
    let names: BTreeSet<String> = pods.iter().map(name).collect();
    same("/pods", &names, &desired.keys().cloned().collect(), out);
    if pods.len() != names.len() {
        out.push(format!("/pods: {} pods of {} names", pods.len(), names.len()));
    }
    let mut uids = BTreeMap::new();
    for pod in pods {
        let name = name(pod);
        let Some(wanted) = desired.get(&name) else { continue };
        let right = match &wanted.life {
            Life::Runs => is_running(pod),
            Life::Cycles(steady) => steady.iter().all(|c| container(pod, c)["state"]["running"].is_object()),
            Life::Ends(phases) => phases.iter().any(|p| pod["status"]["phase"] == *p),
        };
        if !right {
            out.push(format!("/pods: {name} is to be {:?}", wanted.life));
        }
        uids.insert(uid(pod), name);
    }
    uids
}

fn of_runtime(agent: &Agent, desired: &Desired, uids: &BTreeMap<String, String>, out: &mut Vec<String>) {
    let owner = agent.owner();
    let mut sandboxes = agent.cri().sandboxes(&agent.namespace);
    sandboxes.retain(|s| s.annotations.get("io.wherry.owner") == Some(&owner));
    let containers = containers(agent);
    let mut ready: BTreeMap<&str, u32> = BTreeMap::new();
    for s in &sandboxes {
        let of = label(&s.labels, "pod.uid");
        let Some(wanted) = uids.get(of).and_then(|name| desired.get(name)) else {
            out.push(format!("sandbox {} of {} {of} is left over", s.id, s.metadata.name));
            continue;
        };
        let generation = s.annotations.get(GENERATION).and_then(|g| g.parse().ok()).unwrap_or(0);
        if generation != wanted.generation {
            out.push(format!("{} is of generation {generation}, not {}", s.metadata.name, wanted.generation));
        }
        if s.state.enum_value() == Ok(PodSandboxState::SANDBOX_READY) {
            *ready.entry(of).or_default() += 1;
        } else if !matches!(wanted.life, Life::Ends(_)) && !containers.iter().any(|c| c.pod_sandbox_id == s.id) {
            out.push(format!("dead sandbox {} of {} is left over", s.id, s.metadata.name));
        }
    }
    let mut by_name: BTreeMap<(&str, &str), Vec<&Container>> = BTreeMap::new();
    for c in &containers {
        by_name.entry((label(&c.labels, "pod.uid"), c.metadata.name.as_str())).or_default().push(c);
    }
    for (uid, name) in uids {
        let count = ready.get(uid.as_str()).copied().unwrap_or(0);
        let over = matches!(desired[name].life, Life::Ends(_));
        if count != u32::from(!over) {
            out.push(format!("{name} has {count} ready sandboxes"));
        }
        if !by_name.keys().any(|(of, _)| of == uid) {
            out.push(format!("{name} has no container"));
        }
    }
    for ((of, name), all) in by_name {
        let Some(pod) = uids.get(of) else {
            out.push(format!("{} containers {name} of {of} are left over", all.len()));
            continue;
        };
        let running = all.iter().filter(|c| runs(c)).count();
        let right = match &desired[pod].life {
            Life::Cycles(steady) if !steady.contains(&name) => running <= 1,
            Life::Ends(_) => running == 0,
            _ => running == 1,
        };
        let dead = all.iter().filter(|c| c.state.enum_value() == Ok(ContainerState::CONTAINER_EXITED)).count();
        if !right || dead > 2 || running + dead != all.len() {
            out.push(format!("{running} of {} containers {name} of {pod} run, {dead} are dead", all.len()));
        }
    }
}

fn of_disk(agent: &Agent, uids: &BTreeMap<String, String>, out: &mut Vec<String>) {
    let root = agent.root();
    let keys: BTreeSet<String> = uids.keys().cloned().collect();
    same("pods' directories", &names(&root.join("pods")), &keys, out);
    let logs = uids.iter().map(|(uid, name)| format!("{}_{name}_{uid}", agent.namespace)).collect();
    same("log directories", &names(&agent.dir.join("log/pods")), &logs, out);
    let records: BTreeSet<String> = keys.iter().map(|uid| format!("{uid}.json")).collect();
    same("records", &names(&root.join("records/pods")), &records, out);
    out.extend(unreadable(&root, &records));

    let manifests = names(&agent.manifests()).len();
    let stored = names(&root.join("manifests"));
    if stored.iter().any(|f| !f.ends_with(".json"))
        || stored.iter().filter(|f| *f != "directory.json").count() != manifests
    {
        out.push(format!("the store of {manifests} manifests has {stored:?}"));
    }
    // A container that another program removed keeps its log, and the link to the log, until its pod is removed.
    for link in names(&agent.dir.join("log/containers")) {
        let target = fs::canonicalize(agent.dir.join("log/containers").join(&link));
        let of_a_pod = |t: &PathBuf| t.iter().any(|part| keys.iter().any(|uid| part.to_string_lossy().ends_with(uid)));
        if !target.as_ref().is_ok_and(of_a_pod) {
            out.push(format!("the link {link} leads to {target:?}"));
        }
    }
}

/// The records that cannot be read. The test reads a copy, because reading cleans up.
fn unreadable(root: &Path, expected: &BTreeSet<String>) -> Vec<String> {
    let copy = tempfile::tempdir().expect("a directory");
    let directory = copy.path().join("records/pods");
    fs::create_dir_all(&directory).expect("a directory");
    for file in names(&root.join("records/pods")) {
        // A missing record is reported as another difference.
        let _ = fs::copy(root.join("records/pods").join(&file), directory.join(&file));
    }
    let loaded = Records::open(copy.path(), None).expect("records").load(&[record::KIND]);
    let mut out: Vec<String> = loaded
        .iter()
        .filter_map(|r| record::read(&r.key, r.value()?).err().map(|e| format!("record {}: {e}", r.key)))
        .collect();
    if loaded.len() < expected.len() {
        out.push(format!("{} of {} records can be read", loaded.len(), expected.len()));
    }
    out
}

/// The names in a directory; empty if it does not exist.
pub fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

fn same(what: &str, found: &BTreeSet<String>, wanted: &BTreeSet<String>, out: &mut Vec<String>) {
    if found != wanted {
        let more: Vec<_> = found.difference(wanted).collect();
        let less: Vec<_> = wanted.difference(found).collect();
        out.push(format!("{what}: left over {more:?}, missing {less:?}"));
    }
}
