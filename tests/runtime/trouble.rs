//! Wherry killed, the runtime killed, pods of other owners in the runtime, two agents on one root directory.

use crate::support::agent::{Agent, container, uid};
use crate::support::cri::{ContainerConfig, ContainerState, PodSandboxConfig};
use crate::support::http;
use crate::support::lab::{Runtime, signal};
use crate::support::yaml::{TRAP, script};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// The values that must not change: container id, init process, start time.
pub type Identity = (String, u32, String);

pub fn identity(agent: &Agent, pod: &str) -> Identity {
    let id = agent.running(pod, "main").expect("runs");
    let pid = agent.cri().container_pid(&id);
    let started = container(&agent.pod(pod).expect("listed"), "main")["state"]["running"]["startedAt"].to_string();
    (id, pid, started)
}

#[test]
fn killed_and_started_again_it_adopts_its_pods_and_restarts_none() {
    let mut agent = Agent::start("adopt");
    for name in ["a", "b", "gone"] {
        agent.apply(name, TRAP);
    }
    for name in ["a", "b", "gone"] {
        agent.wait_running(name);
    }
    // A pod that has restarted once.
    let (id, pid, _) = identity(&agent, "b");
    signal(&pid.to_string(), "KILL");
    agent.wait("b was restarted", |a| a.running("b", "main").is_some_and(|now| now != id));
    agent.wait_running("b");
    let before = [identity(&agent, "a"), identity(&agent, "b")];
    let start_time = agent.pod("a").expect("listed")["status"]["startTime"].clone();

    agent.kill();
    agent.delete("gone");
    agent.run();
    agent.wait_running("a");
    let b = agent.wait_running("b");
    assert_eq!([identity(&agent, "a"), identity(&agent, "b")], before);
    assert_eq!(container(&b, "main")["restartCount"], 1);
    assert_eq!(agent.pod("a").expect("listed")["status"]["startTime"], start_time);
    agent.wait_gone("gone");
    assert_eq!([identity(&agent, "a"), identity(&agent, "b")], before);
    assert_eq!(agent.cri().containers(&agent.namespace).iter().filter(|c| c.metadata.attempt == 0).count(), 2);
}

#[test]
fn killed_again_and_again_while_pods_start_it_never_starts_one_twice() {
    let mut agent = Agent::start("instants");
    for i in 0..6 {
        agent.apply(&format!("p{i}"), TRAP);
    }
    // At instants spread over the start of six pods.
    for millis in [5, 30, 60, 100, 150, 220, 300, 400] {
        std::thread::sleep(Duration::from_millis(millis));
        agent.kill();
        agent.launch();
    }
    for i in 0..6 {
        let name = format!("p{i}");
        let pod = agent.wait_running(&name);
        // `running` fails if two of them run at once.
        assert!(agent.running(&name, "main").is_some());
        agent.wait("one ready sandbox", |a| a.sandboxes(&name).iter().filter(|s| s.state.value() == 0).count() == 1);
        assert!(container(&pod, "main")["restartCount"].as_i64() <= Some(1));
    }
}

#[test]
fn on_sigterm_the_agent_exits_and_pods_keep_running() {
    let mut agent = Agent::start("term");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let before = identity(&agent, "web");
    assert_eq!(agent.terminate(), Some(0));
    let status = agent.cri().container_status(&before.0).expect("status").status.unwrap();
    assert_eq!(status.state.enum_value(), Ok(ContainerState::CONTAINER_RUNNING));
    agent.run();
    agent.wait_running("web");
    assert_eq!(identity(&agent, "web"), before);
}

#[test]
fn a_pod_removed_during_downtime_is_stopped_at_the_start() {
    let mut agent = Agent::start("away");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    agent.terminate();
    agent.delete("web");
    agent.run();
    agent.wait_gone("web");
}

#[test]
fn the_runtime_killed_and_back_pods_are_as_they_were() {
    let runtime = Runtime::own("gone");
    let mut agent = Agent::prepare("gone", &runtime);
    agent.run();
    agent.apply("steady", TRAP);
    agent.apply("dies", TRAP);
    agent.wait_running("steady");
    agent.wait_running("dies");
    let before = identity(&agent, "steady");
    let (_, victim, _) = identity(&agent, "dies");

    runtime.kill();
    agent.wait("health says why", |a| {
        a.get("/readyz?verbose").is_ok_and(|r| r.status != 200 && r.body.contains("runtime"))
    });
    assert_eq!(agent.pods().len(), 2, "the known pods are kept");
    // Meanwhile one pod dies and a new one is added.
    signal(&victim.to_string(), "KILL");
    agent.apply("new", TRAP);
    std::thread::sleep(Duration::from_secs(2));
    assert!(agent.alive());

    runtime.start_again();
    agent.wait_running("new");
    agent.wait("the one that died was restarted", |a| {
        a.pod("dies").is_some_and(|p| container(&p, "main")["restartCount"] == 1)
    });
    agent.wait_running("dies");
    agent.wait_running("steady");
    assert_eq!(identity(&agent, "steady"), before);
    agent.wait("ready again", |a| a.get("/readyz").is_ok_and(|r| r.status == 200));
}

