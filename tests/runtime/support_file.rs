//! `wherry support`: the file for a bug report, of an agent with pods that have secrets everywhere, and without an agent.

use crate::support::agent::{Agent, container, patience, uid};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::time::Instant;

/// The texts that must not be in the archive, and where they are.
const ENVIRONMENT: &str = "secret-of-the-environment";
const ANNOTATION: &str = "secret-of-the-annotation";
const CONFIG_MAP: &str = "secret-of-the-config-map";
const SECRET: &str = "secret-of-the-secret";
const ARGUMENT: &str = "secret-of-an-argument";
const PROBE: &str = "secret-output-of-a-probe";
const LAST_WORDS: &str = "secret-last-words";
const LOG: &str = "secret-line-of-a-log";
const CREDENTIAL: &str = "secret-of-a-registry";
const SECRETS: [&str; 9] = [ENVIRONMENT, ANNOTATION, CONFIG_MAP, SECRET, ARGUMENT, PROBE, LAST_WORDS, LOG, CREDENTIAL];

fn support(agent: &Agent, output: &Path) -> Output {
    agent.command_of("support").arg("-o").arg(output).output().expect("wherry support")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the files of an archive, by their paths below its only directory.
fn unpacked(path: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(path).expect("the archive")));
    let mut files = BTreeMap::new();
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a path").display().to_string();
        let (directory, name) = name.split_once('/').expect("a directory");
        assert!(directory.starts_with("wherry-support-node-20"), "{directory}");
        let name = name.to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("content");
        files.insert(name, text(&content));
    }
    files
}

fn apply(agent: &Agent) {
    let namespace = &agent.namespace;
    let data = STANDARD.encode(SECRET);
    agent.write(
        "objects.yaml",
        &format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{namespace: {namespace}, name: settings}}, \
             data: {{key: {CONFIG_MAP}}}}}\n---\n\
             {{apiVersion: v1, kind: Secret, metadata: {{namespace: {namespace}, name: login}}, data: {{key: {data}}}}}\n"
        ),
    );
    agent.write(
        "web.yaml",
        &format!(
            "
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: {namespace}
  annotations: {{note: {ANNOTATION}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/busybox:1.35
    command: [sh, -c, 'echo {LOG}; trap \"exit 0\" TERM; while :; do sleep 0.1; done', {ARGUMENT}]
    env:
    - {{name: PLAIN, value: {ENVIRONMENT}}}
    - {{name: PASSWORD, valueFrom: {{secretKeyRef: {{name: login, key: key}}}}}}
    readinessProbe: {{periodSeconds: 1, exec: {{command: [sh, -c, 'echo {PROBE}; exit 1']}}}}
    volumeMounts: [{{name: settings, mountPath: /settings}}, {{name: login, mountPath: /login}}]
  volumes:
  - {{name: settings, configMap: {{name: settings}}}}
  - {{name: login, secret: {{secretName: login}}}}
"
        ),
    );
    agent.write(
        "once.yaml",
        &format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{namespace: {namespace}, name: once}}, spec: {{restartPolicy: Never, \
             containers: [{{name: main, image: 'localhost/busybox:1.35', \
             command: [sh, -c, 'echo {LAST_WORDS} > /dev/termination-log; exit 1']}}]}}}}\n"
        ),
    );
}

