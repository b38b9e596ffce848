//! An API server that sends too much (C17): the agent answers others, keeps its memory, and stops when it is told to.

use crate::support::agent::{Agent, patience};
use crate::support::hostile_api_server::{HostileApiServer, Pods};
use crate::support::lab::Runtime;
use serde_json::json;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The most CPU time that the agent may use from a request to its answer, more than ten times what it uses. The agent has one thread,
/// so what delays an answer is its own work.
const MOST_WORK: Duration = Duration::from_secs(1);
/// An answer takes up to 0.2 s on an idle machine, and 2 s were seen on one that compiled at the same time.
const LONGEST_ANSWER: u64 = 20;
/// An idle agent of a debug build has about 35 MB, and 15,000 pods took 183 MB before they had a limit.
const MOST_RESIDENT: u64 = 100 << 10;

/// A member of the server, with 512 MiB of address space.
fn member(name: &str, pods: impl FnOnce(&Agent) -> Pods) -> (Agent, HostileApiServer) {
    let mut agent = Agent::prepare(name, &Runtime::shared());
    let server = HostileApiServer::start(&agent.dir, pods(&agent));
    agent.set_cluster("hostile", &server.kubeconfig);
    agent.under = vec!["prlimit", "--as=536870912"];
    agent.run();
    (agent, server)
}

/// The largest resident size so far, in kB.
fn peak(agent: &Agent) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).expect("the agent runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The CPU time that the agent has used.
fn work(agent: &Agent) -> Duration {
    let text = fs::read_to_string(format!("/proc/{}/schedstat", agent.pid())).expect("the agent runs");
    Duration::from_nanos(text.split(' ').next().and_then(|spent| spent.parse().ok()).expect("a number"))
}

/// For five seconds, and until the server has sent enough.
fn answers(agent: &Agent, has_sent: impl Fn() -> bool) {
    let (start, mut longest, mut most) = (Instant::now(), Duration::ZERO, Duration::ZERO);
    while start.elapsed() < Duration::from_secs(5) || !has_sent() {
        assert!(start.elapsed() < patience(120), "the server has not sent enough");
        let (asked, before) = (Instant::now(), work(agent));
        assert_eq!(agent.get("/healthz").expect("an answer").status, 200);
        longest = longest.max(asked.elapsed());
        most = most.max(work(agent) - before);
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("the longest answer took {longest:?}, at most {most:?} of CPU time; peak {} kB", peak(agent));
    assert!(most < MOST_WORK, "{most:?}");
    assert!(longest < patience(LONGEST_ANSWER), "{longest:?}");
    assert!(peak(agent) < MOST_RESIDENT, "{} kB", peak(agent));
}

/// A stop writes the last records; it does not wait for the server.
fn stops(mut agent: Agent) {
    let told = Instant::now();
    assert_eq!(agent.terminate(), Some(0), "{}", agent.log());
    eprintln!("the stop took {:?}", told.elapsed());
    let log = agent.log();
    assert!(!log.contains("before the last records are written"), "{log}");
}

#[test]
fn c17_a_list_without_end_takes_neither_memory_nor_time() {
    let (agent, server) = member("endless", |_| Pods::Endless);
    answers(&agent, || server.sent.load(Ordering::SeqCst) > 3 << 20);
    stops(agent);
}

#[test]
fn c17_fifteen_thousand_pods_take_neither_memory_nor_time() {
    let (agent, server) = member("many", |_| Pods::Many(15_000));
    answers(&agent, || server.patches.load(Ordering::SeqCst) > 1_000);
    stops(agent);
}

#[test]
fn c17_a_pod_that_changes_without_a_pause_takes_neither_memory_nor_time() {
    let (agent, server) = member("changing", |agent| {
        let namespace = agent.namespace.clone();
        Pods::Changing(json!({
            "metadata": { "name": "web", "namespace": namespace, "uid": format!("{namespace}-web"), "resourceVersion": "1" },
            "spec": { "containers": [{ "name": "main", "image": "localhost/trap:1" }], "terminationGracePeriodSeconds": 1,
                      "automountServiceAccountToken": false, "enableServiceLinks": false },
            "status": { "phase": "Pending" },
        }))
    });
    agent.wait_running("web");
    answers(&agent, || server.sent.load(Ordering::SeqCst) > 3 << 20);
    let dump: serde_json::Value = serde_json::from_str(&agent.get("/debug/dump").expect("a dump").body).expect("JSON");
    let waiting = dump.pointer("/agent/recordsWaiting").or(dump.pointer("/recordsWaiting")).cloned();
    assert!(waiting.as_ref().and_then(serde_json::Value::as_u64).is_some_and(|n| n < 20), "{waiting:?}");
    stops(agent);
}
