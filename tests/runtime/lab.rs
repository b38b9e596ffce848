//! The lab itself, without Wherry. If these tests fail, check the machine first.

use crate::support::cri::{ContainerConfig, Cri, ImageSpec, PodSandboxConfig, PullImageRequest, PullImageResponse};
use crate::support::lab::Runtime;
use crate::support::registry::Registry;

fn sandbox(runtime: &Runtime, name: &str) -> PodSandboxConfig {
    let mut config = PodSandboxConfig::new();
    let metadata = config.metadata.mut_or_insert_default();
    metadata.name = name.into();
    metadata.namespace = "lab".into();
    metadata.uid = name.into();
    config.labels.insert("io.kubernetes.pod.namespace".into(), format!("lab-{name}"));
    config.log_directory = runtime.dir.join("logs").join(name).to_string_lossy().into_owned();
    config.linux.mut_or_insert_default().cgroup_parent = format!("{}/{name}", runtime.cgroup);
    config
}

fn run(cri: &mut Cri, sandbox: &str, config: &PodSandboxConfig, image: &str) -> String {
    let mut container = ContainerConfig::new();
    container.metadata.mut_or_insert_default().name = "main".into();
    container.image.mut_or_insert_default().image = image.into();
    container.log_path = "main.log".into();
    let id = cri.create_container(sandbox, &container, config);
    cri.start_container(&id);
    id
}

#[test]
fn the_runtime_runs_containers() {
    let runtime = Runtime::shared();
    let mut cri = runtime.connect();
    assert!(!cri.name().is_empty());
    let config = sandbox(&runtime, "plain");
    let id = cri.run_sandbox(&config);
    let container = run(&mut cri, &id, &config, "localhost/trap:1");
    assert_eq!(cri.exec(&container, &["echo", "inside"]), (0, "inside\n".to_string()));
    assert!(cri.container_pid(&container) > 1);
    assert_eq!(cri.sandboxes("lab-plain").len(), 1);
    cri.remove_sandbox(&id);
    assert!(cri.sandboxes("lab-plain").is_empty());
}

#[test]
fn the_registry_serves_images() {
    let runtime = Runtime::shared();
    let registry = Registry::start();
    let image = registry.image("lab-image");
    let mut cri = runtime.connect();
    let mut request = PullImageRequest::new();
    request.image = Some(ImageSpec { image: image.clone(), ..Default::default() }).into();
    let refused = cri.call::<PullImageResponse>("ImageService", "PullImage", &request);
    assert!(refused.is_err_and(|e| e.message.contains("not found")));
    registry.publish("lab-image", "localhost/user:1");
    let _: PullImageResponse = cri.call("ImageService", "PullImage", &request).expect("PullImage");
    assert!(cri.has_image(&image));
    assert!(registry.requests("lab-image") >= 2);
    cri.remove_image(&image);
    assert!(!cri.has_image(&image));
}

#[test]
fn a_runtime_of_a_test_s_own_can_be_killed_and_started_again() {
    let runtime = Runtime::own("labown");
    let mut cri = runtime.connect();
    let config = sandbox(&runtime, "own");
    let id = cri.run_sandbox(&config);
    let container = run(&mut cri, &id, &config, "localhost/trap:1");
    let pid = cri.container_pid(&container);
    runtime.kill();
    runtime.start_again();
    let mut cri = runtime.connect();
    assert_eq!(cri.container_pid(&container), pid);
    cri.remove_sandbox(&id);
}
