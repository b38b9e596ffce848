//! Objects that kubectl creates, changes and deletes, with each kubectl of the lab against a real agent and runtime.

use crate::support::agent::Agent;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The first port for kubectl. As for the health port, each agent has its own.
const FIRST_PORT: u16 = 24_000;
const HEALTH_PORTS: u16 = 20_000;

/// An agent that serves kubectl.
fn serving(name: &str) -> Agent {
    let mut agent = Agent::prepare(name, &crate::support::lab::Runtime::shared());
    let port = FIRST_PORT + agent.healthz_port - HEALTH_PORTS;
    let text = format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nkubectlPort: {port}\n");
    fs::write(agent.dir.join("config.d/20-kubectl.yaml"), text).expect("a drop-in");
    agent.run();
    agent.wait("the listener for kubectl", |_| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    agent
}

struct Kubectl {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
}

/// What a command has printed, and its exit code.
struct Printed {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Kubectl {
    fn new(program: &Path, agent: &Agent, role: &[&str]) -> Kubectl {
        let number = program.display().to_string().replace('/', "_");
        let home = agent.dir.join(format!("home{number}{}", role.join("")));
        fs::create_dir_all(&home).expect("a home");
        let kubeconfig = home.join("kubeconfig");
        let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
        command.arg("kubeconfig").arg("--config").arg(agent.dir.join("config.yaml"));
        command.arg("--config-dir").arg(agent.dir.join("config.d")).arg("--root-dir").arg(agent.root());
        command.args(["--hostname", "node"]).args(role).arg("--output").arg(&kubeconfig);
        let output = command.output().expect("wherry kubeconfig");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Kubectl { program: program.to_owned(), home, kubeconfig, namespace: agent.namespace.clone() }
    }

    fn run(&self, arguments: &[&str]) -> Printed {
        let mut command = Command::new(&self.program);
        command
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBE_EDITOR", "sed -i s/first/second/");
        let Output { status, stdout, stderr } =
            command.args(["-n", &self.namespace]).args(arguments).output().expect("kubectl");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Printed { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    /// Runs a command that must succeed.
    fn ok(&self, arguments: &[&str]) -> String {
        let Printed { code, out, err } = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {out} {err}");
        out
    }

    /// Runs a command that must fail.
    fn fails(&self, arguments: &[&str]) -> String {
        let Printed { code, out, err } = self.run(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {out} {err}");
        err
    }

    fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&["get", what, "-o", "json"])).expect("JSON")
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }
}

/// The available kubectls: the oldest first. The first one validates only with an old document, which the agent does not serve.
fn kubectls() -> Vec<(PathBuf, bool)> {
    let paths = std::env::var("WHERRY_KUBECTL").unwrap_or_default();
    let paths: Vec<PathBuf> = paths.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
    assert!(!paths.is_empty(), "no kubectl is available; tests/lab/kubectl.sh prints the reason");
    let old = |path: &Path| path.components().any(|c| c.as_os_str() == "kubectl-1.20");
    paths.into_iter().map(|path| (path.clone(), old(&path))).collect()
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
    let agent = serving("kubechange");
    for (program, is_old) in kubectls() {
        let k = Kubectl::new(&program, &agent, &[]);
        let validate = if is_old { "--validate=false" } else { "--validate=true" };
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
        let shown = k.get("cm/settings");
        assert_eq!(shown["data"], serde_json::json!({ "a": "first", "c": "3" }));
        assert_eq!(
            (&shown["metadata"]["labels"]["team"], &shown["metadata"]["annotations"]["note"]),
            (&"edge".into(), &"x".into())
        );
        let before: u64 = shown["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number");
        k.ok(&["replace", validate, "-f", &settings]);
        let shown = k.get("cm/settings");
        assert_eq!(shown["data"], serde_json::json!({ "a": "first" }));
        let after: u64 = shown["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number");
        assert!(after > before);
        k.ok(&["edit", validate, "cm", "settings"]);
        assert_eq!(k.get("cm/settings")["data"]["a"], "second");
        if !is_old {
            k.ok(&["apply", "--server-side", "-f", &settings]);
            assert_eq!(k.get("cm/settings")["data"]["a"], "first");
            assert_eq!(k.ok(&["delete", "cm", "settings", "--dry-run=server"]).matches("settings").count(), 1);
            assert_eq!(manifests(&agent), [file.as_str()]);
        }
        assert!(k.ok(&["delete", "cm", "settings"]).starts_with("configmap \"settings\" deleted"));
        assert!(manifests(&agent).is_empty());

        // Newer versions send these as protobuf.
        k.ok(&["create", "configmap", "literal", "--from-literal=a=1"]);
        k.ok(&["create", "secret", "generic", "key", "--from-literal=password=hunter2"]);
        k.ok(&["create", "priorityclass", "high", "--value=1000"]);
        assert_eq!(k.get("secret/key")["data"]["password"], "aHVudGVyMg==");
        assert_eq!(k.get("priorityclass/high")["value"], 1000);
        k.ok(&["delete", "cm/literal", "secret/key", "priorityclass/high"]);
        assert!(manifests(&agent).is_empty());
    }
    assert!(!agent.log().contains("hunter2"));
}

#[test]
fn each_kubectl_applies_runs_and_deletes_pods() {
    let agent = serving("kubepods");
    for (program, is_old) in kubectls() {
        let k = Kubectl::new(&program, &agent, &[]);
        let validate = if is_old { "--validate=false" } else { "--validate=true" };
        let first = k.file("first.yaml", &pod("one", BUSYBOX));
        assert_eq!(k.ok(&["apply", validate, "-f", &first]), "pod/app created\n");
        assert_eq!(k.ok(&["apply", validate, "-f", &first]), "pod/app unchanged\n");
        k.ok(&["wait", "--for=condition=Ready", "pod/app", "--timeout=120s"]);
        let running = agent.wait_running("app");
        // R5: labels change in place.
        let second = k.file("second.yaml", &pod("two", BUSYBOX));
        assert_eq!(k.ok(&["apply", validate, "-f", &second]), "pod/app configured\n");
        k.ok(&["label", "pod", "app", "extra=yes"]);
        let shown = k.get("pod/app");
        assert_eq!(shown["metadata"]["labels"], serde_json::json!({ "version": "two", "extra": "yes" }));
        assert_eq!(shown["metadata"]["uid"], running["metadata"]["uid"]);
        assert_eq!(shown["status"]["containerStatuses"][0]["restartCount"], 0);
        if !is_old {
            assert_eq!(k.run(&["diff", "-f", &second]).code, Some(0));
            let third = k.file("third.yaml", &pod("three", BUSYBOX));
            let Printed { code, out, err } = k.run(&["diff", "-f", &third]);
            assert!(code == Some(1) && out.contains("version: three"), "{code:?} {out} {err}");
            let Printed { out, .. } = k.run(&["apply", "--dry-run=server", "-f", &third]);
            assert!(out.contains("pod/app configured (server dry run)"), "{out}");
            assert_eq!(k.get("pod/app")["metadata"]["labels"]["version"], "two");
        }
        // The pod has 30 s, and ends at once.
        k.ok(&["delete", "pod", "app", "--now"]);
        agent.wait_gone("app");
        assert!(manifests(&agent).is_empty());
        // A change of the image replaces the pod.
        k.ok(&["apply", validate, "-f", &first]);
        agent.wait_running("app");
        let uid = k.get("pod/app")["metadata"]["uid"].clone();
        let Printed { code, err, .. } = k.run(&["set", "image", "pod/app", "main=localhost/trap:1"]);
        assert!(code == Some(0) && err.contains("the pod is replaced"), "{err}");
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
    let agent = serving("kubebad");
    let (program, _) = kubectls().pop().expect("kubectl");
    let (k, viewer) = (Kubectl::new(&program, &agent, &[]), Kubectl::new(&program, &agent, &["--view"]));
    let shared = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {0}}}\n---\napiVersion: v1\nkind: ConfigMap\n\
         metadata: {{name: b, namespace: {0}}}\n",
        agent.namespace
    );
    agent.write("shared.yaml", &shared);
    agent.wait("the ConfigMaps of the file", |_| k.run(&["get", "cm", "b"]).code == Some(0));
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
    assert!(k.fails(&["create", "namespace", "x"]).contains("does not allow this method"));
    for arguments in [&["delete", "cm", "b"][..], &["get", "secrets"], &["run", "x", "--image=x"]] {
        let err = viewer.fails(arguments);
        assert!(err.contains("forbidden") && err.contains("the certificate has the role view"), "{err}");
    }
    assert_eq!(fs::read_to_string(agent.manifests().join("shared.yaml")).expect("shared.yaml"), shared);
    assert_eq!(manifests(&agent), ["shared.yaml"]);
}

