//! The garbage collection of images, each test with a containerd of its own: it removes images that other tests need.

use crate::support::agent::Agent;
use crate::support::cri::{ContainerConfig, PodSandboxConfig};
use crate::support::lab::Runtime;
use crate::support::yaml::TRAP;
use serde_json::Value;
use std::collections::BTreeMap;

/// Waits for an image that nobody has, and names localhost/user:1, which is there.
const WAITS: &str = "
    initContainers:
    - name: missing
      image: localhost/not-there:1
      imagePullPolicy: Never
    containers:
    - name: main
      image: localhost/user:1
      imagePullPolicy: Never
";

/// A run every two seconds.
const OFTEN: &str = "---\napiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nimageGCPeriod: 2s\n";

/// The images of `wherry images` by name: state and pods.
fn images(agent: &Agent) -> BTreeMap<String, (String, Vec<String>)> {
    let output = agent.wherry(&["images", "-o", "json"]);
    assert!(output.status.success(), "{output:?}");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let image = |i: &Value| {
        let pods = i["pods"].as_array().into_iter().flatten().map(text).collect();
        (text(&i["tags"][0]), (text(&i["state"]), pods))
    };
    value["images"].as_array().expect("a list").iter().map(image).collect()
}

fn names(agent: &Agent) -> Vec<String> {
    images(agent).into_keys().filter(|name| !name.is_empty()).collect()
}

/// Creates another owner's container of this image, without starting it.
fn foreign_container(agent: &Agent, image: &str) {
    let mut sandbox = PodSandboxConfig::new();
    let metadata = sandbox.metadata.mut_or_insert_default();
    (metadata.name, metadata.namespace, metadata.uid) = ("their".into(), "default".into(), "their-uid".into());
    sandbox.log_directory = agent.dir.join("aside").to_string_lossy().into_owned();
    let options = sandbox.linux.mut_or_insert_default();
    options.cgroup_parent = format!("{}/their", agent.cgroup);
    let mut container = ContainerConfig::new();
    container.metadata.mut_or_insert_default().name = "main".into();
    container.image.mut_or_insert_default().image = image.to_owned();
    let mut cri = agent.cri();
    let id = cri.run_sandbox(&sandbox);
    cri.create_container(&id, &container, &sandbox);
}

#[test]
fn i1_only_unused_images_are_removed_when_the_disk_is_full() {
    let runtime = Runtime::own("imagegc");
    let mut agent = Agent::prepare("imagegc", &runtime);
    agent.run();
    agent.apply("web", TRAP);
    agent.apply("waits", WAITS);
    agent.wait_running("web");
    agent.wait("the other pod waits", |a| a.pod("waits").is_some());
    foreign_container(&agent, "localhost/entrypoint:1");
    let before = images(&agent);
    let state = |name: &str| before.get(name).map(|(state, _)| state.as_str());
    let pods = |name: &str| before.get(name).map(|(_, pods)| pods.join(","));
    assert_eq!(
        (state("localhost/trap:1"), pods("localhost/trap:1")),
        (Some("inUse"), Some(format!("{}/web", agent.namespace)))
    );
    assert_eq!(
        (state("localhost/user:1"), pods("localhost/user:1")),
        (Some("named"), Some(format!("{}/waits", agent.namespace)))
    );
    assert_eq!(state("localhost/entrypoint:1"), Some("inUse"), "another owner's container uses it");
    assert!(matches!(state("localhost/pause:3.9"), Some("pinned" | "sandboxes")), "{before:?}");
    assert!(matches!(state("localhost/busybox:1.35"), Some("tooYoung")), "{before:?}");
    let table = String::from_utf8(agent.wherry(&["images"]).stdout).expect("UTF-8");
    let header: Vec<&str> = table.lines().next().unwrap_or_default().split("  ").filter(|c| !c.is_empty()).collect();
    assert_eq!(
        header.iter().map(|c| c.trim()).collect::<Vec<_>>(),
        ["NAME", "IMAGE ID", "SIZE", "LAST USED", "USED BY", "REMOVABLE"]
    );

    // Any usage is above the high threshold.
    agent.terminate();
    agent.configure(&format!(
        "imageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: 1s\n{OFTEN}"
    ));
    agent.run();
    let kept = ["localhost/entrypoint:1", "localhost/pause:3.9", "localhost/trap:1", "localhost/user:1"];
    agent.wait("the unused images are removed", |a| names(a) == kept);
    agent.wait("they are counted", |a| a.metric("kubelet_image_garbage_collected_total{reason=\"space\"}") == 2.0);
    agent.wait("the failure to free more is an event", |a| {
        let events = String::from_utf8(a.wherry(&["events"]).stdout).unwrap_or_default();
        events.contains("FreeDiskSpaceFailed") && events.contains("ImageGCFailed")
    });
    assert!(agent.running("web", "main").is_some());
    assert_eq!(names(&agent), kept, "also after further runs");

    // A pod that is gone holds no image.
    agent.delete("web");
    agent.wait_gone("web");
    agent.wait("its image is removed", |a| names(a) == [kept[0], kept[1], kept[3]]);
    agent.wait("it is counted", |a| a.metric("kubelet_image_garbage_collected_total") == 3.0);
}

#[test]
fn i4_images_that_are_unused_for_long_are_removed_whatever_the_usage() {
    let runtime = Runtime::own("imageage");
    let mut agent = Agent::prepare("imageage", &runtime);
    agent
        .configure(&format!("imageGCHighThresholdPercent: 100\nimageMinimumGCAge: 1s\nimageMaximumGCAge: 5s\n{OFTEN}"));
    agent.run();
    agent.apply("web", TRAP);
    agent.wait_running("web");
    agent.wait("the unused images are removed", |a| names(a) == ["localhost/pause:3.9", "localhost/trap:1"]);
    // The image leaves the list before the call is answered.
    agent.wait("they are counted", |a| a.metric("kubelet_image_garbage_collected_total{reason=\"age\"}") == 4.0);
    assert!(agent.running("web", "main").is_some());
}
