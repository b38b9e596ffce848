//! Admission (A1 to A4): pods that fit run, pods that do not fit are rejected, pods that can fit later wait. The other
//! parts: preemption for critical pods (`preemption`), priority classes (`classes`), and invalid input (`bad_input`).

mod bad_input;
mod classes;
mod preemption;

use crate::support::agent::{Agent, container, is_running, uid};
use crate::support::lab::Runtime;
use crate::support::yaml;
use serde_json::Value;
use std::fs;

/// The number of online CPUs of this machine.
fn cpus() -> u64 {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").expect("cpus");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let parts = list.trim().split(',').map(|part| part.split_once('-').unwrap_or((part, part)));
    parts.map(|(first, last)| number(last) - number(first) + 1).sum()
}

/// A configuration that leaves one CPU for pods on every machine.
fn one_cpu() -> String {
    format!("systemReserved: {{cpu: {}m}}\n", (cpus() - 1) * 1000)
}

/// Starts an agent with this name and one CPU for pods. `more` is further configuration.
fn node(name: &str, more: &str) -> Agent {
    let mut agent = Agent::prepare(name, &Runtime::shared());
    agent.configure(&format!("{}{more}", one_cpu()));
    agent.run();
    agent
}

/// A WherryConfiguration document to append to the KubeletConfiguration.
fn ours(fields: &str) -> String {
    format!("---\napiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\n{fields}\n")
}

/// A pod that requests `milli` milli-CPU and ends on SIGTERM.
fn requesting(milli: u64) -> String {
    with("", &format!("resources: {{requests: {{cpu: {milli}m}}}}"))
}

/// A pod that ends on SIGTERM, with these fields in its spec and its container.
fn with(spec: &str, container: &str) -> String {
    format!("{spec}\ncontainers:\n- name: main\n  image: localhost/trap:1\n  {container}\n")
}

/// A pod that logs its begin, the SIGTERM and its end. It ends only after its gate is open.
fn gated(milli: u64) -> String {
    // The trap is set before the first log line: a SIGTERM before the trap is lost.
    let script = "trap 'echo asked; until test -e /tmp/go; do sleep 0.05; done
        read now rest < /proc/uptime; echo end $now; exit 0' TERM
        read now rest < /proc/uptime; echo begin $now
        while :; do sleep 0.05; done";
    let quoted = serde_json::to_string(script).expect("a string");
    format!(
        "terminationGracePeriodSeconds: 900\ncontainers:\n- name: main\n  image: localhost/busybox:1.35\n  \
         command: [sh, -c, {quoted}]\n  resources: {{requests: {{cpu: {milli}m}}}}"
    )
}

/// Waits until a gated pod has set its trap. A SIGTERM before that is lost: the shell is process 1 of its namespace.
fn wait_listening(agent: &Agent, name: &str) -> Value {
    let pod = agent.wait_running(name);
    agent.wait("it listens", |a| a.output(&pod, "main", attempt(&pod)).contains("begin"));
    pod
}

fn attempt(pod: &Value) -> u32 {
    container(pod, "main")["restartCount"].as_u64().expect("a count") as u32
}

fn open_gate(agent: &Agent, pod: &str) {
    let id = agent.running(pod, "main").expect("it runs");
    // 137: the container ended as soon as the file existed, and touch was killed with it.
    let code = agent.cri().exec(&id, &["touch", "/tmp/go"]).0;
    assert!(matches!(code, 0 | 137), "{code}");
}

fn reason(pod: &Value) -> &str {
    pod["status"]["reason"].as_str().unwrap_or_default()
}

fn message(pod: &Value) -> &str {
    pod["status"]["message"].as_str().unwrap_or_default()
}

fn short_of_cpu(requested: u64, used: u64) -> String {
    format!("Node didn't have enough resource: cpu, requested: {requested}, used: {used}, capacity: 1000")
}

/// Waits until the pod is rejected or killed for this reason. Returns the pod.
fn wait_reason(agent: &Agent, pod: &str, wanted: &str) -> Value {
    agent.wait_for(&format!("{pod}: {wanted}"), |a| a.pod(pod).filter(|p| reason(p) == wanted))
}

