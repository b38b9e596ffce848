//! A node in a virtual machine with systemd, which reboots without the server (`make test-vm-cluster`, `tests/vm/cluster.sh`).

use crate::power::{restarts, uids};
use crate::support::component::NODE_ADDRESS;
use crate::support::control_plane::ControlPlane;
use crate::support::control_plane::bootstrap::APPROVED;
use crate::support::lab::signal;
use crate::wherry::{all_run, is_ready, name};
use crate::{ok, ok_with, pods, wait_for_pods};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The name of the machine, and its address (`tests/vm/cluster.sh`).
const NODE: &str = "wherry-vm";
const ADDRESS: &str = "10.0.2.15";
/// The processor of the machine is emulated.
const PATIENCE: Duration = Duration::from_secs(900);

/// The machine while it is switched on. Its power is cut when this is dropped.
struct Machine {
    directory: PathBuf,
    boot: u32,
    qemu: Child,
}

impl Machine {
    fn switch_on(directory: PathBuf, boot: u32) -> Machine {
        println!("--- boot {boot}");
        let _ = fs::remove_file(directory.join("result.log"));
        let mut command = Command::new(directory.join("switch-on"));
        let qemu = command.arg(boot.to_string()).stdin(Stdio::null()).spawn().expect("the machine");
        Machine { directory, boot, qemu }
    }

    /// The lines that the machine has printed.
    fn lines(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.join("result.log")).unwrap_or_default()).replace('\r', "")
    }

    fn has_ended(&mut self) -> bool {
        self.qemu.try_wait().expect("the machine").is_some()
    }

    fn wait(&mut self, what: &str, mut condition: impl FnMut(&mut Machine) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let done = condition(self);
            if self.lines().contains("FAILED: ") {
                self.let_it_explain();
                panic!("boot {}: a check failed (below)", self.boot);
            }
            if done {
                return;
            }
            assert!(Instant::now() < end && !self.has_ended(), "boot {}: not in time: {what}", self.boot);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// After a failed check, the machine prints its state and switches itself off.
    fn let_it_explain(&mut self) {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end && !self.has_ended() {
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until the machine prints `wherry-vm: WORD`.
    fn until_said(&mut self, word: &str) {
        let line = format!("wherry-vm: {word}");
        self.wait(&line, |machine| machine.lines().lines().any(|said| said == line));
    }

    fn until_off(&mut self) {
        self.wait("the machine switches itself off", Machine::has_ended);
    }

    /// Whatever the machine has not written to its disk is lost.
    fn cut_power(&mut self) {
        signal(&self.qemu.id().to_string(), "KILL");
        self.qemu.wait().expect("the machine");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.cut_power();
        }
        println!("{}", self.lines());
        for log in ["console", "result"] {
            let to = self.directory.join(format!("{log}-{}.log", self.boot));
            let _ = fs::rename(self.directory.join(format!("{log}.log")), to);
        }
    }
}

/// The API server reaches the port of the node at the address that the node reports. Its own address is another one: the machine would
/// drop packets that seem to come from itself.
fn route_to_machine() {
    let ip = |line: &str| {
        let status = Command::new("ip").args(line.split(' ')).status();
        assert!(status.expect("ip").success(), "ip {line}");
    };
    ip(&format!("addr add {ADDRESS}/32 dev lo"));
    ip(&format!("route replace local {ADDRESS} dev lo table local proto kernel scope host src {NODE_ADDRESS}"));
}

/// Two pods with a ConfigMap, a Secret and a token, which end at SIGTERM.
fn web() -> String {
    let script = "trap 'exit 0' TERM; [ $(cat /words/greeting)-$PASSWORD = hello-hunter2-quay ] && \
                  [ -s /var/run/secrets/kubernetes.io/serviceaccount/token ] && echo started && \
                  while :; do sleep 3600 & wait $!; done";
    let container = json!({ "name": "main", "image": "localhost/busybox:1.35", "command": ["sh", "-c", script],
        "env": [{ "name": "PASSWORD", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "password" } } }],
        "volumeMounts": [{ "name": "words", "mountPath": "/words" }] });
    let labels = json!({ "app": "web" });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": 2, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "nodeSelector": { "kubernetes.io/hostname": NODE }, "containers": [container],
                "tolerations": [{ "operator": "Exists" }],
                "volumes": [{ "name": "words", "configMap": { "name": "words" } }] } } } })
    .to_string()
}

fn addresses(plane: &ControlPlane) -> Value {
    plane.get(&format!("/api/v1/nodes/{NODE}")).unwrap_or_default()["status"]["addresses"].clone()
}

#[test]
#[ignore = "needs a virtual machine (make test-vm-cluster)"]
fn a_machine_reboots_without_the_server_and_continues() {
    let directory = std::env::var("WHERRY_LAB_MACHINE").ok().filter(|path| !path.is_empty());
    let directory = PathBuf::from(directory.expect("a virtual machine (make test-vm-cluster)"));
    let plane = ControlPlane::start("machine");
    plane.accept_joins();
    let namespace = "machine";
    let admin = plane.namespace(namespace);
    route_to_machine();
    let token = plane.create_token("vvvvv1", APPROVED, 7200);
    let join = [plane.address(), "--token", &token, "--discovery-token-ca-cert-hash", &plane.pin()].join("\n");
    fs::write(directory.join("in/wherry-vm/join"), join + "\n").expect("the arguments");
    ok(&admin, "create configmap words --from-literal=greeting=hello");
    ok(&admin, "create secret generic keys --from-literal=password=hunter2-quay");

    let mut machine = Machine::switch_on(directory.clone(), 1);
    machine.until_said("joined");
    plane.wait("the node is ready", |plane| is_ready(plane, NODE));
    let reported = json!([{ "type": "InternalIP", "address": ADDRESS }, { "type": "Hostname", "address": NODE }]);
    assert_eq!(addresses(&plane), reported);
    ok_with(&admin, "create -f -", &web());
    machine.until_said("online");
    plane.wait("both pods run", |plane| all_run(plane, namespace, 2));
    let before = uids(&pods(&plane, namespace));
    plane.stop_api_server();
    machine.until_said("away");
    machine.cut_power();
    drop(machine);

    let mut machine = Machine::switch_on(directory.clone(), 2);
    machine.until_said("boot 2 completed");
    machine.until_off();
    drop(machine);

    let mut machine = Machine::switch_on(directory, 3);
    machine.until_said("offline");
    plane.start_api_server();
    machine.until_said("back");
    plane.wait("the node is ready", |plane| is_ready(plane, NODE));
    plane.wait("both pods run", |plane| all_run(plane, namespace, 2));
    assert_eq!(uids(&pods(&plane, namespace)), before, "the same pods");
    // Each of the two boots has started each container once more.
    plane.wait("the restarts are reported", |plane| restarts(plane, namespace) == 4);
    assert_eq!(addresses(&plane), reported);
    for pod in pods(&plane, namespace) {
        assert_eq!(ok(&admin, &format!("logs {}", name(&pod))), "started\n");
        assert_eq!(ok(&admin, &format!("exec {} -- cat /words/greeting", name(&pod))), "hello");
    }
    let events = format!("/api/v1/namespaces/{namespace}/events?fieldSelector=reason=Started");
    plane.wait("each start is reported", |plane| {
        let count = |event: &Value| event["count"].as_u64().unwrap_or(1);
        plane.list(&events).iter().map(count).sum::<u64>() == 6
    });
    ok(&admin, "delete deployment web");
    wait_for_pods(&plane, namespace, 0);
    machine.until_said("boot 3 completed");
    machine.until_off();
}
