//! `wherry join` and `wherry leave`, as kubeadm prepares a cluster for nodes.

use crate::support::agent::{Agent, is_running, uid};
use crate::support::control_plane::ControlPlane;
use crate::support::control_plane::bootstrap::{APPROVED, WAITING};
use crate::support::lab::Runtime;
use crate::support::yaml::TRAP;
use crate::wherry::{all_run, deployment, is_ready, name};
use crate::{ok, ok_with, pods, wait_for_pods};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn plane() -> &'static ControlPlane {
    let plane = ControlPlane::shared();
    plane.accept_joins();
    plane
}

/// A Wherry that has not joined, with this node name.
fn prepare(node: &str) -> Agent {
    let mut agent = Agent::prepare(node, &Runtime::shared());
    agent.set_node(node);
    agent
}

/// The arguments that `kubeadm token create --print-join-command` prints, without the first word.
fn arguments<'a>(plane: &'a ControlPlane, token: &'a str, pin: &'a str) -> [&'a str; 5] {
    [plane.address(), "--token", token, "--discovery-token-ca-cert-hash", pin]
}

#[derive(Debug)]
struct Printed {
    code: Option<i32>,
    out: String,
    err: String,
}

fn join(agent: &Agent, arguments: &[&str]) -> Printed {
    let mut command = agent.command_of("join");
    command.arg("--no-restart").args(arguments);
    printed(command)
}

