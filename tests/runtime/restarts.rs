//! Containers and sandboxes that die and are replaced.

use crate::support::agent::{Agent, container};
use crate::support::lab::signal;
use crate::support::yaml::{TRAP, script};

#[test]
fn a_crashed_container_is_restarted_at_once_and_then_backs_off() {
    let agent = Agent::start("crash");
    agent.apply("loop", &script("Always", "exit 7"));
    // The first restart is immediate, the second one comes 10 s after the second end.
    let status = agent.wait_waiting("loop", "CrashLoopBackOff");
    assert!(
        status["state"]["waiting"]["message"]
            .as_str()
            .is_some_and(|m| { m.starts_with("back-off 10s restarting failed container=main pod=loop_") }),
        "{status}"
    );
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 7);
    let pod = agent.wait_long("the second restart", 200, |a| {
        a.pod("loop").filter(|p| container(p, "main")["restartCount"].as_i64() >= Some(2))
    });
    assert_eq!(pod["status"]["phase"], "Running");
    let times = |attempt: u32| -> (i64, i64) {
        let all = agent.containers("loop");
        let one = all.iter().find(|c| c.metadata.attempt == attempt).expect("the newest ones are kept");
        let status = agent.cri().container_status(&one.id).expect("status").status.unwrap();
        (status.created_at, status.finished_at)
    };
    let (created, _) = times(2);
    agent.wait("the third run has ended", |_| times(2).1 > 0);
    // At least the end of the second run is known, from the last state of the third.
    let ended = agent.wait_for("the last state", |a| {
        let last = container(&a.pod("loop")?, "main")["lastState"]["terminated"]["finishedAt"].clone();
        last.as_str().map(str::to_string)
    });
    assert!(!ended.is_empty());
    let log = agent.log();
    assert!(log.contains("Back-off") || log.contains("BackOff"), "the back-off is in the log");
    assert!(created > 0);
}

#[test]
fn back_off_is_ten_seconds_from_the_end_of_the_second_run() {
    let agent = Agent::start("backoff");
    agent.apply("loop", &script("Always", "cut -d' ' -f1 /proc/uptime; sleep 0.1; exit 1"));
    let seen = |attempt: u32| {
        agent.wait_long("a run", 200, |a| {
            let pod = a.pod("loop")?;
            a.output(&pod, "main", attempt).trim().parse::<f64>().ok()
        })
    };
    let runs = [seen(0), seen(1), seen(2)];
    let second = runs[2] - runs[1];
    assert!((10.0..100.0).contains(&second), "the second after 10 s: {second} s");
    // The duration of a restart depends on the machine. The log shows whether there was a back-off.
    let (started, held) = ("reason=Started ", "reason=BackOff ");
    let told = agent.wait_for("the third run is in the log", |a| {
        let log = a.log();
        let of_main = log.lines().filter(|l| l.contains("container=main"));
        let told = of_main.filter_map(|l| [started, held].into_iter().find(|r| l.contains(r)));
        Some(told.take(4).collect::<Vec<_>>()).filter(|told| told.len() == 4)
    });
    assert_eq!(told, [started, started, held, started], "only the second restart waits");
}

#[test]
fn a_killed_container_restarts_in_the_same_sandbox() {
    let agent = Agent::start("killed");
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let old = agent.running("web", "main").expect("runs");
    let sandbox = agent.sandboxes("web")[0].id.clone();
    signal(&agent.cri().container_pid(&old).to_string(), "KILL");
    let pod = agent.wait_for("it was restarted", |a| {
        a.pod("web").filter(|p| container(p, "main")["restartCount"] == 1).filter(crate::support::agent::is_running)
    });
    let last = &container(&pod, "main")["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 137);
    let new = agent.running("web", "main").expect("runs");
    assert_ne!(new, old);
    assert_eq!(agent.sandboxes("web").len(), 1);
    assert_eq!(agent.sandboxes("web")[0].id, sandbox);
    let one = agent.containers("web").into_iter().find(|c| c.id == new).expect("listed");
    assert_eq!(one.metadata.attempt, 1);
    assert_eq!(one.annotations["io.kubernetes.container.restartCount"], "1");
}

#[test]
fn one_container_crashing_leaves_the_other_alone() {
    let agent = Agent::start("alone");
    agent.apply(
        "pair",
        "
        containers:
        - name: crashes
          image: localhost/busybox:1.35
          command: [sh, -c, 'sleep 0.5; exit 1']
        - name: steady
          image: localhost/trap:1
    ",
    );
    agent.wait("a restart", |a| {
        a.pod("pair").is_some_and(|p| container(&p, "crashes")["restartCount"].as_i64() >= Some(1))
    });
    let pod = agent.pod("pair").expect("listed");
    assert_eq!(container(&pod, "steady")["restartCount"], 0);
    assert!(container(&pod, "steady")["state"]["running"].is_object());
    assert_eq!(pod["status"]["phase"], "Running");
}

#[test]
fn a_dead_sandbox_is_replaced_with_its_containers() {
    let agent = Agent::start("sandbox");
    agent.apply("web", TRAP);
    let before = agent.wait_running("web");
    let old = agent.sandboxes("web")[0].id.clone();
    signal(&agent.cri().sandbox_pid(&old).to_string(), "KILL");
    let after = agent.wait_for("a new sandbox with a running container", |a| {
        let newest = a.sandboxes("web").into_iter().next()?;
        (newest.id != old && newest.metadata.attempt == 1).then_some(())?;
        a.pod("web").filter(crate::support::agent::is_running)
    });
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(container(&after, "main")["restartCount"], 1);
    // One container of each name is running.
    assert!(agent.running("web", "main").is_some());
    agent.delete("web");
    agent.wait_gone("web");
}

#[test]
fn a_missing_command_is_reported() {
    let agent = Agent::start("notfound");
    agent.apply(
        "never",
        "
        restartPolicy: Never
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [/no/such/program]
    ",
    );
    agent.apply(
        "always",
        "
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [/no/such/program]
    ",
    );
    let ended = container(&agent.wait_phase("never", "Failed"), "main")["state"]["terminated"].clone();
    assert_eq!(ended["exitCode"], 128);
    assert_eq!(ended["reason"], "StartError");
    let waiting = agent.wait_for("it waits", |a| {
        Some(container(&a.pod("always")?, "main")["state"]["waiting"].clone())
            .filter(|w| w["reason"] == "RunContainerError" || w["reason"] == "CrashLoopBackOff")
    });
    assert!(waiting["message"].as_str().is_some_and(|m| !m.is_empty()));
}
