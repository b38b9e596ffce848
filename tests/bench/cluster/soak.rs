//! The memory of a node of a cluster after 1,000 short pod lives: the pods of manifests, each with its mirror pod.

use super::wait_ready;
use crate::soak::{lives, settled};
use crate::support::agent::Agent;
use crate::support::control_plane::ControlPlane;
use crate::support::lab::Runtime;
use crate::table::Table;

const LIVES: usize = 1_000;
/// Of the node.
const NAME: &str = "soak";

pub fn soak(table: &mut Table) {
    let plane = ControlPlane::start("bench-soak");
    let mut agent = Agent::prepare(NAME, &Runtime::shared());
    // The API server refuses a mirror pod in a namespace that does not exist.
    let _admin = plane.namespace(&agent.namespace);
    agent.set_cluster(NAME, &plane.kubeconfig_of_node(NAME));
    agent.run();
    wait_ready(&plane, NAME);
    let samples = lives(&agent, LIVES);
    let (last, first) = (&samples[samples.len() - 1], settled(&samples, LIVES));
    let grown = last.memory.anonymous - first.memory.anonymous;
    table.row("cluster: anonymous memory before the first pod, MB", samples[0].memory.anonymous, None, 3.0, "");
    table.row("cluster: anonymous memory after 1,000 pods, MB", last.memory.anonymous, None, 3.0, "");
    table.row("cluster: growth of it after the first fifth of the pods, MB", grown, None, 0.2, "");
    table.row("cluster: PSS after 1,000 pods, MB", last.memory.proportional, None, 12.0, "");
}