fn printed(mut command: Command) -> Printed {
    let output = command.output().expect("wherry");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Printed { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// `wherry check --join`: the level of each check.
fn check(agent: &Agent, arguments: &[&str]) -> Vec<(String, String)> {
    let mut command = agent.command_of("check");
    command.arg("--join").args(arguments);
    let printed = printed(command);
    assert!(
        printed.err.contains("checked the join: ") && !format!("{printed:?}").contains("f395accd246ae52d"),
        "{printed:?}"
    );
    let errors = printed.out.lines().filter(|line| line.starts_with("error")).count();
    assert_eq!(printed.code, Some(i32::from(errors > 0)), "{printed:?}");
    let words = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    };
    printed.out.lines().map(words).map(|(level, check)| (check, level)).collect()
}

fn level(checks: &[(String, String)], check: &str) -> String {
    checks.iter().find(|(name, _)| name == check).map(|(_, level)| level.clone()).unwrap_or_default()
}

fn files(agent: &Agent) -> Vec<String> {
    let Ok(entries) = fs::read_dir(agent.root().join("cluster")) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn drop_in(agent: &Agent) -> PathBuf {
    agent.dir.join("config.d/50-wherry-join.yaml")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

fn assert_nothing_left(agent: &Agent) {
    assert_eq!((files(agent), drop_in(agent).exists()), (Vec::new(), false));
    assert!(!agent.root().join("cluster").exists());
}

#[test]
fn a_machine_joins_with_a_token_runs_pods_and_leaves() {
    let plane = plane();
    let (namespace, node) = ("joined", "newcomer");
    let admin = plane.namespace(namespace);
    let token = plane.create_token("aaaaa1", APPROVED, 3600);
    let mut agent = prepare(node);
    agent.run();
    agent.apply("local", TRAP);
    let local = agent.wait_running("local");
    let container = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    let pin = plane.pin();
    let checks = check(&agent, &arguments(plane, &token, &pin));
    for name in [
        "configuration",
        "membership",
        "address",
        "cluster-info",
        "token",
        "ca",
        "tls",
        "clock",
        "credential",
        "settings",
        "permissions",
    ] {
        assert_eq!(level(&checks, name), "ok", "{name}: {checks:?}");
    }
    // 1.20 is older than the behaviour of the node.
    assert_eq!(level(&checks, "version"), "warning", "{checks:?}");
    assert_nothing_left(&agent);
    let first = join(&agent, &arguments(plane, &token, &pin));
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.out.contains("this machine is the node newcomer of https://"), "{first:?}");
    assert!(first.err.contains("kubelets: cgroupDriver, staticPodPath"), "{first:?}");
    assert!(!format!("{first:?}").contains("f395accd246ae52d"));
    assert_eq!(files(&agent), ["client.pem", "kubeconfig", "kubelet.yaml", "lock"]);
    let directory = agent.root().join("cluster");
    assert_eq!(
        (mode(&directory), mode(&directory.join("client.pem")), mode(&directory.join("kubeconfig"))),
        (0o700, 0o600, 0o600)
    );
    assert!(fs::read_to_string(directory.join("kubelet.yaml")).expect("settings").contains("10.96.0.10"));
    assert_eq!(plane.requests_for(node).len(), 1);
    // The restart that the command would have made.
    agent.terminate();
    agent.run();
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    assert_eq!(container(&agent.wait_running("local")), container(&local), "the local pod was not restarted");
    let checks = check(&agent, &arguments(plane, &token, &pin));
    assert_eq!(level(&checks, "membership"), "ok", "{checks:?}");
    // A repeated join changes nothing, also if the token does not exist any more.
    ok(&admin, "delete secret bootstrap-token-aaaaa1 -n kube-system");
    let again = join(&agent, &arguments(plane, &token, &pin));
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.out.contains("already") && plane.requests_for(node).len() == 1, "{again:?}");
    let other = format!("sha256:{}", "ab".repeat(32));
    let refused = join(&agent, &arguments(plane, &token, &other));
    assert!(refused.code == Some(1) && refused.err.contains("run wherry leave"), "{refused:?}");
    // With pods of the cluster, the node leaves only with force.
    ok(&admin, "create configmap words --from-literal=greeting=hello");
    let more = json!({ "envFrom": [{ "configMapRef": { "name": "words" } }] });
    ok_with(&admin, "create -f -", &deployment("web", 1, node, &more));
    plane.wait("the pod runs", |plane| all_run(plane, namespace, 1));
    let objects = |agent: &Agent| fs::read_dir(agent.root().join("records/objects")).map_or(0, Iterator::count);
    assert_eq!(objects(&agent), 1);
    let leave = |more: &[&str]| {
        let mut command = agent.command_of("leave");
        command.arg("--no-restart").args(more);
        printed(command)
    };
    let refused = leave(&[]);
    assert!(refused.code == Some(1) && refused.err.contains("kubectl drain newcomer"), "{refused:?}");
    assert!(drop_in(&agent).exists());
    let web = name(&pods(plane, namespace)[0]);
    let mut keep = agent.command_of("keep");
    keep.arg(&web);
    let kept = printed(keep);
    assert!(kept.code == Some(0) && kept.out.lines().count() == 2, "{kept:?}");
    let left = leave(&["--force"]);
    assert!(left.code == Some(0) && left.out.contains("kubectl delete node newcomer"), "{left:?}");
    assert_nothing_left(&agent);
    assert!(leave(&[]).out.contains("is not a node of a cluster"));
    agent.terminate();
    agent.run();
    // The kept pod starts again as a pod of its manifest.
    let of_file = |a: &Agent| {
        a.pod(&web)
            .filter(|pod| pod["metadata"]["annotations"]["kubernetes.io/config.source"] == "file" && is_running(pod))
    };
    let shown = agent.wait_for("the kept pod runs", of_file);
    let sandboxes = agent.cri().sandboxes(namespace);
    assert_eq!(sandboxes.iter().map(|s| s.metadata.uid.as_str()).collect::<Vec<_>>(), [uid(&shown)]);
    fs::remove_file(agent.manifests().join(format!("kubectl_{namespace}_pod_{web}.yaml"))).expect("the manifest");
    agent.wait("the pods of the cluster are gone", |a| a.cri().sandboxes(namespace).is_empty());
    assert_eq!(container(&agent.wait_running("local")), container(&local), "the local pod was not restarted");
    agent.wait("the objects of the cluster are gone", |a| objects(a) == 0);
    // No node is there to confirm the deletion.
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    ok(&admin, "delete pods --all --grace-period=0 --force");
    ok(&admin, &format!("delete node {node}"));
    wait_for_pods(plane, namespace, 0);
}

#[test]
fn a_join_that_fails_says_why_and_leaves_nothing() {
    let plane = plane();
    let agent = prepare("refused");
    let (token, pin) = (plane.create_token("aaaaa2", APPROVED, 3600), plane.pin());
    let expired = plane.create_token("aaaaa3", APPROVED, 8);
    let other = format!("sha256:{}", "ab".repeat(32));
    plane.wait("the token has expired", |plane| !plane.is_signed_by("aaaaa3"));
    let unbound = plane.create_token("aaaaa4", "system:bootstrappers:without-a-role", 3600);
    for (arguments, failed) in [
        (arguments(plane, &token, &other), "ca"),
        (arguments(plane, "aaaaa2.0000000000000000", &pin), "token"),
        (arguments(plane, &unbound, &pin), "permissions"),
        (["127.0.0.1:9", "--token", &token, "--discovery-token-ca-cert-hash", &pin], "address"),
    ] {
        let checks = check(&agent, &arguments);
        // (Another test's node may have the port.)
        assert!(level(&checks, failed) == "error" && !level(&checks, "port").is_empty(), "{checks:?}");
    }
    for (arguments, code, why) in [
        (arguments(plane, &token, &other), 1, "the public key of the cluster CA does not match: its hash is sha256:"),
        (arguments(plane, "aaaaa2.0000000000000000", &pin), 1, "has not signed this cluster-info"),
        (arguments(plane, "zzzzzz.0000000000000000", &pin), 1, "does not know the token zzzzzz"),
        (arguments(plane, &expired, &pin), 1, "kubeadm token create --print-join-command"),
        (arguments(plane, &unbound, &pin), 1, "system:node-bootstrapper"),
        (arguments(plane, "aaaaa2", &pin), 2, "--token"),
        (["127.0.0.1:9", "--token", &token, "--discovery-token-ca-cert-hash", &pin], 1, "connection refused"),
    ] {
        let printed = join(&agent, &arguments);
        assert!(printed.code == Some(code) && printed.err.contains(why), "{why}: {printed:?}");
        assert!(!printed.err.contains("f395accd246ae52d"), "{printed:?}");
        assert_nothing_left(&agent);
    }
    assert!(plane.requests_for("refused").is_empty());
}

#[test]
fn a_killed_join_continues_with_the_same_request() {
    let plane = plane();
    let admin = plane.kubectl("default");
    let node = "patient";
    let (token, pin) = (plane.create_token("aaaaa5", WAITING, 3600), plane.pin());
    let agent = prepare(node);
    let mut command = agent.command_of("join");
    command.arg("--no-restart").args(arguments(plane, &token, &pin)).stderr(Stdio::null()).stdout(Stdio::null());
    let mut killed = command.spawn().expect("wherry");
    plane.wait("the request is made", |plane| plane.requests_for(node).len() == 1);
    killed.kill().expect("SIGKILL");
    killed.wait().expect("the end");
    assert_eq!(files(&agent), ["lock", "next.key"]);
    assert_eq!(mode(&agent.root().join("cluster/next.key")), 0o600);
    // Not approved in time: the key stays, and the message says how to approve.
    let late = join(&agent, &[&arguments(plane, &token, &pin)[..], &["--timeout", "3s"]].concat());
    let name = plane.requests_for(node)[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    assert!(late.code == Some(1) && late.err.contains(&format!("kubectl certificate approve {name}")), "{late:?}");
    assert_eq!(files(&agent), ["lock", "next.key"]);
    ok(&admin, &format!("certificate approve {name}"));
    let joined = join(&agent, &arguments(plane, &token, &pin));
    assert_eq!((joined.code, plane.requests_for(node).len()), (Some(0), 1), "{joined:?}");
    assert_eq!(
        files(&agent),
        ["client.pem", "kubeconfig", "lock"],
        "(the group may not read the kubelets' configuration)"
    );
    assert!(joined.err.contains("cannot be read"), "{joined:?}");
    // A request that is denied is final; the next join makes another one.
    let node = "unwanted";
    let agent = prepare(node);
    let late = join(&agent, &[&arguments(plane, &token, &pin)[..], &["--timeout", "1s"]].concat());
    assert_eq!(late.code, Some(1), "{late:?}");
    let name = plane.requests_for(node)[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    ok(&admin, &format!("certificate deny {name}"));
    let denied = join(&agent, &arguments(plane, &token, &pin));
    assert!(denied.code == Some(1) && denied.err.contains("was denied"), "{denied:?}");
    assert_nothing_left(&agent);
}

/// A certificate that has half of its life behind it.
#[test]
fn the_certificate_is_renewed_while_the_node_runs() {
    let plane = plane();
    let (namespace, node) = ("renewed", "renewer");
    let admin = plane.namespace(namespace);
    let kubeconfig = plane.kubeconfig_of_node_for(node, (-3000, 1800));
    let mut agent = prepare(node);
    let joined = join(&agent, &["--kubeconfig", &kubeconfig.display().to_string()]);
    assert_eq!(joined.code, Some(0), "{joined:?}");
    let certificate = agent.root().join("cluster/client.pem");
    let before = fs::read_to_string(&certificate).expect("the certificate");
    agent.run();
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    plane.wait("the certificate is replaced", |_| fs::read_to_string(&certificate).expect("it") != before);
    assert_eq!((mode(&certificate), plane.requests_for(node).len()), (0o600, 1));
    // The node goes on with the new one.
    let path = format!("/api/v1/nodes/{node}");
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason=CertificateRenewed";
    plane.wait("the event is there", |plane| {
        plane.list(events).iter().any(|event| {
            event["involvedObject"]["name"] == node
                && event["message"].as_str().is_some_and(|m| m.contains("is valid until"))
        })
    });
    ok_with(&admin, "create -f -", &deployment("web", 1, node, &json!({})));
    plane.wait("the pod runs", |plane| all_run(plane, namespace, 1));
    // One request was enough, also after a restart.
    agent.terminate();
    agent.run();
    plane.wait("the node is ready", |plane| is_ready(plane, node) && plane.get(&path).is_some());
    assert_eq!((plane.requests_for(node).len(), files(&agent).contains(&"next.key".to_owned())), (1, false));
    let requests = plane.requests_of_node(node);
    let refused: Vec<_> = requests.iter().filter(|r| r.code == 401).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(!agent.log().contains("PRIVATE KEY"));
    ok(&admin, &format!("delete namespace {namespace} --wait=false"));
    wait_for_pods(plane, namespace, 0);
    ok(&admin, &format!("delete node {node}"));
}

#[test]
fn a_kubeconfig_of_another_node_or_of_a_user_is_refused() {
    let plane = plane();
    let agent = prepare("own");
    let of_another = plane.kubeconfig_of_node("another").display().to_string();
    for (kubeconfig, why) in [
        (of_another.as_str(), "add --node-name another"),
        (&plane.kubeconfig_of_admin().display().to_string(), "the user of the kubeconfig is admin, and not a node"),
        ("/nonexistent", "/nonexistent: "),
    ] {
        let printed = join(&agent, &["--kubeconfig", kubeconfig]);
        assert!(printed.code == Some(1) && printed.err.contains(why), "{printed:?}");
        assert_nothing_left(&agent);
    }
}
