//! Secrets and tokens on the disk are sealed with a systemd credential (C15).

use crate::support::agent::Agent;
use crate::support::control_plane::ControlPlane;
use crate::support::cri::Cri;
use crate::support::lab::{Runtime, signal};
use crate::wherry::{all_run, deployment, is_ready, name, running};
use crate::{ok, ok_with, pods, wait_for_pods};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PASSWORD: &str = "quayside-4417-lantern";
/// The same in base64, as the records contain it.
const ENCODED: &str = "cXVheXNpZGUtNDQxNy1sYW50ZXJu";

/// Has systemd-creds encrypt and decrypt the key, as the service manager does. The host key is in a private mount.
fn make_credential(directory: &Path) {
    std::fs::create_dir_all(directory).expect("a directory");
    let script = "set -e; mount -t tmpfs tmpfs /var/lib/systemd; cd \"$1\"; \
        head -c 32 /dev/urandom | systemd-creds encrypt --with-key=host --name=wherry.key - encrypted; \
        mkdir -m 700 service; systemd-creds decrypt --name=wherry.key encrypted service/wherry.key; rm encrypted";
    let output =
        Command::new("unshare").args(["-m", "sh", "-c", script, "sh"]).arg(directory).output().expect("unshare");
    assert!(output.status.success(), "{output:?}");
}

/// The files of the state with this text, without other file systems: the volumes of pods are on a tmpfs.
fn files_with(agent: &Agent, text: &str) -> Vec<PathBuf> {
    let output = Command::new("find").arg(agent.root()).args(["-xdev", "-type", "f"]).output().expect("find");
    let all = String::from_utf8(output.stdout).expect("paths");
    let has =
        |file: &&str| std::fs::read(file).is_ok_and(|c| c.windows(text.len()).any(|part| part == text.as_bytes()));
    all.lines().filter(has).map(PathBuf::from).collect()
}

/// The records of Secrets and tokens.
fn secrets(agent: &Agent) -> BTreeMap<PathBuf, Vec<u8>> {
    let of = |kind: &str| std::fs::read_dir(agent.root().join("records").join(kind)).expect("records");
    let files = of("objects").chain(of("tokens")).map(|entry| entry.expect("an entry").path());
    let files = files.filter(|file| !file.display().to_string().contains("/configmap."));
    files.map(|file| (file.clone(), std::fs::read(file).expect("a record"))).collect()
}

fn are_sealed(agent: &Agent) -> bool {
    secrets(agent).values().all(|content| content.starts_with(b"wherry-sealed 1 "))
}

