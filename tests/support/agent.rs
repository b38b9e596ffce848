//! A Wherry process for one test, with its directories, manifests and queries. Each agent has a separate pod
//! namespace, by which the test finds the pods in the shared runtime.

use super::cri::{self, Cri};
use super::http::{self, Response};
use super::lab::{Runtime, signal};
use super::yaml;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Returns the timeout of a wait in a test. The environment variable WHERRY_LAB_SLOW is a factor for slow machines,
/// for example those with an emulated processor. A wait ends as soon as its condition holds, so the timeout is
/// generous: forty times the time that an idle machine needs.
pub fn patience(seconds: u64) -> Duration {
    let slow = std::env::var("WHERRY_LAB_SLOW").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    Duration::from_secs(seconds) * slow
}

const PATIENCE: u64 = 240;

pub struct Agent {
    /// `agents/NAME` in the directory of the lab. Contains all files of this agent except the control socket.
    pub dir: PathBuf,
    /// The namespace of the pods.
    pub namespace: String,
    pub socket: PathBuf,
    pub healthz_port: u16,
    /// `cgroupRoot`.
    pub cgroup: String,
    /// A wrapper command that starts the agent, with its arguments. Empty if the agent is started directly.
    pub under: Vec<&'static str>,
    /// Environment variables in addition to those of the test program.
    pub environment: Vec<(String, String)>,
    /// The name of the node.
    node: String,
    runtime_socket: PathBuf,
    child: Option<Child>,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The panic message of this test. It is printed again after the log, because only the end of a long output may
    /// be kept.
    static FAILURE: RefCell<String> = const { RefCell::new(String::new()) };
}

fn remember_failures() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            FAILURE.with(|f| *f.borrow_mut() = info.to_string());
            usual(info);
        }));
    });
}

/// Returns the environment of the installed service, which affects the memory usage of the agent.
fn unit_environment() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../../packaging/wherry.service").lines();
    lines.filter_map(|line| line.strip_prefix("Environment=")?.split_once('='))
}

/// Very low thresholds for all signals that have a default, so that no pod is evicted.
const NEVER_EVICT: &str = "evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, nodefs.inodesFree: \"1\", \
                           imagefs.available: 1Mi, imagefs.inodesFree: \"1\"}\n";

impl Agent {
    /// Starts an agent on the shared runtime. `name` identifies the agent in logs.
    pub fn start(name: &str) -> Agent {
        let mut agent = Agent::prepare(name, &Runtime::shared());
        agent.run();
        agent
    }

    /// Creates the directories and the configuration of an agent, without starting it.
    pub fn prepare(name: &str, runtime: &Runtime) -> Agent {
        remember_failures();
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let namespace = format!("{name}-{number}");
        let dir = Runtime::shared().dir.join("agents").join(&namespace);
        for sub in ["manifests", "config.d", "root", "log/pods", "log/containers", "aside"] {
            fs::create_dir_all(dir.join(sub)).expect("directories");
        }
        let cgroup = format!("{}/{namespace}", runtime.cgroup);
        // As with a kubelet, `cgroupRoot` must exist before the start.
        make_cgroup(&cgroup);
        let socket = PathBuf::from(format!("/run/wherry-{namespace}.sock"));
        // The lab has its own network namespace, so no other process uses the port.
        let healthz_port = 20_000 + number as u16;
        let agent = Agent {
            dir,
            namespace,
            socket,
            healthz_port,
            cgroup,
            under: Vec::new(),
            environment: Vec::new(),
            node: "node".to_owned(),
            runtime_socket: runtime.socket.clone(),
            child: None,
        };
        agent.configure("");
        // With the default, all agents would use the same socket.
        agent.set_device_plugin_socket("\"\"");
        agent
    }

    /// Lets device plugins register on this socket. Takes effect at the next start.
    pub fn accept_device_plugins(&self, socket: &Path) {
        self.set_device_plugin_socket(&socket.display().to_string());
    }

    fn set_device_plugin_socket(&self, socket: &str) {
        let text = format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\ndevicePluginSocket: {socket}\n");
        fs::write(self.dir.join("config.d/10-device-plugins.yaml"), text).expect("a drop-in");
    }