#[test]
fn without_a_runtime_the_agent_waits_and_reports_it() {
    let runtime = Runtime::own("late");
    runtime.kill();
    let mut agent = Agent::prepare("late", &runtime);
    agent.apply("web", TRAP);
    agent.launch();
    agent.wait("readyz says why", |a| {
        a.get("/readyz?verbose").is_ok_and(|r| r.status != 200 && r.body.contains("runtime"))
    });
    runtime.start_again();
    agent.wait_running("web");
}

#[test]
fn pods_of_others_are_left_alone() {
    let mut agent = Agent::start("others");
    let mut cri = agent.cri();
    let foreign = format!("{}-foreign", agent.namespace);
    // A pod as a kubelet would create it.
    let mut sandbox = PodSandboxConfig::new();
    let metadata = sandbox.metadata.mut_or_insert_default();
    metadata.name = "stranger".into();
    metadata.namespace = foreign.clone();
    metadata.uid = "0123456789abcdef0123456789abcdef".into();
    sandbox.hostname = "stranger".into();
    sandbox.log_directory = agent.dir.join("foreign").to_string_lossy().into_owned();
    sandbox.linux.mut_or_insert_default().cgroup_parent = format!("{}/foreign", agent.cgroup);
    for (key, value) in [
        ("io.kubernetes.pod.name", "stranger"),
        ("io.kubernetes.pod.namespace", foreign.as_str()),
        ("io.kubernetes.pod.uid", "0123456789abcdef0123456789abcdef"),
    ] {
        sandbox.labels.insert(key.into(), value.into());
    }
    let id = cri.run_sandbox(&sandbox);
    let mut config = ContainerConfig::new();
    config.metadata.mut_or_insert_default().name = "main".into();
    config.image.mut_or_insert_default().image = "localhost/trap:1".into();
    config.log_path = "main.log".into();
    config.labels = sandbox.labels.clone();
    config.labels.insert("io.kubernetes.container.name".into(), "main".into());
    let one = cri.create_container(&id, &config, &sandbox);
    cri.start_container(&one);

    agent.apply("ours", TRAP);
    agent.wait_running("ours");
    agent.kill();
    agent.run();
    agent.wait_running("ours");
    agent.delete("ours");
    agent.wait_gone("ours");
    let status = cri.container_status(&one).expect("status").status.unwrap();
    assert_eq!(status.state.enum_value(), Ok(ContainerState::CONTAINER_RUNNING));
    assert!(agent.pods().is_empty());
    assert_eq!(agent.metric("kubelet_orphaned_runtime_pods_total"), 0.0);
    cri.remove_sandbox(&id);
}

#[test]
fn a_second_one_on_the_same_root_is_refused() {
    let mut agent = Agent::start("second");
    let output = agent.command().output().expect("wherry");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("lock") || text.contains("already"), "{text}");
    assert!(agent.alive());
}

#[test]
fn a_bad_configuration_is_refused_with_all_its_errors() {
    let runtime = Runtime::shared();
    let mut agent = Agent::prepare("config", &runtime);
    agent.configure("maxPods: many\nnoSuchField: 1\n");
    agent.launch();
    assert_ne!(agent.ended(), Some(0));
    let log = agent.log();
    assert!(log.contains("maxPods") && log.contains("noSuchField"), "{log}");
}

#[test]
fn health_is_on_its_port_and_the_socket_is_for_root_and_its_group() {
    let agent = Agent::start("health");
    for path in ["/healthz", "/livez", "/readyz"] {
        let response = http::get_tcp(&format!("127.0.0.1:{}", agent.healthz_port), path).expect(path);
        assert_eq!(response.status, 200, "{path}: {}", response.body);
    }
    let metrics = http::get_tcp(&format!("127.0.0.1:{}", agent.healthz_port), "/pods").expect("/pods");
    assert_eq!(metrics.status, 404, "pods are on the control socket only");
    let mode = std::fs::metadata(&agent.socket).expect("socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert!(agent.get("/metrics").expect("/metrics").body.contains("kubelet_running_pods"));
}

#[test]
fn a_pod_under_a_fixed_uid_is_replaced_when_it_changes() {
    let agent = Agent::start("fixed");
    let text = |args: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: {}\n  uid: 11111111-2222-3333-4444-{:012}\n\
             spec:\n  containers: [{{name: main, image: localhost/trap:1, args: [{args}]}}]\n",
            agent.namespace, agent.healthz_port
        )
    };
    agent.write("web.yaml", &text("first"));
    let before = agent.wait_running("web");
    let old = agent.running("web", "main").expect("runs");
    agent.write("web.yaml", &text("second"));
    agent.wait("the new one runs", |a| a.running("web", "main").is_some_and(|id| id != old));
    let after = agent.wait_running("web");
    assert_eq!(uid(&before), uid(&after));
    assert_eq!(after["spec"]["containers"][0]["args"][0], "second");
    assert_eq!(agent.metric("kubelet_restarted_pods_total"), 1.0);
}

#[test]
fn a_container_that_crashes_while_it_is_away_is_restarted_once() {
    let mut agent = Agent::start("crashaway");
    agent.apply("web", &script("Always", "trap 'exit 0' TERM; while :; do sleep 0.1; done"));
    agent.wait_running("web");
    let (old, pid, _) = identity(&agent, "web");
    agent.kill();
    signal(&pid.to_string(), "KILL");
    agent.run();
    agent.wait("it was restarted", |a| a.running("web", "main").is_some_and(|id| id != old));
    assert_eq!(container(&agent.wait_running("web"), "main")["restartCount"], 1);
}
