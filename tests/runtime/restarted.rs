//! What an agent keeps over a restart for those who look at it, and what changes with a reload.

use crate::support::agent::Agent;
use crate::support::api_client::{self, ApiClient};
use crate::support::lab::Runtime;
use crate::support::yaml;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::Command;

/// By name: reason, message, count and the time of the first occurrence.
type Events = BTreeMap<String, (String, String, u64, String)>;

fn events(agent: &Agent) -> Events {
    let list = agent.get("/events").expect("events");
    let list: Value = serde_json::from_str(&list.body).expect("JSON");
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().expect("items").iter();
    items
        .map(|e| {
            let count = e["count"].as_u64().unwrap_or_default();
            (text(&e["metadata"]["name"]), (text(&e["reason"]), text(&e["message"]), count, text(&e["firstTimestamp"])))
        })
        .collect()
}

fn of_reason(events: &Events, reason: &str) -> Vec<(String, u64)> {
    events.values().filter(|e| e.0 == reason).map(|e| (e.3.clone(), e.2)).collect()
}

#[test]
fn events_survive_a_restart_and_are_counted_on() {
    let mut agent = Agent::start("kept-events");
    agent.apply("web", yaml::TRAP);
    agent.apply("gone", yaml::TRAP);
    agent.wait_running("web");
    agent.wait_running("gone");
    let reports =
        agent.socket.with_file_name(format!("{}.reports", agent.socket.file_name().unwrap().to_str().unwrap()));
    let started = of_reason(&events(&agent), "Started");
    assert_eq!(started.len(), 2, "{started:?}");
    // Also after a kill, once the file is written.
    agent.wait("the events are in the file", |_| {
        fs::read_to_string(&reports).is_ok_and(|text| text.matches("\"Started\"").count() == 2)
    });
    agent.kill();
    agent.run();
    let after = events(&agent);
    assert_eq!(of_reason(&after, "Started"), started, "{after:?}");
    assert_eq!(of_reason(&after, "Starting").iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2]);
    // The end of the process writes the latest ones, and a pod that is deleted meanwhile keeps its events for an hour.
    agent.delete("gone");
    agent.wait_gone("gone");
    // The files of the pod are removed after it is no longer shown.
    agent.wait("the removal is an event", |a| of_reason(&events(a), "Removed").len() == 1);
    assert_eq!(agent.terminate(), Some(0));
    agent.run();
    let last = events(&agent);
    assert_eq!(of_reason(&last, "Removed").len(), 1, "{last:?}");
    assert_eq!(of_reason(&last, "Started"), started);
    agent.terminate();
}

#[test]
fn the_times_of_the_nodes_conditions_and_its_age_survive_a_restart() {
    let mut agent = Agent::prepare("kept-times", &Runtime::shared());
    api_client::enable(&agent);
    agent.run();
    let client =
        agent.wait_for("the API is served", |a| a.log().contains("listener=Kubectl").then(|| ApiClient::new(a, &[])));
    let times = |client: &ApiClient| {
        let list = client.get("/api/v1/nodes").expect("nodes");
        let list: Value = serde_json::from_str(&list.body).expect("JSON");
        let node = &list["items"][0];
        let conditions = node["status"]["conditions"].as_array().expect("conditions").clone();
        let of = |c: &Value| format!("{} {} {}", c["type"], c["status"], c["lastTransitionTime"]);
        let all: Vec<String> = conditions.iter().map(of).collect();
        (node["metadata"]["creationTimestamp"].clone(), all, conditions[0]["lastHeartbeatTime"].clone())
    };
    let ready = |client: &ApiClient| times(client).1.iter().any(|c| c.starts_with("\"Ready\" \"True\""));
    agent.wait("the node is ready", |_| ready(&client));
    let before = times(&client);
    // The times have whole seconds.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    for kill in [false, true] {
        match kill {
            true => agent.kill(),
            false => drop(agent.terminate()),
        }
        let listens = agent.log().matches("listener=Kubectl").count();
        agent.run();
        agent.wait("the API is served again", |a| a.log().matches("listener=Kubectl").count() > listens);
        agent.wait("the node is ready again", |_| ready(&client));
        let after = times(&client);
        assert_eq!((&after.0, &after.1), (&before.0, &before.1));
        assert_ne!(after.2, before.2, "the heartbeat is the start");
    }
    agent.terminate();
}

