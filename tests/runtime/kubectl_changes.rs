//! Objects that kubectl creates, changes and deletes, with each kubectl of the lab against a real agent and runtime.

use crate::support::agent::Agent;
use crate::support::kubectl::{Kubectl, Printed, programs};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The oldest kubectl validates only with a document that the agent does not serve.
fn validation(k: &Kubectl) -> &'static str {
    if k.minor < 29 { "--validate=false" } else { "--validate=true" }
}

fn manifests(agent: &Agent) -> Vec<String> {
    let entries = fs::read_dir(agent.manifests()).expect("manifests");
    let mut all: Vec<String> = entries.map(|e| e.expect("entry").file_name().into_string().expect("UTF-8")).collect();
    all.sort();
    all
}

fn pod(label: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: app, labels: {{version: {label}}}}}\nspec:\n  \
         terminationGracePeriodSeconds: 30\n  containers:\n  - name: main\n    image: {image}\n    \
         command: [sh, -c, 'while :; do sleep 1; done']\n"
    )
}

const BUSYBOX: &str = "localhost/busybox:1.35";

#[test]
fn each_kubectl_creates_changes_and_deletes_objects() {
    let agent = Agent::serving("kubechange");
    for (minor, program) in programs() {
        let k = Kubectl::new(&agent, minor, &program, &format!("k{minor}"), "");
        let (validate, is_old) = (validation(&k), minor < 29);
        let settings =
            k.file("settings.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: first}\n");
        let file = format!("kubectl_{}_configmap_settings.yaml", agent.namespace);

        assert_eq!(k.ok(&["create", validate, "-f", &settings]), "configmap/settings created\n");
        assert_eq!(manifests(&agent), [file.as_str()]);
        assert!(k.fails(&["create", validate, "-f", &settings]).contains("configmaps \"settings\" already exists"));
        k.ok(&["label", "cm", "settings", "team=edge"]);
        k.ok(&["annotate", "cm", "settings", "note=x"]);
        k.ok(&["patch", "cm", "settings", "-p", r#"{"data": {"b": "2"}}"#]);
        k.ok(&["patch", "cm", "settings", "--type=merge", "-p", r#"{"data": {"c": "3"}}"#]);
        k.ok(&["patch", "cm", "settings", "--type=json", "-p", r#"[{"op": "remove", "path": "/data/b"}]"#]);
        let shown = k.object("cm/settings");
        assert_eq!(shown["data"], serde_json::json!({ "a": "first", "c": "3" }));
        assert_eq!(
            (&shown["metadata"]["labels"]["team"], &shown["metadata"]["annotations"]["note"]),
            (&"edge".into(), &"x".into())
        );
        let before: u64 = shown["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number");
        k.ok(&["replace", validate, "-f", &settings]);
        let shown = k.object("cm/settings");
        assert_eq!(shown["data"], serde_json::json!({ "a": "first" }));
        let after: u64 = shown["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number");
        assert!(after > before);
        k.ok(&["edit", validate, "cm", "settings"]);
        assert_eq!(k.object("cm/settings")["data"]["a"], "second");
        if !is_old {
            k.ok(&["apply", "--server-side", "-f", &settings]);
            assert_eq!(k.object("cm/settings")["data"]["a"], "first");
            assert_eq!(k.ok(&["delete", "cm", "settings", "--dry-run=server"]).matches("settings").count(), 1);
            assert_eq!(manifests(&agent), [file.as_str()]);
        }
        assert!(k.ok(&["delete", "cm", "settings"]).starts_with("configmap \"settings\" deleted"));
        assert!(manifests(&agent).is_empty());

        // Newer versions send these as protobuf.
        k.ok(&["create", "configmap", "literal", "--from-literal=a=1"]);
        k.ok(&["create", "secret", "generic", "key", "--from-literal=password=hunter2"]);
        k.ok(&["create", "priorityclass", "high", "--value=1000"]);
        assert_eq!(k.object("secret/key")["data"]["password"], "aHVudGVyMg==");
        assert_eq!(k.object("priorityclass/high")["value"], 1000);
        k.ok(&["delete", "cm/literal", "secret/key", "priorityclass/high"]);
        assert!(manifests(&agent).is_empty());
    }
    assert!(!agent.log().contains("hunter2"));
}

#[test]
fn each_kubectl_applies_runs_and_deletes_pods() {
    let agent = Agent::serving("kubepods");
    for (minor, program) in programs() {
        let k = Kubectl::new(&agent, minor, &program, &format!("k{minor}"), "");
        let (validate, is_old) = (validation(&k), minor < 29);
        let first = k.file("first.yaml", &pod("one", BUSYBOX));
        assert_eq!(k.ok(&["apply", validate, "-f", &first]), "pod/app created\n");
        assert_eq!(k.ok(&["apply", validate, "-f", &first]), "pod/app unchanged\n");
        k.ok(&["wait", "--for=condition=Ready", "pod/app", "--timeout=120s"]);
        let running = agent.wait_running("app");
        // R5: labels change in place.
        let second = k.file("second.yaml", &pod("two", BUSYBOX));
        assert_eq!(k.ok(&["apply", validate, "-f", &second]), "pod/app configured\n");
        k.ok(&["label", "pod", "app", "extra=yes"]);
        let shown = k.object("pod/app");
        assert_eq!(shown["metadata"]["labels"], serde_json::json!({ "version": "two", "extra": "yes" }));
        assert_eq!(shown["metadata"]["uid"], running["metadata"]["uid"]);
        assert_eq!(shown["status"]["containerStatuses"][0]["restartCount"], 0);
        if !is_old {
            assert_eq!(k.run_words(&["diff", "-f", &second], b"").code, 0);
            let third = k.file("third.yaml", &pod("three", BUSYBOX));
            let Printed { code, out, err } = k.run_words(&["diff", "-f", &third], b"");
            assert!(code == 1 && out.contains("version: three"), "{code:?} {out} {err}");
            let Printed { out, .. } = k.run_words(&["apply", "--dry-run=server", "-f", &third], b"");
            assert!(out.contains("pod/app configured (server dry run)"), "{out}");
            assert_eq!(k.object("pod/app")["metadata"]["labels"]["version"], "two");
        }
        // The pod has 30 s, and ends at once.
        k.ok(&["delete", "pod", "app", "--now"]);
        agent.wait_gone("app");
        assert!(manifests(&agent).is_empty());
        // A change of the image replaces the pod.
        k.ok(&["apply", validate, "-f", &first]);
        agent.wait_running("app");
        let uid = k.object("pod/app")["metadata"]["uid"].clone();
        let Printed { code, err, .. } = k.run_words(&["set", "image", "pod/app", "main=localhost/trap:1"], b"");
        assert!(code == 0 && err.contains("the pod is being replaced"), "{err}");
        let deleted = k.ok(&["delete", "pod", "app", "--now", "--wait=false"]);
        assert!(deleted.starts_with("pod \"app\" deleted"), "{deleted} {uid}");
        agent.wait_gone("app");

        assert_eq!(
            k.ok(&["run", "job", "--image", BUSYBOX, "--restart=Never", "--", "sh", "-c", "exit 0"]),
            "pod/job created\n"
        );
        agent.wait_phase("job", "Succeeded");
        k.ok(&["delete", "pod/job"]);
        agent.wait_gone("job");
    }
}

#[test]
fn invalid_changes_are_refused_and_change_nothing() {
    let agent = Agent::serving("kubebad");
    let Some((minor, program)) = programs().pop() else { return };
    let k = Kubectl::new(&agent, minor, &program, "editor", "");
    let viewer = Kubectl::new(&agent, minor, &program, "viewer", "--view");
    let shared = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {0}}}\n---\napiVersion: v1\nkind: ConfigMap\n\
         metadata: {{name: b, namespace: {0}}}\n",
        agent.namespace
    );
    agent.write("shared.yaml", &shared);
    agent.wait("the ConfigMaps of the file", |_| k.run_words(&["get", "cm", "b"], b"").code == 0);
    for arguments in [&["delete", "cm", "b"][..], &["label", "cm", "b", "x=y"]] {
        let err = k.fails(arguments);
        assert!(err.contains("shared.yaml, line 5, defines this object together with 1 other"), "{err}");
    }
    let misspelt = k.file("misspelt.yaml", &pod("one", "x").replace("command:", "comand:"));
    assert!(k.fails(&["create", "-f", &misspelt]).contains("unknown field; did you mean command?"));
    let classless = k.file("class.yaml", &pod("one", "x").replace("spec:\n", "spec:\n  priorityClassName: missing\n"));
    let err = k.fails(&["create", "-f", &classless]);
    assert!(err.contains("missing"), "{err}");
    agent.wait("the file of the refused pod is taken back", |a| manifests(a) == ["shared.yaml"]);
    assert!(k.fails(&["delete", "pod", "nothing"]).contains("pods \"nothing\" not found"));
    assert!(k.fails(&["delete", "lease", "node", "-n", "kube-node-lease"]).contains("does not allow this method"));
    for arguments in [&["delete", "cm", "b"][..], &["get", "secrets"], &["run", "x", "--image=x"]] {
        let err = viewer.fails(arguments);
        assert!(err.contains("forbidden") && err.contains("the certificate has the role view"), "{err}");
    }
    assert_eq!(fs::read_to_string(agent.manifests().join("shared.yaml")).expect("shared.yaml"), shared);
    assert_eq!(manifests(&agent), ["shared.yaml"]);
}

#[test]
fn a_kill_while_objects_are_created_leaves_whole_files() {
    let mut agent = Agent::serving("kubekill");
    let Some((minor, program)) = programs().pop() else { return };
    let k = Kubectl::new(&agent, minor, &program, "editor", "");
    for n in 0..6 {
        let name = format!("c{n}");
        let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: first}}\n");
        let file = k.file("one.yaml", &text);
        let mut creating = Command::new(&program);
        k.environment(&mut creating);
        creating.args(["create", "-f", &file]);
        let mut child = creating.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("kubectl");
        // The kills are spread over the time of the command.
        std::thread::sleep(Duration::from_millis(30 + 15 * n));
        agent.kill();
        child.wait().expect("kubectl");
        agent.run();
        agent.wait("kubectl is served", |_| k.run_words(&["get", "cm"], b"").code == 0);
        // Created or not: the next attempt finds one of both.
        let Printed { code, out, err } = k.run_words(&["apply", "-f", &file], b"");
        assert_eq!(code, 0, "{out} {err}");
        assert_eq!(k.object(&format!("cm/{name}"))["data"]["a"], "first");
    }
    assert_eq!(manifests(&agent).iter().filter(|name| !name.starts_with('.')).count(), 6);
}

#[test]
fn l4_the_previous_log_of_a_crashing_container_is_that_of_its_last_crash() {
    let agent = Agent::serving("kubecrash");
    let spec = "
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'echo >> /v/runs; echo run $(wc -l < /v/runs); exit 1']
          volumeMounts: [{name: v, mountPath: /v}]
        volumes: [{name: v, emptyDir: {}}]
        ";
    agent.apply("crash", spec);
    agent.apply("large", "containers: [{name: main, image: 'localhost/trap:1', resources: {requests: {cpu: 5000}}}]");
    for (minor, program) in programs() {
        let k = Kubectl::new(&agent, minor, &program, &format!("crash-{minor}"), "");
        let waits = |a: &Agent| {
            let status = a.pod("crash")?["status"]["containerStatuses"][0].clone();
            let is_waiting = status["state"]["waiting"]["reason"] == "CrashLoopBackOff";
            is_waiting.then(|| status["restartCount"].as_u64().unwrap_or_default())
        };
        // Each back-off is twice as long as the one before.
        agent.wait("all logs in one back-off", |a| {
            let Some(restarts) = waits(a) else { return false };
            let last = format!("run {}\n", restarts + 1);
            let shown = [k.run_words(&["logs", "crash"], b""), k.run_words(&["logs", "crash", "-p"], b"")];
            let own = a.wherry(&["logs", "-p", &format!("{}/crash", a.namespace)]).stdout;
            if waits(a) != Some(restarts) {
                return false;
            }
            assert!(shown.iter().all(|p| p.out == last), "1.{minor} {last:?}: {} {}", shown[0].out, shown[1].out);
            assert_eq!(String::from_utf8_lossy(&own), last);
            true
        });
        let why = k.fails(&["logs", "large"]);
        assert!(why.contains("container \"main\" in pod \"large\" has never run: OutOfcpu: "), "{why}");
    }
}

