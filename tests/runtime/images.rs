//! Images: pull policies, with a registry of the test's own.

use crate::support::agent::{Agent, container};
use crate::support::registry::Registry;
use crate::support::yaml::script;
use wherry::api::runtime_features::ImageVolumes;

fn spec(image: &str, policy: &str) -> String {
    format!(
        "
        containers:
        - name: main
          image: {image}
          imagePullPolicy: {policy}
        "
    )
}

#[test]
fn a_missing_image_is_pulled_once() {
    let registry = Registry::start();
    registry.publish("pulled", "localhost/trap:1");
    let agent = Agent::start("pull");
    agent.apply("one", &spec(&registry.image("pulled"), "IfNotPresent"));
    let pod = agent.wait_running("one");
    // The runtime reports one of the image's tags; other tests add more.
    assert!(container(&pod, "main")["imageID"].as_str().is_some_and(|id| id.contains("sha256:")));
    let asked = registry.requests("pulled");
    assert!(asked >= 1);
    agent.apply("two", &spec(&registry.image("pulled"), "IfNotPresent"));
    agent.wait_running("two");
    assert_eq!(registry.requests("pulled"), asked, "it was there already");
}

#[test]
fn pull_policy_always_contacts_the_registry_for_each_start() {
    let registry = Registry::start();
    registry.publish("always", "localhost/trap:1");
    let agent = Agent::start("always");
    agent.apply("one", &spec(&registry.image("always"), "Always"));
    agent.wait_running("one");
    let asked = registry.requests("always");
    agent.apply("two", &spec(&registry.image("always"), "Always"));
    agent.wait_running("two");
    assert!(registry.requests("always") > asked);
}

#[test]
fn a_failing_pull_backs_off_and_is_tried_again() {
    let registry = Registry::start();
    let agent = Agent::start("backoff");
    let image = registry.image("late");
    agent.apply("late", &spec(&image, "IfNotPresent"));
    let status = agent.wait_for("the first failure", |a| {
        Some(container(&a.pod("late")?, "main")["state"]["waiting"].clone())
            .filter(|w| w["reason"] == "ErrImagePull" || w["reason"] == "ImagePullBackOff")
    });
    assert!(status["message"].as_str().is_some_and(|m| m.contains("late")), "{status}");
    let status = agent.wait_waiting("late", "ImagePullBackOff");
    let message = status["state"]["waiting"]["message"].as_str().unwrap_or_default().to_string();
    assert!(message.starts_with(&format!("Back-off pulling image \"{image}\"")), "{message}");
    assert_eq!(agent.pod("late").expect("listed")["status"]["phase"], "Pending");
    registry.publish("late", "localhost/trap:1");
    agent.wait_running("late");
}

#[test]
fn pull_policy_never_with_a_missing_image_waits_while_the_other_container_runs() {
    let agent = Agent::start("never");
    agent.apply(
        "pair",
        "
        containers:
        - name: main
          image: localhost/not-there:1
          imagePullPolicy: Never
        - name: other
          image: localhost/trap:1
    ",
    );
    let status = agent.wait_waiting("pair", "ErrImageNeverPull");
    assert_eq!(
        status["state"]["waiting"]["message"],
        "Container image \"localhost/not-there:1\" is not present with pull policy of Never"
    );
    agent.wait("the other container runs", |a| a.running("pair", "other").is_some());
}

#[test]
fn an_invalid_image_name_is_reported() {
    let agent = Agent::start("name");
    agent.apply("bad", &spec("localhost/UPPER:1", "IfNotPresent"));
    let status = agent.wait_waiting("bad", "InvalidImageName");
    let message = status["state"]["waiting"]["message"].as_str().unwrap_or_default().to_string();
    assert!(message.contains("UPPER"), "{message}");
}

#[test]
fn an_image_that_runs_as_root_is_refused_to_a_pod_that_must_not() {
    let agent = Agent::start("nonroot");
    agent.apply(
        "root",
        "
        securityContext:
          runAsNonRoot: true
        containers:
        - name: main
          image: localhost/trap:1
    ",
    );
    agent.apply(
        "user",
        "
        securityContext:
          runAsNonRoot: true
        containers:
        - name: main
          image: localhost/user:1
    ",
    );
    let status = agent.wait_waiting("root", "CreateContainerConfigError");
    let message = status["state"]["waiting"]["message"].as_str().unwrap_or_default().to_string();
    assert!(message.starts_with("container has runAsNonRoot and image will run as root"), "{message}");
    agent.wait_running("user");
}

