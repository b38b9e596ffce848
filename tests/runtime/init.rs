//! Init containers and sidecars: their order, their failures, and a restart of Wherry between them.

use crate::support::agent::{Agent, container, uid};
use serde_json::Value;

/// The status of an init container.
fn init(pod: &Value, name: &str) -> Value {
    let all = pod["status"]["initContainerStatuses"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|c| c["name"] == name).unwrap_or_default()
}

/// The STATUS column of `wherry pods`.
fn shown(agent: &Agent, name: &str) -> String {
    let output = agent.wherry(&["pods"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|l| l.contains(name)).unwrap_or_default();
    line.split_whitespace().nth(3).unwrap_or_default().to_owned()
}

#[test]
fn w11_an_init_container_that_fails_ends_the_pod_or_runs_again() {
    let agent = Agent::start("initfail");
    let spec = |policy: &str| {
        format!(
            "
            restartPolicy: {policy}
            initContainers:
            - name: fails
              image: localhost/busybox:1.35
              command: [sh, -c, 'echo attempt; exit 4']
            - name: never
              image: localhost/busybox:1.35
              command: ['true']
            containers:
            - name: main
              image: localhost/trap:1
            "
        )
    };
    agent.apply("never", &spec("Never"));
    agent.apply("onfailure", &spec("OnFailure"));
    let pod = agent.wait_phase("never", "Failed");
    assert_eq!(init(&pod, "fails")["state"]["terminated"]["exitCode"], 4);
    assert_eq!(container(&pod, "main")["state"]["waiting"]["reason"], "PodInitializing");
    assert_eq!(agent.containers("never").len(), 1);
    let pod = agent.wait_for("the init container runs again, with a back-off", |a| {
        let pod = a.pod("onfailure")?;
        let status = init(&pod, "fails");
        (status["restartCount"] == 1 && status["state"]["waiting"]["reason"] == "CrashLoopBackOff").then_some(pod)
    });
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(shown(&agent, "onfailure"), "Init:CrashLoopBackOff");
    assert_eq!(agent.output(&pod, "fails", 1), "attempt\n");
    assert!(init(&pod, "never")["state"]["waiting"].is_object());
}

#[test]
fn w11_sidecars_stop_after_the_main_container_in_reverse_order() {
    let agent = Agent::start("sidecars");
    let sidecar =
        |name: &str| format!("\n            - {{name: {name}, image: 'localhost/trap:1', restartPolicy: Always}}");
    agent.apply(
        "ordered",
        &format!(
            "
            terminationGracePeriodSeconds: 30
            initContainers:{}{}
            containers:
            - {{name: main, image: 'localhost/trap:1'}}
            ",
            sidecar("first"),
            sidecar("second")
        ),
    );
    let pod = agent.wait_running("ordered");
    assert!(init(&pod, "first")["state"]["running"].is_object() && init(&pod, "second")["started"] == true);
    let stops = |agent: &Agent| -> Vec<String> {
        let log = agent.log();
        let stop = log.lines().filter(|l| l.contains("/ordered ") && l.contains("Stopping container "));
        stop.filter_map(|l| l.split("Stopping container ").nth(1)?.split('"').next().map(str::to_owned)).collect()
    };
    agent.delete("ordered");
    agent.wait_gone("ordered");
    assert_eq!(stops(&agent), ["main", "second", "first"]);
}

#[test]
fn w11_a_restart_of_wherry_repeats_no_init_container() {
    let mut agent = Agent::start("initkill");
    agent.apply(
        "slow",
        "
        initContainers:
        - name: one
          image: localhost/busybox:1.35
          command: ['true']
        - name: two
          image: localhost/busybox:1.35
          command: [sh, -c, 'while [ ! -e /tmp/go ]; do sleep 0.1; done']
        containers:
        - name: main
          image: localhost/trap:1
        ",
    );
    let id = agent.wait_for("the second init container runs", |a| a.running("slow", "two"));
    assert_eq!(shown(&agent, "slow"), "Init:1/2");
    let before = uid(&agent.pod("slow").expect("the pod"));
    agent.kill();
    agent.cri().exec(&id, &["touch", "/tmp/go"]);
    agent.run();
    let pod = agent.wait_running("slow");
    assert_eq!(uid(&pod), before);
    for name in ["one", "two"] {
        assert_eq!(
            (init(&pod, name)["restartCount"].as_u64(), init(&pod, name)["ready"].as_bool()),
            (Some(0), Some(true))
        );
    }
    assert_eq!(agent.containers("slow").len(), 3);
}
