//! Node-pressure eviction (E1 to E7): real memory, and file systems that are really full.

use crate::support::agent::{Agent, condition, uid};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;
use std::ffi::CString;
use std::path::PathBuf;

/// No threshold that a machine meets by itself.
const CALM: &str = "evictionHard: {memory.available: 1Mi}\nevictionPressureTransitionPeriod: 2s\n";

/// A soft threshold that every machine meets, so that the end of one pod is not enough. (The node's allocatable memory depends
/// only on hard ones.)
const SHORT: &str = "evictionHard: {memory.available: 1Mi}\nevictionSoft: {memory.available: 99.9%}\n\
                     evictionSoftGracePeriod: {memory.available: 0s}\nevictionPressureTransitionPeriod: 2s\n";

/// Uses 600 MiB of memory.
const LARGE: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'head -c 600m /dev/zero > /memory/file; touch /memory/done; while :; do sleep 1; done']
      volumeMounts: [{name: memory, mountPath: /memory}]
    volumes:
    - name: memory
      emptyDir: {medium: Memory}
";

const SMALL: &str = "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/trap:1
";

/// Writes this many MiB into its emptyDir.
fn writes(mebibytes: u32, limit: &str) -> String {
    format!(
        "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'head -c {mebibytes}m /dev/zero > /data/file; touch /data/done; while :; do sleep 1; done']
      volumeMounts: [{{name: data, mountPath: /data}}]
    volumes:
    - name: data
      emptyDir: {{{limit}}}
"
    )
}

/// Waits until the container has written its files.
fn wait_written(agent: &Agent, pod: &str, volume: &str) -> PathBuf {
    let uid = uid(&agent.wait_running(pod));
    let path = agent.root().join(format!("pods/{uid}/volumes/kubernetes.io~empty-dir/{volume}"));
    agent.wait("the files are written", |_| path.join("done").exists());
    path
}

fn wait_evicted(agent: &Agent, pod: &str) -> Value {
    agent.wait_for("the pod is evicted", |a| {
        let pod = a.pod(pod)?;
        let ended = pod["status"]["phase"] == "Failed" && pod["status"]["reason"] == "Evicted";
        ended.then_some(pod)
    })
}

fn message(pod: &Value) -> &str {
    pod["status"]["message"].as_str().unwrap_or_default()
}

