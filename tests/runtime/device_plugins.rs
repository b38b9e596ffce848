//! Device plugins (G): a plugin in a process of its own, and pods that get its devices.

use crate::support::agent::{Agent, container};
use crate::support::device_plugin::{self, DevicePlugin};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const ENTRY: &str = "device_plugins::process_of_a_plugin";
const CAM: &str = "v.io/cam";

/// Not a test: the process of the plugin.
#[test]
#[ignore = "the process of the plugin in the other tests"]
fn process_of_a_plugin() {
    device_plugin::run();
}

struct Node {
    agent: Agent,
    directory: PathBuf,
}

/// An agent with a socket for plugins. (A path of a socket has at most 107 bytes.)
fn node(name: &str) -> Node {
    let agent = Agent::prepare(name, &crate::support::lab::Runtime::shared());
    let directory = PathBuf::from(format!("/run/{}", agent.namespace));
    fs::create_dir_all(&directory).expect("a directory");
    fs::write(directory.join("given"), "from the plugin").expect("a file");
    agent.accept_device_plugins(&directory.join("kubelet.sock"));
    let mut node = Node { agent, directory };
    node.agent.run();
    node
}

impl Node {
    fn plugin(&self, resource: &str, devices: &str) -> DevicePlugin {
        DevicePlugin::start(&self.directory, resource, devices, ENTRY)
    }

