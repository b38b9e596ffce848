//! The server of a node: kubectl through the API server, and clients with and without permission.

use crate::support::agent::Agent;
use crate::support::control_plane::ControlPlane;
use crate::support::kubectl::Kubectl;
use crate::support::lab::Runtime;
use crate::support::node_client::NodeClient;
use crate::wherry::{is_running, join};
use crate::{ok, ok_with, pods, wait_for_pods};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

/// Writes two lines and a third to stderr, serves a page, and then counts until it ends.
const TALKS: &str = "echo first; echo second; echo third >&2; mkdir -p /tmp/www; echo page > /tmp/www/index.html; \
                     httpd -p 8080 -h /tmp/www; n=0; while sleep 0.2; do n=$((n+1)); echo tick $n; done";

/// A pod on the node that runs this script.
pub fn run_pod(plane: &ControlPlane, admin: &Kubectl, namespace: &str, name: &str, node: &str, script: &str) {
    let container = json!({ "name": "main", "image": "localhost/busybox:1.35", "command": ["sh", "-c", script] });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": {
        "nodeSelector": { "node": node }, "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1, "containers": [container] } });
    ok_with(admin, "create -f -", &pod.to_string());
    plane.wait(&format!("{name} runs"), |plane| {
        pods(plane, namespace).iter().any(|pod| pod["metadata"]["name"] == name && is_running(pod))
    });
}

/// Waits until the API server knows the port of the node's server.
pub fn wait_for_port(plane: &ControlPlane, agent: &Agent, node: &str) {
    plane.wait("the node reports its port", |plane| {
        let node = plane.get(&format!("/api/v1/nodes/{node}")).unwrap_or_default();
        node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == agent.node_port()
    });
}

fn finish(plane: &ControlPlane, admin: &Kubectl, namespace: &str, node: &str) {
    ok(admin, &format!("delete namespace {namespace} --wait=false"));
    wait_for_pods(plane, namespace, 0);
    ok(admin, &format!("delete node {node}"));
}

#[test]
fn c6_kubectl_reaches_a_pod_through_the_api_server() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("reached", "jetty");
    let admin = plane.namespace(namespace);
    let agent = join(plane, node);
    wait_for_port(plane, &agent, node);
    run_pod(plane, &admin, namespace, "web", node, TALKS);
    // Logs: all, a part, and followed.
    let all = ok(&admin, "logs web");
    // (The runtime reads the two streams independently of each other.)
    let stdout: Vec<&str> = all.lines().filter(|line| *line != "third").take(2).collect();
    assert!(stdout == ["first", "second"] && all.lines().filter(|line| *line == "third").count() == 1, "{all}");
    assert_eq!(ok(&admin, "logs web --limit-bytes=9"), all[..9]);
    let last = ok(&admin, "logs web --tail=1 --timestamps");
    assert!(last.lines().count() == 1 && last.contains("Z tick "), "{last}");
    let followed = admin.start("logs -f web");
    followed.wait(&["first"]);
    let ticks = followed.lines().len();
    plane.wait("the log goes on", |_| followed.lines().len() > ticks + 2);
    drop(followed);
    let wrong = admin.run("logs web -p");
    assert!(wrong.code != 0 && wrong.err.contains("previous terminated container"), "{wrong:?}");
    // Commands: output, exit code, input.
    assert_eq!(ok(&admin, "exec web -- echo hello"), "hello\n");
    assert_eq!(admin.run("exec web -- sh -c 'exit 3'").code, 3);
    assert_eq!(ok_with(&admin, "exec -i web -- wc -c", "12345"), "5\n");
    let wrong = admin.run("exec web -c other -- true");
    assert!(wrong.code != 0 && wrong.err.contains("other"), "{wrong:?}");
    let attached = admin.start("attach web");
    attached.wait(&["tick"]);
    drop(attached);
    // Files, both ways.
    let (from, back) = (admin.home.join("from"), admin.home.join("back"));
    std::fs::write(&from, "a file\n").expect("a file");
    ok(&admin, &format!("cp {} web:/tmp/there", from.display()));
    ok(&admin, &format!("cp web:/tmp/there {}", back.display()));
    assert_eq!(std::fs::read_to_string(&back).expect("a file"), "a file\n");
    // A port, twice on one session.
    let forward = admin.start("port-forward web :8080");
    let line = forward.wait(&["Forwarding from 127.0.0.1:", " -> 8080"]);
    let port: u16 = line.split(':').nth(1).and_then(|l| l.split(' ').next()?.parse().ok()).expect("a port");
    for _ in 0..2 {
        let page = crate::support::http::get_tcp(&format!("127.0.0.1:{port}"), "/").expect("an answer");
        assert_eq!((page.status, page.body.as_str()), (200, "page\n"));
    }
    drop(forward);
    // What collectors read, through the proxy of the API server.
    let proxied = |path: &str| ok(&admin, &format!("get --raw /api/v1/nodes/{node}/proxy{path}"));
    let metrics = proxied("/metrics/resource");
    let of_pod =
        format!("container_memory_working_set_bytes{{container=\"main\",namespace=\"{namespace}\",pod=\"web\"}}");
    assert!(metrics.contains(&of_pod) && metrics.contains("node_cpu_usage_seconds_total"), "{metrics}");
    let summary: Value = serde_json::from_str(&proxied("/stats/summary")).expect("JSON");
    assert_eq!(summary["node"]["nodeName"], node);
    let running: Value = serde_json::from_str(&proxied("/runningpods/")).expect("JSON");
    let web = running["items"].as_array().and_then(|all| all.iter().find(|p| p["metadata"]["name"] == "web"));
    assert_eq!(web.expect("the pod")["spec"]["containers"][0]["name"], "main", "{running:#}");
    let config: Value = serde_json::from_str(&proxied("/configz")).expect("JSON");
    assert_eq!(config["kubeletconfig"]["port"], agent.node_port());
    assert_eq!(proxied("/healthz"), "ok");
    assert!(proxied("/metrics").contains("kubelet_running_pods"));
    // A command without a session, directly.
    let (certificate, key) = plane.certificate_of("master", Some("system:masters"));
    let master = NodeClient::new(&agent, Some((&certificate, &key)));
    let run = format!("/run/{namespace}/web/main?cmd=echo+hello");
    let printed = master.send("POST", &run).expect("an answer");
    assert_eq!((printed.status, printed.body.as_str(), master.status(&run)), (200, "hello\n", 405));
    // A pod of a manifest has the name of its mirror, too.
    agent.apply("local", crate::support::yaml::TRAP);
    agent.wait_running("local");
    let local = format!("/containerLogs/{}/local-{node}/main", agent.namespace);
    plane.wait("the log of the manifest's pod", |_| {
        admin.run(&format!("get --raw /api/v1/nodes/{node}/proxy{local}")).code == 0
    });
    finish(plane, &admin, namespace, node);
}