/// The pods of the events with this reason, oldest first.
fn pods_of_events(agent: &Agent, reason: &str) -> Vec<String> {
    let output = agent.wherry(&["events", "-o", "json"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let events = value["items"].as_array().cloned().unwrap_or_default();
    let of_reason = events.iter().filter(|e| e["reason"] == reason);
    of_reason.map(|e| e["involvedObject"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn e4_under_memory_pressure_the_largest_pod_is_evicted_and_returns_after_it() {
    let mut agent = Agent::start("eviction");
    agent.configure(CALM);
    agent.hang_up();
    agent.apply("large", LARGE);
    agent.apply("small", SMALL);
    agent.apply("system", &format!("    priorityClassName: system-node-critical\n{SMALL}"));
    wait_written(&agent, "large", "memory");
    let [system, _] = ["system", "small"].map(|pod| uid(&agent.wait_running(pod)));
    let restarts = agent.running("system", "main");

    agent.configure(SHORT);
    agent.hang_up();
    let large = wait_evicted(&agent, "large");
    assert!(message(&large).starts_with("The node was low on resource: memory. Threshold quantity: "), "{large}");
    assert!(message(&large).contains("Container main was using "), "{large}");
    assert_eq!(condition(&large, "DisruptionTarget")["reason"], "TerminationByKubelet");
    wait_evicted(&agent, "small");
    assert_eq!(pods_of_events(&agent, "Evicted"), ["large", "small"], "the larger one first");
    assert!(agent.metric("kubelet_evictions{eviction_signal=\"memory.available\"}") >= 2.0);
    let status = String::from_utf8(agent.wherry(&["status"]).stdout).expect("text");
    assert!(status.contains("\nPressure:   MemoryPressure\n"), "{status}");

    // E6: a pod without requests waits, a critical one starts.
    agent.apply("waits", SMALL);
    agent.apply("critical", &format!("    priorityClassName: system-node-critical\n{SMALL}"));
    agent.wait_running("critical");
    let waits = agent.pod("waits").expect("the pod");
    assert_eq!(message(&waits), "waiting for the end of the node's MemoryPressure");

    // E5: the evicted pods wait, also across a kill.
    agent.kill();
    agent.run();
    agent.wait("it is measured", |a| String::from_utf8_lossy(&a.wherry(&["status"]).stdout).contains("MemoryPressure"));
    assert_eq!(agent.pod("large").expect("the pod")["status"]["reason"], "Evicted");

    agent.configure(CALM);
    agent.hang_up();
    for pod in ["large", "small", "waits"] {
        agent.wait_long(&format!("{pod} runs again"), 120, |a| a.running(pod, "main"));
    }
    assert_eq!(uid(&agent.pod("system").expect("the pod")), system);
    assert_eq!(agent.running("system", "main"), restarts, "the critical pod was left alone");
}

#[test]
fn e4_without_process_ids_the_pod_with_the_most_processes_is_evicted() {
    let agent = Agent::start("evictionpids");
    agent.configure(CALM);
    agent.hang_up();
    agent.apply("few", SMALL);
    agent.apply(
        "many",
        "
    terminationGracePeriodSeconds: 1
    containers:
    - name: main
      image: localhost/busybox:1.35
      command: [sh, -c, 'for i in $(seq 40); do sleep 1000 & done; echo all run; wait']
",
    );
    agent.wait_running("few");
    let many = agent.wait_running("many");
    agent.wait("the processes run", |a| a.output(&many, "main", 0).contains("all run"));
    // Every machine meets this threshold.
    let all = wherry::adapters::host::machine::most_processes().expect("the limit of the kernel");
    let limit = SHORT.replace("{memory.available: 99.9%}", &format!("{{pid.available: '{all}'}}"));
    agent.configure(&limit.replace("{memory.available: 0s}", "{pid.available: 0s}"));
    agent.hang_up();
    let many = wait_evicted(&agent, "many");
    assert!(message(&many).starts_with("The node was low on resource: pids. Threshold quantity: "), "{many}");
    wait_evicted(&agent, "few");
    assert_eq!(pods_of_events(&agent, "Evicted"), ["many", "few"]);
}

#[test]
fn e7_an_empty_dir_above_its_size_limit_evicts_its_pod() {
    let mut agent = Agent::start("sizelimit");
    agent.apply("within", &writes(1, "sizeLimit: 4Mi"));
    agent.apply("beyond", &writes(8, "sizeLimit: 4Mi"));
    wait_written(&agent, "within", "data");
    wait_written(&agent, "beyond", "data");
    // The next measurement is up to a minute away, and a start measures at once.
    agent.kill();
    agent.run();
    let beyond = wait_evicted(&agent, "beyond");
    assert_eq!(message(&beyond), "Usage of EmptyDir volume \"data\" exceeds the limit \"4Mi\". ");
    assert!(agent.running("within", "main").is_some());
    assert_eq!(agent.metric("kubelet_evictions{eviction_signal=\"ephemeralpodfs.limit\"}"), 1.0);
}

/// A tmpfs on the root directory of the agent, removed at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(directory: PathBuf) -> SmallDisk {
        let options = CString::new("size=64m").expect("text");
        mount("tmpfs", &directory, "tmpfs", MountFlags::empty(), options.as_c_str()).expect("mount");
        SmallDisk(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn e4_on_a_full_disk_the_pod_with_the_most_files_is_evicted() {
    let mut agent = Agent::prepare("fulldisk", &crate::support::lab::Runtime::shared());
    let _disk = SmallDisk::mount(agent.root());
    let full = "evictionHard: {nodefs.available: 25%}\nevictionPressureTransitionPeriod: 2s\n";
    agent.configure(full);
    agent.run();
    agent.apply("little", &writes(2, ""));
    agent.apply("much", &writes(52, ""));
    wait_written(&agent, "little", "data");
    let files = wait_written(&agent, "much", "data");
    agent.hang_up();
    let much = wait_evicted(&agent, "much");
    assert!(
        message(&much).starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: "),
        "{much}"
    );
    assert!(agent.running("little", "main").is_some());
    agent.wait("the files are removed", |_| !files.exists());
    agent.wait("the pressure is over", |a| {
        !String::from_utf8_lossy(&a.wherry(&["status"]).stdout).contains("DiskPressure")
    });
    assert_eq!(pods_of_events(&agent, "Evicted")[0], "much");
    agent.delete("much");
    agent.delete("little");
    agent.wait_gone("much");
    agent.wait_gone("little");
    agent.kill();
}
