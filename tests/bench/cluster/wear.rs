//! What an idle node of a cluster writes to its disk in a day, with ten pods of the cluster.

use super::{do_with, wait_ready};
use crate::idle::wait_started;
use crate::support::control_plane::ControlPlane;
use crate::support::on_disk::OnDisk;
use crate::support::yaml::TRAP;
use crate::table::Table;
use crate::wear::idle_day;
use serde_json::{Value, json};

const PODS: usize = 10;
const NAME: &str = "wear";
/// kB.
const LIMIT: f64 = 100.0;

pub fn wear(table: &mut Table) {
    let plane = ControlPlane::start("bench-wear");
    let admin = plane.namespace(NAME);
    let mut on = OnDisk::prepare(NAME);
    on.agent.set_cluster(NAME, &plane.kubeconfig_of_node(NAME));
    on.agent.run();
    wait_ready(&plane, NAME);
    let mut spec: Value = serde_saphyr::from_str(TRAP).expect("a spec");
    spec["nodeName"] = NAME.into();
    for n in 0..PODS {
        let pod =
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("pod-{n}") }, "spec": spec });
        do_with(&admin, "create -f -", &pod.to_string());
    }
    wait_started(&mut on.agent.cri(), NAME, PODS);
    table.row(
        &format!("cluster: written to the disk in an idle day with {PODS} pods, kB"),
        idle_day(&on),
        None,
        LIMIT,
        "",
    );
}
