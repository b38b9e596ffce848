//! Graceful shutdown with 10 and with 100 pods and a real logind: the time from the signal to the first stop request, and
//! from the end of the last pod until logind continues. Medians in milliseconds. If 100 containers exit at the same time on
//! two cores, containerd shows some of them only a second later; pidfds report them sooner.

use crate::idle::wait_started;
use crate::latency::{ms, time_of};
use crate::process::now;
use crate::support::agent::Agent;
use crate::support::cri::Cri;
use crate::support::lab::Runtime;
use crate::support::logind::{Node, wait};
use crate::support::yaml;
use crate::table::{Table, median};
use std::fs;
use std::time::Instant;

const PODS: [usize; 2] = [10, 100];
const ROUNDS: usize = 3;

const SPEC: &str = "
    hostNetwork: true
    containers:
    - name: main
      image: localhost/trap:1
";

pub fn shutdown(table: &mut Table) {
    for pods in PODS {
        measure(table, pods);
    }
}

fn measure(table: &mut Table, pods: usize) {
    let runtime = Runtime::shared();
    let node = Node::start("bench");
    let mut agent = node.agent("shutdown");
    agent.configure("shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 10s\n");
    agent.run();
    for i in 0..pods {
        agent.write(&format!("pod-{i}.yaml"), &yaml::pod(&agent.namespace, &format!("pod-{i}"), SPEC));
    }
    let mut cri = agent.cri();
    // logind cancels the shutdown when the lock is released, and the pods run again for the next round.
    node.refuse_jobs();
    let (mut first, mut released) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        wait_started(&mut cri, &agent.namespace, pods);
        wait("graceful shutdown is armed and all pods run", || (node.locks() == 1 && calm(&agent)).then_some(()));
        let ids: Vec<String> = cri.containers(&agent.namespace).into_iter().map(|c| c.id).collect();
        let ids: Vec<String> = ids.into_iter().filter(|id| ended(&mut cri, id) == Some(0)).collect();
        let listener = node.listen();
        let asked = now();
        node.power_off();
        assert!(listener.next().0);
        let signal = now();
        assert!(!listener.next().0);
        let started = node.started().get(round).expect("a started unit").at;
        let gone_on = now() - started.elapsed().as_nanos() as i64;
        first.extend(first_stop(&runtime, asked).map(|at| ms(signal, at)));
        released.push(ms(last_end(&mut cri, &ids), gone_on));
    }
    table.row(&format!("PrepareForShutdown, {pods} pods -> first stop seen, ms"), median(first), None, 5.0, "");
    table.row(&format!("end of the last of {pods} pods -> logind continues, ms"), median(released), None, 50.0, "");
    for i in 0..pods {
        fs::remove_file(agent.manifests().join(format!("pod-{i}.yaml"))).expect("remove");
    }
    let begun = Instant::now();
    while !cri.sandboxes(&agent.namespace).is_empty() {
        assert!(begun.elapsed().as_secs() < 600, "the pods were not removed");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Reports whether all pods run.
fn calm(agent: &Agent) -> bool {
    agent.pods().iter().all(crate::support::agent::is_running)
}

fn first_stop(runtime: &Runtime, since: i64) -> Option<i64> {
    let log = fs::read_to_string(runtime.dir.join("containerd.log")).expect("containerd.log");
    log.lines().filter(|l| l.contains("StopContainer for")).filter_map(time_of).find(|at| *at >= since)
}

/// The time at which the container ended according to the runtime. Zero if it runs, None if it no longer exists.
fn ended(cri: &mut Cri, id: &str) -> Option<i64> {
    cri.container_status(id).ok().map(|s| s.status.finished_at)
}

/// Waits until the runtime shows that all containers have ended. Some may already be removed.
fn last_end(cri: &mut Cri, ids: &[String]) -> i64 {
    wait("the runtime shows all containers as ended", || {
        let all: Vec<i64> = ids.iter().filter_map(|id| ended(cri, id)).collect();
        all.iter().all(|at| *at > 0).then(|| all.into_iter().max()).flatten()
    })
}