#[test]
fn the_port_for_kubectl_changes_with_a_reload() {
    let mut agent = Agent::prepare("moved-port", &Runtime::shared());
    agent.run();
    let configure = |agent: &Agent, port: u16| {
        let text = format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nkubectlPort: {port}\n");
        fs::write(agent.dir.join("config.d/20-kubectl.yaml"), text).expect("a drop-in");
        let reloads = agent.log().matches("reloaded manifests=").count();
        agent.hang_up();
        agent.wait("it was reloaded", |a| a.log().matches("reloaded manifests=").count() > reloads);
    };
    let answers = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
    let first = agent.kubectl_port();
    // Other tests use neither.
    let (second, taken) = (first - 14_000, first - 12_000);
    // It is opened ...
    configure(&agent, first);
    agent.wait("the first port is served", |_| answers(first));
    let client = ApiClient::new(&agent, &[]);
    let mut session = client.connect().expect("a session");
    assert_eq!(session.get("/version", "").expect("an answer").status, 200);
    // ... moved: the session goes on ...
    configure(&agent, second);
    agent.wait("the second port is served, the first one not", |_| answers(second) && !answers(first));
    assert_eq!(client.at(second).get("/version").expect("an answer").status, 200);
    assert_eq!(session.get("/version", "").expect("an answer on the old session").status, 200);
    // ... not to a port that is taken ...
    let other = TcpListener::bind(("127.0.0.1", taken)).expect("a free port");
    configure(&agent, taken);
    agent.wait("an event says so", |a| of_reason(&events(a), "FailedListen").len() == 1);
    assert_eq!(client.at(second).get("/version").expect("the old port").status, 200);
    drop(other);
    configure(&agent, taken);
    agent.wait("the port is free now", |_| answers(taken) && !answers(second));
    // ... to another address with the same port ...
    let text = format!(
        "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nkubectlPort: {taken}\nkubectlAddress: 0.0.0.0\n"
    );
    fs::write(agent.dir.join("config.d/20-kubectl.yaml"), text).expect("a drop-in");
    agent.hang_up();
    agent.wait("it listens on all addresses", |_| TcpStream::connect(("127.0.0.2", taken)).is_ok());
    // ... and closed.
    configure(&agent, 0);
    agent.wait("no port is served", |_| !answers(taken));
    assert_eq!(session.get("/version", "").expect("an answer on the old session").status, 200);
    assert_eq!(agent.terminate(), Some(0));
}

#[test]
fn a_kubeconfig_follows_the_agent_of_its_socket() {
    let mut agent = Agent::prepare("followed", &Runtime::shared());
    api_client::enable(&agent);
    agent.run();
    agent.wait("the API is served", |a| a.log().contains("listener=Kubectl"));
    let kubeconfig = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
        command.arg("kubeconfig").args(more).arg("--socket").arg(&agent.socket).output().expect("wherry")
    };
    let issued = kubeconfig(&[]);
    let (text, told) = (String::from_utf8_lossy(&issued.stdout), String::from_utf8_lossy(&issued.stderr));
    assert!(issued.status.success() && told.contains("issued a certificate"), "{told}");
    assert!(text.contains(&format!("server: https://127.0.0.1:{}", agent.kubectl_port())), "{text}");
    let client = fs::read_dir(agent.root().join("kubectl/clients")).expect("the CA of this agent").count();
    assert_eq!(client, 1);
    let ca = fs::read(agent.root().join("kubectl/ca.crt")).expect("ca.crt");
    use base64::Engine as _;
    assert!(text.contains(&base64::engine::general_purpose::STANDARD.encode(ca)), "{text}");
    let listed = kubeconfig(&["list"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 2, "a header and the certificate");
    // Without an agent, the directory is needed.
    agent.terminate();
    let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
    let refused = command.args(["kubeconfig", "--socket"]).arg(&agent.socket).output().expect("wherry");
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains(agent.socket.to_str().unwrap()), "{why}");
}
