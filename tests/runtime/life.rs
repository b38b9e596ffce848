//! The ordinary life of a pod: start, edit, removal.

use crate::support::agent::{Agent, condition, container, uid};
use crate::support::cri::ContainerState;
use crate::support::yaml::{self, TRAP};
use std::time::{Duration, Instant};

#[test]
fn a_manifest_becomes_a_running_pod_that_tools_recognise() {
    let agent = Agent::start("start");
    agent.apply("web", TRAP);
    let pod = agent.wait_running("web");

    let status = container(&pod, "main");
    assert_eq!(status["ready"], true);
    assert_eq!(status["started"], true);
    assert_eq!(status["restartCount"], 0);
    // The runtime reports one of the image's tags; other tests add more.
    assert!(status["image"].as_str().is_some_and(|s| s.contains(':')), "{status}");
    assert!(status["imageID"].as_str().is_some_and(|s| s.contains("sha256:")), "{status}");
    let begin = format!("{}://", agent.cri().name());
    assert!(status["containerID"].as_str().is_some_and(|s| s.starts_with(&begin)), "{status}");
    for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&pod, kind)["status"], "True", "{kind}");
    }
    assert!(pod["status"]["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.")), "{}", pod["status"]);
    assert_eq!(pod["status"]["qosClass"], "BestEffort");
    assert_eq!(pod["spec"]["nodeName"], "node");
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.hash"], pod["metadata"]["uid"]);

    let sandboxes = agent.sandboxes("web");
    assert_eq!(sandboxes.len(), 1);
    let sandbox = &sandboxes[0];
    assert_eq!(sandbox.metadata.name, "web");
    assert_eq!(sandbox.metadata.uid, uid(&pod));
    assert_eq!(sandbox.metadata.attempt, 0);
    assert_eq!(sandbox.labels["io.kubernetes.pod.uid"], uid(&pod));
    assert_eq!(sandbox.annotations["kubernetes.io/config.hash"], uid(&pod));
    assert!(sandbox.annotations.contains_key("io.wherry.owner"));

    let containers = agent.containers("web");
    assert_eq!(containers.len(), 1);
    let one = &containers[0];
    assert_eq!(one.metadata.name, "main");
    assert_eq!(
        one.labels.keys().collect::<Vec<_>>(),
        [
            "io.kubernetes.container.name",
            "io.kubernetes.pod.name",
            "io.kubernetes.pod.namespace",
            "io.kubernetes.pod.uid"
        ]
    );
    for key in [
        "io.kubernetes.container.hash",
        "io.kubernetes.container.restartCount",
        "io.kubernetes.container.terminationMessagePath",
        "io.kubernetes.container.terminationMessagePolicy",
        "io.kubernetes.pod.terminationGracePeriod",
    ] {
        assert!(one.annotations.contains_key(key), "{key}");
    }
    assert_eq!(one.annotations["io.kubernetes.pod.terminationGracePeriod"], "30");

    let log = agent.log_path(&pod, "main", 0);
    agent.wait("its log has a line", |a| a.output(&pod, "main", 0) == "started \n");
    let link = agent.dir.join("log/containers").join(format!("web_{}_main-{}.log", agent.namespace, one.id));
    agent.wait("the link to its log", |_| std::fs::read_link(&link).is_ok());
    assert_eq!(std::fs::canonicalize(&link).expect("link"), std::fs::canonicalize(&log).expect("log"));
    assert!(!agent.cgroups(&uid(&pod)).is_empty(), "a cgroup of the pod below {}", agent.cgroup);
}

#[test]
fn it_is_one_thread() {
    if cfg!(feature = "grpcio") {
        println!("the C-core has threads of its own: that there is one holds for the default build");
        return;
    }
    let agent = Agent::start("thread");
    for i in 0..3 {
        agent.apply(&format!("p{i}"), TRAP);
    }
    for i in 0..3 {
        agent.wait_running(&format!("p{i}"));
    }
    // Helper threads live only while they have work.
    agent.wait("one thread", |a| std::fs::read_dir(format!("/proc/{}/task", a.pid())).expect("task").count() == 1);
}

