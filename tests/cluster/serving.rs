//! The certificate of the node's server, which the cluster issues (`serverTLSBootstrap`).

use crate::server::{run_pod, wait_for_port};
use crate::support::agent::Agent;
use crate::support::component::NODE_ADDRESS;
use crate::support::control_plane::{ControlPlane, NodeServers};
use crate::support::lab::Runtime;
use crate::support::node_client::NodeClient;
use crate::wherry::is_ready;
use crate::{ok, ok_with, wait_for_pods};
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

const BOOTSTRAP: &str = "serverTLSBootstrap: true\n";
const TALKS: &str = "echo first; while sleep 1; do echo tick; done";

fn name_of_request(plane: &ControlPlane, node: &str) -> String {
    let requests = plane.requests_for(node);
    assert_eq!(requests.len(), 1, "{requests:#?}");
    assert_eq!(requests[0]["spec"]["signerName"], "kubernetes.io/kubelet-serving");
    requests[0]["metadata"]["name"].as_str().expect("a name").to_owned()
}

/// The events with this reason, about this node.
fn messages(plane: &ControlPlane, reason: &str, node: &str) -> Vec<String> {
    let events = plane.list(&format!("/api/v1/namespaces/default/events?fieldSelector=reason={reason}"));
    let of_node = events.iter().filter(|event| event["involvedObject"]["name"] == node);
    of_node.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A client that trusts only the CA of the cluster reaches the server under this name.
fn is_trusted(agent: &Agent, plane: &ControlPlane, name: &str) -> bool {
    // Without a credential, the answer is 401.
    NodeClient::with_ca(agent, &plane.ca(), name).send("GET", "/pods").is_ok_and(|response| response.status == 401)
}

fn restart(plane: &ControlPlane, agent: &mut Agent, node: &str) {
    agent.run();
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    wait_for_port(plane, agent, node);
    // The server may know the port from before the restart.
    plane.wait("the port listens", |_| TcpStream::connect(("127.0.0.1", agent.node_port())).is_ok());
}

#[test]
fn c7_an_api_server_that_verifies_nodes_trusts_the_certificate_that_a_person_has_approved() {
    let plane = ControlPlane::start_with("verified", NodeServers::Verified);
    let (namespace, node) = ("verified", "lighter");
    let admin = plane.namespace(namespace);
    let mut agent = Agent::prepare(node, &Runtime::shared());
    agent.set_cluster(node, &plane.kubeconfig_of_node(node));
    agent.configure(BOOTSTRAP);
    restart(&plane, &mut agent, node);
    run_pod(&plane, &admin, namespace, "web", node, TALKS);
    plane.wait("the request is there", |plane| !plane.requests_for(node).is_empty());
    let name = name_of_request(&plane, node);
    // Until the approval, the node has the certificate that it issues itself, which the API server refuses.
    assert_eq!(NodeClient::new(&agent, None).status("/pods"), 401);
    assert!(!is_trusted(&agent, &plane, node));
    let refused = admin.run("logs web");
    assert!(refused.code != 0 && refused.err.contains("x509"), "{refused:?}");
    let command = format!("kubectl certificate approve {name}");
    plane.wait("the event names the command", |plane| {
        messages(plane, "CertificateNotApproved", node).iter().any(|message| message.ends_with(&command))
    });
    // A kill loses nothing, and makes no second request.
    let next_key = agent.root().join("cluster/serving-next.key");
    let key = fs::read(&next_key).expect("the key");
    agent.kill();
    restart(&plane, &mut agent, node);
    plane.wait("the request is found again", |plane| {
        let requests = plane.requests_of_node(node);
        requests.iter().any(|r| r.code == 409 && r.path.ends_with("/certificatesigningrequests"))
    });
    assert_eq!((name_of_request(&plane, node), fs::read(&next_key).expect("the key")), (name.clone(), key));
    ok(&admin, &format!("certificate approve {name}"));
    // New connections have the new certificate without a restart.
    plane.wait("the certificate is in use", |plane| is_trusted(&agent, plane, node));
    assert!(is_trusted(&agent, &plane, NODE_ADDRESS));
    assert!(NodeClient::new(&agent, None).send("GET", "/pods").is_err());
    assert!(ok(&admin, "logs web").starts_with("first\n"));
    assert_eq!(ok_with(&admin, "exec -i web -- wc -c", "12345"), "5\n");
    plane.wait("the event is there", |plane| messages(plane, "CertificateIssued", node).len() == 1);
    let stored = agent.root().join("cluster/serving.pem");
    let mode = fs::metadata(&stored).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode, next_key.exists()), (0o600, false));
    let left = agent.metric("kubelet_certificate_manager_server_ttl_seconds");
    assert!(left > 3600.0 && left.is_finite(), "{left}");
    assert!(!agent.log().contains("PRIVATE KEY"));
    // A restart needs no other one.
    agent.terminate();
    restart(&plane, &mut agent, node);
    assert!(is_trusted(&agent, &plane, node));
    assert_eq!(name_of_request(&plane, node), name);
    // It is turned off.
    agent.terminate();
    agent.configure("");
    restart(&plane, &mut agent, node);
    assert_eq!(NodeClient::new(&agent, None).status("/pods"), 401);
    ok(&admin, "delete pod web");
    wait_for_pods(&plane, namespace, 0);
}