#[test]
fn w4_a_second_deletion_waits_and_shortens_the_grace_period() {
    let mut agent = Agent::serving("kubeagain");
    // It ignores SIGTERM.
    let deaf = "
        terminationGracePeriodSeconds: 600
        containers:
        - {name: main, image: 'localhost/busybox:1.35', command: [sh, -c, 'trap : TERM; while :; do sleep 1; done']}
        ";
    for (minor, program) in programs() {
        let k = Kubectl::new(&agent, minor, &program, &format!("again-{minor}"), "");
        for (round, arguments) in
            [&["--now"][..], &["--force", "--grace-period=0"], &["--grace-period=2"]].iter().enumerate()
        {
            let name = format!("deaf-{minor}-{round}");
            agent.apply(&name, deaf);
            agent.wait_running(&name);
            k.ok(&["delete", "pod", &name, "--wait=false"]);
            let first = k.object(&format!("pod/{name}"));
            assert_eq!(first["metadata"]["deletionGracePeriodSeconds"], 600, "{first:#}");
            // Without a period, or with a longer one, nothing changes. A dry run changes nothing.
            k.ok(&["delete", "pod", &name, "--wait=false"]);
            k.ok(&["delete", "pod", &name, "--wait=false", "--grace-period=700"]);
            // (The oldest kubectl asks for a document that the agent does not serve.)
            if minor >= 29 {
                k.ok(&["delete", "pod", &name, "--now", "--wait=false", "--dry-run=server"]);
            }
            assert_eq!(k.object(&format!("pod/{name}"))["metadata"]["deletionGracePeriodSeconds"], 600);
            if round == 0 {
                agent.kill();
                agent.run_with_kubectl();
            }
            let deleted = k.ok(&[&["delete", "pod", &name][..], arguments].concat());
            assert!(deleted.contains("deleted"), "{deleted}");
            agent.wait_gone(&name);
            let again = k.ok(&["delete", "pod", &name, "--ignore-not-found"]);
            assert_eq!(again, "");
        }
    }
}

