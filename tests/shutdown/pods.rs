//! Pods on a real containerd while a real logind shuts the node down. The stop times come from the logs of the containers.

use crate::support::agent::{Agent, condition, container, is_running};
use crate::support::logind::{Node, wait};
use crate::support::store::Store;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

/// Three groups of 100 s each.
const GROUPS: &str = "
shutdownGracePeriodByPodPriority:
- {priority: 0, shutdownGracePeriodSeconds: 100}
- {priority: 1000, shutdownGracePeriodSeconds: 100}
- {priority: 2000000000, shutdownGracePeriodSeconds: 100}
";

/// Name and priority of each pod, in the order in which Wherry stops them.
const PODS: [(&str, i32); 4] = [("low-a", 0), ("low-b", 999), ("mid", 1000), ("top", 2_000_001_000)];

/// A pod that logs SIGTERM and exits `seconds` later.
fn logs_sigterm(priority: i32, seconds: &str) -> String {
    format!(
        "
        priority: {priority}
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'trap \"echo TERM; sleep {seconds}; echo END; exit 0\" TERM; echo UP; while :; do sleep 0.05; done']
        "
    )
}

fn shutdown(agent: &Agent) -> Value {
    let output = agent.wherry(&["status", "-o", "json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    status["shutdown"].clone()
}

fn armed(agent: &Agent) {
    agent.wait("graceful shutdown is armed", |a| shutdown(a)["armed"] == true);
}

/// Starts the agent with pods in each group and waits until graceful shutdown is armed. A pod takes 2 s to end, so that the
/// other pod of its group gets SIGTERM in the meantime.
fn busy(node: &Node, agent: &mut Agent) {
    busy_with(node, agent, "2");
}

fn busy_with(node: &Node, agent: &mut Agent, seconds: &str) {
    agent.configure(GROUPS);
    agent.run();
    for (name, priority) in PODS {
        agent.apply(name, &logs_sigterm(priority, seconds));
    }
    for (name, _) in PODS {
        let pod = agent.wait_running(name);
        agent.wait(&format!("{name} handles signals"), |a| a.output(&pod, "main", 0).contains("UP"));
    }
    armed(agent);
    assert_eq!(node.locks(), 1);
}

/// Formats a time so that text order is time order.
fn comparable(time: jiff::Timestamp) -> String {
    format!("{time:.9}")
}

/// The runtime's timestamp of a log line of the pod's first container; empty if there is no such line.
fn time_of_line(agent: &Agent, pod: &Value, line: &str) -> String {
    let text = fs::read_to_string(agent.log_path(pod, "main", 0)).unwrap_or_default();
    let line = text.lines().find(|l| l.ends_with(&format!(" F {line}"))).unwrap_or_default();
    let time = line.split(' ').next().unwrap_or_default();
    time.parse().map(comparable).unwrap_or_default()
}

/// The times of SIGTERM and of the exit of each pod's first container. This waits for the last line of each log: a pidfd
/// reports the exit before the runtime has written that line.
fn times(agent: &Agent, pods: &[Value]) -> Vec<(String, String)> {
    agent.wait("each container logs its exit", |a| pods.iter().all(|p| !time_of_line(a, p, "END").is_empty()));
    pods.iter().map(|p| (time_of_line(agent, p, "TERM"), time_of_line(agent, p, "END"))).collect()
}

fn listed(agent: &Agent) -> Vec<Value> {
    PODS.iter().map(|(name, _)| agent.pod(name).expect("listed")).collect()
}

/// Asserts the order: low-a and low-b at the same time, then mid, then top.
fn in_order(times: &[(String, String)]) {
    let [low_a, low_b, mid, top] = times else { panic!("{times:?}") };
    assert!(times.iter().all(|(told, _)| !told.is_empty()), "each got SIGTERM: {times:?}");
    assert!(low_a.0 < low_b.1 && low_b.0 < low_a.1, "the pods of a group stop together: {times:?}");
    assert!(low_a.1.as_str().max(&low_b.1) < mid.0.as_str() && mid.1 < top.0, "the groups stop in order: {times:?}");
}

fn runs_again(agent: &Agent) {
    for (name, _) in PODS {
        let pod = agent.wait_running(name);
        assert_eq!(condition(&pod, "DisruptionTarget"), Value::Null, "{name}");
    }
}

fn events(agent: &Agent) -> Vec<String> {
    let output = agent.wherry(&["events", "-o", "json"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let list: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    // A rejected pod has an event with this reason, too.
    let of_node = |e: &&Value| e["reason"] == "NodeShutdown" && e["involvedObject"]["kind"] == "Node";
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter(of_node).map(|e| e["message"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn s4_groups_stop_in_order_and_logind_continues_after_the_last_pod() {
    let node = Node::start("order");
    let mut agent = node.agent("order");
    busy(&node, &mut agent);
    // S2: logind's delay is the sum of the periods.
    assert_eq!(node.delay(), Duration::from_secs(300));
    let drop_in = fs::read_to_string(node.conf_dir().join("99-wherry.conf")).expect("the drop-in");
    assert!(drop_in.contains("\nInhibitDelayMaxSec=300\n"), "{drop_in}");

    let plan = agent.wherry(&["shutdown-plan", "-o", "json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("a plan");
    let of_group = |g: &Value| g["pods"].as_array().map_or(0, Vec::len);
    let groups: Vec<usize> = plan["groups"].as_array().expect("groups").iter().map(of_group).collect();
    assert_eq!(groups, [2, 1, 1]);

    let pods = listed(&agent);
    let listener = node.listen();
    let began = Instant::now();
    node.power_off();
    let (prepares, _) = listener.next();
    assert!(prepares);
    agent.wait("the node is not ready", |a| a.get("/readyz").is_ok_and(|r| r.status != 200));
    assert_eq!(agent.get("/livez").expect("livez").status, 200);
    // A3
    agent.apply("late", &logs_sigterm(0, "0"));
    agent.wait("a new pod is rejected", |a| a.pod("late").is_some_and(|p| p["status"]["reason"] == "NodeShutdown"));

    let off = node.wait_started("poweroff.target");
    let took = off.at - began;
    in_order(&times(&agent, &pods));
    // Three groups take 2 s each. No group uses its whole period.
    assert!(took > Duration::from_secs(6) && took < Duration::from_secs(100), "{took:?}");
    assert_eq!(node.locks(), 0);
    for (name, _) in PODS {
        // logind continues before the runtime shows the end of the containers.
        let pod = agent.wait_phase(name, "Failed");
        assert_eq!(pod["status"]["reason"], "Terminated", "{name}");
        assert_eq!(condition(&pod, "DisruptionTarget")["reason"], "TerminationByKubelet");
        assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 0, "{name} ended by itself");
    }
    assert!(agent.metric("kubelet_graceful_shutdown_end_time_seconds") > 0.0);
    let told = events(&agent);
    assert_eq!(told.len(), 8, "{told:?}");
    assert!(told[1].starts_with("priority 0: 2 pods to stop within 100s"), "{told:?}");

    // A restarted Wherry is still in the same shutdown and starts no pod.
    agent.kill();
    agent.run();
    agent.wait("the shutdown continues", |a| a.log().contains("continuing the shutdown that began"));
    assert!(PODS.iter().all(|(name, _)| agent.running(name, "main").is_none()));
}

#[test]
fn s6_pods_run_again_after_a_shutdown_that_was_called_off() {
    let node = Node::start("cancel");
    let mut agent = node.agent("cancel");
    busy(&node, &mut agent);
    node.refuse_jobs();
    let listener = node.listen();
    let pods = listed(&agent);
    node.power_off();
    assert!(listener.next().0);
    assert!(!listener.next().0, "systemd refused the job, so the shutdown is cancelled");
    in_order(&times(&agent, &pods));
    runs_again(&agent);
    armed(&agent);
    assert_eq!(node.locks(), 1);
    assert_eq!(agent.get("/readyz").expect("readyz").status, 200);
    assert_eq!(events(&agent).last().expect("told"), "Shutdown manager detected shutdown cancellation");
}

#[test]
fn s7_wherry_killed_in_the_middle_finds_its_lock_again_and_the_pods_get_their_time() {
    let node = Node::start("middle");
    let mut agent = node.agent("middle");
    let mut store = Store::new(&node.dir);
    store.serve(&mut agent);
    busy(&node, &mut agent);
    assert_eq!(store.names().len(), 1);
    let pods = listed(&agent);
    node.power_off();
    wait("the second group gets SIGTERM", || (!time_of_line(&agent, &pods[2], "TERM").is_empty()).then_some(()));
    agent.kill();
    assert_eq!((store.names().len(), node.locks()), (1, 1), "the store holds the lock");
    // As after a full disk: only the runtime shows that the pod `top` runs.
    agent.lose_record(pods[3]["metadata"]["uid"].as_str().expect("a UID"));
    store.serve(&mut agent);
    agent.run();
    wait("logind continues", || {
        // Reading the messages makes the store close the descriptors that Wherry removes.
        let _ = store.names();
        node.started().first().map(drop)
    });
    in_order(&times(&agent, &pods));
    assert_eq!(node.locks(), 0);
}

#[test]
fn s7_without_a_descriptor_store_logind_continues_and_pods_get_the_minimum_grace_in_order() {
    let node = Node::start("nostore");
    let mut agent = node.agent("nostore");
    // The pods need less than the minimum grace period.
    busy_with(&node, &mut agent, "1");
    let pods = listed(&agent);
    node.power_off();
    wait("the first two stop", || pods[..2].iter().all(|p| !time_of_line(&agent, p, "TERM").is_empty()).then_some(()));
    agent.kill();
    node.wait_started("poweroff.target");
    agent.run();
    agent.wait("all have ended", |a| PODS.iter().all(|(name, _)| a.running(name, "main").is_none()));
    in_order(&times(&agent, &pods));
    agent.wait("it reports no lock", |a| events(a).iter().any(|m| m.starts_with("no inhibitor lock is held")));
}

#[test]
fn s7_a_bus_or_a_logind_that_is_restarted_is_found_again() {
    let mut node = Node::start("found");
    let mut agent = node.agent("found");
    busy(&node, &mut agent);
    node.restart_logind();
    wait("connected again", || (agent.log().matches("logind=connected").count() == 2).then_some(()));
    armed(&agent);
    assert_eq!(node.locks(), 1, "logind still lists the lock");
    node.kill_logind();
    node.kill_bus();
    agent.wait("graceful shutdown is not armed", |a| shutdown(a)["armed"] == false);
    assert!(shutdown(&agent)["problem"].is_string());
    node.forget_locks();
    node.start_bus();
    node.start_logind();
    armed(&agent);
    assert_eq!(node.locks(), 1);
    let pods = listed(&agent);
    assert!(pods.iter().all(is_running), "the pods are not affected");
    node.reboot();
    node.wait_started("reboot.target");
    in_order(&times(&agent, &pods));
}

#[test]
fn s2_a_drop_in_that_cannot_be_written_leaves_the_highest_groups_their_time() {
    let node = Node::start("readonly");
    // logind uses its default delay, because no file can be created in this directory.
    let mut agent = node.agent("readonly");
    let text = "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nlogindConfDir: /proc/logind.conf.d\n";
    fs::write(agent.dir.join("config.d/logind.yaml"), text).expect("logind.yaml");
    agent.configure("shutdownGracePeriod: 90s\nshutdownGracePeriodCriticalPods: 3s\n");
    agent.run();
    armed(&agent);
    let shutdown = shutdown(&agent);
    let delay = node.delay().as_secs();
    assert!(delay < 90, "{delay}");
    let granted: Vec<u64> =
        shutdown["groups"].as_array().expect("groups").iter().filter_map(|g| g["grantedSeconds"].as_u64()).collect();
    assert_eq!(granted, [delay - 3, 3]);
    let problem = shutdown["problem"].as_str().expect("a problem");
    assert!(problem.contains("90s are configured") && problem.contains("/proc/logind.conf.d"), "{problem}");
    assert_eq!(node.locks(), 1);
}

#[test]
fn s10_a_stop_of_the_service_changes_no_pod() {
    let node = Node::start("alone");
    let mut agent = node.agent("alone");
    busy(&node, &mut agent);
    let before: Vec<Option<String>> = PODS.iter().map(|(name, _)| agent.running(name, "main")).collect();
    assert_eq!(agent.terminate(), Some(0));
    agent.run();
    armed(&agent);
    let after: Vec<Option<String>> = PODS.iter().map(|(name, _)| agent.running(name, "main")).collect();
    assert_eq!(before, after);
}
