//! Runtime events (P8): the runtime's event stream, if it has one, and pidfds, if they are available.

use crate::support::agent::{Agent, container, patience};
use crate::support::lab::{Runtime, signal};
use crate::support::yaml::TRAP;
use std::time::{Duration, Instant};

const ASKED: &str = "kubelet_evented_pleg_connection_success_count";
const FAILED: &str = "kubelet_evented_pleg_connection_error_count";
const EVENTS: &str = "kubelet_evented_pleg_connection_latency_seconds_count";
const RELISTS: &str = "kubelet_pleg_relist_interval_seconds_count";
/// What the log says once about a runtime without the stream, and about one whose events are off.
const WITHOUT: [&str; 2] = ["the runtime has no container event stream", "its container events are disabled"];

fn says_without(agent: &Agent) -> usize {
    WITHOUT.iter().map(|text| agent.log().matches(text).count()).sum()
}

/// containerd has the event stream from 1.7 on. The configuration of another runtime decides.
fn has_stream(runtime: &Runtime, agent: &Agent) -> bool {
    let answer = runtime.connect().version().expect("Version");
    if answer.runtime_name != "containerd" {
        return says_without(agent) == 0;
    }
    let version = answer.runtime_version;
    let number = |n: usize| -> u32 {
        version
            .trim_start_matches('v')
            .split(['.', '~', '-', '+'])
            .nth(n)
            .and_then(|p| p.parse().ok())
            .expect("a version")
    };
    (number(0), number(1)) >= (1, 7)
}

fn kill_and_wait(agent: &Agent, pod: &str, restarts: u32) {
    let id = agent.running(pod, "main").expect("runs");
    let pid = agent.cri().container_pid(&id);
    signal(&pid.to_string(), "KILL");
    agent.wait("it was restarted", |a| a.pod(pod).is_some_and(|p| container(&p, "main")["restartCount"] == restarts));
    agent.wait_running(pod);
}

#[test]
fn p8_the_event_stream_is_used_if_the_runtime_has_one() {
    let runtime = Runtime::own("events");
    let mut agent = Agent::prepare("events", &runtime);
    agent.run();
    agent.wait("the stream was asked for", |a| a.metric(ASKED) == 1.0);
    agent.apply("web", TRAP);
    agent.wait_running("web");
    kill_and_wait(&agent, "web", 1);
    let there = has_stream(&runtime, &agent);
    if there {
        // The minimum: its sandbox is created and started, two containers are created and started, one of them is
        // stopped.
        agent.wait("events came", |a| a.metric(EVENTS) >= 7.0);
        assert_eq!((agent.metric(ASKED), agent.metric(FAILED)), (1.0, 0.0));
        assert_eq!(says_without(&agent), 0);
    } else {
        assert_eq!((agent.metric(ASKED), agent.metric(FAILED), agent.metric(EVENTS)), (1.0, 1.0, 0.0));
        assert_eq!(says_without(&agent), 1);
    }
    // The next runtime gets a new request for the stream.
    runtime.kill();
    runtime.start_again();
    agent.wait("the stream was asked for again", |a| a.metric(ASKED) >= 2.0);
    let before = agent.metric(EVENTS);
    agent.delete("web");
    agent.wait_gone("web");
    if there {
        agent.wait("events come again", |a| a.metric(EVENTS) > before);
    } else {
        assert_eq!(agent.metric(FAILED), 2.0);
    }
    assert_eq!(agent.metric("kubelet_orphaned_runtime_pods_total"), 0.0);
}

#[test]
fn p8_without_pidfds_wherry_relists_each_second_and_detects_every_exit() {
    let runtime = Runtime::own("otherns");
    let mut agent = Agent::prepare("otherns", &runtime);
    // In another PID namespace the runtime's PIDs are missing or belong to other processes.
    agent.under = vec!["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"];
    agent.run();
    agent.apply("web", TRAP);
    agent.wait_running("web");
    let before = agent.metric(RELISTS);
    let begun = Instant::now();
    agent.wait("three more lists", |a| a.metric(RELISTS) >= before + 3.0);
    assert!(begun.elapsed() < patience(60), "every 30 s would be more than a minute: {:?}", begun.elapsed());
    kill_and_wait(&agent, "web", 1);
    agent.delete("web");
    agent.wait_gone("web");
    // Without pods there is nothing to watch, so lists are rare.
    agent.wait("the lists are rare again", |a| {
        let before = a.metric(RELISTS);
        std::thread::sleep(Duration::from_secs(3));
        a.metric(RELISTS) - before <= 1.0
    });
}
