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
    let by_wherry: Vec<(f64, f64)> = CROWDS.iter().map(|(pods, ..)| by_wherry(*pods)).collect();
    for ((pods, cpu_limit, limit, kubelet, kubelet_cpu), (taken, cpu)) in CROWDS.into_iter().zip(by_wherry) {
        let direct = directly(pods);
        table.row(&format!("{pods} pods at once, all started, s"), taken, Some(direct), limit, kubelet);
        table.row(&format!("{pods} pods at once, CPU, s"), cpu, None, cpu_limit, kubelet_cpu);
    }
}

fn last_start(cri: &mut Cri, namespace: &str) -> i64 {
    let ids: Vec<String> = cri.containers(namespace).into_iter().map(|c| c.id).collect();
    ids.iter().map(|id| direct::started(cri, id)).max().expect("containers")
}

fn by_wherry(pods: usize) -> (f64, f64) {
    let agent = Agent::start(&format!("crowd{pods}"));
    let mut cri = agent.cri();
    let aside = agent.dir.join("aside");
    for i in 0..pods {
        let text = yaml::pod(&agent.namespace, &format!("pod-{i}"), TRAP);
        fs::write(aside.join(format!("pod-{i}.yaml")), text).expect("write");
    }
    let (before, begun) = (process::cpu_of_all(agent.pid()), now());
    for i in 0..pods {
        let file = format!("pod-{i}.yaml");
        fs::rename(aside.join(&file), agent.manifests().join(&file)).expect("rename");
    }
    wait_started(&mut cri, &agent.namespace, pods);
    let cpu = process::cpu_of_all(agent.pid()) - before;
    let taken = (last_start(&mut cri, &agent.namespace) - begun) as f64 / 1e9;
    for i in 0..pods {
        fs::remove_file(agent.manifests().join(format!("pod-{i}.yaml"))).expect("remove");
    }
    let end = Instant::now() + Duration::from_secs(600);
    while !cri.sandboxes(&agent.namespace).is_empty() {
        assert!(Instant::now() < end, "the pods were not removed");
        std::thread::sleep(Duration::from_millis(100));
    }
    (taken, cpu)
}

fn directly(pods: usize) -> f64 {
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
