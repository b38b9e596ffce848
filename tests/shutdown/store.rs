//! The inhibitor lock and systemd's descriptor store, with the agent as a process.

use crate::support::logind::{Node, wait};
use crate::support::store::Store;
use std::fs;
use std::path::PathBuf;

/// Number of open descriptors of the process that are inhibitor locks.
fn open_locks(pid: u32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
    let targets = links.filter_map(|l| fs::read_link(l.path()).ok());
    targets.filter(|t: &PathBuf| t.to_string_lossy().contains("/systemd/inhibit/")).count()
}

#[test]
fn s7_wherry_takes_over_one_stored_lock_and_closes_the_rest() {
    let node = Node::start("inherited");
    let mut agent = node.agent("inherited");
    let mut store = Store::new(&node.dir);
    // The name of a lock contains the PID of the process that took it.
    let [first, second] = [1, 0].map(|n| format!("wherry-lock-{}-{n}", std::process::id()));
    // Two locks, as after a kill during a change of the lock, and a descriptor that is not a lock of Wherry.
    store.put(&first, node.inhibit("wherry"));
    store.put("stored", node.inhibit("somebody"));
    store.put(&second, node.inhibit("wherry"));
    agent.configure("shutdownGracePeriod: 10s\n");
    store.serve(&mut agent);
    agent.run();
    assert_eq!(open_locks(agent.pid()), 1);
    wait("the store closes the second lock", || (store.names() == [first.as_str(), "stored"]).then_some(()));
    let log = agent.log();
    assert!(log.contains("closing an unknown descriptor from systemd's store name=\"stored\""), "{log}");
    assert_eq!(agent.terminate(), Some(0));

    // The remaining lock is sufficient for the next run and for logind.
    store.serve(&mut agent);
    agent.run();
    assert_eq!(open_locks(agent.pid()), 1);
    agent.kill();
    assert_eq!(node.locks(), 1);
}

#[test]
fn s9_without_logind_the_agent_runs_and_reports_why_shutdown_is_not_armed() {
    let mut node = Node::without_bus("bare");
    let mut agent = node.agent("bare");
    agent.configure("shutdownGracePeriod: 10s\n");
    agent.run();
    let lines = |text: &str| agent.log().lines().filter(|l| l.contains(text)).count();
    wait("the missing bus is reported", || (lines("logind=disconnected") == 1).then_some(()));
    assert!(agent.log().contains("No such file"), "{}", agent.log());
    node.start_bus();
    node.start_logind();
    wait("logind is connected", || (lines("logind=connected") == 1).then_some(()));
    // A helper thread writes the drop-in and ends.
    let threads = || fs::read_dir(format!("/proc/{}/task", agent.pid())).expect("its threads").count();
    wait("the process has one thread", || (threads() == 1).then_some(()));

    // When graceful shutdown is turned off, the agent disconnects from the bus. When it is turned on, the agent reconnects.
    agent.configure("");
    agent.hang_up();
    wait("reloaded", || (lines("reloaded") == 1).then_some(()));
    agent.configure("shutdownGracePeriod: 10s\n");
    agent.hang_up();
    wait("logind is connected again", || (lines("logind=connected") == 2).then_some(()));
}