/// An Authority of another cluster.
fn foreign(dir: PathBuf) -> (PathBuf, PathBuf) {
    let other = crate::support::control_plane::certificates::Authority::create(&dir);
    other.issue_to_client("stranger", "admin", Some("system:masters"));
    (other.path("stranger.crt"), other.path("stranger.key"))
}

#[test]
fn c6_each_client_needs_a_credential_and_a_permission() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("permitted", "mole");
    let admin = plane.namespace(namespace);
    let agent = join(plane, node);
    wait_for_port(plane, &agent, node);
    // No credential, a credential without permission, one of another cluster.
    let nobody = NodeClient::new(&agent, None);
    for path in ["/pods", "/metrics", "/healthz", "/containerLogs/a/b/c", "/nothing"] {
        assert_eq!(nobody.status(path), 401, "{path}");
    }
    assert_eq!(NodeClient::with_token(&agent, "invalid").status("/pods"), 401);
    let (certificate, key) = plane.certificate_of("guest", None);
    let guest = NodeClient::new(&agent, Some((&certificate, &key)));
    let refused = guest.send("POST", "/exec/a/b/c").expect("an answer");
    let text = "Forbidden (user=guest, verb=create, resource=nodes, subresource(s)=[proxy])";
    assert_eq!((refused.status, refused.body.as_str()), (403, text));
    let (certificate, key) = foreign(agent.dir.join("stranger"));
    let foreign = NodeClient::new(&agent, Some((&certificate, &key))).send("GET", "/pods");
    assert!(foreign.is_err(), "{foreign:?}");
    // A permission for one subresource.
    ok(&admin, "create clusterrole node-metrics --verb=get --resource=nodes/metrics");
    ok(&admin, "create clusterrolebinding node-metrics --clusterrole=node-metrics --user=collector");
    let (certificate, key) = plane.certificate_of("collector", None);
    let collector = NodeClient::new(&agent, Some((&certificate, &key)));
    plane.wait("the collector is permitted", |_| collector.status("/metrics/resource") == 200);
    assert_eq!((collector.status("/metrics"), collector.status("/pods")), (200, 403));
    // A service account, by its token.
    ok(&admin, "create serviceaccount reader");
    ok(&admin, "create clusterrole node-reader --verb=get --resource=nodes/proxy");
    let account = format!("--serviceaccount={namespace}:reader");
    ok(&admin, &format!("create clusterrolebinding node-reader --clusterrole=node-reader {account}"));
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} }).to_string();
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/reader/token");
    let issued = ok_with(&admin, &format!("create --raw {path} -f -"), &request);
    let issued: Value = serde_json::from_str(&issued).expect("JSON");
    let token = issued["status"]["token"].as_str().expect("a token");
    let reader = NodeClient::with_token(&agent, token);
    plane.wait("the account is permitted", |_| reader.status("/pods") == 200);
    assert_eq!(reader.send("POST", "/exec/a/b/c").expect("an answer").status, 403);
    assert_eq!(reader.status("/nothing"), 404);
    let missing = reader.send("GET", "/containerLogs/a/b/c").expect("an answer");
    assert_eq!((missing.status, missing.body.as_str()), (404, "pod \"b\" does not exist"));
    // Answers are remembered: many requests, and one review of each question.
    let reviews = || {
        let requests = plane.requests_of_node(node);
        let count = |path: &str| requests.iter().filter(|r| r.path.ends_with(path)).count();
        (count("/tokenreviews"), count("/subjectaccessreviews"))
    };
    let before = reviews();
    for _ in 0..20 {
        assert_eq!(reader.status("/pods"), 200);
    }
    assert_eq!(reviews(), before);
    assert!(!agent.log().contains(token));
    ok(&admin, "delete clusterrolebinding node-metrics node-reader");
    ok(&admin, "delete clusterrole node-metrics node-reader");
    finish(plane, &admin, namespace, node);
}