fn crash(cri: &mut Cri, id: &str) {
    signal(&cri.container_pid(id).to_string(), "KILL");
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

#[test]
fn c15_secrets_and_tokens_are_sealed_on_the_disk() {
    let plane = ControlPlane::start("sealed");
    let (namespace, node) = ("sealed", "strongbox");
    let admin = plane.namespace(namespace);
    let mut agent = Agent::prepare(node, &Runtime::shared());
    agent.set_cluster(node, &plane.kubeconfig_of_node(node));
    let credentials = agent.dir.join("credentials");
    make_credential(&credentials);
    let service = credentials.join("service").display().to_string();
    agent.run();
    plane.wait("the node is ready", |plane| is_ready(plane, node));
    ok(&admin, &format!("create secret generic keys --from-literal=password={PASSWORD}"));
    let script = "[ -n \"$PASSWORD\" ] && [ $(cat /keys/password) = $PASSWORD ] && exec sleep 3600";
    let more = json!({
        "automountServiceAccountToken": true,
        "volumes": [{ "name": "keys", "secret": { "secretName": "keys" } }],
        "command": ["sh", "-c", script],
        "env": [{ "name": "PASSWORD", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "password" } } }],
        "volumeMounts": [{ "name": "keys", "mountPath": "/keys" }],
    });
    ok_with(&admin, "create -f -", &deployment("web", 1, node, &more));
    plane.wait("the pod runs", |plane| all_run(plane, namespace, 1));
    let web = name(&pods(&plane, namespace)[0]);
    let mut cri = agent.cri();
    let first = running(&mut cri, namespace).remove(0);
    let token = format!("/proc/{}/root/var/run/secrets/kubernetes.io/serviceaccount/token", cri.container_pid(&first));
    let token = std::fs::read_to_string(token).expect("the token in the pod");

    // Without a key, the records are plain.
    assert_eq!((files_with(&agent, ENCODED).len(), files_with(&agent, &token).len()), (1, 1));
    assert!(files_with(&agent, PASSWORD).is_empty());
    assert_eq!(secrets(&agent).len(), 2);

    // With a key, a start seals them, also when it is killed.
    agent.kill();
    agent.set("CREDENTIALS_DIRECTORY", &service);
    for milliseconds in (0..200).step_by(20) {
        agent.launch();
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        agent.kill();
        let mut records = secrets(&agent);
        // The next start removes the file of an unfinished write.
        records.retain(|file, _| file.extension().is_some_and(|end| end == "json"));
        let is_whole =
            |content: &[u8]| content.starts_with(b"wherry-sealed 1 ") || content.starts_with(b"{\"version\":1");
        assert!(records.len() == 2 && records.values().all(|content| is_whole(content)), "{:?}", records.keys());
    }
    agent.run();
    agent.wait("the records are sealed", are_sealed);
    let plain = || [PASSWORD, ENCODED, &token].map(|text| files_with(&agent, text));
    assert_eq!(plain(), [const { Vec::<PathBuf>::new() }; 3]);
    assert_eq!(running(&mut cri, namespace), [first.as_str()], "the pod runs on");

    // Without the server: a crash of both, with a Secret that only the disk has.
    plane.stop_api_server();
    agent.kill();
    crash(&mut cri, &first);
    agent.run();
    let second = agent.wait_for("the container was restarted", |agent| {
        running(&mut agent.cri(), namespace).into_iter().find(|id| *id != first)
    });

    // Without the key, nothing is lost, nothing stops, and a restart waits.
    let before = secrets(&agent);
    agent.kill();
    agent.environment.clear();
    agent.run();
    agent.wait("the log has the remedy", |agent| {
        agent
            .log()
            .lines()
            .any(|line| line.contains("FailedUnseal") && line.contains("LoadCredentialEncrypted=wherry.key"))
    });
    assert_eq!(running(&mut cri, namespace), [second.as_str()]);
    crash(&mut cri, &second);
    agent.wait("the container waits for the Secret", |agent| {
        let shown = agent.pod(&web).unwrap_or_default();
        let waiting = &shown["status"]["containerStatuses"][0]["state"]["waiting"];
        waiting["message"].as_str().is_some_and(|message| message.contains("is sealed"))
            || text(&agent.wherry(&["describe", &web])).contains("is sealed")
    });
    assert!(running(&mut cri, namespace).is_empty());
    for command in [&["status"][..], &["events"]] {
        let shown = text(&agent.wherry(command));
        assert!(shown.contains("LoadCredentialEncrypted=wherry.key"), "{command:?}: {shown}");
    }
    assert_eq!(secrets(&agent), before);
    let keep = |agent: &Agent, arguments: &[&str]| {
        let mut command = agent.command_of("keep");
        text(&command.arg(&web).args(arguments).output().expect("wherry"))
    };
    let refused = keep(&agent, &["--plain-secrets"]);
    assert!(refused.contains("is sealed") && refused.contains("systemd-run --pipe"), "{refused}");
    let dump = text(&agent.wherry(&["debug", "dump"]));
    assert!(dump.contains("secret.sealed.keys") && !dump.contains(ENCODED) && !dump.contains(PASSWORD), "{dump}");

    // With the key again.
    agent.kill();
    agent.set("CREDENTIALS_DIRECTORY", &service);
    agent.run();
    agent.wait("the container runs again", |agent| running(&mut agent.cri(), namespace).len() == 1);
    assert_eq!(secrets(&agent), before);
    let refused = keep(&agent, &[]);
    assert!(refused.contains("--plain-secrets") && !refused.contains("wrote"), "{refused}");
    assert!(keep(&agent, &["--dry-run"]).contains(ENCODED));
    assert_eq!(std::fs::read_dir(agent.manifests()).expect("manifests").count(), 0);
    let plain = || [PASSWORD, ENCODED, &token].map(|text| files_with(&agent, text));
    assert_eq!(plain(), [const { Vec::<PathBuf>::new() }; 3]);
    assert!(![PASSWORD, ENCODED, &token].iter().any(|value| agent.log().contains(*value)));

    // The way back, and forth.
    let drop_in = agent.dir.join("config.d/30-seal.yaml");
    let policy =
        |name: &str| format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nsealSecrets: {name}\n");
    std::fs::write(&drop_in, policy("Never")).expect("a drop-in");
    agent.kill();
    agent.run();
    agent.wait("the records are plain", |agent| {
        files_with(agent, ENCODED).len() == 1 && files_with(agent, &token).len() == 1
    });
    std::fs::write(&drop_in, policy("Required")).expect("a drop-in");
    agent.kill();
    agent.run();
    agent.wait("the records are sealed again", are_sealed);
    assert_eq!((files_with(&agent, ENCODED).len(), secrets(&agent).len()), (0, 2));

    plane.start_api_server();
    plane.wait("the pod runs", |plane| all_run(plane, namespace, 1));
    ok(&admin, "delete deployment web");
    wait_for_pods(&plane, namespace, 0);
    agent.wait("the records are gone", |agent| secrets(agent).is_empty());
    assert_eq!(agent.cri().sandboxes(namespace).len(), 0);
}