#[test]
fn command_and_args_replace_entrypoint_and_cmd_as_in_kubernetes() {
    let agent = Agent::start("entry");
    agent.apply(
        "image",
        "
        restartPolicy: Never
        containers:
        - name: main
          image: localhost/entrypoint:1
    ",
    );
    agent.apply(
        "args",
        "
        restartPolicy: Never
        containers:
        - name: main
          image: localhost/entrypoint:1
          args: ['echo args in $(pwd)']
          workingDir: /tmp
    ",
    );
    agent.apply("command", &script("Never", "echo command"));
    let output = |name: &str| agent.output(&agent.wait_phase(name, "Succeeded"), "main", 0);
    assert_eq!(output("image"), "from the image in /var/www yes\n");
    // $(pwd) names no variable: it stays unchanged, and the shell expands it.
    assert_eq!(output("args"), "args in /tmp\n");
    assert_eq!(output("command"), "command\n");
}

#[test]
fn an_image_volume_has_the_files_of_the_image() {
    let registry = Registry::start();
    let mut agent = Agent::start("image-volume");
    let image = registry.image("model");
    agent.apply(
        "web",
        &format!(
            "
            terminationGracePeriodSeconds: 1
            containers:
            - name: main
              image: localhost/busybox:1.35
              command: [sh, -c, 'test -x /model/bin/busybox && ! touch /model/x 2>/dev/null && echo mounted; exec sleep 1000']
              volumeMounts: [{{name: model, mountPath: /model}}]
            volumes: [{{name: model, image: {{reference: '{image}'}}}}]
            "
        ),
    );
    let has = image_volumes(&agent);
    if has == ImageVolumes::None {
        let text = "volume \\\"model\\\": image volumes are not supported in this node: ";
        agent.wait("the reason is reported", |a| a.log().contains(text));
        assert!(agent.running("web", "main").is_none());
        return;
    }
    // The container waits for the image of its volume, also after a restart.
    let status = agent.wait_waiting("web", "ImagePullBackOff");
    let message = status["state"]["waiting"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(&image), "{message}");
    agent.kill();
    registry.publish("model", "localhost/trap:1");
    agent.run();
    let pod = agent.wait_running("web");
    let log = agent.log_path(&pod, "main", 0);
    agent.wait("the files are seen", |_| std::fs::read_to_string(&log).is_ok_and(|text| text.contains("F mounted")));
    agent.delete("web");
    agent.wait_gone("web");
}

#[test]
fn a_sub_path_of_an_image_volume_needs_a_runtime_that_has_them() {
    let registry = Registry::start();
    registry.publish("part", "localhost/trap:1");
    let agent = Agent::start("image-part");
    agent.apply(
        "web",
        &format!(
            "
            terminationGracePeriodSeconds: 1
            containers:
            - name: main
              image: localhost/busybox:1.35
              command: [sh, -c, 'test -x /part/busybox && echo mounted; exec sleep 1000']
              volumeMounts: [{{name: model, mountPath: /part, subPath: bin}}]
            volumes: [{{name: model, image: {{reference: '{}'}}}}]
            ",
            registry.image("part")
        ),
    );
    if image_volumes(&agent) < ImageVolumes::WithSubPaths {
        agent.wait("the reason is reported", |a| a.log().contains("not supported in this node: "));
        assert!(agent.running("web", "main").is_none());
        return;
    }
    let pod = agent.wait_running("web");
    let log = agent.log_path(&pod, "main", 0);
    agent.wait("the files are seen", |_| std::fs::read_to_string(&log).is_ok_and(|text| text.contains("F mounted")));
}

fn image_volumes(agent: &Agent) -> ImageVolumes {
    let version = agent.cri().version().expect("Version");
    ImageVolumes::of(&version.runtime_name, &version.runtime_version)
}