fn rejections(agent: &Agent, reason: &str) -> f64 {
    agent.metric(&format!("kubelet_admission_rejections_total{{reason=\"{reason}\"}}"))
}

fn wherry_says(agent: &Agent, command: &str) -> String {
    String::from_utf8_lossy(&agent.wherry(&[command]).stdout).into_owned()
}

#[test]
fn a3_a_pod_that_does_not_fit_is_rejected_and_stays_so_over_a_restart() {
    let mut agent = node("reject", "");
    agent.apply("fits", &requesting(600));
    agent.wait_running("fits");
    agent.apply("big", &requesting(401));
    let pod = wait_reason(&agent, "big", "OutOfcpu");
    assert_eq!(pod["status"]["phase"], "Failed");
    assert_eq!(message(&pod), short_of_cpu(401, 600));
    assert_eq!(rejections(&agent, "OutOfcpu"), 1.0);
    // There is room now, but the rejection holds also after a restart.
    agent.delete("fits");
    agent.wait_gone("fits");
    agent.kill();
    agent.run();
    let after = wait_reason(&agent, "big", "OutOfcpu");
    assert_eq!(after["status"], pod["status"]);
    // A later pod starts: the rejected pod is not considered again.
    agent.apply("exact", &requesting(1000));
    agent.wait_running("exact");
    assert_eq!(agent.pod("big").expect("listed")["status"], pod["status"]);
    assert!(agent.sandboxes("big").is_empty());
    assert!(agent.cgroups(&uid(&pod)).is_empty());
    assert_eq!(rejections(&agent, "OutOfcpu"), 0.0, "counted once, in the previous run");
    // The edited pod is a new pod. After its removal nothing is left.
    agent.apply("big", &requesting(0));
    agent.wait_running("big");
    agent.delete("big");
    agent.wait_gone("big");
    assert_eq!(agent.log().matches("reason=OutOfcpu").count(), 1);
}

#[test]
fn a2_placement_follows_the_labels_of_the_configuration() {
    let agent = node("labels", &ours("nodeLabels: {disk: ssd}\nextendedResources: {example.com/crane: 2}"));
    agent.apply("here", &with("nodeSelector: {disk: ssd, kubernetes.io/hostname: node, kubernetes.io/os: linux}", ""));
    agent.wait_running("here");
    agent.apply("there", &with("nodeSelector: {disk: tape}", ""));
    let pod = wait_reason(&agent, "there", "NodeAffinity");
    assert_eq!(pod["status"]["phase"], "Failed");
    assert!(message(&pod).contains("disk"), "{}", message(&pod));
    let affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
                    [{matchExpressions: [{key: disk, operator: NotIn, values: [ssd]}]}]}}}";
    agent.apply("elsewhere", &with(affinity, ""));
    wait_reason(&agent, "elsewhere", "NodeAffinity");
    agent.apply("windows", &with("os: {name: windows}", ""));
    wait_reason(&agent, "windows", "PodOSNotSupported");
    // The message contains all reasons, the resource first.
    agent.apply("both", &with("nodeSelector: {disk: tape}", "resources: {requests: {cpu: 2}}"));
    let both = wait_reason(&agent, "both", "OutOfcpu");
    assert!(message(&both).starts_with(&format!("{}; ", short_of_cpu(2000, 0))), "{}", message(&both));
    assert!(message(&both).contains("disk"), "{}", message(&both));

    let cranes = |n: u32| format!("resources: {{limits: {{example.com/crane: {n}}}}}");
    agent.apply("cranes", &with("", &cranes(2)));
    agent.wait_running("cranes");
    agent.apply("more", &with("", &cranes(1)));
    let more = wait_reason(&agent, "more", "OutOfexample.com/crane");
    assert!(message(&more).ends_with("example.com/crane, requested: 1, used: 2, capacity: 2"), "{}", message(&more));
    let counts = [("NodeAffinity", 2.0), ("PodOSNotSupported", 1.0), ("OutOfcpu", 1.0)];
    for (reason, count) in counts {
        assert_eq!(rejections(&agent, reason), count, "{reason}");
    }
    for rejected in ["there", "elsewhere", "windows", "both", "more"] {
        assert!(agent.sandboxes(rejected).is_empty(), "{rejected}");
    }
}

