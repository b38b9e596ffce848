//! A machine that gets its address late, and later another one, as from DHCP. Only the agent is in this network; the runtime is not.

use crate::server::{run_pod, wait_for_port};
use crate::support::agent::Agent;
use crate::support::component::NODE_ADDRESS;
use crate::support::control_plane::ControlPlane;
use crate::support::lab::Runtime;
use crate::wherry::is_ready;
use crate::{ok, pods, wait_for_pods};
use serde_json::Value;
use std::process::Command;

const NETWORK: &str = "mover";
/// The end of the cable at the API server, and the one at the machine.
const CABLE: [&str; 2] = ["lab-mover", "mover"];
/// TEST-NET-2 (RFC 5737). Other tests do not use it.
const ROUTER: &str = "198.51.100.1";
const ADDRESSES: [&str; 2] = ["198.51.100.2", "198.51.100.3"];

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status().expect("ip");
    assert!(status.success(), "ip {line}");
}

/// A network namespace, which is connected to that of the other tests. It has no address at the begin.
struct Network;

impl Network {
    fn create() -> Network {
        let [near, far] = CABLE;
        ip(&format!("netns add {NETWORK}"));
        let network = Network;
        ip(&format!("link add {near} type veth peer name {far} netns {NETWORK}"));
        ip(&format!("addr add {ROUTER}/24 dev {near}"));
        ip(&format!("link set {near} up"));
        for device in ["lo", far] {
            ip(&format!("-n {NETWORK} link set {device} up"));
        }
        network
    }

    /// The machine loses its address and its routes, and gets this one.
    fn assign(&self, address: &str) {
        let device = CABLE[1];
        ip(&format!("-n {NETWORK} addr flush dev {device} scope global"));
        ip(&format!("-n {NETWORK} addr add {address}/24 dev {device}"));
        ip(&format!("-n {NETWORK} route add {NODE_ADDRESS}/32 via {ROUTER}"));
        ip(&format!("-n {NETWORK} route add default via {ROUTER}"));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The cable disappears with one of its ends.
        for line in [format!("link del {}", CABLE[0]), format!("netns del {NETWORK}")] {
            let _ = Command::new("ip").args(line.split(' ')).status();
        }
    }
}

fn has_address(plane: &ControlPlane, node: &str, address: &str) -> bool {
    let node = plane.get(&format!("/api/v1/nodes/{node}")).unwrap_or_default();
    let all = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let internal: Vec<&Value> = all.iter().filter(|a| a["type"] == "InternalIP").map(|a| &a["address"]).collect();
    internal == [address]
}

#[test]
fn c1_a_node_gets_its_address_late_and_then_another_one_without_a_reload() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("moved", "barge");
    let admin = plane.namespace(namespace);
    let network = Network::create();
    let mut agent = Agent::prepare(node, &Runtime::shared());
    agent.under = vec!["nsenter", "--net=/run/netns/mover"];
    agent.set_cluster(node, &plane.kubeconfig_of_node(node));
    agent.run();
    assert!(plane.get(&format!("/api/v1/nodes/{node}")).is_none(), "it does not reach the server");
    network.assign(ADDRESSES[0]);
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    plane.wait("the node has an address", |plane| has_address(plane, node, ADDRESSES[0]));
    wait_for_port(plane, &agent, node);
    run_pod(plane, &admin, namespace, "web", node, "echo first; sleep 3600");
    // The API server uses the address.
    assert_eq!(ok(&admin, "logs web"), "first\n");
    network.assign(ADDRESSES[1]);
    plane.wait("the node has another address", |plane| has_address(plane, node, ADDRESSES[1]));
    plane.wait("the pod is on the host with this address", |plane| {
        // Servers before 1.28 have no `hostIPs`.
        pods(plane, namespace)[0]["status"]["hostIP"] == ADDRESSES[1]
    });
    assert_eq!(ok(&admin, "logs web"), "first\n");
    agent.wait("the server of the node has a certificate for the address", |agent| {
        let log = agent.log();
        let after = log.split_once(&format!("node addresses={}", ADDRESSES[1]));
        after.is_some_and(|(_, after)| after.contains("node-server certificates=replaced"))
    });
    ok(&admin, "delete pod web");
    wait_for_pods(plane, namespace, 0);
    ok(&admin, &format!("delete node {node}"));
}
