//! The same pods made by direct CRI calls: what the runtime itself takes.

use crate::process::now;
use crate::support::cri::{ContainerConfig, Cri, PodSandboxConfig};
use crate::support::lab::Runtime;

pub struct Direct {
    pub sandbox: String,
    pub config: PodSandboxConfig,
    pub container: String,
    /// Before the first call, nanoseconds since the epoch.
    pub begun: i64,
    /// As the runtime tells it.
    pub started: i64,
}

/// Sandbox and container of one pod, started.
pub fn start(runtime: &Runtime, cri: &mut Cri, name: &str) -> Direct {
    let begun = now();
    let mut config = PodSandboxConfig::new();
    let metadata = config.metadata.mut_or_insert_default();
    metadata.name = name.into();
    metadata.namespace = "direct".into();
    metadata.uid = name.into();
    config.hostname = name.into();
    for (key, value) in [("name", name), ("namespace", "direct"), ("uid", name)] {
        config.labels.insert(format!("io.kubernetes.pod.{key}"), value.into());
    }
    config.log_directory = runtime.dir.join("direct").join(name).to_string_lossy().into_owned();
    config.linux.mut_or_insert_default().cgroup_parent = format!("{}/direct/pod{name}", runtime.cgroup);
    let sandbox = cri.run_sandbox(&config);
    let container = container(cri, &sandbox, &config, 0);
    let started = started(cri, &container);
    Direct { sandbox, config, container, begun, started }
}

/// A further container in a sandbox, started.
pub fn container(cri: &mut Cri, sandbox: &str, config: &PodSandboxConfig, attempt: u32) -> String {
    let mut container = ContainerConfig::new();
    let metadata = container.metadata.mut_or_insert_default();
    metadata.name = "main".into();
    metadata.attempt = attempt;
    container.image.mut_or_insert_default().image = "localhost/trap:1".into();
    container.labels = config.labels.clone();
    container.labels.insert("io.kubernetes.container.name".into(), "main".into());
    container.log_path = format!("{attempt}.log");
    let id = cri.create_container(sandbox, &container, config);
    cri.start_container(&id);
    id
}

/// When a container started, nanoseconds since the epoch.
pub fn started(cri: &mut Cri, id: &str) -> i64 {
    cri.container_status(id).expect("ContainerStatus").status.started_at
}
