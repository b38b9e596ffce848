//! Checks docs/strace-pods.md for a shutdown, and `wherry debug fds` for the descriptors of graceful shutdown.

use crate::support::agent::Agent;
use crate::support::logind::Node;
use crate::support::strace::{Trace, wait_quiet};
use crate::support::yaml::TRAP;
use serde_json::Value;
use std::collections::BTreeMap;

fn kinds(agent: &Agent) -> BTreeMap<String, usize> {
    let output = agent.wherry(&["debug", "fds", "-o", "json"]);
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut kinds = BTreeMap::new();
    for one in list["descriptors"].as_array().expect("a list") {
        *kinds.entry(one["kind"].as_str().expect("a kind").to_owned()).or_default() += 1;
    }
    kinds
}

fn armed(agent: &Agent) -> bool {
    let output = agent.wherry(&["status", "-o", "json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    status["shutdown"]["armed"] == true
}

#[test]
fn the_bus_and_the_lock_are_known_descriptors_and_check_reads_logind_delay() {
    let mut node = Node::start("fds");
    let mut agent = node.agent("fds");
    agent.configure("shutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 5s\n");
    let check = |agent: &Agent| {
        let run = agent.command();
        let mut command = std::process::Command::new(run.get_program());
        command.args(["check", "--system"]).args(run.get_args().skip(1));
        command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.output().expect("wherry check --system");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find(|l| l.contains(" logind ")).unwrap_or_default().to_owned()
    };
    let before = check(&agent);
    assert!(before.starts_with("ok ") && before.contains("Wherry sets the configured 20 s at its start"), "{before}");
    agent.run();
    agent.wait("armed", armed);
    let after = check(&agent);
    assert!(after.contains("logind waits 20 s for pods at a shutdown, 20 s are configured"), "{after}");
    let there = kinds(&agent);
    assert_eq!(
        (there.get("bus"), there.get("inhibitor"), there.get("unknown")),
        (Some(&1), Some(&1), None),
        "{there:?}"
    );

    node.kill_bus();
    agent.wait("the agent watches the path of the bus", |a| {
        let there = kinds(a);
        assert_eq!(there.get("unknown"), None, "{there:?}");
        // One for the manifests, one for the control socket, and one for the bus.
        !there.contains_key("bus") && there.get("inotify") == Some(&3)
    });
    let gone = check(&agent);
    assert!(gone.starts_with("warning ") && gone.contains("a shutdown does not wait for pods"), "{gone}");
}

// The gRPC C-core makes other system calls. The names of the calls differ between architectures.
#[cfg(all(not(feature = "grpcio"), target_arch = "x86_64"))]
#[test]
fn a_shutdown_makes_the_documented_system_calls() {
    let node = Node::start("strace");
    let mut agent = node.agent("strace");
    agent.configure("shutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 5s\n");
    agent.run();
    agent.apply("web", TRAP);
    agent.wait_running("web");
    agent.wait("armed", armed);
    wait_quiet(agent.pid());
    let trace = Trace::attach(agent.pid(), "shutdown");
    node.power_off();
    node.wait_started("poweroff.target");
    wait_quiet(agent.pid());
    trace.matches_the_page();
    assert_eq!(node.locks(), 0);
}
