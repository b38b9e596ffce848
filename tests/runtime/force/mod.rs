//! Fault tests: Wherry, the runtime, shims, sockets and disks fail while pods are added and removed. At the end the
//! node has exactly the desired state (`exact` checks it with an independent client and on disk), and no container
//! restarted without a reason.

mod behind;
mod disk;
mod exact;
mod foreign_objects;
mod kills;
mod leftovers;
mod outages;

use crate::support::agent::Agent;
use exact::{Desired, Life, Pod};
use std::collections::BTreeMap;

/// The running containers of some pods with their init processes. Both must stay the same.
fn identities(agent: &Agent, pods: &[&str]) -> BTreeMap<String, (String, u32)> {
    let mut cri = agent.cri();
    let all = exact::containers(agent);
    let of = all.iter().filter(|c| exact::runs(c) && pods.contains(&exact::label(&c.labels, "pod.name")));
    of.map(|c| {
        let name = format!("{}/{}", exact::label(&c.labels, "pod.name"), c.metadata.name);
        (name, (c.id.clone(), cri.container_pid(&c.id)))
    })
    .collect()
}

/// These pods run, and there are no others.
fn all_run(pods: &[&str]) -> Desired {
    pods.iter().map(|name| (name.to_string(), Pod { generation: 0, life: Life::Runs })).collect()
}
