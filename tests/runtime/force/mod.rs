//! Force: wherry, the runtime, shims, sockets and disks are harmed while pods come and go. At the end there is exactly what
//! is desired (`exact` looks with the independent client and at the disk), and no container that should have lived was
//! restarted.

mod behind;
mod disk;
mod exact;
mod kills;
mod leftovers;
mod outages;
mod strangers;

use crate::support::agent::Agent;
use exact::{Desired, Life, Pod};
use std::collections::BTreeMap;

/// The running containers of some pods with their init processes: what must stay as it is.
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