#[test]
fn the_file_for_a_bug_report_describes_the_agent_and_contains_no_secret() {
    let mut agent = Agent::start("support");
    fs::write(agent.root().join("config.json"), format!("{{\"auths\":{{\"r.io\":{{\"auth\":\"{CREDENTIAL}\"}}}}}}"))
        .expect("config.json");
    apply(&agent);
    let web = agent.wait_running("web");
    agent.wait("the termination message is in the status", |a| {
        a.pod("once").is_some_and(|pod| container(&pod, "main").to_string().contains(LAST_WORDS))
    });
    agent.wait("the probe has failed", |a| text(&a.wherry(&["events"]).stdout).contains(PROBE));
    // A crash report with a state in it, as the agent writes it. The state is cut.
    let crashes = agent.root().join("crashes");
    fs::create_dir_all(&crashes).expect("crashes");
    let dump = text(&agent.wherry(&["debug", "dump"]).stdout);
    assert!(dump.contains(LAST_WORDS), "the dump alone would tell");
    let cut = &dump[..dump.rfind(LAST_WORDS).expect("a place") + LAST_WORDS.len()];
    fs::write(crashes.join("panic-1.txt"), format!("The previous wherry panicked\n\n{cut}")).expect("a crash report");

    let path = agent.dir.join("report.tar.gz");
    let began = Instant::now();
    let output = support(&agent, &path);
    assert!(output.status.success(), "{output:?}");
    assert!(began.elapsed() < patience(120), "{:?}", began.elapsed());
    assert!(text(&output.stdout).starts_with(&format!("{}: ", path.display())), "{output:?}");
    assert!(text(&output.stderr).contains("look through the archive before you send it"), "{output:?}");
    assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o7777, 0o600);

    let files = unpacked(&path);
    for name in [
        "version.txt",
        "config.yaml",
        "config-files/1-config.yaml",
        "status.json",
        "pods.json",
        "events.json",
        "shutdown-plan.json",
        "usage.json",
        "images.json",
        "dump.json",
        "fds.json",
        "metrics.txt",
        "process/status.txt",
        "crashes/panic-1.txt",
        "check-system.txt",
        "manifests.txt",
        "root.txt",
        "disks.txt",
        "mounts.txt",
        "meminfo.txt",
        "errors.txt",
    ] {
        assert!(files.get(name).is_some_and(|content| !content.is_empty()), "{name}: {:?}", files.keys());
    }
    // The parts have what a reader of the report looks for.
    let uid = uid(&web);
    let volumes = format!(" pods/{uid}/volumes\n");
    let process = format!("Pid:\t{}\n", agent.pid());
    for (name, part) in [
        ("pods.json", uid.as_str()),
        ("pods.json", "localhost/busybox:1.35"),
        ("pods.json", "\"secretName\": \"login\""),
        ("events.json", "Readiness probe failed: <removed>"),
        ("dump.json", uid.as_str()),
        ("config.yaml", "maxPods: "),
        ("config.yaml", agent.root().to_str().expect("text")),
        ("manifests.txt", " web.yaml\n"),
        ("root.txt", volumes.as_str()),
        ("process/status.txt", process.as_str()),
        ("crashes/panic-1.txt", "(the state is cut)"),
        ("crashes/panic-1.txt", "\"agent\": {"),
    ] {
        assert!(files[name].contains(part), "{name}, {part}: {}", files[name]);
    }
    for secret in SECRETS {
        for hidden in [secret.to_owned(), STANDARD.encode(secret)] {
            let found: Vec<&String> =
                files.iter().filter(|(_, content)| content.contains(&hidden)).map(|(name, _)| name).collect();
            assert!(found.is_empty(), "{hidden} is in {found:?}");
        }
    }
    // A file is never replaced, and an error leaves nothing behind.
    let before = fs::read(&path).expect("the file");
    let again = support(&agent, &path);
    let said = text(&again.stderr);
    assert_eq!(again.status.code(), Some(1));
    assert!(said.contains(&format!("{} exists; remove it", path.display())), "{said}");
    assert_eq!(fs::read(&path).expect("the file"), before);
    let left = fs::read_dir(&agent.dir).expect("a directory").flatten().map(|entry| entry.file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().ends_with(".new")).count(), 0);

    // Without an agent.
    agent.terminate();
    let path = agent.dir.join("stopped.tar.gz");
    let output = support(&agent, &path);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("missing or cut, see errors.txt"), "{output:?}");
    let files = unpacked(&path);
    let errors = &files["errors.txt"];
    assert!(errors.contains("status.json and all other data of the running agent: missing: "), "{errors}");
    assert!(errors.contains(&agent.socket.display().to_string()), "{errors}");
    assert!(files.contains_key("check-system.txt") && !files.contains_key("pods.json"), "{:?}", files.keys());
}

#[test]
fn the_file_for_a_bug_report_goes_to_standard_output_if_that_is_no_terminal() {
    let agent = Agent::prepare("support", &crate::support::lab::Runtime::shared());
    let output = support(&agent, Path::new("-"));
    assert!(output.status.success(), "{:?}", text(&output.stderr));
    let path = agent.dir.join("piped.tar.gz");
    fs::write(&path, &output.stdout).expect("a file");
    assert!(unpacked(&path)["version.txt"].starts_with("wherry: "));
}
