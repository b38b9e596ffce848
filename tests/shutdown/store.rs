//! The lock and systemd's descriptor store, with the agent as a process.

use crate::support::logind::{Node, wait};
use crate::support::store::Store;
use std::fs;
use std::path::PathBuf;

/// What the process has open that leads to this logind's locks.
fn open_locks(pid: u32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
    let targets = links.filter_map(|l| fs::read_link(l.path()).ok());
    targets.filter(|t: &PathBuf| t.to_string_lossy().contains("/systemd/inhibit/")).count()
}

#[test]
fn s7_of_what_systemd_kept_one_lock_is_taken_back_and_the_rest_is_closed() {
    let node = Node::start("inherited");
    let mut agent = node.agent("inherited");
    let mut store = Store::new(&node.dir);
    // (The lock's name tells the process that took it.)
    let [first, second] = [1, 0].map(|n| format!("wherry-lock-{}-{n}", std::process::id()));
    // Ours twice, as of a wherry that was killed while it changed its lock, and something that is not ours.
    store.put(&first, node.inhibit("wherry"));
    store.put("stored", node.inhibit("somebody"));
    store.put(&second, node.inhibit("wherry"));
    agent.configure("shutdownGracePeriod: 10s\n");
    store.serve(&mut agent);
    agent.run();
    assert_eq!(open_locks(agent.pid()), 1);
    wait("systemd lets go of the second one", || (store.names() == [first.as_str(), "stored"]).then_some(()));
    let log = agent.log();
    assert!(log.contains("a descriptor given by systemd is of no use and closed name=\"stored\""), "{log}");
    assert_eq!(agent.terminate(), Some(0));

    // What it left is enough for the next one, and for logind.
    store.serve(&mut agent);
    agent.run();
    assert_eq!(open_locks(agent.pid()), 1);
    agent.kill();
    assert_eq!(node.locks(), 1);
}

#[test]
fn s9_without_logind_the_agent_runs_and_says_why_there_is_no_graceful_shutdown() {
    let mut node = Node::without_bus("bare");
    let mut agent = node.agent("bare");
    agent.configure("shutdownGracePeriod: 10s\n");
    agent.run();
    let lines = |text: &str| agent.log().lines().filter(|l| l.contains(text)).count();
    wait("it is told", || (lines("logind=disconnected") == 1).then_some(()));
    assert!(agent.log().contains("No such file"), "{}", agent.log());
    node.start_bus();
    node.start_logind();
    wait("it is connected", || (lines("logind=connected") == 1).then_some(()));
    // (A helper writes the drop-in and ends.)
    let threads = || fs::read_dir(format!("/proc/{}/task", agent.pid())).expect("its threads").count();
    wait("it is one thread", || (threads() == 1).then_some(()));

    // Turned off it leaves the bus, and comes back.
    agent.configure("");
    agent.hang_up();
    wait("reloaded", || (lines("reloaded") == 1).then_some(()));
    agent.configure("shutdownGracePeriod: 10s\n");
    agent.hang_up();
    wait("it is connected again", || (lines("logind=connected") == 2).then_some(()));
}
