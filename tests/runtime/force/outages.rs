//! The runtime is killed, stopped and replaced while pods run, start and stop.

use super::exact::{Desired, wait_exact};
use super::{all_run, identities};
use crate::support::agent::{Agent, patience};
use crate::support::http;
use crate::support::lab::{Runtime, signal};
use crate::support::yaml::{TRAP, script};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LIVES: [&str; 2] = ["lives-0", "lives-1"];

#[test]
fn the_runtime_killed_while_pods_start_and_stop_leaves_each_once_or_not_at_all() {
    let runtime = Runtime::own("fkill");
    let mut agent = Agent::prepare("fkill", &runtime);
    agent.run();
    for name in LIVES {
        agent.apply(name, TRAP);
        agent.wait_running(name);
    }
    let before = identities(&agent, &LIVES);
    let deaf = script("Always", "trap '' TERM; while :; do sleep 0.2; done");
    // Spread over the start and the end of pods.
    for (round, millis) in [10, 60, 130, 220, 350, 500].into_iter().enumerate() {
        for i in 0..3 {
            agent.apply(&format!("new-{round}-{i}"), if i == 0 { &deaf } else { TRAP });
        }
        if round > 0 {
            for i in 0..2 {
                agent.delete(&format!("new-{}-{i}", round - 1));
            }
        }
        sleep(Duration::from_millis(millis));
        runtime.kill();
        if round % 2 == 0 {
            // Wherry is killed as well while there is no runtime.
            agent.kill();
            agent.launch();
        }
        runtime.start_again();
    }
    let mut desired = all_run(&LIVES);
    desired.extend(all_run(&["new-0-2", "new-1-2", "new-2-2", "new-3-2", "new-4-2", "new-5-0", "new-5-1", "new-5-2"]));
    wait_exact(&agent, &desired);
    assert_eq!(identities(&agent, &LIVES), before);

    // The runtime is also killed while all of them stop.
    for name in desired.keys().filter(|name| name.starts_with("new")) {
        agent.delete(name);
    }
    sleep(Duration::from_millis(150));
    runtime.kill();
    runtime.start_again();
    wait_exact(&agent, &all_run(&LIVES));
    assert_eq!(identities(&agent, &LIVES), before);
}

#[test]
fn a_runtime_that_hangs_for_30_s_delays_only_runtime_calls() {
    let runtime = Runtime::own("fhang");
    let mut agent = Agent::prepare("fhang", &runtime);
    agent.run();
    for name in LIVES.iter().chain(&["goes"]) {
        agent.apply(name, TRAP);
        agent.wait_running(name);
    }
    let before = identities(&agent, &LIVES);
    let pid = std::fs::read_to_string(&runtime.pid_file).expect("containerd.pid").trim().to_string();
    signal(&pid, "STOP");
    let begun = Instant::now();
    agent.delete("goes");
    agent.apply("comes", TRAP);
    let calls = agent.metric("kubelet_runtime_operations_total");
    while begun.elapsed() < Duration::from_secs(30) {
        let asked = Instant::now();
        let health = http::get_tcp(&format!("127.0.0.1:{}", agent.healthz_port), "/healthz").expect("/healthz");
        assert!([200, 500].contains(&health.status), "{health:?}");
        assert!(agent.pods().len() >= 3);
        assert!(agent.metric("kubelet_desired_pods") >= 3.0);
        assert!(asked.elapsed() < patience(20), "it took {:?} to answer", asked.elapsed());
        sleep(Duration::from_millis(500));
    }
    // A manifest that was added during the hang is known.
    assert!(agent.pod("comes").is_some(), "the manifest was read");
    let meanwhile = agent.metric("kubelet_runtime_operations_total") - calls;
    assert!(meanwhile < 50.0, "{meanwhile} calls ended while nothing could answer");
    signal(&pid, "CONT");
    let mut desired = all_run(&LIVES);
    desired.extend(all_run(&["comes"]));
    wait_exact(&agent, &desired);
    assert_eq!(identities(&agent, &LIVES), before);
    // One pod was added and one removed. All other calls are lists, at most one a second.
    let calls = agent.metric("kubelet_runtime_operations_total") - calls;
    println!("{calls} calls from the begin of the hang to the end");
    assert!(calls < 300.0, "{calls} calls");
    assert_eq!(agent.metric("kubelet_orphaned_runtime_pods_total"), 0.0);
}

fn switch(link: &Path, target: &Path) {
    let aside = link.with_extension("aside");
    symlink(target, &aside).expect("link");
    std::fs::rename(aside, link).expect("rename");
}

#[test]
fn the_runtime_s_socket_removed_made_again_and_switched_to_another_runtime_and_back() {
    let mut runtime = Runtime::own("fsock");
    let other = Runtime::own("fother");
    let socket = runtime.socket.clone();
    let link = runtime.pid_file.with_file_name("link.sock");
    switch(&link, &socket);
    runtime.socket.clone_from(&link);
    let mut agent = Agent::prepare("fsock", &runtime);
    runtime.socket.clone_from(&socket);
    agent.run();
    for name in LIVES {
        agent.apply(name, TRAP);
        agent.wait_running(name);
    }
    let before = identities(&agent, &LIVES);

    // Only the file is missing: the connection stays open.
    let hidden = socket.with_extension("hidden");
    std::fs::rename(&socket, &hidden).expect("rename");
    agent.apply("second", TRAP);
    agent.wait_running("second");
    std::fs::rename(&hidden, &socket).expect("rename");

    // Another process creates the socket again, on the same state.
    runtime.kill();
    runtime.start_again();
    agent.delete("second");
    wait_exact(&agent, &all_run(&LIVES));

    // A link without a target for a while.
    switch(&link, Path::new("/run/nowhere.sock"));
    runtime.kill();
    runtime.start_again();
    agent.apply("third", TRAP);
    agent.wait("health says why", |a| {
        a.get("/readyz?verbose").is_ok_and(|r| r.status != 200 && r.body.contains("runtime"))
    });
    switch(&link, &socket);
    let mut desired = all_run(&LIVES);
    desired.extend(all_run(&["third"]));
    wait_exact(&agent, &desired);
    assert_eq!(identities(&agent, &LIVES), before);

    // Another runtime without any of the pods: it runs the desired pods.
    switch(&link, &other.socket);
    runtime.kill();
    wait_exact(&agent, &desired);
    assert_ne!(identities(&agent, &LIVES), before);
    // Back to the first runtime: its pods continued to run.
    runtime.start_again();
    switch(&link, &socket);
    other.kill();
    // The other runtime's containers are in the same pod cgroups as ours.
    drop(other);
    agent.delete("third");
    wait_exact(&agent, &all_run(&LIVES));
    assert_eq!(identities(&agent, &LIVES), before);
    for name in LIVES {
        agent.delete(name);
    }
    wait_exact(&agent, &Desired::new());
}
