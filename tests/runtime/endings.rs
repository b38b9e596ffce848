//! Containers that end: exit codes, phases, messages and deadlines.

use crate::support::agent::{Agent, condition, container, patience};
use crate::support::cri::PodSandboxState;
use crate::support::yaml::{TRAP, script};

#[test]
fn a_job_that_succeeds_is_succeeded_and_not_run_again() {
    let mut agent = Agent::start("success");
    agent.apply("job", &script("OnFailure", "echo done"));
    let pod = agent.wait_phase("job", "Succeeded");
    let ended = &container(&pod, "main")["state"]["terminated"];
    assert_eq!(ended["exitCode"], 0);
    assert_eq!(ended["reason"], "Completed");
    assert_eq!(condition(&pod, "Ready")["reason"], "PodCompleted");
    assert_eq!(condition(&pod, "ContainersReady")["reason"], "PodCompleted");
    agent.wait("its sandbox is stopped", |a| {
        a.sandboxes("job").iter().all(|s| s.state.enum_value() == Ok(PodSandboxState::SANDBOX_NOTREADY))
    });
    assert_eq!(agent.output(&pod, "main", 0), "done\n");

    // Nor after a restart of Wherry.
    assert_eq!(agent.terminate(), Some(0));
    agent.run();
    agent.wait_phase("job", "Succeeded");
    agent.apply("later", &script("Never", "true"));
    agent.wait_phase("later", "Succeeded");
    assert_eq!(agent.containers("job").len(), 1);
    agent.delete("job");
    agent.wait_gone("job");
}

#[test]
fn a_pod_that_is_never_restarted_fails_with_its_container() {
    let agent = Agent::start("failure");
    agent.apply("job", &script("Never", "echo went wrong; exit 3"));
    let pod = agent.wait_phase("job", "Failed");
    let ended = &container(&pod, "main")["state"]["terminated"];
    assert_eq!(ended["exitCode"], 3);
    assert_eq!(ended["reason"], "Error");
    assert_eq!(condition(&pod, "Ready")["reason"], "PodFailed");
    assert_eq!(container(&pod, "main")["restartCount"], 0);
}

#[test]
fn a_pod_runs_until_its_last_container_has_ended() {
    let agent = Agent::start("last");
    agent.apply(
        "pair",
        "
        restartPolicy: Never
        containers:
        - name: fails
          image: localhost/busybox:1.35
          command: [sh, -c, exit 1]
        - name: goes-on
          image: localhost/busybox:1.35
          command: [sh, -c, 'while [ ! -e /tmp/end ]; do sleep 0.1; done']
    ",
    );
    let pod = agent.wait_for("the first has ended, the second runs", |a| {
        a.pod("pair").filter(|p| {
            container(p, "fails")["state"]["terminated"].is_object()
                && container(p, "goes-on")["state"]["running"].is_object()
        })
    });
    assert_eq!(pod["status"]["phase"], "Running");
    let id = agent.running("pair", "goes-on").expect("runs");
    agent.cri().exec(&id, &["touch", "/tmp/end"]);
    agent.wait_phase("pair", "Failed");
}

#[test]
fn a_termination_message_is_shown() {
    let agent = Agent::start("message");
    agent.apply("file", &script("Never", "echo -n from the file > /dev/termination-log; exit 1"));
    agent.apply(
        "log",
        "
        restartPolicy: Never
        containers:
        - name: main
          image: localhost/busybox:1.35
          terminationMessagePolicy: FallbackToLogsOnError
          command: [sh, -c, 'echo from the log; exit 1']
    ",
    );
    let message = |pod| container(&pod, "main")["state"]["terminated"]["message"].clone();
    assert_eq!(message(agent.wait_phase("file", "Failed")), "from the file");
    assert_eq!(message(agent.wait_phase("log", "Failed")), "from the log\n");
}

#[test]
fn a_pod_past_its_deadline_is_ended() {
    let agent = Agent::start("deadline");
    // A slow machine must start the pod before the deadline.
    let deadline = patience(20).as_secs();
    let spec = format!("    activeDeadlineSeconds: {deadline}\n    terminationGracePeriodSeconds: 2{TRAP}");
    agent.apply("slow", &spec);
    agent.wait_running("slow");
    let pod = agent.wait_phase("slow", "Failed");
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    assert_eq!(pod["status"]["message"], "Pod was active on the node longer than the specified deadline");
    assert!(agent.running("slow", "main").is_none());
}

#[test]
fn a_container_over_its_memory_limit_is_oom_killed() {
    const TRIES: usize = 5;
    let agent = Agent::start("oom");
    // containerd learns of an OOM kill from a separate event. On a slow machine it may come after the exit, which is
    // then reported as a plain error.
    for n in 1..=TRIES {
        let name = format!("hungry-{n}");
        agent.apply(
            &name,
            "
        restartPolicy: Never
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [tail, /dev/zero]
          resources:
            limits:
              memory: 32Mi
    ",
        );
        let pod = agent.wait_phase(&name, "Failed");
        let ended = &container(&pod, "main")["state"]["terminated"];
        assert_eq!(ended["exitCode"], 137);
        assert_eq!(pod["status"]["qosClass"], "Burstable");
        if ended["reason"] == "OOMKilled" {
            return;
        }
        assert_eq!(ended["reason"], "Error");
    }
    panic!("no reason OOMKilled in {TRIES} tries");
}

/// containerd converts the grace period to nanoseconds: the product overflows, and the container would be killed at
/// once.
#[test]
fn w4_the_longest_grace_period_that_can_be_written_lets_a_container_end_by_itself() {
    let agent = Agent::start("long-grace");
    agent.apply(
        "job",
        "
        restartPolicy: Never
        activeDeadlineSeconds: 3
        terminationGracePeriodSeconds: 9223372036854775807
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'trap \"sleep 2; exit 7\" TERM; while :; do sleep 0.1; done']
        ",
    );
    let pod = agent.wait_phase("job", "Failed");
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 7);
}
