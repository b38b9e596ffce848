//! Starts 50 and 110 pods at once, compared with direct CRI calls, four at a time.

use crate::direct;
use crate::idle::wait_started;
use crate::process::{self, now};
use crate::support::agent::Agent;
use crate::support::cri::Cri;
use crate::support::lab::Runtime;
use crate::support::yaml::{self, TRAP};
use crate::table::Table;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Number of pods, limit of CPU seconds (including helper threads), limit of the time in seconds (the kubelet's time), and
/// the kubelet's time and CPU seconds for the table.
const CROWDS: [(usize, f64, f64, &str, &str); 2] = [(50, 0.1, 5.7, "5.7", "0.95"), (110, 0.2, 14.1, "14.1", "2.2")];

pub fn crowd(table: &mut Table) {
    // Before the direct calls: for up to five minutes after mass deletions, ext4 searches long for each new inode, because it does not
    // reuse those that were deleted recently. This can double the CPU time of an agent that creates directories.
    let by_wherry: Vec<Start> = CROWDS.iter().map(|(pods, ..)| by_wherry(*pods)).collect();
    for ((pods, cpu_limit, limit, kubelet, kubelet_cpu), Start { taken, cpu }) in CROWDS.into_iter().zip(by_wherry) {
        let direct = directly(pods);
        table.row(&format!("{pods} pods at once, all started, s"), taken, Some(direct), limit, kubelet);
        table.row(&format!("{pods} pods at once, CPU, s"), cpu, None, cpu_limit, kubelet_cpu);
    }
}

/// How many pods started at once.
pub struct Start {
    /// From the begin to the last start of a container, in seconds.
    pub taken: f64,
    /// CPU seconds of the agent, including helper threads.
    pub cpu: f64,
}

/// Measures the start of the pods of a namespace. `begin` causes it, and returns the time from which it counts. `report` waits for
/// what the agent does after the last start and what its CPU time includes.
pub fn measure(
    agent: &mut Agent,
    namespace: &str,
    pods: usize,
    begin: impl FnOnce(&mut Agent) -> i64,
    report: impl FnOnce(),
) -> Start {
    let mut cri = agent.cri();
    let before = if agent.alive() { process::cpu_of_all(agent.pid()) } else { 0.0 };
    let begun = begin(agent);
    wait_started(&mut cri, namespace, pods);
    report();
    let cpu = process::cpu_of_all(agent.pid()) - before;
    Start { taken: (last_start(&mut cri, namespace) - begun) as f64 / 1e9, cpu }
}

/// Waits until the runtime has no pod of the namespace.
pub fn wait_removed(cri: &mut Cri, namespace: &str) {
    let end = Instant::now() + Duration::from_secs(600);
    while !cri.sandboxes(namespace).is_empty() {
        assert!(Instant::now() < end, "the pods were not removed");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn last_start(cri: &mut Cri, namespace: &str) -> i64 {
    let ids: Vec<String> = cri.containers(namespace).into_iter().map(|c| c.id).collect();
    ids.iter().map(|id| direct::started(cri, id)).max().expect("containers")
}

/// Pods of manifests that appear all at once while the agent runs.
pub fn by_wherry(pods: usize) -> Start {
    let mut agent = Agent::start(&format!("crowd{pods}"));
    let namespace = agent.namespace.clone();
    write_aside(&agent, pods);
    let appear = |agent: &mut Agent| {
        let begun = now();
        publish(agent, pods);
        begun
    };
    let start = measure(&mut agent, &namespace, pods, appear, || ());
    remove(&agent, pods);
    start
}

/// Pods of manifests that appear while the agent is stopped. Its start begins the measurement.
pub fn at_the_start(pods: usize) -> Start {
    let mut agent = Agent::start(&format!("crowd{pods}"));
    let namespace = agent.namespace.clone();
    agent.terminate();
    write_aside(&agent, pods);
    publish(&agent, pods);
    let start = measure(&mut agent, &namespace, pods, launch, || ());
    remove(&agent, pods);
    start
}

/// Starts the agent. Returns the time before it.
pub fn launch(agent: &mut Agent) -> i64 {
    let begun = now();
    agent.launch();
    begun
}

fn file(pod: usize) -> String {
    format!("pod-{pod}.yaml")
}

/// Writes the manifests beside their directory, so that only renames are left.
pub fn write_aside(agent: &Agent, pods: usize) {
    for i in 0..pods {
        let text = yaml::pod(&agent.namespace, &format!("pod-{i}"), TRAP);
        fs::write(agent.dir.join("aside").join(file(i)), text).expect("write");
    }
}

/// Moves the manifests into their directory.
pub fn publish(agent: &Agent, pods: usize) {
    for i in 0..pods {
        fs::rename(agent.dir.join("aside").join(file(i)), agent.manifests().join(file(i))).expect("rename");
    }
}

/// Removes the manifests, and waits until the runtime has none of the pods.
pub fn remove(agent: &Agent, pods: usize) {
    for i in 0..pods {
        fs::remove_file(agent.manifests().join(file(i))).expect("remove");
    }
    wait_removed(&mut agent.cri(), &agent.namespace);
}

/// Starts pods with direct CRI calls, four at a time. Returns the time until the last container has started, in seconds.
pub fn directly(pods: usize) -> f64 {
    let next = AtomicUsize::new(0);
    let begun = now();
    let made: Vec<(String, i64)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let runtime = Runtime::shared();
                    let mut cri = runtime.connect();
                    let mut made = Vec::new();
                    loop {
                        let i = next.fetch_add(1, Ordering::SeqCst);
                        if i >= pods {
                            return made;
                        }
                        let pod = direct::start(&runtime, &mut cri, &format!("crowd-{i}"));
                        made.push((pod.sandbox, pod.started));
                    }
                })
            })
            .collect();
        workers.into_iter().flat_map(|w| w.join().expect("a worker")).collect()
    });
    let last = made.iter().map(|(_, started)| *started).max().expect("pods");
    let mut cri = Runtime::shared().connect();
    for (sandbox, _) in made {
        cri.remove_sandbox(&sandbox);
    }
    (last - begun) as f64 / 1e9
}