#[test]
fn manifests_that_people_have_written_are_changed_with_care() {
    let agent = Agent::serving("kubecare");
    let namespace = agent.namespace.clone();
    let object = |kind: &str, name: &str, more: &str| {
        format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\n{more}")
    };
    let script = object("ConfigMap", "script", "data:\n  run: |\n    #!/bin/sh\n    # not a comment of the manifest\n");
    agent.write("script.yaml", &script);
    let target = agent.dir.join("behind-the-link.yaml");
    fs::write(&target, object("ConfigMap", "linked", "data: {a: b}\n")).expect("the target");
    std::os::unix::fs::symlink(&target, agent.manifests().join("linked.yaml")).expect("a link");
    let old = "metadata:\n  creationTimestamp: 2020-01-01T00:00:00Z\n";
    let pod = object("Pod", "app", "spec: {containers: [{name: main, image: 'localhost/trap:1'}]}\n");
    let metadata = format!("{old}  name: app\n  namespace: {namespace}\n");
    agent.write("app.yaml", &pod.replace(&format!("metadata: {{name: app, namespace: {namespace}}}\n"), &metadata));
    agent.wait_running("app");
    for (minor, program) in programs() {
        let k = Kubectl::new(&agent, minor, &program, &format!("care-{minor}"), "");
        // A value of `stringData`.
        agent.write("login.yaml", &object("Secret", "login", "stringData: {password: one, user: me}\n"));
        agent.wait("the Secret is served", |_| k.run_words(&["get", "secret", "login"], b"").code == 0);
        k.ok(&["patch", "secret", "login", "-p", "{\"data\": {\"password\": \"dHdv\"}}"]);
        k.ok(&["patch", "secret", "login", "--type=json", "-p", "[{\"op\": \"remove\", \"path\": \"/data/user\"}]"]);
        assert_eq!(k.object("secret/login")["data"], serde_json::json!({ "password": "dHdv" }));
        fs::remove_file(agent.manifests().join("login.yaml")).expect("remove");
        agent.wait("the Secret is gone", |_| k.run_words(&["get", "secret", "login"], b"").code == 1);
        // A `#` in a script, and a comment.
        agent.write("script.yaml", &script);
        agent.wait("the label is gone", |_| k.object("cm/script")["metadata"]["labels"].is_null());
        let Printed { code, err, .. } = k.run_words(&["label", "cm", "script", "a=b"], b"");
        assert_eq!((code, err.as_str()), (0, ""), "1.{minor}");
        agent.write("script.yaml", &format!("# the start\n{script}"));
        agent.wait("the label is gone", |_| k.object("cm/script")["metadata"]["labels"].is_null());
        let Printed { code, err, .. } = k.run_words(&["label", "cm", "script", "a=b"], b"");
        assert!(code == 0 && err.contains("are lost"), "1.{minor} {err}");
        // A link, and an old time in the file.
        let why = k.fails(&["label", "cm", "linked", "a=b"]);
        assert!(why.contains("is a symbolic link to") && why.contains("change that file"), "{why}");
        let created = k.object("pod/app")["metadata"]["creationTimestamp"].clone();
        assert!(created.as_str().is_some_and(|at| !at.starts_with("2020")), "{created}");
        if minor >= 32 {
            let patch = "{\"spec\": {\"containers\": [{\"name\": \"main\", \"resources\": {}}]}}";
            let why = k.fails(&["patch", "pod", "app", "--subresource", "resize", "-p", patch]);
            assert!(why.contains("kubectl edit pod app"), "{why}");
        }
    }
    assert!(agent.manifests().join("linked.yaml").is_symlink());
}