    /// Writes the configuration. `more` contains further fields of the KubeletConfiguration. Without `evictionHard`
    /// in it, the node is measured as usual, but no pod is evicted, however full the machine is.
    pub fn configure(&self, more: &str) {
        let eviction = if more.contains("evictionHard") { "" } else { NEVER_EVICT };
        let text = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupRoot: {}\n\
             healthzPort: {}\n{eviction}{more}",
            self.cgroup, self.healthz_port
        );
        fs::write(self.dir.join("config.yaml"), text).expect("config.yaml");
    }

    /// Sets the socket of the runtime. Takes effect at the next start.
    pub fn set_runtime_socket(&mut self, socket: &Path) {
        self.runtime_socket = socket.to_owned();
    }

    /// Returns the port of the node's server, if the agent is a node of a cluster.
    pub fn node_port(&self) -> u16 {
        // The lab has its own network namespace, so no other process uses the port.
        self.healthz_port - 8_000
    }

    /// Makes the agent a node of a cluster, with the label `node=NODE`. Takes effect at the next start.
    pub fn set_cluster(&mut self, node: &str, kubeconfig: &Path) {
        node.clone_into(&mut self.node);
        let text = format!(
            "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nkubeconfig: {}\nnodeLabels: {{node: {node}}}\n---\n\
             apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nport: {}\nregisterWithTaints: []\n",
            kubeconfig.display(),
            self.node_port()
        );
        fs::write(self.dir.join("config.d/20-cluster.yaml"), text).expect("a drop-in");
    }

    /// Sets the name of the node and the label `node=NODE`, for `wherry join`.
    pub fn set_node(&mut self, node: &str) {
        node.clone_into(&mut self.node);
        let text = format!(
            "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nnodeLabels: {{node: {node}}}\n---\n\
             apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nregisterWithTaints: []\n"
        );
        fs::write(self.dir.join("config.d/20-cluster.yaml"), text).expect("a drop-in");
    }

    /// Sets an environment variable. Takes effect at the next start.
    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.retain(|(n, _)| n != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    pub fn command(&self) -> Command {
        self.command_of("run")
    }

    /// Returns the command for a subcommand that accepts the flags of `run`.
    pub fn command_of(&self, subcommand: &str) -> Command {
        let wherry = env!("CARGO_BIN_EXE_wherry");
        let mut command = match self.under.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(wherry);
                command
            }
            None => Command::new(wherry),
        };
        command.arg(subcommand);
        for (flag, value) in [
            ("--config", self.dir.join("config.yaml")),
            ("--config-dir", self.dir.join("config.d")),
            ("--manifests", self.manifests()),
            ("--root-dir", self.root()),
            ("--log-dir", self.dir.join("log/pods")),
            ("--container-log-dir", self.dir.join("log/containers")),
            ("--socket", self.socket.clone()),
        ] {
            command.arg(flag).arg(value);
        }
        command.arg("--runtime-endpoint").arg(format!("unix://{}", self.runtime_socket.display()));
        command.arg("--hostname").arg(&self.node);
        command.envs(unit_environment()).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null());
        command
    }

    /// Starts the agent and returns at once.
    pub fn launch(&mut self) {
        assert!(self.child.is_none(), "the agent already runs");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_file()).expect("log");
        let mut command = self.command();
        command.stdout(log.try_clone().expect("log")).stderr(log);
        self.child = Some(command.spawn().expect("start wherry"));
    }

    /// Starts the agent and waits until it is healthy.
    pub fn run(&mut self) {
        self.launch();
        self.wait("healthy", |a| a.get("/healthz").is_ok_and(|r| r.status == 200));
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the agent runs").id()
    }

    pub fn manifests(&self) -> PathBuf {
        self.dir.join("manifests")
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// Removes the record of the pod with this UID. Panics unless there is exactly one.
    pub fn lose_record(&self, uid: &str) {
        let kinds = fs::read_dir(self.root().join("records")).expect("records").flatten();
        let records = kinds.flat_map(|kind| fs::read_dir(kind.path()).expect("a record directory").flatten());
        let of_pod: Vec<_> = records.filter(|r| r.file_name().to_string_lossy().contains(uid)).collect();
        assert_eq!(of_pod.len(), 1, "{of_pod:?}");
        fs::remove_file(of_pod[0].path()).expect("removed");
    }

    pub fn log_file(&self) -> PathBuf {
        self.dir.join("wherry.log")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    // ---- manifests

    /// Writes a file into the manifest directory atomically.
    pub fn write(&self, file: &str, text: &str) {
        let aside = self.dir.join("aside").join(file);
        fs::write(&aside, text).expect("write aside");
        fs::rename(aside, self.manifests().join(file)).expect("rename");
    }

    /// Writes the pod `name` with this spec to `name.yaml`.
    pub fn apply(&self, name: &str, spec: &str) {
        self.write(&format!("{name}.yaml"), &yaml::pod(&self.namespace, name, spec));
    }

    pub fn delete(&self, name: &str) {
        fs::remove_file(self.manifests().join(format!("{name}.yaml"))).expect("remove the manifest");
    }

    // ---- queries

    pub fn get(&self, path: &str) -> std::io::Result<Response> {
        http::get_unix(&self.socket, path)
    }

    /// Returns the pods of `/pods`. Empty if the agent does not respond.
    pub fn pods(&self) -> Vec<Value> {
        let Ok(response) = self.get("/pods") else { return Vec::new() };
        let list: Value = serde_json::from_str(&response.body).expect("/pods is JSON");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub fn pod(&self, name: &str) -> Option<Value> {
        self.pods().into_iter().find(|p| p["metadata"]["name"] == name)
    }

    /// Runs a subcommand against this agent.
    pub fn wherry(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wherry"));
        command.args(arguments).arg("--socket").arg(&self.socket);
        command.output().expect("wherry")
    }

    /// Returns the sum of a metric over all its label sets.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").expect("/metrics").body;
        let lines = text
            .lines()
            .filter(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' ')));
        lines.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    // ---- waiting

    pub fn wait(&self, what: &str, condition: impl Fn(&Agent) -> bool) {
        self.wait_for(what, |a| condition(a).then_some(()));
    }

    /// Polls until `look` returns a value. On timeout it panics and prints the pods.
    pub fn wait_for<T>(&self, what: &str, look: impl Fn(&Agent) -> Option<T>) -> T {
        self.wait_long(what, PATIENCE, look)
    }

    pub fn wait_long<T>(&self, what: &str, seconds: u64, look: impl Fn(&Agent) -> Option<T>) -> T {
        let patience = patience(seconds);
        let end = Instant::now() + patience;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            if Instant::now() > end {
                let pods: Vec<String> =
                    self.pods().iter().map(|p| format!("{} {:#}", p["metadata"]["name"], p["status"])).collect();
                panic!("{}: timed out after {patience:?}: {what}\npods: {}", self.namespace, pods.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all containers of the pod run. Returns the pod.
    pub fn wait_running(&self, name: &str) -> Value {
        self.wait_for(&format!("{name} runs"), |a| a.pod(name).filter(is_running))
    }

    pub fn wait_phase(&self, name: &str, phase: &str) -> Value {
        self.wait_for(&format!("{name} is {phase}"), |a| a.pod(name).filter(|p| p["status"]["phase"] == phase))
    }

    /// Waits until the waiting reason of the container `main` is `reason`. Returns the container status.
    pub fn wait_waiting(&self, name: &str, reason: &str) -> Value {
        self.wait_for(&format!("{name} waits: {reason}"), |a| {
            a.pod(name).map(|p| container(&p, "main")).filter(|c| c["state"]["waiting"]["reason"] == reason)
        })
    }

    /// Waits until neither Wherry nor the runtime shows the pod.
    pub fn wait_gone(&self, name: &str) {
        self.wait(&format!("{name} is gone from /pods"), |a| a.pod(name).is_none());
        self.wait(&format!("{name} is gone from the runtime"), |a| {
            a.sandboxes(name).is_empty() && a.containers(name).is_empty()
        });
    }

    // ---- the runtime's view

    pub fn cri(&self) -> Cri {
        Cri::connect(&self.runtime_socket)
    }

    /// Returns the sandboxes of the pod, newest first.
    pub fn sandboxes(&self, pod: &str) -> Vec<cri::PodSandbox> {
        let all = self.cri().sandboxes(&self.namespace);
        all.into_iter().filter(|s| s.labels.get("io.kubernetes.pod.name").is_some_and(|n| n == pod)).collect()
    }

    /// Returns the containers of the pod, newest first.
    pub fn containers(&self, pod: &str) -> Vec<cri::Container> {
        let all = self.cri().containers(&self.namespace);
        all.into_iter().filter(|c| c.labels.get("io.kubernetes.pod.name").is_some_and(|n| n == pod)).collect()
    }

    /// Returns the ID of the running container with this name. Panics if there are two.
    pub fn running(&self, pod: &str, name: &str) -> Option<String> {
        let mut running = self
            .containers(pod)
            .into_iter()
            .filter(|c| c.state.enum_value() == Ok(cri::ContainerState::CONTAINER_RUNNING) && c.metadata.name == name);
        let first = running.next()?.id;
        assert!(running.next().is_none(), "two containers {name} of {pod} run at once");
        Some(first)
    }

    /// Returns the output of a container, which is its log without the columns of the CRI format.
    pub fn output(&self, pod: &Value, container: &str, attempt: u32) -> String {
        let path = self.log_path(pod, container, attempt);
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.lines().filter_map(|l| l.splitn(4, ' ').nth(3)).map(|l| format!("{l}\n")).collect()
    }

    pub fn log_path(&self, pod: &Value, container: &str, attempt: u32) -> PathBuf {
        let m = &pod["metadata"];
        let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
        let directory = format!("{}_{}_{}", text(&m["namespace"]), text(&m["name"]), text(&m["uid"]));
        self.dir.join("log/pods").join(directory).join(container).join(format!("{attempt}.log"))
    }

    /// Returns the directories below `cgroupRoot`, in any hierarchy, whose names contain the UID of the pod.
    pub fn cgroups(&self, uid: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let wanted = [uid.to_string(), uid.replace('-', "_")];
        for mount in cgroup_mounts() {
            walk(&mount.join(self.cgroup.trim_start_matches('/')), &mut |path| {
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                if wanted.iter().any(|w| name.contains(w)) {
                    found.push(path.to_path_buf());
                }
            });
        }
        found
    }

    /// Returns the UIDs of all pods that have a cgroup below `cgroupRoot` in any hierarchy.
    pub fn pod_cgroups(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for mount in cgroup_mounts() {
            walk(&mount.join(self.cgroup.trim_start_matches('/')), &mut |path| {
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                found.extend(name.strip_prefix("pod").map(str::to_string));
            });
        }
        found
    }

    /// Returns the ID of the root directory, which the sandboxes and containers of the agent have as an annotation.
    pub fn owner(&self) -> String {
        fs::read_to_string(self.root().join("id")).expect("the root's id").trim().to_string()
    }

    // ---- ending the process

    /// Kills the agent with SIGKILL.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the agent runs");
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    /// Sends SIGTERM, waits until the agent has exited and returns the exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        let mut child = self.child.take().expect("the agent runs");
        signal(&child.id().to_string(), "TERM");
        child.wait().expect("wait").code()
    }

    pub fn hang_up(&self) {
        signal(&self.pid().to_string(), "HUP");
    }

    /// Waits until the agent exits by itself. Returns the exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let mut child = self.child.take().expect("the agent was started");
        let end = Instant::now() + patience(PATIENCE);
        loop {
            if let Some(status) = child.try_wait().expect("wait") {
                return status.code();
            }
            if Instant::now() > end {
                let _ = child.kill();
                panic!("wherry is still running");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Reports whether the process is running.
    pub fn alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(None)))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- the end of the log of {}", self.namespace);
            for line in &lines[lines.len().saturating_sub(60)..] {
                eprintln!("{line}");
            }
            let failure = FAILURE.with(|f| f.borrow().replace('\n', " "));
            eprintln!("--- {} fails: {failure}", self.namespace);
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Ok(mut cri) = Cri::try_connect(&self.runtime_socket) {
            for sandbox in cri.sandboxes(&self.namespace) {
                cri.remove_sandbox(&sandbox.id);
            }
        }
        let _ = fs::remove_file(&self.socket);
    }
}

pub fn is_running(pod: &Value) -> bool {
    let wanted = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    pod["status"]["phase"] == "Running"
        && statuses.len() == wanted
        && statuses.iter().all(|s| s["state"]["running"].is_object())
}

/// Returns the status of a container of a pod. Null if there is none.
pub fn container(pod: &Value, name: &str) -> Value {
    let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    statuses.into_iter().find(|s| s["name"] == name).unwrap_or(Value::Null)
}

/// Returns the pod condition of this type. Null if there is none.
pub fn condition(pod: &Value, kind: &str) -> Value {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|c| c["type"] == kind).unwrap_or(Value::Null)
}

pub fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().expect("a uid").to_string()
}

/// Creates the cgroup in every hierarchy.
pub fn make_cgroup(cgroup: &str) {
    for mount in cgroup_mounts() {
        let path = mount.join(cgroup.trim_start_matches('/'));
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

pub fn cgroup_mounts() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let is_cgroup = |l: &&str| l.contains(" - cgroup ") || l.contains(" - cgroup2 ");
    mounts.lines().filter(is_cgroup).filter_map(|l| l.split(' ').nth(4)).map(PathBuf::from).collect()
}

fn walk(directory: &Path, visit: &mut dyn FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            visit(&entry.path());
            walk(&entry.path(), visit);
        }
    }
}