    fn output(&self, pod: &str) -> String {
        let shown = self.agent.pod(pod).unwrap_or_default();
        let attempt = container(&shown, "main")["restartCount"].as_u64().unwrap_or(0);
        self.agent.output(&shown, "main", attempt as u32)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A pod that shows its devices, and then runs until it is stopped.
fn spec(resource: &str, amount: u32) -> String {
    let show = "echo devices=$DEVICES; cat /plugin; echo; for d in ${DEVICES//,/ }; do head -c 3 /dev/$d | wc -c; done";
    format!(
        "
        terminationGracePeriodSeconds: 2
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'trap \"exit 0\" TERM; {show}; while :; do sleep 0.1; done']
          resources: {{limits: {{{resource}: {amount}}}}}
        "
    )
}

#[test]
fn a_pod_gets_the_devices_of_a_plugin() {
    let node = node("device");
    node.agent.apply("web", &spec(CAM, 2));
    let message = |a: &Agent| a.pod("web").unwrap_or_default()["status"]["message"].to_string();
    node.agent
        .wait("it waits for the plugin", |a| message(a).contains("waiting for a device plugin that provides v.io/cam"));
    let plugin = node.plugin(CAM, "cam0 Healthy\ncam1 Healthy\ncam2 Unhealthy\n");
    node.agent.wait_running("web");
    node.agent.wait("it shows its devices", |_| node.output("web").contains("3\n3\n"));
    assert!(node.output("web").contains("devices=cam0,cam1\nfrom the plugin\n"), "{}", node.output("web"));
    assert_eq!(plugin.calls(), ["Allocate cam0,cam1"]);
    // The third device is not healthy.
    node.agent.apply("next", &spec(CAM, 1));
    let shown = node.agent.wait_phase("next", "Failed");
    assert_eq!(shown["status"]["reason"], "OutOfv.io/cam");
    node.agent.delete("next");
    node.agent.wait_gone("next");
    plugin.set("cam0 Healthy\ncam1 Healthy\ncam2 Healthy\n");
    let allocatable = |a: &Agent| {
        let status: Value = serde_json::from_slice(&a.wherry(&["status", "-o", "json"]).stdout).unwrap_or_default();
        status["node"]["resources"][CAM]["allocatable"].clone()
    };
    node.agent.wait("the third device is healthy", |a| allocatable(a) == 3);
    node.agent.apply("third", &spec(CAM, 1));
    node.agent.wait_running("third");
    node.agent.wait("it has the third device", |_| node.output("third").contains("devices=cam2"));
}

#[test]
fn devices_survive_a_kill_of_the_agent_and_of_the_plugin() {
    let mut node = node("devicekill");
    let mut plugin = node.plugin("v.io/prepared", "a Healthy\nb Healthy\n");
    node.agent.apply("web", &spec("v.io/prepared", 1));
    node.agent.wait_running("web");
    node.agent.wait("it shows its device", |_| node.output("web").contains("devices=a"));
    assert_eq!(plugin.calls(), ["Allocate a", "PreStartContainer a"]);
    node.agent.kill();
    plugin.end();
    node.agent.run();
    node.agent.wait_running("web");
    // Without the plugin a new pod waits.
    node.agent.apply("next", &spec("v.io/prepared", 1));
    let message = |a: &Agent| a.pod("next").unwrap_or_default()["status"]["message"].to_string();
    node.agent.wait("it waits for the plugin", |a| message(a).contains("waiting for a device plugin"));
    plugin.start_again(ENTRY);
    node.agent.wait_running("next");
    node.agent.wait("it has the other device", |_| node.output("next").contains("devices=b"));
    // The container that restarts keeps its device, and the plugin prepares it again.
    let before = node.agent.running("web", "main").expect("runs");
    crate::support::lab::signal(&node.agent.cri().container_pid(&before).to_string(), "KILL");
    node.agent.wait("it runs again", |a| a.running("web", "main").is_some_and(|id| id != before));
    node.agent.wait("it has its device", |_| node.output("web").contains("devices=a"));
    let calls = plugin.calls();
    assert_eq!(calls.iter().filter(|call| *call == "Allocate a").count(), 1, "{calls:?}");
    assert_eq!(calls.iter().filter(|call| *call == "PreStartContainer a").count(), 2, "{calls:?}");
}

/// CDI devices, where the runtime has them: a variable and a device node.
#[test]
fn g3_a_pod_gets_the_cdi_devices_of_a_plugin() {
    let node = node("devicecdi");
    let runtime = crate::support::lab::Runtime::shared();
    let version = runtime.connect().version().expect("Version").runtime_version;
    let kind = format!("{}.v.io/cdi", node.agent.namespace);
    let spec_of_kind = format!(
        r#"{{"cdiVersion": "0.5.0", "kind": "{kind}", "devices": [{{"name": "cam0", "containerEdits": {{
            "env": ["CAMERA=by CDI"], "deviceNodes": [{{"path": "/dev/camera", "hostPath": "/dev/zero"}}]}}}}]}}"#
    );
    let file = runtime.dir.join("cdi").join(format!("{}.json", node.agent.namespace));
    fs::create_dir_all(runtime.dir.join("cdi")).expect("a directory");
    fs::write(&file, spec_of_kind).expect("a CDI specification");
    let _plugin = node.plugin(&kind, "cam0 Healthy\n");
    let shows = "
        terminationGracePeriodSeconds: 2
        containers:
        - name: main
          image: localhost/busybox:1.35
          command: [sh, -c, 'trap \"exit 0\" TERM; echo \"[$CAMERA]\"; head -c 3 /dev/camera | wc -c; echo; while :; do sleep 0.1; done']
          resources: {limits: {KIND: 1}}
        ";
    node.agent.apply("web", &shows.replace("KIND", &kind));
    node.agent.wait_running("web");
    let ignored = |a: &Agent| a.log().contains("CDIDevicesIgnored");
    if version.starts_with("1.6") || version.starts_with("v1.6") {
        node.agent.wait("the missing support is reported", ignored);
    } else {
        node.agent.wait("it has the device", |_| node.output("web").contains("[by CDI]\n3\n"));
        assert!(!ignored(&node.agent));
    }
    let _ = fs::remove_file(file);
}

#[test]
fn an_error_of_a_plugin_is_shown_and_retried() {
    let node = node("deviceerror");
    let plugin = node.plugin(CAM, "cam0 Healthy\n");
    plugin.fail("the camera is cold");
    node.agent.apply("web", &spec(CAM, 1));
    let shown = node.agent.wait_waiting("web", "CreateContainerConfigError");
    let message = shown["state"]["waiting"]["message"].to_string();
    assert!(
        message.contains("the device plugin of v.io/cam did not allocate cam0")
            && message.contains("the camera is cold")
    );
    plugin.succeed();
    node.agent.wait_running("web");
    let status = node.agent.wherry(&["status"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("v.io/cam"), "{status}");
}
