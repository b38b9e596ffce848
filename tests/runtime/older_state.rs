//! W25: the root directory of version 0.1.0 is read by this version. tests/fixtures/state-0.1.0 has its records and last
//! good versions, written by that version and taken after kill -9. Paths, ids of containers and the boot differ from run
//! to run, so `@NAMES@` stand for them.
//!
//! WHERRY_RECORD=DIR writes the files of the agent under test to DIR instead of reading the fixture.

use super::trouble::{Identity, identity};
use crate::support::agent::{Agent, container};
use crate::support::lab::{Runtime, signal};
use crate::support::yaml::{self, TRAP, script};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use wherry::api::uid::digest_of_bytes;

/// Part of the digests of the documents, so it is the same in each run.
const NAMESPACE: &str = "older-state";
const PODS: [&str; 6] = ["steady", "broken", "done", "big", "drained", "gone"];

fn uid_of(pod: &str) -> String {
    let number = PODS.iter().position(|name| *name == pod).expect("a pod of this test");
    format!("0a0a0a0a-0000-4000-8000-00000000000{number}")
}

/// The files by their path below the root directory. Last good versions have the name of their manifest.
type State = BTreeMap<String, String>;

/// The files in the directories of `parent`, with their texts.
fn files_below(parent: &Path) -> Vec<(PathBuf, String)> {
    let entries = |directory: PathBuf| fs::read_dir(directory).expect("a directory").flatten().map(|e| e.path());
    let files = entries(parent.to_owned()).flat_map(entries).filter(|path| path.is_file());
    files.map(|file| (file.clone(), fs::read_to_string(file).expect("a text"))).collect()
}

/// Reads the records and last good versions of an agent.
fn state_of(root: &Path) -> State {
    let mut state = State::new();
    for (path, text) in files_below(&root.join("records")) {
        let (_, value) = text.split_once('\n').expect("a header");
        let name = path.strip_prefix(root).expect("below the root").display().to_string();
        state.insert(name, value.to_owned());
    }
    for file in fs::read_dir(root.join("manifests")).expect("last good versions").flatten() {
        let text = fs::read_to_string(file.path()).expect("a last good version");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        // The record of the directory names the mount, which depends on the machine.
        let Some(path) = value["path"].as_str() else { continue };
        let name = Path::new(path).file_name().expect("a name").to_string_lossy().into_owned();
        state.insert(format!("manifests/{name}.json"), text);
    }
    state
}

/// Replaces the state of an agent.
fn put_state(agent: &Agent, state: &State) {
    let root = agent.root();
    for (file, _) in files_below(&root.join("records")) {
        fs::remove_file(file).expect("the agent's own record");
    }
    for (name, text) in state {
        if let Some(manifest) = name.strip_prefix("manifests/") {
            let manifest = agent.manifests().join(manifest.strip_suffix(".json").expect("a suffix"));
            let digest = digest_of_bytes(manifest.display().to_string().as_bytes());
            fs::write(root.join(format!("manifests/{}.json", &digest[..32])), text).expect("a last good version");
        } else {
            let header = format!("{{\"version\":1,\"sha256\":\"{}\"}}", digest_of_bytes(text.as_bytes()));
            fs::write(root.join(name), format!("{header}\n{text}")).expect("a record");
        }
    }
}

/// What differs from run to run, and the names that stand for it.
fn variables(agent: &Agent, state: &State) -> Vec<(String, String)> {
    let mut all = vec![(agent.manifests().display().to_string(), "@MANIFESTS@".to_owned())];
    for pod in PODS {
        for container in agent.containers(pod) {
            all.push((container.id, format!("@{pod}/{}@", container.metadata.attempt)));
        }
        let record = state.get(&format!("records/pods/{}.json", uid_of(pod)));
        let kept = record.and_then(|text| text.split_once("\"kept\":")?.1.split_inclusive('}').next());
        all.extend(kept.map(|kept| (kept.to_owned(), format!("@{pod}/kept@"))));
    }
    all
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state-0.1.0")
}

fn record(state: &State, variables: &[(String, String)], directory: &Path) {
    for (name, text) in state {
        let text = variables.iter().fold(text.clone(), |text, (value, name)| text.replace(value, name));
        let file = directory.join(name);
        fs::create_dir_all(file.parent().expect("a parent")).expect("WHERRY_RECORD");
        fs::write(file, text).expect("WHERRY_RECORD");
    }
}