#[test]
fn a2_one_host_port_is_for_one_pod() {
    let agent = node("ports", "");
    let port = |fields: &str| with("", &format!("ports: [{{containerPort: 80, hostPort: 18080{fields}}}]"));
    agent.apply("first", &port(""));
    agent.wait_running("first");
    agent.apply("second", &port(", hostIP: 127.0.0.1"));
    let pod = wait_reason(&agent, "second", "NodePorts");
    assert_eq!(pod["status"]["phase"], "Failed");
    assert!(message(&pod).contains("18080"), "{}", message(&pod));
    agent.apply("udp", &port(", protocol: UDP"));
    agent.wait_running("udp");
    assert_eq!(rejections(&agent, "NodePorts"), 1.0);
    // The edited pod waits for its own port and gets it (A4).
    let before = agent.pod("first").expect("listed");
    agent.apply("first", &port(", name: web"));
    agent.wait("the new version runs", |a| a.pod("first").filter(is_running).is_some_and(|p| uid(&p) != uid(&before)));
    assert_eq!(rejections(&agent, "NodePorts"), 1.0);
}

#[test]
fn a4_a_big_pod_is_edited_on_a_full_node_and_a_new_one_waits_for_an_old_one() {
    let agent = node("full", "");
    agent.apply("big", &gated(900));
    let before = wait_listening(&agent, "big");
    agent.apply("big", &requesting(950));
    agent.wait("the old version is asked to end", |a| a.output(&before, "main", 0).contains("asked"));
    // A pod that is added meanwhile does not take the room.
    agent.apply("thief", &requesting(100));
    assert_eq!(message(&wait_reason(&agent, "thief", "OutOfcpu")), short_of_cpu(100, 950));
    open_gate(&agent, "big");
    let after =
        agent.wait_for("the new version runs", |a| a.pod("big").filter(|p| is_running(p) && uid(p) != uid(&before)));
    assert_eq!(rejections(&agent, "OutOfcpu"), 1.0, "the thief alone");
    agent.delete("big");
    agent.wait_gone("big");

    agent.apply("old", &gated(700));
    let old = wait_listening(&agent, "old");
    agent.delete("old");
    agent.wait("it is asked to end", |a| a.output(&old, "main", 0).contains("asked"));
    agent.apply("new", &requesting(800));
    let new = wait_reason(&agent, "new", "WaitingForRoom");
    assert_eq!(new["status"]["phase"], "Pending");
    assert_eq!(message(&new), format!("waiting for {}/old to end: {}", agent.namespace, short_of_cpu(800, 700)));
    assert!(agent.sandboxes("new").is_empty());
    open_gate(&agent, "old");
    let new = agent.wait_running("new");
    assert_eq!((reason(&new), message(&new)), ("", ""));
    assert_eq!(rejections(&agent, "OutOfcpu"), 1.0);
    assert_ne!(uid(&after), uid(&before));
}

#[test]
fn a2_there_are_no_more_pods_than_the_configuration_allows() {
    let agent = node("count", "maxPods: 2\n");
    agent.apply("a", yaml::TRAP);
    agent.wait_running("a");
    agent.apply("b", yaml::TRAP);
    agent.wait_running("b");
    agent.apply("c", yaml::TRAP);
    let pod = wait_reason(&agent, "c", "OutOfpods");
    assert_eq!(message(&pod), "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2");
    assert_eq!(rejections(&agent, "OutOfpods"), 1.0);
    // A critical pod takes the place of one of them (A6).
    agent.apply("vip", &with("priorityClassName: system-node-critical", ""));
    agent.wait_running("vip");
    let stayed = ["a", "b"].into_iter().filter(|p| agent.running(p, "main").is_some()).count();
    assert_eq!(stayed, 1);
    assert_eq!(agent.metric("kubelet_preemptions{preemption_signal=\"pods\"}"), 1.0);
    assert_eq!(agent.metric("kubelet_preemptions"), 1.0);
}