#[test]
fn c6_sessions_end_with_a_kill_of_wherry_and_work_again_after_it() {
    let plane = ControlPlane::shared();
    let (namespace, node) = ("interrupted", "pontoon");
    let admin = plane.namespace(namespace);
    let mut agent = join(plane, node);
    wait_for_port(plane, &agent, node);
    run_pod(plane, &admin, namespace, "web", node, TALKS);
    let mut followed = admin.start("logs -f web");
    followed.wait(&["tick"]);
    agent.kill();
    followed.ended();
    agent.run();
    plane.wait("the server is back", |_| TcpStream::connect(("127.0.0.1", agent.node_port())).is_ok());
    let mut followed = admin.start("logs -f web");
    assert_eq!(followed.wait(&["first"]), "first");
    followed.wait(&["tick"]);
    assert_eq!(ok(&admin, "exec web -- echo hello"), "hello\n");
    // The log ends with the pod.
    ok(&admin, "delete pod web");
    assert_eq!(followed.ended(), 0);
    // Half a request of a client that says nothing more harms no other.
    let mut mute = TcpStream::connect(("127.0.0.1", agent.node_port())).expect("a connection");
    mute.write_all(b"\x16\x03\x01").expect("a write");
    assert_eq!(NodeClient::new(&agent, None).status("/pods"), 401);
    finish(plane, &admin, namespace, node);
}

#[test]
fn c6_without_the_api_server_only_known_answers_count() {
    let plane = ControlPlane::start("alone");
    let (namespace, node) = ("alone", "holm");
    let admin = plane.namespace(namespace);
    let agent = join(&plane, node);
    wait_for_port(&plane, &agent, node);
    ok(&admin, "create clusterrole node-metrics --verb=get --resource=nodes/metrics,nodes/stats");
    ok(&admin, "create clusterrolebinding node-metrics --clusterrole=node-metrics --user=collector");
    let (certificate, key) = plane.certificate_of("collector", None);
    let collector = NodeClient::new(&agent, Some((&certificate, &key)));
    plane.wait("the collector is permitted", |_| collector.status("/metrics/resource") == 200);
    plane.stop_api_server();
    plane.wait("the connection is lost", |_| agent.log().contains("the API server cannot be reached"));
    assert_eq!(collector.status("/metrics/resource"), 200);
    let unknown = collector.send("GET", "/stats/summary").expect("an answer");
    assert!(unknown.status == 503 && unknown.body.contains("wherry logs"), "{unknown:?}");
    assert_eq!(NodeClient::with_token(&agent, "any").status("/metrics"), 503);
    plane.start_api_server();
    plane.wait("the collector is permitted again", |_| collector.status("/stats/summary") == 200);
}

#[test]
fn c6_a_port_that_another_program_has_is_not_reported_and_tried_again() {
    let plane = ControlPlane::shared();
    let node = "shoal";
    let mut agent = Agent::prepare(node, &Runtime::shared());
    let other = TcpListener::bind(("0.0.0.0", agent.node_port())).expect("the port");
    agent.set_cluster(node, &plane.kubeconfig_of_node(node));
    agent.run();
    let reported = |plane: &ControlPlane| {
        let node = plane.get(&format!("/api/v1/nodes/{node}")).unwrap_or_default();
        node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64()
    };
    plane.wait("the node is registered", |plane| reported(plane).is_some());
    plane.wait("the log names the field", |_| agent.log().contains("address:port"));
    assert_eq!(reported(plane), Some(0));
    drop(other);
    wait_for_port(plane, &agent, node);
    assert_eq!(NodeClient::new(&agent, None).status("/pods"), 401);
    ok(&plane.kubectl("default"), &format!("delete node {node}"));
}
