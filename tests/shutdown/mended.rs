//! Wherry retries failed steps of arming graceful shutdown and of releasing the lock until they succeed. No process is
//! restarted.

use crate::support::agent::Agent;
use crate::support::logind::{Node, wait};
use crate::support::store::Store;
use serde_json::Value;
use std::fs;
use std::time::Duration;

fn shutdown(agent: &Agent) -> Value {
    let output = agent.wherry(&["status", "-o", "json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    status["shutdown"].clone()
}

fn problem(agent: &Agent) -> String {
    shutdown(agent)["problem"].as_str().unwrap_or_default().to_owned()
}

/// Waits until graceful shutdown is armed without a problem, with this delay of logind.
fn armed(agent: &Agent, node: &Node, seconds: u64) {
    agent.wait("graceful shutdown is armed", |a| {
        let shutdown = shutdown(a);
        shutdown["armed"] == true && shutdown["problem"].is_null() && shutdown["delaySeconds"] == seconds as f64
    });
    assert_eq!((node.delay(), node.locks()), (Duration::from_secs(seconds), 1));
}

fn drop_in(node: &Node) -> String {
    fs::read_to_string(node.conf_dir().join("99-wherry.conf")).unwrap_or_default()
}

#[test]
fn s2_a_drop_in_that_could_not_be_written_is_written_when_it_can_be() {
    let node = Node::start("mended");
    let mut agent = node.agent("mended");
    // A file in place of the directory makes the write fail, also for root.
    let place = node.dir.join("conf");
    fs::write(&place, "").expect("a file");
    let text =
        format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nlogindConfDir: {}\n", place.display());
    fs::write(agent.dir.join("config.d/logind.yaml"), text).expect("logind.yaml");
    agent.configure("shutdownGracePeriod: 40s\nshutdownGracePeriodCriticalPods: 3s\n");
    agent.run();
    agent.wait("armed, with a problem", |a| shutdown(a)["armed"] == true && problem(a).contains("40s are configured"));
    assert!(problem(&agent).contains(&place.display().to_string()), "{}", problem(&agent));
    fs::remove_file(&place).expect("the file");
    std::os::unix::fs::symlink(node.conf_dir(), &place).expect("a link");
    armed(&agent, &node, 40);
    assert!(drop_in(&node).contains("\nInhibitDelayMaxSec=40\n"));

    // logind loads another drop-in that overrides Wherry's. A reload makes Wherry check the delay at once.
    let theirs = node.conf_dir().join("zz-theirs.conf");
    fs::write(&theirs, "[Login]\nInhibitDelayMaxSec=8\n").expect("a drop-in");
    agent.hang_up();
    // This reload finds no problem: logind has not read the file yet.
    node.reload_logind();
    wait("logind has read it", || (node.delay() == Duration::from_secs(8)).then_some(()));
    agent.hang_up();
    agent.wait("the delay is reported", |a| problem(a).contains("logind waits at most 8s, but 40s are configured"));
    let granted: Vec<u64> = shutdown(&agent)["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .filter_map(|g| g["grantedSeconds"].as_u64())
        .collect();
    assert_eq!(granted, [5, 3]);
    fs::remove_file(&theirs).expect("their drop-in");
    node.reload_logind();
    armed(&agent, &node, 40);
}

#[test]
fn s2_a_drop_in_is_lowered_when_the_periods_shrink_and_stays_when_they_go() {
    let node = Node::start("lowered");
    let mut agent = node.agent("lowered");
    for seconds in [50, 20] {
        agent.configure(&format!("shutdownGracePeriod: {seconds}s\n"));
        match seconds {
            50 => agent.run(),
            _ => agent.hang_up(),
        }
        armed(&agent, &node, seconds);
        assert!(drop_in(&node).contains(&format!("\nInhibitDelayMaxSec={seconds}\n")), "{}", drop_in(&node));
    }
    agent.configure("");
    agent.hang_up();
    wait("the lock is released", || (node.locks() == 0).then_some(()));
    assert_eq!((node.delay().as_secs(), drop_in(&node).contains("wherry purge removes it")), (20, true));
}

#[test]
fn s7_a_failed_descriptor_store_notification_is_repeated() {
    let node = Node::start("deaf");
    let mut agent = node.agent("deaf");
    let mut store = Store::new(&node.dir);
    store.serve(&mut agent);
    agent.configure("shutdownGracePeriod: 20s\n");
    store.fill();
    agent.run();
    armed(&agent, &node, 20);
    agent.wait("the failure is reported", |a| a.log().contains("reason=FailedStore"));
    let names = wait("the store holds the lock", || Some(store.names()).filter(|names| !names.is_empty()));
    assert!(names.len() == 1 && names[0].starts_with("wherry-lock-"), "{names:?}");

    // S4: the copy in systemd's store delays the shutdown.
    store.fill();
    node.power_off();
    agent.wait("the lock is released", |a| a.log().contains("the node may shut down"));
    assert_eq!((node.locks(), node.started().len()), (1, 0));
    wait("the store closes the lock", || store.names().is_empty().then_some(()));
    node.wait_started("poweroff.target");
    assert_eq!(node.locks(), 0);
}