#[test]
fn pods_are_listed_for_people_and_for_scripts() {
    let agent = Agent::start("list");
    agent.apply("one", TRAP);
    agent.apply("two", TRAP);
    agent.wait_running("one");
    agent.wait_running("two");

    let table = agent.wherry(&["pods"]);
    assert!(table.status.success());
    let table = String::from_utf8(table.stdout).expect("UTF-8");
    let lines: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(lines[0].contains(&"NAME") && lines[0].contains(&"RESTARTS"), "{table}");
    for (line, name) in lines[1..].iter().zip(["one", "two"]) {
        assert!(line.contains(&name) && line.contains(&"1/1") && line.contains(&"Running"), "{table}");
    }

    let json = agent.wherry(&["pods", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(list["kind"], "PodList");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    let names = String::from_utf8(agent.wherry(&["pods", "-o", "name"]).stdout).expect("UTF-8");
    assert_eq!(names.lines().count(), 2);
    let status = String::from_utf8(agent.wherry(&["status"]).stdout).expect("UTF-8");
    assert!(status.contains(&agent.cri().name()), "{status}");
}

#[test]
fn an_edited_pod_is_replaced_and_both_never_run_together() {
    let agent = Agent::start("edit");
    agent.apply("web", TRAP);
    let before = agent.wait_running("web");
    let old = agent.running("web", "main").expect("runs");

    agent.apply(
        "web",
        "
        containers:
        - name: main
          image: localhost/trap:1
          args: [edited]
    ",
    );
    let after = agent.wait_for("the new version runs", |a| {
        a.pod("web").filter(|p| uid(p) != uid(&before)).filter(crate::support::agent::is_running)
    });
    assert_eq!(container(&after, "main")["restartCount"], 0);
    // `running` fails if two of them run at once.
    let new = agent.running("web", "main").expect("runs");
    assert_ne!(old, new);
    agent.wait("the old version is gone", |a| a.sandboxes("web").len() == 1);
    assert!(agent.cgroups(&uid(&before)).is_empty());
    assert_eq!(agent.metric("kubelet_restarted_pods_total"), 0.0);
}

#[test]
fn the_new_version_starts_after_the_old_one_has_stopped() {
    let agent = Agent::start("order");
    agent.apply("web", &yaml::script("Always", "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"));
    let before = agent.wait_running("web");
    agent.apply("web", &yaml::script("Always", "trap 'exit 0' TERM; while :; do sleep 0.1; done; true"));
    agent.wait_for("the new version runs", |a| {
        let containers = a.containers("web");
        let running = containers.iter().filter(|c| c.state.enum_value() == Ok(ContainerState::CONTAINER_RUNNING));
        assert!(running.count() <= 1, "two versions run at once");
        a.pod("web").filter(|p| uid(p) != uid(&before)).filter(crate::support::agent::is_running)
    });
}

#[test]
fn a_comment_or_a_touch_changes_nothing() {
    let agent = Agent::start("touch");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let id = agent.running("web", "main").expect("runs");
    let text = yaml::pod(&agent.namespace, "web", TRAP);
    agent.write("web.yaml", &format!("# a comment\n{text}"));
    agent.write("other.yaml", &yaml::pod(&agent.namespace, "other", TRAP));
    // The second file is read after the first: when its pod runs, Wherry has read the comment.
    agent.wait_running("other");
    assert_eq!(agent.running("web", "main"), Some(id));
}

#[test]
fn a_removed_pod_leaves_nothing_behind() {
    let agent = Agent::start("remove");
    agent.apply("web", TRAP);
    let pod = agent.wait_running("web");
    agent.delete("web");
    agent.wait_gone("web");
    let uid = uid(&pod);
    agent.wait("its cgroup is gone", |a| a.cgroups(&uid).is_empty());
    agent.wait("its logs are gone", |a| {
        let log = a.log_path(&pod, "main", 0);
        log.ancestors().nth(2).is_some_and(|directory| !directory.exists())
            && std::fs::read_dir(a.dir.join("log/containers")).expect("links").next().is_none()
    });
    agent.wait("its directory is gone", |a| !a.root().join("pods").join(&uid).exists());
}

#[test]
fn a_pod_that_ignores_sigterm_is_killed_after_its_grace_period() {
    let agent = Agent::start("grace");
    agent.apply(
        "deaf",
        "
        terminationGracePeriodSeconds: 4
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, \"trap 'echo heard' TERM; while :; do sleep 0.2; done\"]
    ",
    );
    agent.wait_running("deaf");
    let begun = Instant::now();
    agent.delete("deaf");
    agent.wait_gone("deaf");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(3900), "its grace period was cut to {took:?}");
}

#[test]
fn two_containers_share_the_network_and_start_in_order() {
    let agent = Agent::start("two");
    agent.apply("pair", "
        containers:
        - name: server
          image: localhost/busybox:1.35
          command: [sh, -c, 'echo hello > /tmp/index.html; httpd -f -p 8080 -h /tmp']
        - name: client
          image: localhost/busybox:1.35
          command: [sh, -c, \"trap 'exit 0' TERM; until wget -q -O - http://127.0.0.1:8080/; do sleep 0.1; done; while :; do sleep 0.1; done\"]
    ");
    let pod = agent.wait_running("pair");
    agent.wait("one container reaches the other", |a| a.output(&pod, "client", 0).contains("hello"));
    assert_eq!(agent.sandboxes("pair").len(), 1);
    let mut order = agent.containers("pair");
    order.reverse();
    assert_eq!(order.iter().map(|c| c.metadata.name.as_str()).collect::<Vec<_>>(), ["server", "client"]);
    let names: Vec<_> =
        pod["status"]["containerStatuses"].as_array().expect("statuses").iter().map(|s| s["name"].clone()).collect();
    assert_eq!(names, ["client", "server"], "sorted by name");
}
