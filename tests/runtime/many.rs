//! Many pods at once.

use crate::support::agent::{Agent, is_running};
use crate::support::cri::ContainerState;
use crate::support::yaml::TRAP;
use std::collections::BTreeSet;

#[test]
fn fifty_pods_at_once_all_run_once_and_all_go() {
    let agent = Agent::start("fifty");
    for i in 0..50 {
        agent.apply(&format!("pod-{i}"), TRAP);
    }
    let long = 300;
    let pods =
        agent.wait_long("all run", long, |a| Some(a.pods()).filter(|p| p.len() == 50 && p.iter().all(is_running)));
    let addresses: BTreeSet<String> = pods.iter().map(|p| p["status"]["podIP"].to_string()).collect();
    assert_eq!(addresses.len(), 50);
    let containers = agent.cri().containers(&agent.namespace);
    assert_eq!(containers.len(), 50, "none was started twice");
    assert!(containers.iter().all(|c| c.state.enum_value() == Ok(ContainerState::CONTAINER_RUNNING)));
    assert_eq!(agent.metric("kubelet_running_pods"), 50.0);

    for i in 0..50 {
        agent.delete(&format!("pod-{i}"));
    }
    agent.wait_long("all are gone", long, |a| {
        (a.pods().is_empty() && a.cri().sandboxes(&a.namespace).is_empty()).then_some(())
    });
}