#[test]
fn a_kill_while_objects_are_created_leaves_whole_files() {
    let mut agent = serving("kubekill");
    let (program, _) = kubectls().pop().expect("kubectl");
    let k = Kubectl::new(&program, &agent, &[]);
    for n in 0..6 {
        let name = format!("c{n}");
        let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: first}}\n");
        let file = k.file("one.yaml", &text);
        let mut creating = Command::new(&k.program);
        creating.env("HOME", &k.home).env("KUBECONFIG", &k.kubeconfig);
        creating.args(["-n", &k.namespace, "create", "-f", &file]);
        let mut child =
            creating.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().expect("kubectl");
        // The kills are spread over the time of the command.
        std::thread::sleep(std::time::Duration::from_millis(30 + 15 * n));
        agent.kill();
        child.wait().expect("kubectl");
        agent.run();
        agent.wait("kubectl is served", |_| k.run(&["get", "cm"]).code == Some(0));
        // Created or not: the next attempt finds one of both.
        let Printed { code, out, err } = k.run(&["apply", "-f", &file]);
        assert_eq!(code, Some(0), "{out} {err}");
        assert_eq!(k.get(&format!("cm/{name}"))["data"]["a"], "first");
    }
    assert_eq!(manifests(&agent).iter().filter(|name| !name.starts_with('.')).count(), 6);
}
