//! Shims and pause processes killed, containers and sandboxes stopped and removed by other programs than Wherry.

use super::exact::{self, Life, Pod, wait_exact};
use super::{all_run, identities};
use crate::support::agent::Agent;
use crate::support::cri::{
    RemoveContainerRequest, RemoveContainerResponse, StopPodSandboxRequest, StopPodSandboxResponse,
};
use crate::support::lab::signal;
use crate::support::yaml::TRAP;

const LIVES: [&str; 2] = ["lives-0", "lives-1"];
const HARMED: [&str; 5] = ["shim", "pause", "stopped", "removed", "container"];

/// The parent of a process. In /proc/PID/stat it follows the command's name.
fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let rest = stat.rsplit_once(')').expect("a command").1;
    rest.split_whitespace().nth(1).and_then(|p| p.parse().ok()).expect("a parent")
}

fn remove_container(agent: &Agent, id: &str) {
    let mut request = RemoveContainerRequest::new();
    request.container_id = id.to_string();
    let answer = agent.cri().call::<RemoveContainerResponse>("RuntimeService", "RemoveContainer", &request);
    answer.expect("RemoveContainer");
}

fn stop_sandbox(agent: &Agent, id: &str) {
    let mut request = StopPodSandboxRequest::new();
    request.pod_sandbox_id = id.to_string();
    let answer = agent.cri().call::<StopPodSandboxResponse>("RuntimeService", "StopPodSandbox", &request);
    answer.expect("StopPodSandbox");
}

#[test]
fn objects_killed_or_removed_by_other_programs_are_replaced_once() {
    let agent = Agent::start("behind");
    for name in LIVES.iter().chain(&HARMED) {
        agent.apply(name, TRAP);
    }
    agent.apply(
        "crashes",
        "
        containers:
        - name: crashes
          image: localhost/busybox:1.35
          command: [sh, -c, 'sleep 0.3; exit 1']
        - name: steady
          image: localhost/trap:1
    ",
    );
    let mut desired = all_run(&LIVES);
    desired.extend(all_run(&HARMED));
    desired.insert("crashes".into(), Pod { generation: 0, life: Life::Cycles(vec!["steady"]) });
    wait_exact(&agent, &desired);
    let before = identities(&agent, &LIVES);
    let steady = agent.running("crashes", "steady");
    let harmed = identities(&agent, &HARMED);
    assert_eq!(harmed.len(), HARMED.len());

    let sandbox = |pod: &str| agent.sandboxes(pod)[0].id.clone();
    let pause = |pod: &str| agent.cri().sandbox_pid(&sandbox(pod));
    signal(&parent(pause("shim")).to_string(), "KILL");
    signal(&pause("pause").to_string(), "KILL");
    stop_sandbox(&agent, &sandbox("stopped"));
    agent.cri().remove_sandbox(&sandbox("removed"));
    remove_container(&agent, &agent.running("container", "main").expect("it runs"));
    let dead = agent.wait_for("a dead container", |a| {
        exact::containers(a).into_iter().find(|c| !exact::runs(c) && c.metadata.name == "crashes")
    });
    remove_container(&agent, &dead.id);

    agent.wait("each has a new container", |a| {
        let now = identities(a, &HARMED);
        now.len() == HARMED.len() && now.iter().all(|(name, one)| harmed[name] != *one)
    });
    wait_exact(&agent, &desired);
    assert_eq!(identities(&agent, &LIVES), before);
    assert_eq!(agent.running("crashes", "steady"), steady);
    // The old processes are gone, whether or not their shim survived.
    for (name, (_, pid)) in &harmed {
        let alive = std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"/trap"));
        let reused = identities(&agent, &HARMED).values().any(|(_, now)| now == pid);
        assert!(!alive || reused, "the old container of {name} lives on as {pid}");
    }
    for name in desired.keys() {
        agent.delete(name);
    }
    wait_exact(&agent, &exact::Desired::new());
}
