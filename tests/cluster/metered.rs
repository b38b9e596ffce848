//! `meteredConnection`: the traffic of a node at rest.

use crate::support::agent::Agent;
use crate::support::control_plane::ControlPlane;
use crate::support::lab::Runtime;
use crate::wherry::{all_run, deployment, is_ready};
use crate::{ok, ok_with, pods};
use serde_json::json;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The bytes that the agent has exchanged with the API server.
fn bytes(agent: &Agent) -> f64 {
    agent.metric("wherry_api_server_sent_bytes_total") + agent.metric("wherry_api_server_received_bytes_total")
}

#[test]
fn a_node_at_rest_with_ten_pods_stays_below_six_megabytes_a_day() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("frugal", "dinghy");
    let admin = plane.namespace(namespace);
    let mut agent = Agent::prepare(node, &Runtime::shared());
    agent.set_cluster(node, &plane.kubeconfig_of_node(node));
    let drop_in = agent.dir.join("config.d/30-metered.yaml");
    let text = "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nmeteredConnection: true\n";
    std::fs::write(drop_in, text).expect("a drop-in");
    agent.run();
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    ok(&admin, "create configmap words --from-literal=greeting=hello");
    ok(&admin, "create secret generic keys --from-literal=password=hunter2");
    let more = json!({
        "automountServiceAccountToken": true,
        "envFrom": [{ "configMapRef": { "name": "words" } }, { "secretRef": { "name": "keys" } }],
    });
    ok_with(&admin, "create -f -", &deployment("web", 10, node, &more));
    plane.wait("all pods run", |plane| all_run(plane, namespace, 10));
    // Rest: nothing but renewals of the lease and bookmarks. (The node's images are reported up to a minute later.)
    let writes =
        || plane.requests_of_node(node).iter().filter(|r| r.verb != "get" && !r.path.contains("/leases/")).count();
    let start = Cell::new((writes(), bytes(&agent), Instant::now()));
    agent.wait("a minute at rest", |agent| {
        if writes() != start.get().0 {
            start.set((writes(), bytes(agent), Instant::now()));
        }
        start.get().2.elapsed() > Duration::from_secs(60)
    });
    let lease = plane.get(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"));
    let lease = lease.expect("the lease");
    assert!(lease["spec"]["renewTime"].is_string() && lease["metadata"]["managedFields"].is_null(), "{lease:#}");
    let (_, before, since) = start.get();
    let a_day = (bytes(&agent) - before) * 86_400.0 / since.elapsed().as_secs_f64();
    eprintln!("{a_day:.0} bytes a day");
    // The rest of the budget of 6 MB is for the hourly status, and for the watches, which begin again every hour or two.
    assert!(a_day > 1_000_000.0 && a_day < 5_000_000.0, "{a_day:.0} bytes a day");
    ok(&admin, "delete deployment web");
    plane.wait("the pods are gone", |plane| pods(plane, namespace).is_empty());
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    ok(&admin, &format!("delete node {node}"));
}