fn recorded(variables: &[(String, String)]) -> State {
    let mut files = files_below(&fixture());
    files.extend(files_below(&fixture().join("records")));
    let read = |(file, text): (PathBuf, String)| {
        let name = file.strip_prefix(fixture()).expect("of the fixture").display().to_string();
        let text = variables.iter().fold(text, |text, (value, name)| text.replace(name, value));
        assert!(!text.contains("@MANIFESTS@") && !text.contains("/kept@"), "{name}: {text}");
        (name, text)
    };
    files.into_iter().map(read).collect()
}

fn apply(agent: &Agent, pod: &str, spec: &str) {
    let text = yaml::pod(NAMESPACE, pod, spec);
    let uid = format!("  name: {pod}\n  uid: {}\n", uid_of(pod));
    agent.write(&format!("{pod}.yaml"), &text.replace(&format!("  name: {pod}\n"), &uid));
}

fn survivors(agent: &Agent) -> [Identity; 2] {
    ["steady", "broken"].map(|pod| identity(agent, pod))
}

fn printed(agent: &Agent, arguments: &[&str]) -> String {
    let output = agent.wherry(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Brings each pod into the state of its name, cordons the node, and kills the agent. Returns what must not change.
fn prepare(agent: &mut Agent) -> [Identity; 2] {
    agent.write(
        "settings.yaml",
        &format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings, namespace: {NAMESPACE}}}\ndata: {{a: b}}\n"
        ),
    );
    for pod in ["steady", "broken", "drained", "gone"] {
        apply(agent, pod, TRAP);
    }
    apply(agent, "done", &script("Never", "exit 0"));
    let big = "containers: [{name: main, image: localhost/trap:1, resources: {requests: {cpu: 1000}}}]";
    apply(agent, "big", big);
    for pod in ["steady", "broken", "drained", "gone"] {
        agent.wait_running(pod);
    }
    agent.wait_phase("done", "Succeeded");
    agent.wait_phase("big", "Failed");
    let (id, pid, _) = identity(agent, "steady");
    signal(&pid.to_string(), "KILL");
    agent.wait("a restart", |a| a.running("steady", "main").is_some_and(|now| now != id));
    agent.wait_running("steady");
    printed(agent, &["drain", "drained"]);
    printed(agent, &["cordon"]);
    let written = |a: &Agent| state_of(&a.root()).keys().filter(|name| name.starts_with("manifests/")).count();
    agent.wait("all last good versions", |a| written(a) == PODS.len() + 1);
    let survivors = survivors(agent);
    agent.kill();
    survivors
}

#[test]
fn w25_the_state_of_version_0_1_0_is_adopted_after_a_kill() {
    let mut agent = Agent::prepare("older", &Runtime::shared());
    agent.namespace = NAMESPACE.to_owned();
    agent.run();
    let before = prepare(&mut agent);
    let own = state_of(&agent.root());
    let variables = variables(&agent, &own);
    assert_eq!(own.keys().filter(|name| name.contains("records/pods/")).count(), PODS.len());
    match std::env::var_os("WHERRY_RECORD").filter(|directory| !directory.is_empty()) {
        Some(directory) => record(&own, &variables, &Path::new(&directory).join("state")),
        None => {
            let state = recorded(&variables);
            let missing = own.keys().filter(|name| !state.contains_key(*name));
            // Version 0.1.0 did not have this record.
            assert_eq!(missing.collect::<Vec<_>>(), ["records/documents/in-force.json"]);
            put_state(&agent, &state);
        }
    }
    agent.delete("gone");
    agent.write("broken.yaml", "kind: Pod\nmetadata: {");

    agent.run();
    let steady = agent.wait_running("steady");
    assert_eq!(container(&steady, "main")["restartCount"], 1);
    agent.wait_running("broken");
    agent.wait_gone("gone");
    assert_eq!(survivors(&agent), before);
    let done = agent.wait_phase("done", "Succeeded");
    assert_eq!(container(&done, "main")["state"]["terminated"]["exitCode"], 0);
    assert_eq!(agent.containers("done").len(), 1, "it does not run again");
    assert_eq!(agent.wait_phase("big", "Failed")["status"]["reason"], "OutOfcpu");
    assert!(agent.running("drained", "main").is_none(), "it stays down");
    let status: serde_json::Value = serde_json::from_str(&printed(&agent, &["status", "-o", "json"])).expect("JSON");
    assert_eq!(status["node"]["cordoned"], true);
    let damaged = agent.log().lines().filter(|line| line.contains("corrupt") || line.contains("BadRecord")).count();
    assert_eq!(damaged, 0, "{}", agent.log());

    printed(&agent, &["uncordon"]);
    printed(&agent, &["undrain", "drained"]);
    agent.wait_running("drained");
    assert_eq!(survivors(&agent), before);
}
